/* SPDX-License-Identifier: Apache-2.0 */
/* mbarrier objects as the PTX manual has them, and the bulk copies that land on them.
 * A barrier's word: bits 0-19 arrivals still missing, 20-39 arrivals of a phase, 40 the phase's parity, 41-61 bytes
 * still to land (two's complement), 62-63 the mark of a barrier that was initialised. */
#include "emu.h"

#include <stdio.h>
#include <string.h>

enum { COUNT_BITS = 20, TX_BITS = 21, COUNT_MOST = (1 << COUNT_BITS) - 1, TX_MOST = (1 << (TX_BITS - 1)) - 1 };
#define MARK 2u

typedef struct state {
    unsigned missing, count, parity;
    int tx;
} state;

static state unpack(uint64_t w) {
    int tx = (int)(w >> 41 & ((1u << TX_BITS) - 1));
    return (state){.missing = (unsigned)(w & COUNT_MOST),
                   .count = (unsigned)(w >> COUNT_BITS & COUNT_MOST),
                   .parity = (unsigned)(w >> 40 & 1),
                   .tx = tx > TX_MOST ? tx - (1 << TX_BITS) : tx};
}
static uint64_t pack(state s) {
    return s.missing | (uint64_t)s.count << COUNT_BITS | (uint64_t)s.parity << 40 |
           (uint64_t)((unsigned)s.tx & ((1u << TX_BITS) - 1)) << 41 | (uint64_t)MARK << 62;
}

void emu_mbar_text(const uint64_t *bar, char *text, size_t bytes) {
    char where[128];
    state s = unpack(*bar);
    emu_address_text(bar, where, sizeof where);
    snprintf(text, bytes, "mbarrier in %s: %u of %u arrivals and %d bytes are missing", where, s.missing, s.count,
             s.tx);
}

static state look(const void *bar) {
    if (!emu_in_shared(bar, 8) || (uintptr_t)bar % 8)
        emu_fault("an mbarrier at %p: not 8 aligned bytes of this block's shared memory", bar);
    uint64_t w;
    memcpy(&w, bar, sizeof w);
    if (w >> 62 != MARK) {
        char where[128];
        emu_address_text(bar, where, sizeof where);
        emu_fault("%s is no mbarrier that was initialised (it holds %#llx)", where, (unsigned long long)w);
    }
    return unpack(w);
}

static void wake_triers(emu_block *b, const uint64_t *bar) {
    for (unsigned i = 0; i < b->n_warps; i++) {
        emu_warp *w = &b->warp[i];
        for (uint32_t m = w->parked; m; m &= m - 1) {
            emu_thread *t = &w->thread[__builtin_ctz(m)];
            if (t->state != EMU_TRYING || t->bar != bar) continue;
            t->result = 1;
            emu_wake(w, m & -m);
        }
    }
}

/* Writes the state back; a phase with nothing missing is over. */
static void settle(emu_block *b, uint64_t *bar, state s) {
    bool over = !s.missing && !s.tx;
    if (over) s.missing = s.count, s.parity ^= 1, emu_race_phase(bar);
    *bar = pack(s);
    emu_m.progress++;
    if (over) wake_triers(b, bar);
}

void emu_mbar_init(unsigned long long *bar, unsigned count) {
    if (!emu_in_shared(bar, 8) || (uintptr_t)bar % 8)
        emu_fault("mbarrier.init at %p: not 8 aligned bytes of this block's shared memory", (void *)bar);
    if (!count || count > COUNT_MOST) emu_fault("mbarrier.init with a count of %u", count);
    *bar = pack((state){.missing = count, .count = count});
}

static void expect(state *s, const void *bar, unsigned bytes) {
    char text[256];
    if (bytes > TX_MOST || s->tx + (int)bytes > TX_MOST) {
        emu_mbar_text(bar, text, sizeof text);
        emu_fault("expect_tx of %u bytes overflows: %s", bytes, text);
    }
    s->tx += (int)bytes;
}

void emu_mbar_expect(unsigned long long *bar, unsigned bytes) {
    state s = look(bar);
    expect(&s, bar, bytes);
    *bar = pack(s);
    emu_m.progress++;
}

void emu_mbar_arrive(unsigned long long *bar, unsigned bytes) {
    state s = look(bar);
    if (!s.missing) {
        char text[256];
        emu_mbar_text((const uint64_t *)bar, text, sizeof text);
        emu_fault("an arrival more than a phase has: %s", text);
    }
    expect(&s, bar, bytes);
    s.missing--;
    emu_race_arrive(bar);
    settle(emu_m.warp->block, (uint64_t *)bar, s);
}

unsigned emu_mbar_test(const unsigned long long *bar, unsigned parity) {
    if (parity > 1) emu_fault("test_wait.parity with parity %u", parity);
    if (look(bar).parity == parity) return 0;
    return emu_race_passed(bar), 1;
}

/* try_wait may come back without the phase: sometimes it does, so that loops around it are run. */
unsigned emu_mbar_try(const unsigned long long *bar, unsigned parity) {
    if (parity > 1) emu_fault("try_wait.parity with parity %u", parity);
    if (look(bar).parity != parity) return emu_race_passed(bar), 1;
    if (!emu_m.quiet && emu_random() % 64 == 0) return 0;
    emu_thread *t = emu_m.thread;
    t->state = EMU_TRYING;
    t->bar = (const uint64_t *)bar;
    t->barrier = parity;
    t->result = 0;
    emu_m.warp->parked |= 1u << emu_m.now.lane;
    emu_block_here();
    if (t->result) emu_race_passed(bar);
    return t->result;
}

/* ---- copies --------------------------------------------------------------------------------------- */

void emu_bulk_load(void *to, const void *from, unsigned bytes, unsigned long long *bar) {
    enum { ON_ITS_WAY = 0xfb };
    look(bar);
    if (!bytes || bytes % 16 || (uintptr_t)to % 16 || (uintptr_t)from % 16)
        emu_fault("a bulk copy of %u bytes from %p to %p: all must be multiples of 16", bytes, from, to);
    if (!emu_in_shared(to, bytes))
        emu_fault("a bulk copy of %u bytes to %p: not this block's shared memory", bytes, to);
    if (!emu_inside(from, bytes)) {
        char where[128];
        emu_address_text(from, where, sizeof where);
        emu_fault("a bulk copy of %u bytes from %p: not device memory (%s)", bytes, from, where);
    }
    if (emu_m.n_copies == emu_m.most_copies) emu_fault("%u bulk copies are on their way", emu_m.n_copies);
    memset(to, ON_ITS_WAY, bytes);
    emu_copy *c = &emu_m.copy[emu_m.n_copies++];
    *c = (emu_copy){.block = emu_m.warp->block, .to = to, .from = from, .bytes = bytes, .bar = (uint64_t *)bar};
    emu_race_copy(c, __builtin_return_address(0));
    emu_m.progress++;
}

void emu_copy_land(unsigned i) {
    emu_copy c = emu_m.copy[i];
    emu_m.copy[i] = emu_m.copy[--emu_m.n_copies];
    memcpy(c.to, c.from, c.bytes);
    emu_race_landed(&c);
    state s = unpack(*c.bar);
    s.tx -= (int)c.bytes;
    settle(c.block, c.bar, s);
}
