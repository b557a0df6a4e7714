/* SPDX-License-Identifier: Apache-2.0 */
/* Between the compiled device text (kx_emu.h) and the emulator that runs it (the fake libcuda.so.1): C11 and C++17. */
#ifndef KEEL_TESTS_EMU_API_H
#define KEEL_TESTS_EMU_API_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(NAME, in a message): what the threads of a warp do together. */
#define EMU_MEET_MAP(X)                                                                                                \
    X(SYNCWARP, "syncwarp")                                                                                            \
    X(SHFL, "shfl")                                                                                                    \
    X(SHFL_XOR, "shfl_xor")                                                                                            \
    X(SHFL_UP, "shfl_up")                                                                                              \
    X(ALL, "all")                                                                                                      \
    X(ANY, "any")                                                                                                      \
    X(BALLOT, "ballot")                                                                                                \
    X(MMA_BF16, "mma (bf16)")
enum emu_meet_kind {
#define X(NAME, text) EMU_MEET_##NAME,
    EMU_MEET_MAP(X)
#undef X
        EMU_MEET_KINDS
};

/* What a thread brings to a collective, and what it takes away. */
typedef struct emu_deal {
    unsigned long long value; /* in: its value, or its test; out: the result */
    const char *file;         /* where it stands in the device text */
    unsigned line;
    unsigned arg;        /* source lane, mask or distance */
    unsigned a[4], b[2]; /* mma: fragments of A and B */
    float *d;            /* mma: fragment of D, added to */
} emu_deal;

/* Where an address must lie. */
enum emu_space { EMU_ANY, EMU_GLOBAL, EMU_SHARED };
enum emu_access { EMU_READ = 0, EMU_WRITE = 1, EMU_ATOMIC = 2, EMU_ATOMIC_WRITE = 3 };
/* What an access of a word orders; a fence between other accesses. */
enum emu_order {
    EMU_UNORDERED = 0,
    EMU_ACQUIRE = 1,
    EMU_RELEASE = 2,
    EMU_ACQ_REL = 3,
    EMU_FENCE = 4,
    EMU_RELAXED_LOAD = 8,
    EMU_RELAXED_STORE = 16
};

/* The running thread. */
typedef struct emu_now {
    unsigned lane, thread, block, threads, blocks;
} emu_now;

typedef struct emu_api {
    emu_now *now;
    void (*meet)(enum emu_meet_kind kind, emu_deal *deal);
    void (*bar_sync)(unsigned barrier, unsigned threads);
    /* An access is about to happen: aligned, inside something that is alive. */
    void (*touch)(const void *p, unsigned bytes, enum emu_space space, enum emu_access access);
    /* After a load of a word that somebody may be waiting to change; `seen` is what was read. */
    void (*polled)(const void *p, const void *seen, unsigned bytes);
    void (*order)(const void *p, enum emu_order what);
    /* A plain access of the device text, where it is compiled to tell (KEEL_EMU_RACES). */
    void (*plain)(const void *p, unsigned bytes, enum emu_access access, const void *pc);
    /* After a store or addition that others may be waiting for. */
    void (*signal)(const void *p, unsigned bytes);
    void (*mbar_init)(unsigned long long *bar, unsigned count);
    void (*mbar_arrive)(unsigned long long *bar, unsigned expect_bytes);
    void (*mbar_expect)(unsigned long long *bar, unsigned bytes);
    unsigned (*mbar_test)(const unsigned long long *bar, unsigned parity);
    unsigned (*mbar_try)(const unsigned long long *bar, unsigned parity);
    void (*bulk_load)(void *to, const void *from, unsigned bytes, unsigned long long *bar);
    void *(*shared)(unsigned id, unsigned bytes, unsigned align, const char *name); /* a block's own */
    void *(*shared_dynamic)(void);
    unsigned (*shared_offset)(const void *p);
    unsigned long long (*now_ns)(void);
    void (*yield)(void);
    /* Ends the launch with a message. */
    void (*fail)(const char *what, const char *file, unsigned line);
} emu_api;

/* A kernel, as the compiled text exports it under the name emu_entry_NAME. */
typedef struct emu_entry {
    void *(*take)(void **parameters); /* copies them */
    void (*call)(void *taken);
    void (*drop)(void *taken);
} emu_entry;

#ifdef __cplusplus
}
#endif
#endif
