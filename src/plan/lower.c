/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/lower.h"

#include "core/mem.h"

#include <stdio.h>
#include <string.h>

typedef struct lowering {
    const graph *g;
    const tile_env *env;
    int *reads;          /* by tensor: how many inputs it is */
    int *reader;         /* by tensor: an op that reads it */
    int *fused_at;       /* by op: of a head, 1 + the number of its fused op */
    bool *gone;          /* by op: part of a chain */
    graph_op *fused;     /* their ids are those of g, they have no names yet */
    const char **suffix; /* of their names */
    int n_fused;
} lowering;

/* Ops of g that one fused op replaces. */
typedef struct chain {
    int head, member[GRAPH_OUT], tail; /* tail −1: none */
} chain;

bool plan_fuses(const arch_desc *arch, const char *const *levers, uint32_t n_levers) {
    bool fused = arch->stage_bytes > 0, never = false;
    for (uint32_t i = 0; i < n_levers; i++) {
        fused = fused || strcmp(levers[i], "fused") == 0;
        never = never || strcmp(levers[i], "chain") == 0;
    }
    return fused && !never;
}

static bool is_kind(const graph_op *op, const char *kind) { return strcmp(op->desc->name, kind) == 0; }

/* An op's only output, that nobody reads but `readers` inputs. */
static bool read_by(const lowering *l, int op, int readers) {
    const graph_op *o = &l->g->ops[op];
    return !l->gone[op] && o->n_out == 1 && l->reads[o->out[0]] == readers && o->out[0] != l->g->logits;
}

/* The members, in the order of the graph. */
static bool find_members(const lowering *l, const op_chain *c, chain *k) {
    int n = 0, made = l->g->ops[k->head].out[0];
    for (int i = k->head + 1; i < l->g->n_ops && n < c->members; i++) {
        const graph_op *op = &l->g->ops[i];
        if (op->n_in < 1 || op->in[0] != made) continue;
        bool fits = is_kind(op, c->member) && !l->gone[i] && op->n_in == 1 && op->n_out == 1 && op->n_attrs == 0 &&
                    (c->takes_bias || !op->weight[1]) && (op->n_weights <= 2 || op->desc->scale[0] == 2);
        if (!fits) return false;
        k->member[n++] = i;
    }
    return n == c->members;
}

/* The tail, and the members in the order of its inputs. */
static bool find_tail(const lowering *l, const op_chain *c, chain *k) {
    const graph *g = l->g;
    k->tail = l->reader[g->ops[k->member[0]].out[0]];
    if (k->tail < 0) return false;
    const graph_op *tail = &g->ops[k->tail];
    bool whole = is_kind(tail, c->tail) && !l->gone[k->tail] && tail->n_in >= c->members;
    if (c->takes_tail) whole = whole && tail->n_in == c->members && !tail->n_weights && !tail->n_attrs;
    chain sorted = *k;
    for (int i = 0; i < c->members && whole; i++) {
        sorted.member[i] = tail->in[i] ? graph_tensor_at(g, tail->in[i])->producer : -1;
        bool ours = false;
        for (int m = 0; m < c->members; m++) ours = ours || k->member[m] == sorted.member[i];
        whole = ours && read_by(l, sorted.member[i], 1);
    }
    *k = sorted;
    return whole;
}

/* The fused op of the chain, its ids those of g; false where it has more weights than an op may have. */
static bool fuse(const graph *g, const op_desc *desc, const chain *k, graph_op *out) {
    const op_chain *c = &desc->chain;
    const graph_op *head = &g->ops[k->head];
    int n = head->n_weights;
    if (n + 3 * c->members > GRAPH_WEIGHTS) return false;
    *out = *head;
    out->desc = desc;
    out->notes = "";
    for (int i = 0; i < c->members; i++) {
        const graph_op *member = &g->ops[k->member[i]];
        out->weight[n + i] = member->weight[0];
        out->weight[n + c->members + i] = member->weight[1];
        out->weight[n + 2 * c->members + i] = member->desc->scale[0] ? member->weight[member->desc->scale[0]] : 0;
        out->out[i] = member->out[0];
    }
    out->n_weights = n + c->members;
    for (int i = n; i < n + 3 * c->members; i++) {
        if (out->weight[i]) out->n_weights = i + 1;
    }
    out->n_out = c->members;
    if (c->takes_tail) {
        out->n_out = 1;
        out->out[0] = g->ops[k->tail].out[0];
    }
    return out->n_out == desc->n_out;
}

static bool has_bodies(const tile_env *env, const op_desc *desc) {
    for (int phase = 0; phase < op_n_phases(desc); phase++) {
        if (arch_missing_roles(env->arch, desc, phase)) return false;
    }
    return true;
}

/* HEAD.suffix, unless an op of the graph is called so. */
static bool name_free(const graph *g, const char *head, const char *suffix) {
    size_t bytes = strlen(head);
    for (int i = 0; i < g->n_ops; i++) {
        const char *name = g->ops[i].name;
        if (strncmp(name, head, bytes) == 0 && name[bytes] == '.' && strcmp(name + bytes + 1, suffix) == 0)
            return false;
    }
    return true;
}

/* Whether the op stands for a chain that begins at `head`; then the chain is marked as gone. */
static bool take(lowering *l, const op_desc *desc, int head) {
    const op_chain *c = &desc->chain;
    chain k = {.head = head, .tail = -1};
    graph_op *op = &l->fused[l->n_fused];
    if (!c->head || !is_kind(&l->g->ops[head], c->head) || !read_by(l, head, c->members)) return false;
    if (!find_members(l, c, &k) || (c->tail && !find_tail(l, c, &k)) || !fuse(l->g, desc, &k, op)) return false;
    if (!has_bodies(l->env, desc) || !name_free(l->g, op->name, c->suffix) || !c->fits(l->env, l->g, op)) return false;
    l->gone[head] = true;
    for (int i = 0; i < c->members; i++) l->gone[k.member[i]] = true;
    if (c->takes_tail) l->gone[k.tail] = true;
    l->suffix[l->n_fused] = c->suffix;
    l->fused_at[head] = ++l->n_fused;
    return true;
}

static void find_chains(lowering *l) {
    const graph *g = l->g;
    for (int i = 1; i <= g->n_tensors; i++) l->reader[i] = -1;
    for (int i = 0; i < g->n_ops; i++) {
        for (int k = 0; k < g->ops[i].n_in; k++) {
            int id = g->ops[i].in[k];
            l->reads[id]++;
            l->reader[id] = i;
        }
    }
    for (int i = 0; i < g->n_ops; i++) {
        for (unsigned d = 0; d < op_registry_count && !l->gone[i]; d++) (void)take(l, op_registry[d], i);
    }
}

/* ---- the new graph ------------------------------------------------------------------------------- */

/* Tensors that are made or stand for themselves, in their order. map: by id of g. */
static void put_tensors(const lowering *l, graph *to, int *map) {
    const graph *g = l->g;
    for (int i = 1; i <= g->n_tensors; i++) {
        int maker = graph_tensor_at(g, i)->producer;
        map[i] = maker < 0 || !l->gone[maker];
    }
    for (int f = 0; f < l->n_fused; f++) {
        for (int k = 0; k < l->fused[f].n_out; k++) map[l->fused[f].out[k]] = 1;
    }
    to->tensors[0] = g->tensors[0];
    for (int i = 1; i <= g->n_tensors; i++) {
        if (!map[i]) continue;
        map[i] = ++to->n_tensors;
        to->tensors[to->n_tensors] = g->tensors[i];
    }
}

static void move_ids(int *ids, int n, const int *map) {
    for (int i = 0; i < n; i++) ids[i] = map[ids[i]];
}

static bool put_op(graph *to, const graph_op *op, const char *suffix, const int *map) {
    graph_op *own = &to->ops[to->n_ops];
    *own = *op;
    move_ids(own->in, GRAPH_IN, map);
    move_ids(own->weight, GRAPH_WEIGHTS, map);
    move_ids(own->out, GRAPH_OUT, map);
    for (int k = 0; k < own->n_out; k++) to->tensors[own->out[k]].producer = to->n_ops;
    to->n_ops++;
    if (!suffix) return true;
    size_t bytes = strlen(op->name) + strlen(suffix) + 2;
    char *name = arena_alloc(&to->arena, bytes);
    if (name) snprintf(name, bytes, "%s.%s", op->name, suffix);
    own->name = name;
    return name != NULL;
}

static bool put_graph(const lowering *l, graph *to, int *map) {
    const graph *g = l->g;
    put_tensors(l, to, map);
    for (int i = 0; i < g->n_ops; i++) {
        int f = l->fused_at[i] - 1;
        if (f < 0 && l->gone[i]) continue;
        if (!put_op(to, f < 0 ? &g->ops[i] : &l->fused[f], f < 0 ? NULL : l->suffix[f], map)) return false;
    }
    to->step = map[g->step];
    to->logits = map[g->logits];
    return true;
}

static keel_status make_graph(const lowering *l, graph **out, keel_error *err) {
    const graph *g = l->g;
    graph *to = mem_calloc(1, sizeof *to);
    int *map = mem_calloc((size_t)g->n_tensors + 1, sizeof *map);
    if (to) {
        *to = *g;
        to->arena = (arena){0};
        to->n_tensors = to->n_ops = 0;
        to->cap_tensors = g->n_tensors + 1, to->cap_ops = g->n_ops;
        to->tensors = mem_calloc((size_t)g->n_tensors + 1, sizeof *to->tensors);
        to->ops = mem_calloc((size_t)g->n_ops + 1, sizeof *to->ops);
    }
    bool made = to && map && to->tensors && to->ops && put_graph(l, to, map);
    mem_free(map);
    if (!made) {
        graph_close(to);
        return KEEL_NOMEM_AT(err, "lowering");
    }
    *out = to;
    return KEEL_OK;
}

keel_status plan_lower(const graph *g, const tile_env *env, graph **out, keel_error *err) {
    size_t tensors = (size_t)g->n_tensors + 1, ops = (size_t)g->n_ops + 1;
    lowering l = {.g = g,
                  .env = env,
                  .reads = mem_calloc(tensors, sizeof *l.reads),
                  .reader = mem_calloc(tensors, sizeof *l.reader),
                  .fused_at = mem_calloc(ops, sizeof *l.fused_at),
                  .gone = mem_calloc(ops, sizeof *l.gone),
                  .fused = mem_calloc(ops, sizeof *l.fused),
                  .suffix = mem_calloc(ops, sizeof *l.suffix)};
    *out = NULL;
    keel_status s = KEEL_OK;
    if (!l.reads || !l.reader || !l.fused_at || !l.gone || !l.fused || !l.suffix) {
        s = KEEL_NOMEM_AT(err, "lowering");
    } else {
        find_chains(&l);
        if (l.n_fused) s = make_graph(&l, out, err);
    }
    mem_free(l.reads), mem_free(l.reader), mem_free(l.fused_at), mem_free(l.gone);
    mem_free(l.fused), mem_free(l.suffix);
    return s;
}
