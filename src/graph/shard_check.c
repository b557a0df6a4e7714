/* SPDX-License-Identifier: Apache-2.0 */
/* The check of a rank's graph: everything is derived anew from the rules at the weights and the ops, nothing is taken
 * from how graph_shard got there. What the ranks' shapes are slices of, only the checkpoint knows: binding compares. */
#include "graph/shard.h"

#include "core/mem.h"
#include "graph/place.h"

#include <string.h>

typedef struct checker {
    const graph *g;
    placement *place; /* [n_tensors + 1] as derived */
    int *readers;     /* [n_tensors + 1] of a partial sum, by slot */
    int *residual;    /* [n_tensors + 1] what a collective added beside the sum; 0 nothing */
    place_findings found;
} checker;

#define FINDING(c, op, fmt, ...)                                                                                       \
    place_finding(&(c)->found, "op %s (%s): " fmt, (op)->name, (op)->desc->name, __VA_ARGS__)

static void take_places(checker *c, const graph_op *op, int index, op_places *p) {
    for (int i = 0; i < op->n_in; i++) {
        const graph_tensor *t = graph_tensor_at(c->g, op->in[i]);
        if (t->producer >= index) FINDING(c, op, "reads %s before it is made", t->name);
        p->in[i] = c->place[op->in[i]];
        c->readers[op->in[i]] += p->in[i] == PLACE_PARTIAL;
    }
    for (int i = 0; i < op->n_in; i++) {
        if (graph_tensor_at(c->g, op->in[i])->kind == TENSOR_CACHE) p->in[i] = c->place[op->in[i]] = p->in[0];
    }
    for (int i = 0; i < op->n_weights; i++) {
        if (op->weight[i]) p->weight[i] = graph_tensor_at(c->g, op->weight[i])->shard;
    }
}

static const char *slot_name(const char *const *names, int i) { return names[i] ? names[i] : "tensor"; }

/* An op whose output is a summand: what is whole on every rank would be in every summand. */
static void check_summand(checker *c, const graph_op *op, const op_places *p) {
    const op_desc *desc = op->desc;
    int n = c->found.n;
    for (int i = 0; i < op->n_in; i++) {
        if (!op->in[i] || p->in[i] != PLACE_WHOLE) continue;
        FINDING(c, op, "the %s %s would be added %u times: every rank's partial sum has it; the allreduce must add it",
                slot_name(desc->in_name, i), graph_tensor_at(c->g, op->in[i])->name, c->g->tp);
    }
    for (int i = 0; i < op->n_weights; i++) {
        if (!op->weight[i] || p->weight[i] != SHARD_REP) continue;
        FINDING(c, op, "the %s %s would be added %u times: every rank's partial sum has it; the allreduce must add it",
                slot_name(desc->weight_name, i), graph_tensor_at(c->g, op->weight[i])->name, c->g->tp);
    }
    bool own_kind = desc->partial_kind && strcmp(desc->partial_kind, desc->name) == 0;
    if (n == c->found.n && !own_kind) {
        FINDING(c, op, "its output is a partial sum; that is %s's to make",
                desc->partial_kind ? desc->partial_kind : "another op");
    }
}

/* A sum of what a collective made and of what that collective has added already. */
static void check_residuals(checker *c, const graph_op *op) {
    if (op->desc->collective && op->n_in > 1) {
        for (int i = 0; i < op->n_out; i++) c->residual[op->out[i]] = op->in[1];
    }
    if (op->desc->place != place_sum) return;
    for (int i = 0; i < op->n_in; i++) {
        int added = c->residual[op->in[i]];
        for (int k = 0; added && k < op->n_in; k++) {
            if (op->in[k] != added) continue;
            FINDING(c, op, "the residual %s would be added 2 times: %s has it already",
                    graph_tensor_at(c->g, added)->name, graph_tensor_at(c->g, op->in[i])->name);
        }
    }
}

/* The op's own shape rule, over the shapes that stand there. */
static void check_shapes(checker *c, const graph_op *op) {
    graph_tensor out[GRAPH_OUT] = {{0}};
    keel_error why = KEEL_ERROR_INITIALIZER;
    if (op->desc->infer(c->g, op, out, &why) != KEEL_OK) {
        FINDING(c, op, "the shapes of rank %u of %u do not fit: %s", c->g->rank, c->g->tp, why.detail);
        return;
    }
    for (int i = 0; i < op->n_out; i++) {
        const graph_tensor *t = graph_tensor_at(c->g, op->out[i]);
        if (t->rank == out[i].rank && memcmp(t->dim, out[i].dim, sizeof t->dim) == 0) continue;
        FINDING(c, op, "its output %s is [., %lld], by its shape rule [., %lld]", t->name, (long long)t->dim[1],
                (long long)out[i].dim[1]);
    }
}

static void check_op(checker *c, int index) {
    const graph_op *op = &c->g->ops[index];
    op_places p = {0};
    take_places(c, op, index, &p);
    const char *wrong = place_op(op, &p);
    if (wrong) FINDING(c, op, "at W = %u: %s (%s)", c->g->tp, wrong, place_describe(c->g, op, &p).text);
    if (!wrong && p.out[0] == PLACE_PARTIAL && op->n_out) check_summand(c, op, &p);
    check_residuals(c, op);
    check_shapes(c, op);
    for (int i = 0; i < op->n_out; i++) c->place[op->out[i]] = p.out[i];
}

static void check_tensor(checker *c, int id) {
    const graph_tensor *t = graph_tensor_at(c->g, id);
    if (t->place != PLACE_WHOLE && t->place != c->place[id]) { /* a graph that comes from a plan says nothing */
        place_finding(&c->found, "tensor %s: said to be %s, but by the rules it is %s", t->name,
                      placement_name(t->place), placement_name(c->place[id]));
    }
    if (c->place[id] == PLACE_PARTIAL && c->readers[id] != 1) {
        place_finding(&c->found,
                      c->readers[id] ? "tensor %s: the partial sum is read %d times, and must be combined once"
                                     : "tensor %s: no collective combines the partial sum (%d readers)",
                      t->name, c->readers[id]);
    }
}

static keel_status check_world(const graph *g, keel_error *err) {
    if (g->ep && g->tp % g->ep == 0 && g->rank < g->tp) return KEEL_OK;
    return error_set(err, KEEL_REFUSED, "rank %u of W = %u, E = %u: E must divide W, and ranks are below W", g->rank,
                     g->tp, g->ep);
}

static void check_graph(checker *c) {
    const graph *g = c->g;
    for (int i = 0; i < g->n_ops && g->tp > 1; i++) check_op(c, i);
    for (int id = 1; id <= g->n_tensors; id++) check_tensor(c, id);
    if (g->logits && c->place[g->logits] != PLACE_WHOLE) {
        place_finding(&c->found, "the logits %s are %s; every rank must have all of them",
                      graph_tensor_at(g, g->logits)->name, placement_name(c->place[g->logits]));
    }
}

keel_status graph_check_placement(const graph *rank_graph, keel_error *err) {
    KEEL_TRY(check_world(rank_graph, err));
    checker c = {.g = rank_graph, .found = {.err = err}};
    size_t n = (size_t)rank_graph->n_tensors + 1;
    c.place = mem_calloc(n, sizeof *c.place);
    c.readers = mem_calloc(n, sizeof *c.readers);
    c.residual = mem_calloc(n, sizeof *c.residual);
    keel_status status = KEEL_OK;
    if (!c.place || !c.readers || !c.residual) {
        status = KEEL_NOMEM_AT(err, "checking placements");
    } else {
        check_graph(&c);
        status = place_verdict(&c.found);
    }
    mem_free(c.place);
    mem_free(c.readers);
    mem_free(c.residual);
    return status;
}
