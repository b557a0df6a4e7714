/* SPDX-License-Identifier: Apache-2.0 */
/* timeout: 120 */
/* The graph that stands in a plan of real ops: equal to the one that was planned, for every geometry; and what a plan
 * that was tampered with is refused for. */
#include "plan/same_graph.h"

#include "core/json.h"
#include "graph/geometry.h"
#include "graph/model.h"
#include "plan/plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static graph *geometry_graph(const char *name, bool sample) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    const geometry *at = geometry_table;
    while (at->name && strcmp(at->name, name) != 0) at++;
    json_t *config = NULL;
    graph *g = NULL;
    if (!at->name || json_parse(name, at->config, strlen(at->config), &config, &err) != KEEL_OK ||
        model_build(config, name, &(model_options){.layer_last = -1, .sample = sample}, &g, &err) != KEEL_OK)
        fail_msg("%s: %s", name, err.detail);
    json_decref(config);
    return g;
}

static plan *planned(const graph *g, const char *arch) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    plan *p = NULL;
    static const char *const whole[] = {"chain"}; /* so that the plan's graph is the one given */
    plan_options o = {.arch = arch, .workers = 7, .m_max = 3, .max_seq = 200, .allow_absent = true, .levers = whole};
    o.n_levers = 1;
    if (plan_build(g, &o, &p, &err) != KEEL_OK) fail_msg("%s", err.detail);
    return p;
}

static void every_geometry_comes_back(void **state) {
    (void)state;
    for (const geometry *at = geometry_table; at->name; at++) {
        for (int arch = 0; arch < 2; arch++) {
            graph *g = geometry_graph(at->name, arch == 1), *again = NULL;
            plan *p = planned(g, arch ? "sm_90a" : "cpu"), *q = NULL;
            buf b = {0};
            keel_error err = KEEL_ERROR_INITIALIZER;
            if (plan_write(p, &b, &err) != KEEL_OK || plan_read("a.plan", b.data, b.len, &q, &err) != KEEL_OK ||
                plan_graph(q, &again, &err) != KEEL_OK)
                fail_msg("%s: %s", at->name, err.detail);
            const char *found = graph_difference(g, again);
            if (*found) fail_msg("%s: %s", at->name, found);
            assert_int_equal(p->params_bytes, q->params_bytes);
            assert_memory_equal(p->params, q->params, p->params_bytes);
            assert_memory_equal(p->costs, q->costs, p->n_tasks * sizeof *p->costs);
            graph_close(g);
            graph_close(again);
            plan_close(p);
            plan_close(q);
            buf_free(&b);
        }
    }
}

/* ---- tampered plans ------------------------------------------------------------------------------ */

static plan_instance *instance_of(plan *p, const char *name) {
    for (uint32_t i = 0; i < p->n_instances; i++) {
        if (strcmp(p->instances[i].name, name) == 0) return &p->instances[i];
    }
    fail_msg("no instance %s", name);
    return NULL;
}

static uint32_t buffer_at(const plan *p, const char *name) {
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        if (strcmp(p->buffers[i].name, name) == 0) return i;
    }
    fail_msg("no buffer %s", name);
    return 0;
}

static plan_buffer *buffer_of(plan *p, const char *name) { return &p->buffers[buffer_at(p, name)]; }

static void resize(plan *p, const char *name, int dim, int64_t size) {
    plan_buffer *b = buffer_of(p, name);
    b->bytes = b->bytes / (uint64_t)b->dim[dim] * (uint64_t)size;
    b->dim[dim] = size;
}

static graph_attr *attr_of(plan *p, const char *instance, const char *name) {
    plan_instance *i = instance_of(p, instance);
    for (uint32_t k = 0; k < i->n_attrs; k++) {
        if (strcmp(p->attrs[i->attr_first + k].name, name) == 0) return &p->attrs[i->attr_first + k];
    }
    fail_msg("%s has no attribute %s", instance, name);
    return NULL;
}

/* Slot of output 0. */
static uint32_t *out_of(plan *p, const char *name) {
    plan_instance *i = instance_of(p, name);
    return &i->buffer[i->op->max_in + i->op->max_weights];
}

static void swap(uint32_t *a, uint32_t *b) {
    uint32_t t = *a;
    *a = *b;
    *b = t;
}

static void attr_gone(plan *p) {
    attr_of(p, "l1.attn", "q_heads")->name = "eps"; /* which it has, or not; q_heads is required */
}
static void attr_alien(plan *p) { attr_of(p, "l1.attn", "q_heads")->name = "volume"; }
static void attr_nan(plan *p) { attr_of(p, "l1.attn", "q_heads")->value = (double)NAN; }
static void attr_other(plan *p) { attr_of(p, "l1.attn", "q_heads")->value *= 2; }
static void attr_twice(plan *p) { attr_of(p, "l1.attn", "kv_heads")->name = "q_heads"; }
static void wide_weight(plan *p) { resize(p, "model.layers.1.mlp.gate_proj.weight", 1, 65); }
static void long_weight(plan *p) { resize(p, "model.layers.1.mlp.gate_proj.weight", 0, 176); }
static void wide_output(plan *p) {
    resize(p, "l1.mlp.act", 1, 64);
    buffer_of(p, "l1.mlp.act")->offset = 0;
}
static void weight_dtype(plan *p) {
    plan_buffer *b = buffer_of(p, "model.layers.1.mlp.gate_proj.weight");
    b->dtype = DTYPE_I32;
    b->bytes *= 2;
}
static void rows_gone(plan *p) { buffer_of(p, "l1.mlp.act")->rows = 0; }
static void rows_of_logits(plan *p) { buffer_of(p, "l1.mlp.act")->rows = GRAPH_M_LOGIT; }
static void weight_as_input(plan *p) {
    plan_instance *i = instance_of(p, "l1.mlp.gate_proj");
    swap(&i->buffer[0], &i->buffer[i->op->max_in]);
}
static void input_gone(plan *p) { instance_of(p, "l1.mlp.gate_proj")->buffer[0] = KP_NONE; }
static void weight_gone(plan *p) {
    plan_instance *i = instance_of(p, "l1.mlp.gate_proj");
    i->buffer[i->op->max_in] = KP_NONE;
}
static void output_gone(plan *p) { *out_of(p, "l1.mlp.gate_proj") = KP_NONE; }
static void output_twice(plan *p) { *out_of(p, "l1.mlp.up_proj") = *out_of(p, "l1.mlp.gate_proj"); }
static void output_late(plan *p) { swap(out_of(p, "l0.mlp.act"), out_of(p, "l1.mlp.act")); }
static void reads_ahead(plan *p) { instance_of(p, "l0.mlp.act")->buffer[0] = *out_of(p, "l1.mlp.gate_proj"); }
static void scratch_as_input(plan *p) {
    instance_of(p, "l0.mlp.act")->buffer[0] = p->n_buffers - 1;
    assert_int_equal(p->buffers[p->n_buffers - 1].kind, BUFFER_SCRATCH);
}
static void external_output(plan *p) { buffer_of(p, "l1.mlp.act")->external = true; }
static void early_scratch(plan *p) {
    buffer_of(p, "l1.mlp.act")->kind = BUFFER_SCRATCH;
    buffer_of(p, "l1.mlp.act")->rows = 0;
}
static void task_past_end(plan *p) {
    for (uint32_t q = 0; q < p->n_phases; q++) {
        if (&p->instances[p->phases[q].instance] == instance_of(p, "l1.mlp.gate_proj"))
            p->tasks[p->phases[q].first_task + p->phases[q].n_tasks - 1].hi++;
    }
}

typedef struct tampering {
    const char *what, *where;
    void (*make)(plan *p);
    keel_status status;
} tampering;

static const tampering tamperings[] = {
    {"l1.attn", "", attr_gone, KEEL_REFUSED},
    {"l1.attn", "no attribute volume", attr_alien, KEEL_REFUSED},
    {"l1.attn", "no attribute q_heads, or it stands twice or is no number", attr_nan, KEEL_REFUSED},
    {"l1.attn", "", attr_other, KEEL_REFUSED},
    {"l1.attn", "q_heads, or it stands twice", attr_twice, KEEL_REFUSED},
    {"l1.mlp.gate_proj", "", wide_weight, KEEL_REFUSED},
    {"l1.mlp.gate_proj", "has not the shape", long_weight, KEEL_REFUSED},
    {"l1.mlp.act", "has not the shape", wide_output, KEEL_REFUSED},
    {"l1.mlp.gate_proj", "is of type I32", weight_dtype, KEEL_REFUSED},
    {"l1.mlp.act", "has not the shape", rows_gone, KEEL_REFUSED},
    {"l1.mlp.act", "has not the shape", rows_of_logits, KEEL_REFUSED},
    {"l1.mlp.gate_proj", "reads model.layers.1.mlp.gate_proj.weight before", weight_as_input, KEEL_REFUSED},
    {"l1.mlp.gate_proj", "input 0 is not bound", input_gone, KEEL_REFUSED},
    {"l1.mlp.gate_proj", "weight 0 is not bound", weight_gone, KEEL_REFUSED},
    {"l1.mlp.gate_proj", "output 0 is not bound", output_gone, KEEL_REFUSED},
    {"l1.mlp.up_proj", "is made twice", output_twice, KEEL_REFUSED},
    {"l0.mlp.down_proj", "reads l0.mlp.act before any op has made it", output_late, KEEL_REFUSED},
    {"l0.mlp.act", "reads l1.mlp.gate_proj before any op has made it", reads_ahead, KEEL_REFUSED},
    {"l0.mlp.act", "input 0 is no tensor of the graph", scratch_as_input, KEEL_REFUSED},
    {"l1.mlp.act", "is made twice", external_output, KEEL_REFUSED},
    {"scratch must stand behind all tensors", "", early_scratch, KEEL_REFUSED},
    {"l1.mlp.gate_proj", "past the end of a tensor", task_past_end, KEEL_REFUSED},
};

/* Each through the file, as it would come from elsewhere. */
static void tampered_plans_are_refused_by_name(void **state) {
    (void)state;
    graph *g = geometry_graph("tiny-qwen3", false);
    for (size_t i = 0; i < sizeof tamperings / sizeof *tamperings; i++) {
        plan *p = planned(g, "cpu"), *q = NULL;
        buf b = {0};
        keel_error err = KEEL_ERROR_INITIALIZER;
        tamperings[i].make(p);
        if (plan_write(p, &b, &err) != KEEL_OK) fail_msg("%s", err.detail);
        keel_status s = plan_read("a.plan", b.data, b.len, &q, &err);
        if (s != tamperings[i].status || strncmp(err.detail, "a.plan: ", 8) != 0 ||
            !strstr(err.detail, tamperings[i].what) || !strstr(err.detail, tamperings[i].where))
            fail_msg("%zu, %s %s: %s: %s", i, tamperings[i].what, tamperings[i].where, keel_status_name(s), err.detail);
        assert_null(q);
        plan_close(p);
        buf_free(&b);
    }
    graph_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_geometry_comes_back),
        cmocka_unit_test(tampered_plans_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
