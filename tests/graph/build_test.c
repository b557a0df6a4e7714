/* SPDX-License-Identifier: Apache-2.0 */
/* The builder's own rules, on a toy registry that stands in for the real one: the library's is an archive member that
 * is linked only when nobody else defines the symbol. */
#include "core/mem.h"
#include "graph/build.h"
#include "graph/op.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static keel_status infer_step(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    (void)g, (void)op, (void)err;
    out[0] = (graph_tensor){.kind = TENSOR_STEP, .dtype = DTYPE_I32, .rank = 1, .dim = {8}};
    return KEEL_OK;
}

static keel_status infer_same(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    const graph_tensor *x = graph_tensor_at(g, op->in[0]);
    if (x->rank != 2) return error_set(err, KEEL_FORMAT, "%s: input 0 must be [M, n]", op->name);
    for (int i = 0; i < op->desc->n_out; i++) {
        out[i] = (graph_tensor){.dtype = DTYPE_ACT, .rank = 2, .dim = {x->dim[0], x->dim[1]}};
    }
    return KEEL_OK;
}

static keel_status infer_nothing(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    (void)g, (void)op, (void)out, (void)err;
    return KEEL_OK;
}

static const op_desc toy_step = {.name = "step_begin", .n_out = 1, .infer = infer_step};
static const op_desc toy_map = {.name = "map",
                                .attrs = {{"gain", true, 0, "multiplies"}, {"bias", false, 2.5, "is added"}},
                                .min_in = 1,
                                .max_in = 3,
                                .max_weights = 2,
                                .n_out = 1,
                                .phases = {{.name = "a"}, {.name = "b"}},
                                .infer = infer_same};
static const op_desc toy_split = {.name = "split", .min_in = 1, .max_in = 1, .n_out = 2, .infer = infer_same};
static const op_desc toy_argmax = {
    .name = "argmax", .min_in = 1, .max_in = 1, .phases = {{.name = ""}}, .infer = infer_nothing};
static const op_desc toy_broken = {.name = "broken", .n_out = 1, .infer = infer_nothing};
const op_desc *const op_registry[] = {&toy_step, &toy_map, &toy_split, &toy_argmax, &toy_broken, NULL};
const unsigned op_registry_count = 5;

typedef struct toy {
    build b;
    keel_error err;
    int x;
} toy;

static void toy_begin(toy *t) {
    t->err = (keel_error)KEEL_ERROR_INITIALIZER;
    assert_int_equal(build_begin(&t->b, "toy.json", "Toy", DTYPE_BF16, &t->err), KEEL_OK);
    t->x = build_input(&t->b, "x", 8);
    assert_int_not_equal(t->x, 0);
}

static graph *toy_finish(toy *t) {
    graph *g = NULL;
    keel_status s = build_finish(&t->b, &g);
    if (s != KEEL_OK) fail_msg("%s", t->err.detail);
    return g;
}

static void toy_refused(toy *t, keel_status status, const char *words) {
    graph *g = NULL;
    keel_status s = build_finish(&t->b, &g);
    if (s != status || !strstr(t->err.detail, words)) fail_msg("%s: %s", keel_status_name(s), t->err.detail);
    assert_int_equal(t->err.status, status);
    assert_int_equal(strncmp(t->err.detail, "toy.json: ", 10), 0);
    assert_null(g);
}

#define GAIN .attr = {{"gain", 3}}

static void begins_with_the_step_record(void **state) {
    (void)state;
    toy t;
    toy_begin(&t);
    graph *g = toy_finish(&t);
    assert_int_equal(g->n_ops, 1);
    assert_ptr_equal(g->ops[0].desc, &toy_step);
    assert_int_equal(g->step, 1);
    assert_string_equal(graph_tensor_at(g, g->step)->name, "step");
    assert_int_equal(graph_tensor_at(g, g->step)->kind, TENSOR_STEP);
    assert_int_equal(graph_tensor_at(g, g->step)->producer, 0);
    assert_string_equal(g->architecture, "Toy");
    assert_int_equal(graph_tensor_at(g, 0)->rank, 0);
    const graph_tensor *x = graph_tensor_at(g, t.x);
    assert_true(x->external && x->dim[0] == GRAPH_M && x->dim[1] == 8 && x->producer == -1 && x->dtype == DTYPE_ACT);
    graph_close(g);
    graph_close(NULL);
}

static void names_inputs_and_attributes(void **state) {
    (void)state;
    toy t;
    toy_begin(&t);
    int y = build_op(&t.b, (op_spec){.kind = "map", .name = "head", .in = {t.x, BUILD_NONE, t.x}, GAIN});
    t.b.layer = 7;
    int z = build_op(&t.b, (op_spec){.kind = "split", .name = "attn.two", .in = {y}});
    int cache = build_cache(&t.b, "k", 2, 16);
    int last = build_op(&t.b, (op_spec){.kind = "map", .name = "m", .in = {z + 1, BUILD_NONE, BUILD_NONE}, GAIN});
    build_tail(&t.b, last, false);
    assert_int_equal(t.b.layer, 7);
    graph *g = toy_finish(&t);
    const graph_op *head = &g->ops[1], *two = &g->ops[2], *m = &g->ops[3], *tail = &g->ops[4];
    assert_int_equal(head->n_in, 3);
    assert_int_equal(head->in[1], 0);
    assert_int_equal(head->layer, -1);
    assert_true(graph_attr_of(head, "gain") == 3 && graph_attr_of(head, "bias") == 2.5);
    assert_string_equal(graph_tensor_at(g, y)->name, "head");
    assert_string_equal(two->name, "l7.attn.two");
    assert_int_equal(two->layer, 7);
    assert_int_equal(two->n_out, 2);
    assert_string_equal(graph_tensor_at(g, z)->name, "l7.attn.two.0");
    assert_string_equal(graph_tensor_at(g, z + 1)->name, "l7.attn.two.1");
    assert_int_equal(graph_tensor_at(g, z + 1)->producer, 2);
    assert_int_equal(m->n_in, 1);
    assert_string_equal(tail->name, "argmax");
    assert_int_equal(tail->layer, -1);
    assert_int_equal(g->logits, last);
    const graph_tensor *c = graph_tensor_at(g, cache);
    assert_string_equal(c->name, "l7.k");
    assert_true(c->kind == TENSOR_CACHE && c->dim[0] == 2 && c->dim[1] == 16 && c->dtype == DTYPE_ACT);
    assert_int_equal(graph_row_elements(c), 16);
    assert_int_equal(graph_elements(c), 32);
    graph_close(g);
}

static void weights_and_constants(void **state) {
    (void)state;
    toy t;
    toy_begin(&t);
    op_spec op = {.kind = "map", .name = "a", .in = {t.x}, GAIN};
    op.weight[0] = (weight_spec){.key = "", .dim = {0}, .shard = SHARD_REP, .shard_dim = 0};
    op.weight[1] = (weight_spec){.key = "w", .dim = {8, 4}, .shard = SHARD_ROW, .shard_dim = 1};
    build_op(&t.b, op);
    op.name = "b";
    op.weight[0] = op.weight[1];
    op.weight[1] = (weight_spec){.key = "", .dim = {0}, .shard = SHARD_REP, .shard_dim = 0};
    build_op(&t.b, op);
    float values[3] = {1, 2, 3};
    int c = build_const(&t.b, "c", values, 3);
    values[0] = 9;
    graph *g = toy_finish(&t);
    assert_int_equal(g->ops[1].n_weights, 2);
    assert_int_equal(g->ops[1].weight[0], 0);
    assert_int_equal(g->ops[2].n_weights, 1);
    assert_int_equal(g->ops[1].weight[1], g->ops[2].weight[0]);
    const graph_tensor *w = graph_tensor_at(g, g->ops[2].weight[0]), *k = graph_tensor_at(g, c);
    assert_string_equal(w->key, "w");
    assert_true(w->kind == TENSOR_WEIGHT && w->dtype == DTYPE_BF16 && w->rank == 2 && w->dim[0] == 8 && w->dim[1] == 4);
    assert_true(w->shard == SHARD_ROW && w->shard_dim == 1 && w->producer == -1);
    assert_string_equal(shard_name(w->shard), "row");
    assert_int_equal(graph_elements(w), 32);
    assert_true(k->kind == TENSOR_CONST && k->dtype == DTYPE_F32 && k->dim[0] == 3 && k->data[0] == 1);
    graph_close(g);
}

static void refuse_op(op_spec spec, keel_status status, const char *words) {
    toy t;
    toy_begin(&t);
    if (!spec.in[0]) spec.in[0] = t.x;
    assert_int_equal(build_op(&t.b, spec), 0);
    assert_int_equal(build_op(&t.b, (op_spec){.kind = "map", .name = "later", .in = {t.x}, GAIN}), 0);
    build_fail(&t.b, KEEL_IO, "a later error");
    assert_string_equal(build_text(&t.b, "%d", 1), "");
    toy_refused(&t, status, words);
}

static void refuses_ops(void **state) {
    (void)state;
    refuse_op((op_spec){.kind = "nope", .name = "o"}, KEEL_UNSUPPORTED, "step_begin map split argmax broken");
    refuse_op((op_spec){.kind = "map", .name = "o", .in = {77}, GAIN}, KEEL_FORMAT, "no tensor has the id 77");
    refuse_op((op_spec){.kind = "map", .name = "o", .in = {-5}, GAIN}, KEEL_FORMAT, "no tensor has the id -5");
    refuse_op((op_spec){.kind = "map", .name = "o", .in = {1, 1, 1, 1}, GAIN}, KEEL_FORMAT, "1 to 3 inputs, got 4");
    refuse_op((op_spec){.kind = "split", .name = "o", .in = {BUILD_NONE}}, KEEL_FORMAT, "1 to 1 inputs, got 0");
    refuse_op((op_spec){.kind = "map", .name = "o", .in = {1}, GAIN}, KEEL_FORMAT, "o: input 0 must be [M, n]");
    refuse_op((op_spec){.kind = "map", .name = "o"}, KEEL_FORMAT, "needs the attribute \"gain\": multiplies");
    refuse_op((op_spec){.kind = "map", .name = "o", .attr = {{"gain", 1}, {"size", 2}}}, KEEL_FORMAT, "\"size\"");
    refuse_op((op_spec){.kind = "map", .name = "o", .attr = {{"gain", 1}, {"gain", 1}}}, KEEL_FORMAT, "set twice");
    refuse_op((op_spec){.kind = "map", .name = "o", .attr = {{"gain", (double)NAN}}}, KEEL_FORMAT, "finite");
    refuse_op((op_spec){.kind = "broken", .name = "o", .in = {BUILD_NONE}}, KEEL_FORMAT, "output 0 incomplete");
    refuse_op((op_spec){.kind = "split", .name = "o", .weight = {{"w", {1}, SHARD_REP, 0}}}, KEEL_FORMAT,
              "0 to 0 weights, got 1");
}

static void refuse_weight(weight_spec first, weight_spec second, const char *words) {
    refuse_op((op_spec){.kind = "map", .name = "o", GAIN, .weight = {first, second}}, KEEL_FORMAT, words);
}

static void refuses_weights(void **state) {
    (void)state;
    weight_spec w = {.key = "w", .dim = {8, 4}, .shard = SHARD_COL}, other = w;
    other.dim[1] = 5;
    refuse_weight(w, other, "another shape or shard rule");
    other = w;
    other.shard = SHARD_REP;
    refuse_weight(w, other, "another shape or shard rule");
    refuse_weight(w, (weight_spec){.key = "v", .dim = {0}, .shard = SHARD_REP, .shard_dim = 0},
                  "weight v: bad dimensions");
    refuse_weight(w, (weight_spec){.key = "v", .dim = {8, -1}, .shard = SHARD_REP, .shard_dim = 0},
                  "weight v: bad dimensions");
    refuse_weight(w, (weight_spec){.key = "v", .dim = {8}, .shard = SHARD_COL, .shard_dim = 1}, "shard dimension");
    refuse_weight(w, (weight_spec){.key = "v", .dim = {INT64_MAX / 2, 3}, .shard = SHARD_REP, .shard_dim = 0},
                  "weight v: bad dimensions");
}

/* "costarring" and "liquid" have the same FNV-1a 32. */
static void equal_hashes_are_two_names(void **state) {
    (void)state;
    toy t;
    toy_begin(&t);
    build_op(&t.b, (op_spec){.kind = "map", .name = "costarring", .in = {t.x}, GAIN});
    build_op(&t.b, (op_spec){.kind = "map", .name = "liquid", .in = {t.x}, GAIN});
    graph *g = toy_finish(&t);
    assert_int_equal(g->n_ops, 3);
    graph_close(g);
}

static void refuses_twins_and_empty_tensors(void **state) {
    (void)state;
    toy t;
    toy_begin(&t);
    build_input(&t.b, "x", 8);
    toy_refused(&t, KEEL_FORMAT, "two tensors are named x");
    toy_begin(&t);
    build_tail(&t.b, t.x, false);
    build_tail(&t.b, t.x, false);
    toy_refused(&t, KEEL_FORMAT, "the name is taken");
    toy_begin(&t);
    build_input(&t.b, "y", 0);
    toy_refused(&t, KEEL_FORMAT, "input y");
    toy_begin(&t);
    build_cache(&t.b, "k", 1, 0);
    toy_refused(&t, KEEL_FORMAT, "cache k");
    toy_begin(&t);
    build_const(&t.b, "c", NULL, 0);
    toy_refused(&t, KEEL_FORMAT, "constant c");
}

/* Chains of 3000 ops with a weight each, so that every array and table grows several times. */
static keel_status build_chain(int n, graph **out, keel_error *err) {
    build b;
    build_begin(&b, "toy.json", "Toy", DTYPE_F32, err);
    int x = build_input(&b, "x", 8);
    for (b.layer = 0; b.layer < n; b.layer++) {
        op_spec op = {.kind = "map", .name = "m", .in = {x}, GAIN};
        op.weight[0] =
            (weight_spec){.key = build_text(&b, "w%d", b.layer), .dim = {8}, .shard = SHARD_REP, .shard_dim = 0};
        x = build_op(&b, op);
    }
    return build_finish(&b, out);
}

static void ids_stay_as_arrays_grow(void **state) {
    (void)state;
    graph *g = NULL;
    assert_int_equal(build_chain(3000, &g, NULL), KEEL_OK);
    assert_int_equal(g->n_ops, 3001);
    assert_int_equal(g->n_tensors, 2 + 2 * 3000);
    for (int i = 1; i < g->n_ops; i++) {
        const graph_op *op = &g->ops[i];
        assert_int_equal(graph_tensor_at(g, op->out[0])->producer, i);
        if (i > 1) assert_int_equal(op->in[0], g->ops[i - 1].out[0]);
        assert_ptr_equal(graph_tensor_at(g, op->out[0])->name, op->name);
    }
    graph_close(g);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    for (uint64_t n = 1;; n++) {
        graph *g = NULL;
        keel_error err = KEEL_ERROR_INITIALIZER;
        mem_fail_after(n);
        keel_status s = build_chain(300, &g, &err);
        mem_fail_after(0);
        if (s == KEEL_OK) {
            assert_true(n > 8);
            graph_close(g);
            return;
        }
        assert_int_equal(s, KEEL_NOMEM);
        assert_int_equal(err.status, KEEL_NOMEM);
        assert_null(g);
    }
}

static void finds_ops(void **state) {
    (void)state;
    assert_ptr_equal(op_find("split"), &toy_split);
    assert_null(op_find("spli"));
    assert_int_equal(op_code(&toy_argmax), 3);
    assert_int_equal(op_n_phases(&toy_map), 2);
    assert_int_equal(op_n_phases(&toy_argmax), 1);
    assert_int_equal(op_n_phases(&toy_split), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begins_with_the_step_record),
        cmocka_unit_test(names_inputs_and_attributes),
        cmocka_unit_test(weights_and_constants),
        cmocka_unit_test(refuses_ops),
        cmocka_unit_test(refuses_weights),
        cmocka_unit_test(equal_hashes_are_two_names),
        cmocka_unit_test(refuses_twins_and_empty_tensors),
        cmocka_unit_test(ids_stay_as_arrays_grow),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(finds_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
