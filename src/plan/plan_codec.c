/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, names and records of the plan file, each stated once for writing and for reading. */
#include "plan/plan_file.h"

#include "core/mem.h"

#include <string.h>

/* ---- numbers ------------------------------------------------------------------------------------ */

uint64_t plan_load_le(const uint8_t *at, unsigned bytes) {
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++) v |= (uint64_t)at[i] << (8 * i);
    return v;
}

static uint64_t io_number(codec *c, uint64_t v, unsigned bytes) {
    uint8_t le[8];
    if (!c->writing) {
        c->in += bytes;
        return plan_load_le(c->in - bytes, bytes);
    }
    for (unsigned i = 0; i < bytes; i++) le[i] = (uint8_t)(v >> (8 * i));
    buf_put(&c->out, le, bytes);
    return v;
}

static void io_u8(codec *c, uint8_t *v) { *v = (uint8_t)io_number(c, *v, 1); }
static void io_u16(codec *c, uint16_t *v) { *v = (uint16_t)io_number(c, *v, 2); }
static void io_u32(codec *c, uint32_t *v) { *v = (uint32_t)io_number(c, *v, 4); }
static void io_i32(codec *c, int32_t *v) { *v = (int32_t)(uint32_t)io_number(c, (uint32_t)*v, 4); }
static void io_u64(codec *c, uint64_t *v) { *v = io_number(c, *v, 8); }
static void io_i64(codec *c, int64_t *v) { *v = (int64_t)io_number(c, (uint64_t)*v, 8); }

static void io_bool(codec *c, bool *v) {
    uint64_t n = io_number(c, *v, 4);
    if (n > 1) CODEC_FAIL(c, KEEL_REFUSED, "a flag of %llu, neither 0 nor 1", (unsigned long long)n);
    *v = n != 0;
}

/* ---- names -------------------------------------------------------------------------------------- */

static uint32_t text_hash(const char *s) { /* FNV-1a */
    uint32_t h = 2166136261u;
    for (; *s; s++) h = (h ^ (uint8_t)*s) * 16777619u;
    return h;
}

static uint32_t *text_slot(const codec *c, uint32_t *slots, uint32_t n, const char *s) {
    uint32_t i = text_hash(s) & (n - 1);
    while (slots[i] && strcmp((const char *)c->strings.data + slots[i] - 1, s) != 0) i = (i + 1) & (n - 1);
    return &slots[i];
}

static bool text_room(codec *c) {
    if (c->n_strings * 2 < c->n_slots) return true;
    uint32_t n = c->n_slots ? c->n_slots * 2 : 1024;
    uint32_t *slots = mem_calloc(n, sizeof *slots);
    if (!slots) return false;
    for (uint32_t i = 0; i < c->n_slots; i++) {
        if (c->slots[i]) *text_slot(c, slots, n, (const char *)c->strings.data + c->slots[i] - 1) = c->slots[i];
    }
    mem_free(c->slots);
    c->slots = slots;
    c->n_slots = n;
    return true;
}

uint32_t plan_text_intern(codec *c, const char *s) {
    if (c->status != KEEL_OK) return 0;
    if (!text_room(c)) {
        c->status = KEEL_NOMEM_AT(c->err, "plan file");
        return 0;
    }
    uint32_t *slot = text_slot(c, c->slots, c->n_slots, s);
    if (!*slot) {
        size_t bytes = strlen(s);
        if (!plan_file_text(s, bytes)) CODEC_FAIL(c, KEEL_FORMAT, "a name is not UTF-8 without control characters");
        if (c->strings.len + bytes > UINT32_MAX - 2) CODEC_FAIL(c, KEEL_RANGE, "more than 4 GiB of names");
        *slot = (uint32_t)c->strings.len + 1;
        buf_put(&c->strings, s, bytes + 1);
        c->n_strings++;
        if (c->strings.failed) {
            if (c->status == KEEL_OK) c->status = KEEL_NOMEM_AT(c->err, "plan file");
            return 0;
        }
    }
    return *slot - 1;
}

/* A string by its place in the string table. Read strings live in the plan's arena. */
static void io_text(codec *c, const char **s) {
    if (c->writing) {
        io_number(c, plan_text_intern(c, *s), 4);
        return;
    }
    uint64_t at = io_number(c, 0, 4);
    *s = "";
    if (at >= c->text_bytes || (at && c->text[at - 1])) {
        CODEC_FAIL(c, KEEL_REFUSED, "no string begins at byte %llu of the string table", (unsigned long long)at);
    } else {
        *s = c->text + at;
    }
}

static void io_op(codec *c, const op_desc **op) {
    const char *name = c->writing ? (*op)->name : "";
    io_text(c, &name);
    if (c->writing || c->status != KEEL_OK) return;
    *op = op_find(name);
    if (!*op) CODEC_FAIL(c, KEEL_REFUSED, "op %s is not one of this build's", name);
}

static void io_phase_of(codec *c, const op_desc *op, uint32_t *phase) {
    uint32_t n = op ? (uint32_t)op_n_phases(op) : 0;
    const char *name = c->writing && *phase < n ? op->phases[*phase].name : "?";
    io_text(c, &name);
    if (c->writing || c->status != KEEL_OK) return;
    for (*phase = 0; *phase < n && strcmp(op->phases[*phase].name, name) != 0;) ++*phase;
    if (*phase == n) CODEC_FAIL(c, KEEL_REFUSED, "op %s has no phase \"%s\" in this build", op->name, name);
}

static void io_dtype(codec *c, dtype *t) {
    const char *name = dtype_name(*t);
    io_text(c, &name);
    if (c->writing || c->status != KEEL_OK) return;
    *t = dtype_parse(name, strlen(name));
    if (*t == DTYPE_COUNT) CODEC_FAIL(c, KEEL_REFUSED, "dtype %s is not one of this build's", name);
}

static void io_kind(codec *c, buffer_kind *k) {
    const char *name = buffer_kind_name(*k);
    io_text(c, &name);
    if (c->writing || c->status != KEEL_OK) return;
    for (*k = 0; *k < BUFFER_KINDS && strcmp(buffer_kind_name(*k), name) != 0;) ++*k;
    if (*k == BUFFER_KINDS) CODEC_FAIL(c, KEEL_REFUSED, "buffer kind %s is not one of this build's", name);
}

static void io_shard(codec *c, shard_rule *rule) {
    const char *name = shard_name(*rule);
    io_text(c, &name);
    if (c->writing || c->status != KEEL_OK) return;
    for (*rule = SHARD_REP; *rule <= SHARD_EP && strcmp(shard_name(*rule), name) != 0;) ++*rule;
    if (*rule > SHARD_EP) CODEC_FAIL(c, KEEL_REFUSED, "shard rule %s is not one of this build's", name);
}

/* The role of a span in use; spans beyond n_spans are zero and name nothing. */
static void io_role(codec *c, uint32_t *role, bool used) {
    const char *name = used ? role_name(*role) : "";
    io_text(c, &name);
    if (c->writing || c->status != KEEL_OK) return;
    *role = 0;
    if (!used) return;
    while (*role < KP_ROLES && strcmp(role_name(*role), name) != 0) ++*role;
    if (*role == KP_ROLES) CODEC_FAIL(c, KEEL_REFUSED, "role %s is not one of this build's", name);
}

/* ---- records ------------------------------------------------------------------------------------ */

void plan_io_header(codec *c, void *record) {
    plan *p = record;
    io_text(c, &p->arch);
    io_text(c, &p->architecture);
    io_u32(c, &p->workers);
    io_u32(c, &p->m_max);
    io_u32(c, &p->max_seq);
    io_u32(c, &p->page_tokens);
    io_u32(c, &p->kv_splits);
    io_u32(c, &p->page_bytes);
    io_u32(c, &p->n_pages);
    io_u32(c, &p->layer_first);
    io_u32(c, &p->n_layers);
    io_u32(c, &p->logits);
    io_bool(c, &p->sampling);
    io_u64(c, &p->vocab);
    io_u64(c, &p->hidden);
    io_u64(c, &p->arena_bytes);
    io_u64(c, &p->symmetric_bytes);
    io_u32(c, &p->tp);
    io_u32(c, &p->ep);
    io_u32(c, &p->rank);
    io_bool(c, &p->vocab_parallel);
    if (c->writing || c->status != KEEL_OK) return;
    const arch_desc *arch = arch_find(p->arch);
    if (!arch)
        CODEC_FAIL(c, KEEL_REFUSED, "arch %s is not one of this build's", p->arch);
    else
        p->arch = arch->name;
}

void plan_io_lever(codec *c, void *record) { io_text(c, record); }

void plan_io_instance(codec *c, void *record) {
    plan_instance *i = record;
    io_text(c, &i->name);
    io_op(c, &i->op);
    io_i32(c, &i->layer);
    io_u32(c, &i->attr_first);
    io_u32(c, &i->n_attrs);
    for (int k = 0; k < KP_BUFFERS; k++) io_u32(c, &i->buffer[k]);
}

void plan_io_attr(codec *c, void *record) {
    graph_attr *a = record;
    uint64_t bits;
    io_text(c, &a->name);
    memcpy(&bits, &a->value, sizeof bits);
    io_u64(c, &bits); /* IEEE 754 */
    memcpy(&a->value, &bits, sizeof bits);
}

void plan_io_body(codec *c, void *record) {
    plan_body *b = record;
    io_op(c, &b->op);
    io_phase_of(c, b->op, &b->phase);
}

void plan_io_phase(codec *c, void *record) {
    plan_phase *h = record;
    io_u32(c, &h->instance);
    if (!c->writing && h->instance >= c->p->n_instances) {
        CODEC_FAIL(c, KEEL_REFUSED, "instance %u of %u", h->instance, c->p->n_instances);
    }
    io_phase_of(c, h->instance < c->p->n_instances ? c->p->instances[h->instance].op : NULL, &h->phase);
    io_u32(c, &h->first_task);
    io_u32(c, &h->n_tasks);
}

void plan_io_buffer(codec *c, void *record) {
    plan_buffer *b = record;
    io_text(c, &b->name);
    io_text(c, &b->key);
    io_kind(c, &b->kind);
    io_dtype(c, &b->dtype);
    io_bool(c, &b->external);
    io_i32(c, &b->rows);
    io_shard(c, &b->shard);
    io_i32(c, &b->shard_dim);
    io_i32(c, &b->rank);
    for (int i = 0; i < GRAPH_RANK; i++) io_i64(c, &b->dim[i]);
    io_u64(c, &b->bytes);
    io_u64(c, &b->offset);
    io_u32(c, &b->first_phase);
    io_u32(c, &b->last_phase);
}

void plan_io_event(codec *c, void *record) {
    plan_event *e = record;
    io_u32(c, &e->triggers);
    io_u32(c, &e->phase);
    io_bool(c, &e->ranks);
    io_bool(c, &e->weak);
}

void plan_io_task(codec *c, void *record) {
    kp_task *t = record;
    io_u32(c, &t->instance);
    io_u32(c, &t->body);
    io_u32(c, &t->lo);
    io_u32(c, &t->hi);
    io_u32(c, &t->aux);
    io_u32(c, &t->wait_first);
    io_u16(c, &t->n_waits);
    io_u8(c, &t->n_spans);
    io_u8(c, &t->n_regions);
    io_u32(c, &t->trigger);
    for (int i = 0; i < KP_SPANS; i++) {
        io_u16(c, &t->span[i].first_page);
        io_u16(c, &t->span[i].n_pages);
        io_role(c, &t->span[i].release_role, i < t->n_spans);
    }
    for (int r = 0; r < KP_REGIONS; r++) io_u32(c, &t->region_offset[r]);
}

void plan_io_index(codec *c, void *record) { io_u32(c, record); }
