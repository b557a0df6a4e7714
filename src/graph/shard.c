/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/shard_internal.h"

#include "core/mem.h"

bool shard_padded(const sharder *s, const graph_op *op, const graph_tensor *w) {
    return op == s->head && s->o.vocab_parallel && w->dim[0] == graph_tensor_at(s->g, s->g->logits)->dim[1];
}

cut shard_cut(const sharder *s, const graph_op *op, const graph_tensor *w) {
    if (shard_padded(s, op, w)) return (cut){SHARD_COL, 0};
    if (op == s->head && w->shard == SHARD_COL) return (cut){SHARD_REP, 0};
    return (cut){w->shard, w->shard_dim};
}

int64_t shard_parts(cut c, int dim, uint32_t tp, uint32_t ep) {
    switch (c.rule) {
    case SHARD_REP:
        break;
    case SHARD_COL:
    case SHARD_ROW:
        return dim == c.dim ? tp : 1;
    case SHARD_EP:
        return dim == 0 ? ep : dim == c.dim ? tp / ep : 1;
    }
    return 1;
}

const graph_op *shard_producer(const graph *g, int id) {
    int op = id ? graph_tensor_at(g, id)->producer : -1;
    return op >= 0 ? &g->ops[op] : NULL;
}

/* Rows of a head that is cut by the vocabulary, without padding; 0 when w is none. */
static int64_t true_rows(const graph *g, const graph_tensor *w) {
    const graph_op *gather = shard_producer(g, g->logits);
    const graph_op *head = gather && gather->desc->collective ? shard_producer(g, gather->in[0]) : NULL;
    for (int i = 0; head && i < head->n_weights; i++) {
        if (head->weight[i] && graph_tensor_at(g, head->weight[i]) == w) return graph_tensor_at(g, g->logits)->dim[1];
    }
    return 0;
}

static shard_slice slice_of(const graph *g, const graph_tensor *w, int dim, uint32_t index) {
    int64_t parts = shard_parts((cut){w->shard, w->shard_dim}, dim, g->tp, g->ep), n = w->dim[dim];
    if (parts == 1) return (shard_slice){-1, 0, n, n};
    int64_t rows = dim == 0 ? true_rows(g, w) : 0;
    return (shard_slice){dim, index * n, n, rows ? rows : parts * n};
}

shard_slice graph_weight_slice(const graph *rank_graph, const graph_tensor *weight) {
    const graph *g = rank_graph;
    if (weight->shard == SHARD_EP) return slice_of(g, weight, 0, g->rank / (g->tp / g->ep));
    return slice_of(g, weight, weight->shard == SHARD_REP ? 0 : weight->shard_dim, g->rank);
}

shard_slice graph_weight_inner_slice(const graph *rank_graph, const graph_tensor *weight) {
    const graph *g = rank_graph;
    if (weight->shard != SHARD_EP || weight->shard_dim == 0)
        return (shard_slice){-1, 0, weight->dim[0], weight->dim[0]};
    return slice_of(g, weight, weight->shard_dim, g->rank % (g->tp / g->ep));
}

static keel_status check_options(const graph *g, shard_options *o, keel_error *err) {
    if (!o->tp) o->tp = 1;
    if (!o->ep) o->ep = 1;
    if (g->tp > 1) return error_set(err, KEEL_RANGE, "the graph is one rank's already, of W = %u", g->tp);
    if (o->rank >= o->tp)
        return error_set(err, KEEL_RANGE, "rank %u: W = %u has the ranks 0-%u", o->rank, o->tp, o->tp - 1);
    if (o->tp % o->ep) return error_set(err, KEEL_RANGE, "E = %u must divide W = %u", o->ep, o->tp);
    if (o->tp == 1) o->vocab_parallel = false;
    if (o->vocab_parallel && !g->logits) {
        return error_set(err, KEEL_REFUSED, "the graph has no logits: no head that could be cut by the vocabulary");
    }
    bool experts = false;
    for (int id = 1; id <= g->n_tensors; id++) {
        const graph_tensor *t = graph_tensor_at(g, id);
        experts |= t->kind == TENSOR_WEIGHT && t->shard == SHARD_EP;
    }
    if (o->ep > 1 && !experts) {
        return error_set(
            err, KEEL_REFUSED,
            "E = %u: no weight of the graph has the shard rule ep, so there are no experts to spread; use E = 1",
            o->ep);
    }
    return KEEL_OK;
}

keel_status graph_shard(const graph *global, const shard_options *options, graph **out, keel_error *err) {
    sharder s = {.g = global, .o = *options, .first_layer = -1, .found = {.err = err}};
    KEEL_TRY(check_options(global, &s.o, err));
    if (s.o.tp > 1) s.head = shard_producer(global, global->logits);
    size_t n = (size_t)global->n_tensors + 1;
    s.place = mem_calloc(n, sizeof *s.place);
    s.users = mem_calloc(n, sizeof *s.users);
    s.map = mem_calloc(n, sizeof *s.map);
    s.partial = mem_calloc((size_t)global->n_ops + 1, sizeof *s.partial);
    keel_status status = KEEL_OK;
    if (!s.place || !s.users || !s.map || !s.partial) status = KEEL_NOMEM_AT(err, "sharding the graph");
    if (status == KEEL_OK) status = shard_place(&s);
    if (status == KEEL_OK) status = shard_build(&s, out, err);
    mem_free(s.place);
    mem_free(s.users);
    mem_free(s.map);
    mem_free(s.partial);
    return status;
}
