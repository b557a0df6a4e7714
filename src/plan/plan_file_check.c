/* SPDX-License-Identifier: Apache-2.0 */
/* A decoded plan of any origin: does every length, count, index and offset stay within what it points into? After this
 * the plan can be shown and bound without a fault. Whether it is safe to run is the proof's to say. */
#include "plan/plan_file.h"

#include "core/mem.h"
#include "plan/lever.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

/* Sizes stay below this, so that they are exact as JSON numbers and sums of two do not overflow. */
static const uint64_t size_max = 1ull << 53;
enum {
    SEQ_MAX = 1 << 24,
    PAGE_TOKENS_MAX = 1024,
    LAYERS_MAX = 1 << 20,
    RANKS_MAX = 4096,
    SMEM_ALIGN = 64,
    BUFFER_ALIGN = 64,
};

keel_status plan_file_bad(keel_error *err, keel_status status, const char *file, const char *section, int64_t index,
                          const char *fmt, ...) {
    char text[1024], at[32] = "";
    va_list args;
    va_start(args, fmt);
    if (vsnprintf(text, sizeof text, fmt, args) < 0) text[0] = '\0';
    va_end(args);
    if (index >= 0) snprintf(at, sizeof at, "[%lld]", (long long)index);
    error_put(err, status, "%s: section %s%s: %s; make the plan again with this build's keel plan", file, section, at,
              text);
    return status;
}

bool plan_file_text(const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes;) {
        utf8proc_int32_t point;
        utf8proc_ssize_t n =
            utf8proc_iterate((const utf8proc_uint8_t *)text + i, (utf8proc_ssize_t)(bytes - i), &point);
        if (n < 1 || (point > 0 && point < 0x20) || (point >= 0x7f && point < 0xa0)) return false;
        i += (size_t)n;
    }
    return true;
}

typedef struct checker {
    const char *file, *section;
    const plan *p;
    keel_error *err;
} checker;

#define BAD(c, index, ...) return plan_file_bad((c)->err, KEEL_REFUSED, (c)->file, (c)->section, (index), __VA_ARGS__)

/* 1 … most; more is what a later build may allow. */
static keel_status limit(const checker *c, const char *what, uint64_t value, uint64_t most) {
    if (!value) BAD(c, PLAN_FILE_WHOLE, "%s 0", what);
    if (value <= most) return KEEL_OK;
    return plan_file_bad(c->err, KEEL_REFUSED, c->file, c->section, PLAN_FILE_WHOLE,
                         "%s %llu; this build handles at most %llu", what, (unsigned long long)value,
                         (unsigned long long)most);
}

static keel_status check_header(checker *c) {
    const plan *p = c->p;
    const arch_desc *arch = arch_find(p->arch);
    c->section = "header";
    KEEL_TRY(limit(c, "workers", p->workers, arch->max_workers));
    KEEL_TRY(limit(c, "m_max", p->m_max, KP_M_MAX));
    KEEL_TRY(limit(c, "max_seq", p->max_seq, SEQ_MAX));
    KEEL_TRY(limit(c, "page_tokens", p->page_tokens, PAGE_TOKENS_MAX));
    KEEL_TRY(limit(c, "n_pages", p->n_pages, UINT16_MAX));
    KEEL_TRY(limit(c, "SMEM bytes", (uint64_t)p->n_pages * p->page_bytes, (uint64_t)arch->n_pages * arch->page_bytes));
    KEEL_TRY(limit(c, "ranks", p->tp, RANKS_MAX));
    if (!p->ep || p->tp % p->ep || p->rank >= p->tp)
        BAD(c, PLAN_FILE_WHOLE, "rank %u of %u ranks in %u expert groups", p->rank, p->tp, p->ep);
    if (p->page_bytes % SMEM_ALIGN)
        BAD(c, PLAN_FILE_WHOLE, "page_bytes %u is not a multiple of %d", p->page_bytes, SMEM_ALIGN);
    if (p->layer_first > LAYERS_MAX || p->n_layers > LAYERS_MAX)
        BAD(c, PLAN_FILE_WHOLE, "layers from %u, %u of them", p->layer_first, p->n_layers);
    if (p->vocab > size_max || p->hidden > size_max || p->arena_bytes > size_max || p->symmetric_bytes > size_max)
        BAD(c, PLAN_FILE_WHOLE, "vocab, hidden or the bytes of an arena over 2^53");
    if (p->logits != KP_NONE && (p->logits >= p->n_buffers || (p->buffers[p->logits].kind != BUFFER_ACTIVATION &&
                                                               p->buffers[p->logits].kind != BUFFER_SYMMETRIC))) {
        BAD(c, PLAN_FILE_WHOLE, "logits %u is not an activation among %u buffers", p->logits, p->n_buffers);
    }
    if (!p->n_tasks) BAD(c, PLAN_FILE_WHOLE, "no tasks");
    return KEEL_OK;
}

static keel_status check_levers(checker *c) {
    const plan *p = c->p;
    c->section = "levers";
    for (uint32_t i = 0; i < p->n_levers; i++) {
        const lever_desc *l = lever_table;
        while (l->name && strcmp(l->name, p->levers[i]) != 0) l++;
        if (!l->name) {
            return plan_file_bad(c->err, KEEL_REFUSED, c->file, c->section, i, "lever %s is not one of this build's",
                                 p->levers[i]);
        }
        for (uint32_t j = 0; j < i; j++) {
            if (strcmp(p->levers[i], p->levers[j]) == 0) BAD(c, i, "lever %s stands twice", p->levers[i]);
        }
    }
    return KEEL_OK;
}

static keel_status check_instances(checker *c) {
    const plan *p = c->p;
    uint32_t attrs = 0;
    c->section = "instances";
    for (uint32_t i = 0; i < p->n_instances; i++) {
        const plan_instance *n = &p->instances[i];
        if (n->layer < -1 || n->layer > 2 * LAYERS_MAX) BAD(c, i, "layer %d", n->layer);
        if (n->n_attrs > GRAPH_ATTRS || n->attr_first != attrs || n->n_attrs > p->n_attrs - attrs)
            BAD(c, i, "attributes [%u, +%u); it must begin at %u of %u and hold %d at most", n->attr_first, n->n_attrs,
                attrs, p->n_attrs, GRAPH_ATTRS);
        attrs += n->n_attrs;
        for (int k = 0; k < KP_BUFFERS; k++) {
            if (n->buffer[k] != KP_NONE && n->buffer[k] >= p->n_buffers)
                BAD(c, i, "slot %d: buffer %u of %u", k, n->buffer[k], p->n_buffers);
        }
    }
    if (attrs != p->n_attrs) BAD(c, PLAN_FILE_WHOLE, "they hold %u of %u attributes", attrs, p->n_attrs);
    return KEEL_OK;
}

/* The header's layers are those of the ops. */
static keel_status check_layers(checker *c) {
    const plan *p = c->p;
    int64_t first = INT64_MAX, last = -1;
    c->section = "header";
    for (uint32_t i = 0; i < p->n_instances; i++) {
        int64_t layer = p->instances[i].layer;
        if (layer >= 0 && layer < first) first = layer;
        if (layer > last) last = layer;
    }
    if (last < 0) first = 0;
    if (p->layer_first == first && p->n_layers == last - first + 1) return KEEL_OK;
    if (last < 0) BAD(c, PLAN_FILE_WHOLE, "%u layers from %u on; no op is in a layer", p->n_layers, p->layer_first);
    BAD(c, PLAN_FILE_WHOLE, "%u layers from %u on; the ops are in layers %lld to %lld", p->n_layers, p->layer_first,
        (long long)first, (long long)last);
}

/* Phases cut the tasks into consecutive stretches; a task's instance and body are its phase's. */
static keel_status check_phases(checker *c) {
    const plan *p = c->p;
    uint32_t next = 0;
    c->section = "phases";
    for (uint32_t q = 0; q < p->n_phases; q++) {
        const plan_phase *h = &p->phases[q]; /* instance and phase were checked on reading */
        if (h->first_task != next || !h->n_tasks || h->n_tasks > p->n_tasks - next) {
            BAD(c, q, "tasks [%u, +%u); it must begin at task %u of %u and hold one at least", h->first_task,
                h->n_tasks, next, p->n_tasks);
        }
        for (uint32_t i = next; i < next + h->n_tasks; i++) {
            const kp_task *t = &p->tasks[i];
            const plan_body *b = t->body < p->n_bodies ? &p->bodies[t->body] : NULL;
            if (t->instance != h->instance)
                BAD(c, q, "task %u is of instance %u, its phase of %u", i, t->instance, h->instance);
            if (!b || b->op != p->instances[h->instance].op || b->phase != h->phase)
                BAD(c, q, "task %u: body %u is not this phase's", i, t->body);
        }
        next += h->n_tasks;
    }
    if (next != p->n_tasks) BAD(c, PLAN_FILE_WHOLE, "they hold %u of %u tasks", next, p->n_tasks);
    return KEEL_OK;
}

/* Bytes that dims and dtype come to; false when that is no number. Scratch counts bytes; the step record is a struct.
 */
static bool shape_bytes(const plan *p, const plan_buffer *b, uint64_t *bytes) {
    uint64_t n = dtype_bytes(b->dtype);
    if (b->rank < 1 || b->rank > GRAPH_RANK || !n) return false;
    for (int i = 0; i < GRAPH_RANK; i++) {
        int64_t least = i >= b->rank || b->kind == BUFFER_SCRATCH ? 0 : 1;
        if (b->dim[i] < least || (i >= b->rank && b->dim[i])) return false;
        if (i < b->rank && __builtin_mul_overflow(n, (uint64_t)b->dim[i], &n)) return false;
    }
    if (b->kind == BUFFER_CACHE) { /* {kv_heads, head_dim} a token, in whole pages */
        uint64_t tokens = ((uint64_t)p->max_seq + p->page_tokens - 1) / p->page_tokens * p->page_tokens;
        if (b->rank != 2 || __builtin_mul_overflow(n, tokens, &n)) return false;
    }
    if (b->kind == BUFFER_STEP) n = sizeof(kp_step);
    if (b->kind == BUFFER_TAGGED) {
        if (b->rank != 2 || b->dim[0] != 1 || b->dim[1] % KP_TAGGED_COLS || b->dtype != DTYPE_BF16) return false;
        n = kp_tagged_bytes((uint64_t)b->dim[1]);
    }
    *bytes = n;
    return n <= size_max;
}

static keel_status check_buffer(const checker *c, uint32_t i) {
    const plan *p = c->p;
    const plan_buffer *b = &p->buffers[i];
    uint64_t want;
    if (!shape_bytes(p, b, &want))
        BAD(c, i, "%s: rank %d, dimensions and dtype %s make no buffer of kind %s", b->name, b->rank,
            dtype_name(b->dtype), buffer_kind_name(b->kind));
    if (b->bytes != want)
        BAD(c, i, "%s: %llu bytes, its shape takes %llu", b->name, (unsigned long long)b->bytes,
            (unsigned long long)want);
    uint64_t room = b->kind == BUFFER_SYMMETRIC ? p->symmetric_bytes
                    : buffer_placed(b->kind)    ? p->arena_bytes
                    : b->kind == BUFFER_CONST   ? p->consts_bytes
                                                : want;
    if (b->offset % BUFFER_ALIGN || b->offset > room || want > room - b->offset) {
        BAD(c, i, "%s: offset %llu, %llu bytes; %llu are there, at multiples of %d", b->name,
            (unsigned long long)b->offset, (unsigned long long)want, (unsigned long long)room, BUFFER_ALIGN);
    }
    if (b->external && b->kind != BUFFER_ACTIVATION) BAD(c, i, "%s: only an activation can be external", b->name);
    bool rows = b->kind == BUFFER_ACTIVATION || b->kind == BUFFER_SYMMETRIC || b->kind == BUFFER_TAGGED;
    if (b->rows && (!rows || b->rows < GRAPH_M_LOGIT || b->rows > GRAPH_M || b->dim[0] != p->m_max))
        BAD(c, i, "%s: row space %d", b->name, b->rows);
    if (b->shard_dim < 0 || b->shard_dim >= b->rank || (b->kind != BUFFER_WEIGHT && (b->shard || b->shard_dim)))
        BAD(c, i, "%s: shard rule %s(dim=%d)", b->name, shard_name(b->shard), b->shard_dim);
    if (b->kind == BUFFER_CONST && b->dtype != DTYPE_F32) BAD(c, i, "%s: constants are F32", b->name);
    if ((b->kind == BUFFER_WEIGHT) != (b->key[0] != '\0'))
        BAD(c, i, "%s: a weight has a key, nothing else has", b->name);
    if (b->first_phase > b->last_phase || b->last_phase >= p->n_phases) {
        BAD(c, i, "%s: lifetime %u to %u of %u phases", b->name, b->first_phase, b->last_phase, p->n_phases);
    }
    return KEEL_OK;
}

static keel_status check_events(checker *c) {
    const plan *p = c->p;
    c->section = "events";
    for (uint32_t i = 0; i < p->n_events; i++) {
        if (p->events[i].phase >= p->n_phases) BAD(c, i, "phase %u of %u", p->events[i].phase, p->n_phases);
    }
    c->section = "waits";
    for (uint32_t i = 0; i < p->n_waits; i++) {
        if (p->waits[i] >= p->n_events) BAD(c, i, "event %u of %u", p->waits[i], p->n_events);
    }
    return KEEL_OK;
}

static keel_status check_task(const checker *c, uint32_t i) {
    const plan *p = c->p;
    const kp_task *t = &p->tasks[i];
    uint64_t smem = (uint64_t)p->n_pages * p->page_bytes;
    if (t->wait_first > p->n_waits || t->n_waits > p->n_waits - t->wait_first)
        BAD(c, i, "waits [%u, +%u) of %u", t->wait_first, t->n_waits, p->n_waits);
    if (t->trigger != KP_NONE && t->trigger >= p->n_events)
        BAD(c, i, "triggers event %u of %u", t->trigger, p->n_events);
    if (t->n_spans > KP_SPANS || t->n_regions > KP_REGIONS)
        BAD(c, i, "%u spans, %u regions; at most %d and %d", t->n_spans, t->n_regions, KP_SPANS, KP_REGIONS);
    for (int s = 0; s < KP_SPANS; s++) {
        const kp_span *k = &t->span[s];
        bool used = s < t->n_spans;
        if (used ? !k->n_pages || (uint32_t)k->first_page + k->n_pages > p->n_pages || k->release_role == KP_CONTROLLER
                 : k->first_page || k->n_pages) {
            BAD(c, i, "span %d: pages [%u, +%u) of %u, released by role %u", s, k->first_page, k->n_pages, p->n_pages,
                k->release_role);
        }
    }
    for (int r = 0; r < KP_REGIONS; r++) {
        uint32_t at = t->region_offset[r];
        if (at % SMEM_ALIGN || at >= (r < t->n_regions ? smem : 1)) {
            BAD(c, i, "region %d at %u of %llu bytes of SMEM, at multiples of %d", r, at, (unsigned long long)smem,
                SMEM_ALIGN);
        }
    }
    return KEEL_OK;
}

static keel_status check_queue(checker *c) {
    const plan *p = c->p;
    c->section = "queue_first";
    for (uint32_t w = 0; w <= p->workers; w++) {
        uint32_t least = w ? p->queue_first[w - 1] : 0, most = w ? p->n_tasks : 0;
        if (p->queue_first[w] < least || p->queue_first[w] > most ||
            (w == p->workers && p->queue_first[w] != p->n_tasks)) {
            BAD(c, w, "%u; it rises from 0 to %u tasks", p->queue_first[w], p->n_tasks);
        }
    }
    c->section = "queue";
    uint8_t *seen = mem_calloc(p->n_tasks, 1);
    if (!seen) return KEEL_NOMEM_AT(c->err, c->file);
    keel_status s = KEEL_OK;
    for (uint32_t i = 0; i < p->n_tasks && s == KEEL_OK; i++) {
        uint32_t task = p->queue[i];
        if (task >= p->n_tasks || seen[task]) {
            s = plan_file_bad(c->err, KEEL_REFUSED, c->file, c->section, i,
                              "task %u of %u, which must stand in the queues exactly once", task, p->n_tasks);
        } else {
            seen[task] = 1;
        }
    }
    mem_free(seen);
    return s;
}

keel_status plan_file_check(const char *file, const plan *p, keel_error *err) {
    checker c = {.file = file, .p = p, .err = err};
    KEEL_TRY(check_header(&c));
    KEEL_TRY(check_levers(&c));
    KEEL_TRY(check_instances(&c));
    KEEL_TRY(check_layers(&c));
    KEEL_TRY(check_phases(&c));
    c.section = "buffers";
    for (uint32_t i = 0; i < p->n_buffers; i++) KEEL_TRY(check_buffer(&c, i));
    KEEL_TRY(check_events(&c));
    c.section = "tasks";
    for (uint32_t i = 0; i < p->n_tasks; i++) KEEL_TRY(check_task(&c, i));
    return check_queue(&c);
}
