/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers of tensors and scratch: lifetimes, and which may share bytes. */
#include "plan/tiler_internal.h"

#include "core/mem.h"

#include <string.h>

enum { BUFFER_ALIGN = 256 };

/* A stretch of one of the two arenas and who used it last. */
typedef struct block {
    uint64_t bytes, offset;
    uint32_t tenant; /* buffer */
    bool symmetric;
} block;

/* Tasks of phase `reads` wait for tasks of phase `writes` on every rank. */
typedef struct exchange {
    uint32_t writes, reads;
} exchange;

typedef struct placer {
    const tiler *t;
    plan *p;
    const phase_sets *full;
    uint32_t *of_tensor;      /* graph tensor → buffer */
    uint32_t *scratch_buffer; /* scratch → buffer */
    uint64_t *accessors;      /* [n_buffers][full->words]: phases that touch a buffer */
    block *blocks;
    uint32_t n_blocks;
    uint8_t *symmetric; /* by graph tensor: read by other ranks */
    uint8_t *tagged;    /* by graph tensor: its data carry their epoch */
    exchange *exchanges;
    uint32_t n_exchanges;
} placer;

static uint64_t tensor_bytes(const plan *p, const plan_buffer *b) {
    if (b->kind == BUFFER_CACHE) { /* dims {kv_heads, head_dim}: [pages][kv_heads][page_tokens][head_dim] */
        uint64_t pages = ((uint64_t)p->max_seq + p->page_tokens - 1) / p->page_tokens;
        return pages * (uint64_t)b->dim[0] * p->page_tokens * (uint64_t)b->dim[1] * dtype_bytes(b->dtype);
    }
    if (b->kind == BUFFER_TAGGED) return kp_tagged_bytes((uint64_t)b->dim[1]);
    uint64_t n = 1;
    for (int i = 0; i < b->rank; i++) n *= (uint64_t)b->dim[i];
    return n * dtype_bytes(b->dtype);
}

static buffer_kind kind_of(tensor_kind k) {
    switch (k) {
    case TENSOR_WEIGHT:
        return BUFFER_WEIGHT;
    case TENSOR_CONST:
        return BUFFER_CONST;
    case TENSOR_CACHE:
        return BUFFER_CACHE;
    case TENSOR_STEP:
        return BUFFER_STEP;
    case TENSOR_ACTIVATION:
        break;
    }
    return BUFFER_ACTIVATION;
}

static keel_status add_tensor(placer *m, int id, buf *consts, keel_error *err) {
    plan *p = m->p;
    const graph_tensor *g = graph_tensor_at(m->t->g, id);
    plan_buffer *b = &p->buffers[p->n_buffers];
    *b = (plan_buffer){.kind = kind_of(g->kind), .external = g->external, .rank = g->rank, .first_phase = KP_NONE};
    b->name = arena_strdup(&p->arena, g->name);
    b->key = arena_strdup(&p->arena, g->key ? g->key : "");
    if (!b->name || !b->key) return KEEL_NOMEM_AT(err, "plan: buffers");
    b->dtype = g->dtype == DTYPE_ACT ? m->t->env.arch->act_dtype : g->dtype;
    if (g->kind == TENSOR_ACTIVATION && m->symmetric[id]) b->kind = BUFFER_SYMMETRIC;
    if (m->tagged[id]) b->kind = BUFFER_TAGGED;
    b->rows = g->dim[0] < 0 ? (int32_t)g->dim[0] : 0;
    b->shard = g->shard;
    b->shard_dim = g->shard_dim;
    for (int i = 0; i < g->rank; i++) b->dim[i] = g->dim[i] < 0 ? (int64_t)p->m_max : g->dim[i];
    b->bytes = b->kind == BUFFER_STEP ? sizeof(kp_step) : tensor_bytes(p, b);
    if (b->kind == BUFFER_CONST) {
        buf_align(consts, 64);
        b->offset = consts->len;
        buf_put(consts, g->data, (size_t)b->bytes);
    }
    m->of_tensor[id] = p->n_buffers++;
    return KEEL_OK;
}

/* Buffer numbers into the instances: inputs, weights, outputs, scratch, each in its slots. */
static keel_status bind_instances(placer *m, keel_error *err) {
    plan *p = m->p;
    for (uint32_t i = 0; i < p->n_instances; i++) {
        const graph_op *op = &m->t->g->ops[i];
        const op_desc *d = op->desc;
        uint32_t *at = p->instances[i].buffer;
        int out = d->max_in + d->max_weights, next = out + d->n_out;
        for (int k = 0; k < KP_BUFFERS; k++) at[k] = KP_NONE;
        for (int k = 0; k < op->n_in; k++) at[k] = op->in[k] > 0 ? m->of_tensor[op->in[k]] : KP_NONE;
        for (int k = 0; k < op->n_weights; k++)
            at[d->max_in + k] = op->weight[k] > 0 ? m->of_tensor[op->weight[k]] : KP_NONE;
        for (int k = 0; k < op->n_out; k++) at[out + k] = m->of_tensor[op->out[k]];
        for (uint32_t k = 0; k < m->t->n_scratches; k++) {
            if (m->t->scratches[k].instance != i) continue;
            if (next == KP_BUFFERS)
                return error_set(err, KEEL_REFUSED, "%s: binds more than %d buffers", op->name, KP_BUFFERS);
            at[next++] = m->scratch_buffer[k];
        }
    }
    return KEEL_OK;
}

/* Which phases touch which buffer. */
static void find_lifetimes(placer *m) {
    plan *p = m->p;
    for (uint32_t q = 0; q < p->n_phases; q++) {
        const plan_phase *ph = &p->phases[q];
        for (uint32_t i = m->t->access_first[ph->first_task]; i < m->t->access_first[ph->first_task + ph->n_tasks];
             i++) {
            int tensor = m->t->accesses[i].tensor;
            if (tensor == TILER_STATE) continue;
            uint32_t b = tensor >= SCRATCH_BASE ? m->scratch_buffer[tensor - SCRATCH_BASE] : m->of_tensor[tensor];
            if (p->buffers[b].first_phase == KP_NONE) p->buffers[b].first_phase = q;
            p->buffers[b].last_phase = q;
            m->accessors[(size_t)b * m->full->words + q / 64] |= 1ull << (q % 64);
        }
    }
}

/* Whole set `a` in set `b`? */
static bool subset(const uint64_t *a, const uint64_t *b, uint32_t words) {
    for (uint32_t w = 0; w < words; w++) {
        if (a[w] & ~b[w]) return false;
    }
    return true;
}

/* May buffer `b` take over the bytes of `tenant`? Only if every task that touches the tenant is finished before any
 * task that touches b may start; a later iteration is behind the border. */
static bool may_follow(const placer *m, uint32_t tenant, uint32_t b) {
    uint32_t words = m->full->words;
    return subset(m->accessors + (size_t)tenant * words, m->full->bits + (size_t)m->p->buffers[b].first_phase * words,
                  words);
}

/* The same for what other ranks read. Let P → C be an exchange: a task of C waits for tasks of P on every rank. If all
 * of P starts after every touch of the tenant on its own rank, then after C has started, no rank touches the tenant any
 * more; so b may follow where all of its tasks start after C. */
static bool may_follow_on_ranks(const placer *m, uint32_t tenant, uint32_t b) {
    uint32_t words = m->full->words, first = m->p->buffers[b].first_phase;
    for (uint32_t i = 0; i < m->n_exchanges; i++) {
        const exchange *x = &m->exchanges[i];
        const uint64_t *before = m->full->bits + (size_t)x->writes * words;
        if (phase_set_has(m->full, first, x->reads) && subset(m->accessors + (size_t)tenant * words, before, words))
            return true;
    }
    return false;
}

/* Filled by the caller, or counting up through all iterations, or carrying tags that no other data may look like:
 * shares with nothing. */
static bool keeps_bytes(const placer *m, uint32_t b) {
    uint32_t first = m->t->n_scratches ? m->scratch_buffer[0] : KP_NONE;
    return m->p->buffers[b].external || m->p->buffers[b].kind == BUFFER_TAGGED ||
           (b >= first && m->t->scratches[b - first].monotonic);
}

static void place_buffer(placer *m, uint32_t b, bool no_reuse) {
    plan_buffer *buffer = &m->p->buffers[b];
    uint64_t bytes = (buffer->bytes + BUFFER_ALIGN - 1) / BUFFER_ALIGN * BUFFER_ALIGN;
    uint32_t best = KP_NONE;
    bool alone = no_reuse || keeps_bytes(m, b) || buffer->first_phase == KP_NONE;
    bool symmetric = buffer->kind == BUFFER_SYMMETRIC;
    for (uint32_t i = 0; !alone && i < m->n_blocks; i++) {
        uint32_t tenant = m->blocks[i].tenant;
        if (m->blocks[i].symmetric != symmetric || keeps_bytes(m, tenant) || !may_follow(m, tenant, b)) continue;
        if (symmetric && !may_follow_on_ranks(m, tenant, b)) continue;
        if (best == KP_NONE || (m->blocks[best].bytes < bytes && m->blocks[i].bytes > m->blocks[best].bytes) ||
            (m->blocks[i].bytes >= bytes && m->blocks[i].bytes < m->blocks[best].bytes)) {
            best = i;
        }
    }
    if (best == KP_NONE) {
        best = m->n_blocks++;
        m->blocks[best] = (block){.symmetric = symmetric};
    }
    if (m->blocks[best].bytes < bytes) m->blocks[best].bytes = bytes;
    m->blocks[best].tenant = b;
    buffer->offset = best; /* the block's number until all sizes are known */
}

static void place_buffers(placer *m, bool no_reuse) {
    plan *p = m->p;
    for (uint32_t q = 0; q <= p->n_phases; q++) { /* by first use; those never touched last */
        uint32_t first = q < p->n_phases ? q : KP_NONE;
        for (uint32_t b = 0; b < p->n_buffers; b++) {
            if (buffer_placed(p->buffers[b].kind) && p->buffers[b].first_phase == first) place_buffer(m, b, no_reuse);
        }
    }
    for (uint32_t i = 0; i < m->n_blocks; i++) {
        uint64_t *arena_bytes = m->blocks[i].symmetric ? &p->symmetric_bytes : &p->arena_bytes;
        m->blocks[i].offset = *arena_bytes;
        *arena_bytes += m->blocks[i].bytes;
    }
    for (uint32_t b = 0; b < p->n_buffers; b++) {
        plan_buffer *buffer = &p->buffers[b];
        if (buffer_placed(buffer->kind)) buffer->offset = m->blocks[buffer->offset].offset;
        if (buffer->first_phase == KP_NONE) buffer->first_phase = 0;
    }
}

static keel_status add_scratches(placer *m, keel_error *err) {
    plan *p = m->p;
    for (uint32_t i = 0; i < m->t->n_scratches; i++) {
        const scratch *s = &m->t->scratches[i];
        plan_buffer *b = &p->buffers[p->n_buffers];
        *b = (plan_buffer){.kind = BUFFER_SCRATCH, .dtype = DTYPE_U8, .rank = 1, .first_phase = KP_NONE, .key = ""};
        b->name = arena_printf(&p->arena, "%s.%s", p->instances[s->instance].name, s->name);
        if (!b->name) return KEEL_NOMEM_AT(err, "plan: buffers");
        b->dim[0] = (int64_t)s->bytes;
        b->bytes = s->bytes;
        m->scratch_buffer[i] = p->n_buffers++;
    }
    return KEEL_OK;
}

/* Tensors that other ranks read, and between which phases. */
static void find_exchanges(placer *m) {
    const tiler *t = m->t;
    for (uint32_t q = 0; q < m->p->n_phases && m->p->tp > 1; q++) {
        const plan_phase *ph = &m->p->phases[q];
        for (uint32_t i = t->access_first[ph->first_task]; i < t->access_first[ph->first_task + ph->n_tasks]; i++) {
            const access *a = &t->accesses[i];
            if (!a->ranks || m->symmetric[a->tensor]) continue;
            m->symmetric[a->tensor] = 1;
            uint32_t writer = 0; /* the last phase of the producing instance */
            for (uint32_t p = 0; p < q; p++) {
                if (m->p->phases[p].instance == (uint32_t)graph_tensor_at(t->g, a->tensor)->producer) writer = p;
            }
            m->exchanges[m->n_exchanges++] = (exchange){writer, q};
        }
    }
}

static keel_status make_buffers(placer *m, bool no_reuse, buf *consts, keel_error *err) {
    plan *p = m->p;
    const graph *g = m->t->g;
    find_exchanges(m);
    plan_find_tagged(m->t, m->p, m->tagged);
    for (int id = 1; id <= g->n_tensors; id++) KEEL_TRY(add_tensor(m, id, consts, err));
    KEEL_TRY(add_scratches(m, err));
    KEEL_TRY(bind_instances(m, err));
    find_lifetimes(m);
    place_buffers(m, no_reuse);
    if (consts->len > UINT32_MAX)
        return error_set(err, KEEL_RANGE, "plan: %zu bytes of constants are more than a plan holds", consts->len);
    p->consts = arena_array(&p->arena, consts->len + 1, 1);
    if (consts->failed || !p->consts) return KEEL_NOMEM_AT(err, "plan: constants");
    if (consts->len) memcpy(p->consts, consts->data, consts->len);
    p->consts_bytes = (uint32_t)consts->len;
    p->logits = g->logits > 0 ? m->of_tensor[g->logits] : KP_NONE;
    return KEEL_OK;
}

keel_status plan_make_buffers(const tiler *t, plan *p, const phase_sets *full, bool no_reuse, keel_error *err) {
    placer m = {.t = t, .p = p, .full = full};
    size_t most = (size_t)t->g->n_tensors + t->n_scratches + 1;
    p->buffers = arena_array(&p->arena, most, sizeof *p->buffers);
    m.of_tensor = mem_calloc((size_t)t->g->n_tensors + 1, sizeof *m.of_tensor);
    m.scratch_buffer = mem_calloc((size_t)t->n_scratches + 1, sizeof *m.scratch_buffer);
    m.accessors = mem_calloc(most * full->words, sizeof *m.accessors);
    m.blocks = mem_calloc(most, sizeof *m.blocks);
    m.symmetric = mem_calloc(most, 1);
    m.tagged = mem_calloc(most, 1);
    m.exchanges = mem_calloc(most, sizeof *m.exchanges);
    buf consts = {0};
    keel_status s = p->buffers && m.of_tensor && m.scratch_buffer && m.accessors && m.blocks && m.symmetric &&
                            m.tagged && m.exchanges
                        ? KEEL_OK
                        : KEEL_NOMEM_AT(err, "plan: buffers");
    if (s == KEEL_OK) s = make_buffers(&m, no_reuse, &consts, err);
    buf_free(&consts);
    mem_free(m.of_tensor), mem_free(m.scratch_buffer), mem_free(m.accessors), mem_free(m.blocks);
    mem_free(m.symmetric), mem_free(m.tagged), mem_free(m.exchanges);
    return s;
}
