/* SPDX-License-Identifier: Apache-2.0 */
/* timeout: 120 */
/* The plan file: exact round trips, and what happens to files that are cut, damaged or made up. With the argument
 * --write-seeds it writes tests/fuzz/corpus/plan instead, for when the format changes. */
#include "plan/same_graph.h"
#include "plan/toy.h"

#include "core/file.h"
#include "core/mem.h"
#include "core/sha256.h"
#include "plan/plan_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static buf written(const plan *p) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    buf b = {0};
    if (plan_write(p, &b, &err) != KEEL_OK) fail_msg("%s", err.detail);
    return b;
}

/* A copy of the exact size, so that AddressSanitizer sees a read past the end. Accepted: it must come out again as it
 * was, and its views must be whole. */
static keel_status try_bytes(const uint8_t *data, size_t bytes, keel_error *err) {
    uint8_t *exact = malloc(bytes ? bytes : 1);
    plan *p = NULL;
    memcpy(exact, data, bytes);
    *err = (keel_error)KEEL_ERROR_INITIALIZER;
    keel_status s = plan_read("a.plan", exact, bytes, &p, err);
    free(exact);
    if (s != KEEL_OK) {
        assert_null(p);
        assert_int_equal(err->status, s);
        assert_int_equal(strncmp(err->detail, "a.plan: ", 8), 0);
        return s;
    }
    buf again = written(p), view = {0};
    assert_int_equal(again.len, bytes);
    assert_memory_equal(again.data, data, bytes);
    plan_show(p, &view);
    assert_int_equal(plan_json(p, &view, NULL), KEEL_OK);
    assert_false(view.failed);
    buf_free(&again);
    buf_free(&view);
    plan_close(p);
    return s;
}

static void round_trips_are_exact(void **state) {
    (void)state;
    keel_error err;
    for (int i = 0; i < TOY_SEEDS; i++) {
        plan *p = toy_seed(i);
        assert_non_null(p);
        buf b = written(p);
        if (try_bytes(b.data, b.len, &err) != KEEL_OK) fail_msg("%s", err.detail);
        char hash[PLAN_HASH_HEX], hex[SHA256_HEX];
        assert_int_equal(plan_hash(p, hash, NULL), KEEL_OK);
        assert_int_equal(sha256_hex(b.data, b.len, hex, NULL), KEEL_OK);
        assert_string_equal(hash, hex);
        buf_free(&b);
        plan_close(p);
    }
    for (uint64_t seed = 1; seed <= 50; seed++) {
        graph *g = toy_any(seed);
        plan *p = toy_plan(g, &(plan_options){.workers = 3, .max_seq = 70});
        assert_non_null(p);
        buf b = written(p);
        if (try_bytes(b.data, b.len, &err) != KEEL_OK) fail_msg("seed %llu: %s", (unsigned long long)seed, err.detail);
        buf_free(&b);
        plan_close(p);
        graph_close(g);
    }
}

/* What was read is what was planned, field by field where the fields have no pointers. */
static void reading_restores_the_plan(void **state) {
    (void)state;
    plan *p = toy_seed(2), *q = NULL;
    p->tp = 4, p->ep = 2, p->rank = 3, p->vocab_parallel = true; /* the toy ops do not mind */
    p->events[1].ranks = true;
    plan_buffer *shared = &p->buffers[p->logits];
    shared->kind = BUFFER_SYMMETRIC, shared->offset = 256, p->symmetric_bytes = 256 + shared->bytes;
    buf b = written(p);
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (plan_read("a.plan", b.data, b.len, &q, &err) != KEEL_OK) fail_msg("%s", err.detail);
    assert_ptr_equal(p->arch, q->arch);
    assert_string_equal(p->architecture, q->architecture);
    assert_int_equal(p->arena_bytes, q->arena_bytes);
    assert_int_equal(p->logits, q->logits);
    assert_int_equal(p->n_tasks, q->n_tasks);
    assert_memory_equal(p->tasks, q->tasks, p->n_tasks * sizeof *p->tasks);
    assert_memory_equal(p->costs, q->costs, p->n_tasks * sizeof *p->costs);
    assert_memory_equal(p->queue, q->queue, p->n_tasks * sizeof *p->queue);
    assert_memory_equal(p->queue_first, q->queue_first, (p->workers + 1) * sizeof *p->queue_first);
    assert_int_equal(p->n_waits, q->n_waits);
    assert_memory_equal(p->waits, q->waits, p->n_waits * sizeof *p->waits);
    assert_int_equal(p->n_events, q->n_events);
    assert_memory_equal(p->events, q->events, p->n_events * sizeof *p->events);
    assert_int_equal(p->n_phases, q->n_phases);
    assert_memory_equal(p->phases, q->phases, p->n_phases * sizeof *p->phases);
    assert_int_equal(p->params_bytes, q->params_bytes);
    assert_memory_equal(p->params, q->params, p->params_bytes);
    assert_int_equal(p->n_attrs, q->n_attrs);
    for (uint32_t i = 0; i < p->n_attrs; i++) {
        assert_string_equal(p->attrs[i].name, q->attrs[i].name);
        assert_memory_equal(&p->attrs[i].value, &q->attrs[i].value, sizeof p->attrs[i].value);
    }
    assert_int_equal(p->tp, q->tp);
    assert_int_equal(p->ep, q->ep);
    assert_int_equal(p->rank, q->rank);
    assert_int_equal(p->vocab_parallel, q->vocab_parallel);
    assert_int_equal(p->symmetric_bytes, q->symmetric_bytes);
    assert_int_equal(p->consts_bytes, 3 * sizeof(float));
    assert_memory_equal(p->consts, q->consts, p->consts_bytes);
    assert_int_equal(p->n_instances, q->n_instances);
    for (uint32_t i = 0; i < p->n_instances; i++) {
        assert_string_equal(p->instances[i].name, q->instances[i].name);
        assert_ptr_equal(p->instances[i].op, q->instances[i].op);
        assert_int_equal(p->instances[i].layer, q->instances[i].layer);
        assert_int_equal(p->instances[i].attr_first, q->instances[i].attr_first);
        assert_int_equal(p->instances[i].n_attrs, q->instances[i].n_attrs);
        assert_int_equal(p->instances[i].params_offset, q->instances[i].params_offset);
        assert_int_equal(p->instances[i].params_bytes, q->instances[i].params_bytes);
        assert_memory_equal(p->instances[i].buffer, q->instances[i].buffer, sizeof p->instances[i].buffer);
    }
    assert_int_equal(p->n_buffers, q->n_buffers);
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        assert_string_equal(p->buffers[i].name, q->buffers[i].name);
        assert_string_equal(p->buffers[i].key, q->buffers[i].key);
        assert_int_equal(p->buffers[i].kind, q->buffers[i].kind);
        assert_int_equal(p->buffers[i].dtype, q->buffers[i].dtype);
        assert_int_equal(p->buffers[i].rows, q->buffers[i].rows);
        assert_int_equal(p->buffers[i].shard, q->buffers[i].shard);
        assert_int_equal(p->buffers[i].shard_dim, q->buffers[i].shard_dim);
        assert_int_equal(p->buffers[i].offset, q->buffers[i].offset);
        assert_memory_equal(p->buffers[i].dim, q->buffers[i].dim, sizeof p->buffers[i].dim);
    }
    buf_free(&b);
    plan_close(p);
    plan_close(q);
}

/* The graph that went in stands in the plan, and in the plan that was read. */
static void check_graph(const graph *g, const plan *p) {
    graph *again = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (plan_graph(p, &again, &err) != KEEL_OK) fail_msg("%s", err.detail);
    assert_string_equal(graph_difference(g, again), "");
    graph_close(again);
}

static void the_graph_stands_in_the_plan(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        graph *g = seed <= 4 ? toy_decoder((int)seed, 8, 2) : toy_any(seed);
        plan *p = toy_plan(g, &(plan_options){.workers = 3, .max_seq = 70, .m_max = (uint32_t)(1 + seed % 5)}),
             *q = NULL;
        assert_non_null(p);
        check_graph(g, p);
        buf b = written(p);
        assert_int_equal(plan_read("a.plan", b.data, b.len, &q, NULL), KEEL_OK);
        check_graph(g, q);
        buf_free(&b);
        plan_close(p);
        plan_close(q);
        graph_close(g);
    }
}

static void every_truncation_is_refused(void **state) {
    (void)state;
    keel_error err;
    plan *p = toy_seed(0);
    buf b = written(p);
    for (size_t n = 0; n < b.len; n++) {
        if (try_bytes(b.data, n, &err) != KEEL_FORMAT) fail_msg("cut at %zu: %s", n, err.detail);
    }
    buf_put(&b, "", 1);
    assert_int_equal(try_bytes(b.data, b.len, &err), KEEL_FORMAT);
    buf_free(&b);
    plan_close(p);
}

static void every_damaged_byte_is_met(void **state) {
    (void)state;
    keel_error err;
    plan *p = toy_seed(0);
    buf b = written(p);
    uint32_t accepted = 0, tried = 0;
    for (size_t at = 0; at < b.len; at++) {
        uint8_t was = b.data[at];
        const uint8_t values[] = {
            0, 1, 0x7f, 0x80, 0xff, (uint8_t)(was + 1), (uint8_t)(was - 1), (uint8_t)(was ^ 0x10), (uint8_t)~was};
        for (size_t i = 0; i < sizeof values; i++) {
            if (values[i] == was) continue;
            b.data[at] = values[i];
            accepted +=
                try_bytes(b.data, b.len, &err) == KEEL_OK; /* lo, a constant, a letter of a name: another good plan */
            tried++;
        }
        b.data[at] = was;
    }
    assert_true(accepted > 0 && accepted < tried / 2);
    buf_free(&b);
    plan_close(p);
}

/* ---- files that are well made but say wrong things ---------------------------------------------- */

typedef struct wrong {
    const char *what; /* in the message */
    keel_status status;
    void (*make)(plan *p);
} wrong;

#define WRONG(name, statement)                                                                                         \
    static void name(plan *p) { statement; }
static plan_buffer *buffer_of(plan *p, buffer_kind kind) {
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        if (p->buffers[i].kind == kind) return &p->buffers[i];
    }
    abort();
}
WRONG(no_arch, p->arch = "z80")
WRONG(no_workers, p->workers = 0; p->queue_first[0] = 0)
WRONG(many_rows, p->m_max = 17)
WRONG(no_rows, p->m_max = 0)
WRONG(long_seq, p->max_seq = (1u << 24) + 1)
WRONG(no_page_tokens, p->page_tokens = 0)
WRONG(much_smem, p->page_bytes *= 4)
WRONG(odd_pages, p->page_bytes -= 1)
WRONG(far_logits, p->logits = p->n_buffers)
WRONG(step_logits, p->logits = (uint32_t)(buffer_of(p, BUFFER_STEP) - p->buffers))
WRONG(huge_arena, p->arena_bytes = UINT64_MAX)
static const char *unknown_lever[] = {"warp"};
WRONG(no_lever, p->levers = unknown_lever; p->n_levers = 1)
static const op_desc alien = {.name = "alien", .phases = {{.name = ""}}};
WRONG(no_op, p->instances[1].op = &alien)
WRONG(no_phase, p->phases[2].phase = 1)
WRONG(no_body_phase, p->bodies[0].phase = 1)
WRONG(far_instance, p->phases[1].instance = p->n_instances)
WRONG(other_instance, p->tasks[1].instance = 0)
WRONG(far_body, p->tasks[1].body = p->n_bodies)
WRONG(other_body, p->tasks[1].body = 0)
WRONG(phase_gap, p->phases[1].first_task++)
WRONG(phase_empty, p->phases[1].n_tasks = 0)
WRONG(phase_long, p->phases[p->n_phases - 1].n_tasks++)
WRONG(phase_missing, p->n_phases--)
WRONG(attr_gap, p->instances[1].attr_first++)
WRONG(many_attrs, p->instances[1].n_attrs = GRAPH_ATTRS + 1)
WRONG(attr_left, p->instances[p->n_instances - 2].n_attrs--; p->instances[p->n_instances - 1].attr_first--)
WRONG(attr_past, p->instances[p->n_instances - 1].n_attrs++)
WRONG(no_ranks, p->tp = 0)
WRONG(many_ranks, p->tp = 5000)
WRONG(no_groups, p->ep = 0)
WRONG(uneven_groups, p->tp = 4; p->ep = 3)
WRONG(far_rank, p->tp = 2; p->rank = 2)
WRONG(huge_symmetric, p->symmetric_bytes = 1ull << 54)
WRONG(far_buffer, p->instances[1].buffer[3] = p->n_buffers)
WRONG(bad_layer, p->instances[1].layer = -2)
WRONG(more_layers, p->n_layers++)
WRONG(later_layers, p->layer_first++)
WRONG(no_layers, p->n_layers = 0)
WRONG(lost_layer,
      for (uint32_t i = 0; i < p->n_instances; i++) if (p->instances[i].layer == 0) p->instances[i].layer = -1)
WRONG(no_dtype, p->buffers[1].dtype = DTYPE_COUNT)
WRONG(act_dtype, p->buffers[1].dtype = DTYPE_ACT)
WRONG(no_kind, p->buffers[1].kind = BUFFER_KINDS)
WRONG(no_rank, p->buffers[1].rank = 0)
WRONG(deep_rank, p->buffers[1].rank = 5)
WRONG(negative_dim, p->buffers[1].dim[0] = -1)
WRONG(stray_dim, p->buffers[1].dim[3] = 1)
WRONG(overflow_dim, p->buffers[1].dim[0] = INT64_MAX; p->buffers[1].dim[1] = INT64_MAX)
WRONG(wrap_dim, p->buffers[1].dim[0] = 1ll << 62; p->buffers[1].dim[1] = 4; p->buffers[1].bytes = 0)
WRONG(short_bytes, p->buffers[1].bytes--)
WRONG(short_cache, buffer_of(p, BUFFER_CACHE)->bytes /= 2)
WRONG(short_step, buffer_of(p, BUFFER_STEP)->bytes = 4)
WRONG(past_arena, buffer_of(p, BUFFER_ACTIVATION)->offset = p->arena_bytes)
WRONG(wrap_offset, buffer_of(p, BUFFER_SCRATCH)->offset = UINT64_MAX - 63)
WRONG(odd_offset, buffer_of(p, BUFFER_SCRATCH)->offset += 4)
WRONG(past_consts, buffer_of(p, BUFFER_CONST)->offset = 64)
WRONG(weight_offset, buffer_of(p, BUFFER_WEIGHT)->offset = 64)
WRONG(weight_key, buffer_of(p, BUFFER_WEIGHT)->key = "")
WRONG(stray_key, buffer_of(p, BUFFER_CACHE)->key = "k")
WRONG(past_symmetric, buffer_of(p, BUFFER_ACTIVATION)->kind = BUFFER_SYMMETRIC)
WRONG(rows_of_weight, buffer_of(p, BUFFER_WEIGHT)->rows = GRAPH_M)
WRONG(no_row_space, buffer_of(p, BUFFER_ACTIVATION)->rows = -3)
WRONG(other_rows, buffer_of(p, BUFFER_ACTIVATION)->rows = 5)
WRONG(no_shard, buffer_of(p, BUFFER_WEIGHT)->shard = (shard_rule)9)
WRONG(far_shard, buffer_of(p, BUFFER_WEIGHT)->shard_dim = 2)
WRONG(stray_shard, buffer_of(p, BUFFER_CACHE)->shard = SHARD_COL)
WRONG(external_cache, buffer_of(p, BUFFER_CACHE)->external = true)
WRONG(backward_life, buffer_of(p, BUFFER_CACHE)->first_phase = p->n_phases)
WRONG(long_life, buffer_of(p, BUFFER_CACHE)->last_phase = p->n_phases)
WRONG(event_phase, p->events[1].phase = p->n_phases)
WRONG(far_wait, p->waits[1] = p->n_events)
WRONG(far_waits, p->tasks[3].wait_first = p->n_waits; p->tasks[3].n_waits = 1)
WRONG(wrap_waits, p->tasks[3].wait_first = UINT32_MAX; p->tasks[3].n_waits = 2)
WRONG(far_trigger, p->tasks[3].trigger = p->n_events)
WRONG(many_spans, p->tasks[3].n_spans = 4)
WRONG(many_regions, p->tasks[3].n_regions = 5)
WRONG(far_span, p->tasks[3].span[0].first_page = 65535)
WRONG(empty_span, p->tasks[3].span[0].n_pages = 0)
WRONG(stray_span, p->tasks[3].span[2].first_page = 1)
WRONG(controller_span, p->tasks[3].span[0].release_role = KP_CONTROLLER)
WRONG(no_role, p->tasks[3].span[0].release_role = 99)
WRONG(far_region, p->tasks[3].region_offset[0] = p->n_pages * p->page_bytes)
WRONG(odd_region, p->tasks[3].region_offset[1] += 4)
WRONG(stray_region, p->tasks[3].region_offset[3] = 64)
WRONG(twice_queued, p->queue[1] = p->queue[0])
WRONG(far_queued, p->queue[1] = p->n_tasks)
WRONG(late_queue, p->queue_first[0] = 1)
WRONG(falling_queue, p->queue_first[1] = p->n_tasks; p->queue_first[2] = 1)
WRONG(short_queue, p->queue_first[p->workers]--)

static const wrong wrongs[] = {
    {"section header: arch z80", KEEL_REFUSED, no_arch},
    {"workers 0", KEEL_REFUSED, no_workers},
    {"m_max 17", KEEL_REFUSED, many_rows},
    {"m_max 0", KEEL_REFUSED, no_rows},
    {"max_seq 16777217", KEEL_REFUSED, long_seq},
    {"page_tokens 0", KEEL_REFUSED, no_page_tokens},
    {"SMEM bytes", KEEL_REFUSED, much_smem},
    {"page_bytes", KEEL_REFUSED, odd_pages},
    {"logits", KEEL_REFUSED, far_logits},
    {"logits", KEEL_REFUSED, step_logits},
    {"bytes of an arena", KEEL_REFUSED, huge_arena},
    {"section levers[0]: lever warp", KEEL_REFUSED, no_lever},
    {"section instances[1]: op alien", KEEL_REFUSED, no_op},
    {"section phases[2]: op map has no phase \"?\"", KEEL_REFUSED, no_phase},
    {"section bodies[0]: op step_begin has no phase", KEEL_REFUSED, no_body_phase},
    {"section phases[1]: instance", KEEL_REFUSED, far_instance},
    {"section phases[1]: task 1 is of instance 0", KEEL_REFUSED, other_instance},
    {"section phases[1]: task 1: body", KEEL_REFUSED, far_body},
    {"section phases[1]: task 1: body", KEEL_REFUSED, other_body},
    {"section phases[1]: tasks", KEEL_REFUSED, phase_gap},
    {"section phases[1]: tasks", KEEL_REFUSED, phase_empty},
    {"section phases", KEEL_REFUSED, phase_long},
    {"section phases: they hold", KEEL_REFUSED, phase_missing},
    {"section instances[1]: attributes [1, +", KEEL_REFUSED, attr_gap},
    {"section instances[1]: attributes [0, +17)", KEEL_REFUSED, many_attrs},
    {"section instances: they hold", KEEL_REFUSED, attr_left},
    {": attributes [", KEEL_REFUSED, attr_past},
    {"section header: ranks 0", KEEL_REFUSED, no_ranks},
    {"section header: ranks 5000", KEEL_REFUSED, many_ranks},
    {"section header: rank 0 of 1 ranks in 0 expert groups", KEEL_REFUSED, no_groups},
    {"section header: rank 0 of 4 ranks in 3 expert groups", KEEL_REFUSED, uneven_groups},
    {"section header: rank 2 of 2 ranks", KEEL_REFUSED, far_rank},
    {"bytes of an arena", KEEL_REFUSED, huge_symmetric},
    {"section instances[1]: slot 3: buffer", KEEL_REFUSED, far_buffer},
    {"section instances[1]: layer -2", KEEL_REFUSED, bad_layer},
    {"section header: 4 layers from 0 on; the ops are in layers 0 to 2", KEEL_REFUSED, more_layers},
    {"section header: 3 layers from 1 on; the ops are in layers 0 to 2", KEEL_REFUSED, later_layers},
    {"section header: 0 layers from 0 on; the ops are in layers 0 to 2", KEEL_REFUSED, no_layers},
    {"section header: 3 layers from 0 on; the ops are in layers 1 to 2", KEEL_REFUSED, lost_layer},
    {"section buffers[1]: dtype ?", KEEL_REFUSED, no_dtype},
    {"section buffers[1]: ", KEEL_REFUSED, act_dtype},
    {"section buffers[1]: buffer kind ?", KEEL_REFUSED, no_kind},
    {"section buffers[1]: ", KEEL_REFUSED, no_rank},
    {"section buffers[1]: ", KEEL_REFUSED, deep_rank},
    {"section buffers[1]: ", KEEL_REFUSED, negative_dim},
    {"section buffers[1]: ", KEEL_REFUSED, stray_dim},
    {"section buffers[1]: ", KEEL_REFUSED, overflow_dim},
    {"section buffers[1]: ", KEEL_REFUSED, wrap_dim},
    {"section buffers[1]: ", KEEL_REFUSED, short_bytes},
    {"bytes, its shape takes", KEEL_REFUSED, short_cache},
    {"bytes, its shape takes", KEEL_REFUSED, short_step},
    {": offset", KEEL_REFUSED, past_arena},
    {": offset", KEEL_REFUSED, wrap_offset},
    {": offset", KEEL_REFUSED, odd_offset},
    {": offset", KEEL_REFUSED, past_consts},
    {": offset", KEEL_REFUSED, weight_offset},
    {"a weight has a key", KEEL_REFUSED, weight_key},
    {"a weight has a key", KEEL_REFUSED, stray_key},
    {": offset", KEEL_REFUSED, past_symmetric},
    {"row space -1", KEEL_REFUSED, rows_of_weight},
    {"row space -3", KEEL_REFUSED, no_row_space},
    {"row space 5", KEEL_REFUSED, other_rows},
    {"shard rule ?", KEEL_REFUSED, no_shard},
    {"shard rule rep(dim=2)", KEEL_REFUSED, far_shard},
    {"shard rule col(dim=0)", KEEL_REFUSED, stray_shard},
    {"external", KEEL_REFUSED, external_cache},
    {"lifetime", KEEL_REFUSED, backward_life},
    {"lifetime", KEEL_REFUSED, long_life},
    {"section events[1]: phase", KEEL_REFUSED, event_phase},
    {"section waits[1]: event", KEEL_REFUSED, far_wait},
    {"section tasks[3]: waits", KEEL_REFUSED, far_waits},
    {"section tasks[3]: waits", KEEL_REFUSED, wrap_waits},
    {"section tasks[3]: triggers", KEEL_REFUSED, far_trigger},
    {"section tasks[3]: ", KEEL_REFUSED, many_spans},
    {"section tasks[3]: ", KEEL_REFUSED, many_regions},
    {"section tasks[3]: span 0", KEEL_REFUSED, far_span},
    {"section tasks[3]: span 0", KEEL_REFUSED, empty_span},
    {"section tasks[3]: span 2", KEEL_REFUSED, stray_span},
    {"section tasks[3]: span 0", KEEL_REFUSED, controller_span},
    {"section tasks[3]: role ?", KEEL_REFUSED, no_role},
    {"section tasks[3]: region 0", KEEL_REFUSED, far_region},
    {"section tasks[3]: region 1", KEEL_REFUSED, odd_region},
    {"section tasks[3]: region 3", KEEL_REFUSED, stray_region},
    {"section queue[1]", KEEL_REFUSED, twice_queued},
    {"section queue[1]", KEEL_REFUSED, far_queued},
    {"section queue_first[0]", KEEL_REFUSED, late_queue},
    {"section queue_first", KEEL_REFUSED, falling_queue},
    {"section queue_first", KEEL_REFUSED, short_queue},
};

static void wrong_plans_are_refused_by_name(void **state) {
    (void)state;
    keel_error err;
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        plan *p = toy_seed(2);
        wrongs[i].make(p);
        buf b = written(p);
        keel_status s = try_bytes(b.data, b.len, &err);
        if (s != wrongs[i].status || !strstr(err.detail, wrongs[i].what)) {
            fail_msg("%zu, %s: %s: %s", i, wrongs[i].what, keel_status_name(s), err.detail);
        }
        buf_free(&b);
        plan_close(p);
    }
}

static void other_files_are_refused(void **state) {
    (void)state;
    keel_error err;
    plan *p = toy_seed(1);
    buf b = written(p);
    assert_int_equal(try_bytes((const uint8_t *)"PK\3\4 something else", 20, &err), KEEL_FORMAT);
    assert_non_null(strstr(err.detail, "not a plan file"));
    b.data[8] = PLAN_FILE_VERSION + 1;
    assert_int_equal(try_bytes(b.data, b.len, &err), KEEL_UNSUPPORTED);
    assert_non_null(strstr(err.detail, "version 4"));
    buf_free(&b);
    p->instances[1].name = "line\nbreak";
    assert_int_equal(plan_write(p, &b, &err), KEEL_FORMAT);
    buf_free(&b);
    plan_close(p);
}

/* A string nobody uses, at the end of the string table: nothing refers outside, but it is another file for one plan. */
static void a_plan_has_one_file(void **state) {
    (void)state;
    keel_error err;
    plan *p = toy_seed(1);
    buf b = written(p);
    uint8_t *entry = b.data + 24 + 13 * 24; /* of the strings */
    uint64_t end = entry[8] + 256u * entry[9] + 65536u * entry[10] + entry[16] + 256u * entry[17] + 65536u * entry[18];
    assert_true(b.len - end < 8);
    if (b.len == end) { /* no padding to hide it in */
        buf_put(&b, "\0\0\0\0\0\0\0", 8);
        b.data[16] = (uint8_t)(b.data[16] + 8);
        if (b.data[16] < 8) b.data[17]++;
    }
    entry[16]++;
    if (!entry[16]) entry[17]++;
    assert_int_equal(try_bytes(b.data, b.len, &err), KEEL_REFUSED);
    assert_non_null(strstr(err.detail, "is not what the writer"));
    buf_free(&b);
    plan_close(p);
}

static void memory_may_fail_anywhere(void **state) {
    (void)state;
    plan *p = toy_seed(2);
    buf b = written(p);
    uint64_t runs = 0;
    for (int what = 0; what < 4; what++) {
        for (uint64_t n = 1;; n++, runs++) {
            plan *q = NULL;
            buf out = {0};
            keel_error err = KEEL_ERROR_INITIALIZER;
            keel_status s = KEEL_OK;
            mem_fail_after(n);
            if (what == 0) s = plan_read("a.plan", b.data, b.len, &q, &err);
            if (what == 1) s = plan_write(p, &out, &err);
            if (what == 2) s = plan_json(p, &out, &err);
            if (what == 3) plan_show(p, &out), s = out.failed ? KEEL_NOMEM : KEEL_OK;
            mem_fail_after(0);
            plan_close(q);
            buf_free(&out);
            if (s == KEEL_OK) break;
            if (s != KEEL_NOMEM) fail_msg("%d, allocation %llu: %s", what, (unsigned long long)n, err.detail);
        }
    }
    assert_true(runs > 40);
    buf_free(&b);
    plan_close(p);
}

/* ---- the seeds of the fuzzer, which are also what version 4 looked like when it was new --------- */

static void seed_path(int i, char path[1024]) {
    snprintf(path, 1024, "%s/tests/fuzz/corpus/plan/toy-%d", KEEL_SOURCE_DIR, i);
}

static void files_of_version_4_are_read(void **state) {
    (void)state;
    for (int i = 0; i < TOY_SEEDS; i++) {
        char path[1024], *bytes;
        size_t n;
        keel_error err = KEEL_ERROR_INITIALIZER;
        seed_path(i, path);
        if (file_read(path, 1 << 20, &bytes, &n, &err) != KEEL_OK) fail_msg("%s", err.detail);
        if (try_bytes((const uint8_t *)bytes, n, &err) != KEEL_OK) fail_msg("%s: %s", path, err.detail);
        keel_free(bytes);
    }
}

/* What an earlier build wrote: the message says which version it is and what to do. */
static void files_of_version_1_are_refused(void **state) {
    (void)state;
    char *bytes;
    size_t n;
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (file_read(KEEL_SOURCE_DIR "/tests/fuzz/corpus/plan/version-1", 1 << 20, &bytes, &n, &err) != KEEL_OK)
        fail_msg("%s", err.detail);
    assert_int_equal(try_bytes((const uint8_t *)bytes, n, &err), KEEL_UNSUPPORTED);
    assert_non_null(strstr(err.detail, "version 1; this build reads version 4; make the plan again"));
    keel_free(bytes);
}

static int write_seeds(void) {
    for (int i = 0; i < TOY_SEEDS; i++) {
        char path[1024];
        keel_error err = KEEL_ERROR_INITIALIZER;
        plan *p = toy_seed(i);
        buf b = {0};
        seed_path(i, path);
        if (!p || plan_write(p, &b, &err) != KEEL_OK || file_write(path, b.data, b.len, &err) != KEEL_OK) {
            fprintf(stderr, "%s\n", err.detail);
            return 1;
        }
        printf("%s: %zu bytes\n", path, b.len);
        buf_free(&b);
        plan_close(p);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--write-seeds") == 0) return write_seeds();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trips_are_exact),          cmocka_unit_test(reading_restores_the_plan),
        cmocka_unit_test(the_graph_stands_in_the_plan),   cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_damaged_byte_is_met),      cmocka_unit_test(wrong_plans_are_refused_by_name),
        cmocka_unit_test(other_files_are_refused),        cmocka_unit_test(a_plan_has_one_file),
        cmocka_unit_test(memory_may_fail_anywhere),       cmocka_unit_test(files_of_version_4_are_read),
        cmocka_unit_test(files_of_version_1_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
