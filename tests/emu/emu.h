/* SPDX-License-Identifier: Apache-2.0 */
/* The emulator behind the fake libcuda.so.1 (docs/emulator.md). One launch at a time, on one OS thread: every CUDA
 * thread is a fiber, and which one runs next follows from the seed alone. */
#ifndef KEEL_TESTS_EMU_H
#define KEEL_TESTS_EMU_H

#include "emu_api.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    EMU_WARP = 32,
    EMU_MOST_WARPS = 32,
    EMU_BARRIERS = 16,
    EMU_POLLS = 4,
    EMU_MOST_SHARED = 32,
    EMU_STACK = 64 << 10,
    EMU_SHARED_BYTES = 227 << 10, /* what a block of sm_90 may have */
    EMU_CANARY = 4096
};

/* ---- switching (emu_fiber.c) ---------------------------------------------------------------------- */

typedef struct emu_context {
    void *sp;
} emu_context;
/* entry(argument) runs at the first switch to it; it never returns. */
void emu_context_make(emu_context *c, char *stack, size_t bytes, void (*entry)(void *), void *argument);
void emu_context_switch(emu_context *from, const emu_context *to);
/* Return addresses of a context that is not running, innermost first; how many. */
unsigned emu_context_stack(const emu_context *c, void **out, unsigned most);

/* ---- threads, warps, blocks ----------------------------------------------------------------------- */

enum emu_state { EMU_READY, EMU_MEETING, EMU_BARRIER, EMU_TRYING, EMU_POLLING, EMU_LEFT };

typedef struct emu_poll {
    const void *at;
    uint64_t seen[2];
    unsigned hits;
} emu_poll;

typedef struct emu_thread {
    emu_context context;
    char *stack;
    enum emu_state state;
    unsigned result;     /* of a try */
    emu_deal *deal;      /* meeting */
    const uint64_t *bar; /* trying */
    unsigned barrier;    /* at a barrier; the parity of a try */
    emu_poll poll[EMU_POLLS];
    unsigned next_poll;
} emu_thread;

typedef struct emu_block emu_block;
typedef struct emu_warp {
    emu_block *block;
    unsigned index;
    unsigned place;   /* in the list of ready warps, + 1; 0: not there */
    uint32_t ready;   /* threads that can run */
    uint32_t meeting; /* threads at a collective */
    uint32_t parked;  /* threads that try or poll */
    enum emu_meet_kind kind;
    emu_thread thread[EMU_WARP];
} emu_warp;

typedef struct emu_shared {
    unsigned id, offset, bytes;
    const char *name;
} emu_shared;

struct emu_block {
    unsigned index, n_warps, left; /* left: threads */
    bool busy;
    char *shared; /* dynamic, then what the kernel names */
    unsigned shared_used, n_names;
    emu_shared name[EMU_MOST_SHARED];
    struct {
        unsigned threads, come;
    } bar[EMU_BARRIERS];
    emu_warp *warp;
};

/* A bulk copy on its way. */
typedef struct emu_copy {
    emu_block *block;
    void *to;
    const void *from;
    unsigned bytes;
    uint64_t *bar;
    unsigned engine, epoch; /* emu_race.c */
} emu_copy;

typedef struct emu_launch {
    const char *name;
    const emu_entry *entry;
    void *taken;
    unsigned grid, threads, dynamic_bytes, sms, held;
    const char *module_path;
    const void *base; /* where the module lies */
} emu_launch;

/* The machine: what all of it knows of the launch in hand. */
typedef struct emu_machine {
    emu_launch launch;
    emu_now now;
    emu_context scheduler;
    emu_warp *warp;     /* running */
    emu_thread *thread; /* running */
    unsigned quantum;
    emu_block *block; /* [n_blocks] emulated SMs */
    unsigned n_blocks, next_block, blocks_left;
    emu_warp **ready;
    unsigned n_ready;
    emu_copy *copy;
    unsigned n_copies, most_copies;
    uint64_t random;
    uint64_t progress; /* counts what others can see */
    uint64_t clock_reads, clock_ahead;
    struct {
        uint64_t progress, clock_reads;
        unsigned rounds, patience;
    } stuck;         /* when nobody could run last */
    bool host_wrote; /* atomic: a copy to the device happened meanwhile */
    bool quiet;      /* nobody could run: what is looked at again now is for the report */
    bool failed, raced;
} emu_machine;
extern emu_machine emu_m;

uint64_t emu_random(void);
void emu_wake(emu_warp *w, uint32_t lanes);
/* The running thread has set its state: others run until it is ready again. */
void emu_block_here(void);
emu_block *emu_block_here_of(void);

/* Runs a launch to its end. 0, or the driver's error number after a report (emu_report_text). */
int emu_run(const emu_launch *launch);
/* Once, when the process is over with launches. */
void emu_machine_free(void);
void emu_host_wrote(void);

/* ---- barriers and copies (emu_mbar.c) ------------------------------------------------------------- */

void emu_mbar_init(unsigned long long *bar, unsigned count);
void emu_mbar_arrive(unsigned long long *bar, unsigned bytes);
void emu_mbar_expect(unsigned long long *bar, unsigned bytes);
unsigned emu_mbar_test(const unsigned long long *bar, unsigned parity);
unsigned emu_mbar_try(const unsigned long long *bar, unsigned parity);
void emu_bulk_load(void *to, const void *from, unsigned bytes, unsigned long long *bar);
void emu_copy_land(unsigned i);
void emu_mbar_text(const uint64_t *bar, char *text, size_t bytes);

/* ---- memory (emu_memory.c) ------------------------------------------------------------------------ */

void *emu_alloc(size_t bytes);
/* NULL; else what is wrong: not an allocation, or a canary is gone. */
const char *emu_free(void *p);
const char *emu_check_canaries(void);
bool emu_inside(const void *p, size_t bytes);
void emu_touch(const void *p, unsigned bytes, enum emu_space space, enum emu_access access);
void *emu_shared_of(unsigned id, unsigned bytes, unsigned align, const char *name);
void *emu_shared_dynamic(void);
unsigned emu_shared_offset(const void *p);
bool emu_in_shared(const void *p, size_t bytes);
/* per_byte bytes of shadow for each byte of an allocation; NULL outside. */
void *emu_global_shadow(const void *p, size_t bytes, unsigned per_byte);
void emu_clear_shadows(void);
void emu_plain(const void *p, unsigned bytes, enum emu_access access, const void *pc);
/* A name for an address: "shared worker+0x40". */
void emu_address_text(const void *p, char *text, size_t bytes);

/* ---- reports (emu_report.c) ----------------------------------------------------------------------- */

/* The running thread did what no thread may: the launch ends. */
_Noreturn void emu_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Nothing can run any more. */
void emu_report_stuck(void);
const char *emu_report_text(void);
void emu_catch_signals(void);
void emu_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The lines of one place in the module. */
void emu_say_place(uint32_t pc);

/* ---- races (emu_race.c); nothing where KEEL_EMU_RACES is not set --------------------------------- */

extern bool emu_races;
bool emu_race_begin(void);
void emu_race_end(void);
void emu_race_warp_met(emu_warp *w);
void emu_race_order(const void *p, enum emu_order what);
void emu_race_arrive(const void *bar);
void emu_race_phase(const void *bar);
void emu_race_passed(const void *bar);
void emu_race_barrier_come(emu_block *b, unsigned barrier);
void emu_race_barrier_passed(emu_warp *w, unsigned barrier);
void emu_race_access(const void *p, unsigned bytes, enum emu_access access, const void *pc);
void emu_race_copy(emu_copy *c, const void *pc);
void emu_race_landed(const emu_copy *c);

#endif
