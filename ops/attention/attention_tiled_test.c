/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a streamed KV page against the figures of the PTX ISA ("matrix fragments for mma.m16n8k16"), and which
 * split attends to what against a count of positions. */
#include "attention_tiled.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include <cmocka.h>

enum { PAGE = 64, DIM = 128, PAGES = 600 };

/* What thread t finds in pair r, half h of the tile that begins at `tile`. */
static int found(const int *page, kp_u32 tile, kp_u32 t, kp_u32 r, kp_u32 h) { return page[tile + t * 8 + r * 2 + h]; }

/* Elements are numbered by where they belong: position × 1000 + element. */
static void lay_out(kp_u32 dim, int *k, int *v) {
    memset(k, -1, sizeof(int) * PAGE * DIM);
    memset(v, -1, sizeof(int) * PAGE * DIM);
    for (kp_u32 t = 0; t < PAGE; t++) {
        for (kp_u32 e = 0; e < dim; e++) {
            kp_u32 at_k = attention_k_at(dim, t, e), at_v = attention_v_at(dim, t, e);
            assert_true(at_k < PAGE * dim && at_v < PAGE * dim);
            assert_int_equal(k[at_k], -1); /* no two in one place */
            assert_int_equal(v[at_v], -1);
            /* 16 positions are one run */
            assert_int_equal(at_k / (16 * dim), t / 16);
            assert_int_equal(at_v / (16 * dim), t / 16);
            k[at_k] = v[at_v] = (int)(t * 1000 + e);
        }
    }
}

/* B of 16 × 8 (k × n): register i of thread t has n = t / 4 and k = t % 4 × 2 + 8 i, and the one behind it in its upper
 * half. A of 16 × 16: registers 0 … 3 are rows t / 4, t / 4 + 8, t / 4, t / 4 + 8; columns t % 4 × 2, for 2 and 3 eight
 * more, and the one behind. */
static void pages_are_in_the_order_of_the_operands(void **state) {
    (void)state;
    static int k[PAGE * DIM], v[PAGE * DIM];
    for (kp_u32 dim = 16; dim <= DIM; dim += 16) {
        lay_out(dim, k, v);
        for (kp_u32 i = 0; i < PAGE / 16 * (dim / 16) * 32 * 4 * 2; i++) {
            kp_u32 h = i % 2, r = i / 2 % 4, t = i / 8 % 32, tile = i / 256;
            kp_u32 position = tile / (dim / 16) * 16, element = tile % (dim / 16) * 16;
            kp_u32 n = t / 4 + r / 2 * 8, depth = t % 4 * 2 + r % 2 * 8 + h; /* two operands B, one after the other */
            assert_int_equal(found(k, tile * 256, t, r, h), (position + n) * 1000 + element + depth);
            kp_u32 row = t / 4 + r % 2 * 8, column = t % 4 * 2 + r / 2 * 8 + h;
            assert_int_equal(found(v, tile * 256, t, r, h), (position + column) * 1000 + element + row);
        }
    }
}

/* Positions that a pass with the newest position `last` attends to, split by split and stage by stage. */
static void check_pass(const attention_params *p, kp_u32 last) {
    static kp_u8 seen[PAGES * PAGE];
    kp_u32 owners = 0, pages = last / p->page_tokens + 1, live = attention_live_splits(p, last), most = 0, least = ~0u;
    memset(seen, 0, sizeof seen);
    assert_in_range(live, 1, p->splits);
    if (pages <= 8) assert_int_equal(live, 1);
    for (kp_u32 split = 0; split < p->splits; split++) {
        attention_share s = attention_share_of(p, split, last);
        assert_true((s.stages != 0) == (split < live));
        owners += s.owns;
        kp_u32 positions = 0;
        for (kp_u32 i = 0; i < s.stages; i++) {
            attention_stage g = attention_stage_at(p, &s, i);
            kp_u32 from = (split + g.turn * s.n) * p->page_tokens + g.token;
            assert_in_range(g.live, 1, p->stage_tokens);
            assert_true(g.token + g.live <= p->page_tokens);
            for (kp_u32 t = 0; t < g.live; t++) assert_int_equal(seen[from + t]++, 0);
            assert_int_equal(g.fresh, from + g.live == last + 1);
            assert_true(!g.fresh || s.owns);
            assert_true(g.copied <= p->stage_tokens && g.copied % 16 == 0); /* never more than a stage has room for */
            assert_true(g.copied + g.fresh >= g.live && g.copied < g.live - g.fresh + 16);
            positions += g.live;
        }
        if (split < live && positions > most) most = positions;
        if (split < live && positions < least) least = positions;
    }
    assert_int_equal(owners, 1);
    for (kp_u32 t = 0; t <= last; t++) assert_int_equal(seen[t], 1);
    assert_true(most - least <= 2 * p->page_tokens); /* nobody has a page more than another, but for the last one */
}

static void every_position_is_attended_to_once(void **state) {
    (void)state;
    static const kp_u32 shapes[][3] = {/* splits, page, stage */ {1, 64, 32},
                                       {16, 64, 32},
                                       {17, 64, 64},
                                       {3, 16, 16},
                                       {5, 64, 16},
                                       {2, 32, 32},
                                       {64, 64, 32}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        attention_params p = {.splits = shapes[i][0], .page_tokens = shapes[i][1], .stage_tokens = shapes[i][2]};
        for (kp_u32 last = 0; last < 1200; last++) check_pass(&p, last);
        for (kp_u32 page = 20; page < PAGES * PAGE / p.page_tokens && page < 1000; page += 37) {
            check_pass(&p, page * p.page_tokens - 1);
            check_pass(&p, page * p.page_tokens);
        }
        if (p.page_tokens == 64) check_pass(&p, 32767);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_in_the_order_of_the_operands),
        cmocka_unit_test(every_position_is_attended_to_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
