/* SPDX-License-Identifier: Apache-2.0 */
/* The plan as JSON, written straight into the buffer: a plan has some 100,000 tasks. A view, never read back. */
#include "plan/plan.h"

#include "core/mem.h"

#include <string.h>
#include <utf8proc.h>

static void put_number(buf *b, uint64_t v) {
    char text[20];
    size_t at = sizeof text;
    do text[--at] = (char)('0' + v % 10);
    while (v /= 10);
    buf_put(b, text + at, sizeof text - at);
}

/* RFC 8259 §7; bytes that are not UTF-8 become U+FFFD. */
static void put_string(buf *b, const char *s) {
    buf_put(b, "\"", 1);
    for (size_t left = strlen(s); left;) {
        utf8proc_int32_t point;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)left, &point);
        if (n < 1) {
            buf_str(b, "\xef\xbf\xbd");
            n = 1;
        } else if (point == '"' || point == '\\') {
            buf_put(b, (char[]){'\\', *s}, 2);
        } else if (point < 0x20) {
            buf_printf(b, "\\u%04x", (unsigned)point);
        } else {
            buf_put(b, s, (size_t)n);
        }
        s += n;
        left -= (size_t)n;
    }
    buf_put(b, "\"", 1);
}

/* `key` comes with its comma, quotes and colon. */
static void key_number(buf *b, const char *key, uint64_t v) {
    buf_str(b, key);
    put_number(b, v);
}

static void key_string(buf *b, const char *key, const char *s) {
    buf_str(b, key);
    put_string(b, s);
}

static void key_index(buf *b, const char *key, uint32_t v) {
    buf_str(b, key);
    if (v == KP_NONE)
        buf_str(b, "null");
    else
        put_number(b, v);
}

static void key_layer(buf *b, int32_t layer) {
    buf_str(b, layer < 0 ? ",\"layer\":-1" : ",\"layer\":");
    if (layer >= 0) put_number(b, (uint64_t)layer);
}

static void put_numbers(buf *b, const uint32_t *v, uint32_t n) {
    buf_put(b, "[", 1);
    for (uint32_t i = 0; i < n; i++) {
        if (i) buf_put(b, ",", 1);
        put_number(b, v[i]);
    }
    buf_put(b, "]", 1);
}

static void put_header(buf *b, const plan *p) {
    plan_cost total = plan_total_cost(p);
    key_string(b, "{\"arch\":", p->arch);
    key_string(b, ",\"architecture\":", p->architecture);
    key_number(b, ",\"workers\":", p->workers);
    key_number(b, ",\"m_max\":", p->m_max);
    key_number(b, ",\"max_seq\":", p->max_seq);
    key_number(b, ",\"page_tokens\":", p->page_tokens);
    key_number(b, ",\"layer_first\":", p->layer_first);
    key_number(b, ",\"n_layers\":", p->n_layers);
    key_number(b, ",\"tp\":", p->tp);
    key_number(b, ",\"ep\":", p->ep);
    key_number(b, ",\"rank\":", p->rank);
    buf_str(b, p->vocab_parallel ? ",\"vocab_parallel\":true" : ",\"vocab_parallel\":false");
    key_number(b, ",\"vocab\":", p->vocab);
    key_number(b, ",\"hidden\":", p->hidden);
    key_number(b, ",\"arena_bytes\":", p->arena_bytes);
    key_number(b, ",\"symmetric_bytes\":", p->symmetric_bytes);
    key_number(b, ",\"consts_bytes\":", p->consts_bytes);
    key_index(b, ",\"logits\":", p->logits);
    buf_str(b, p->sampling ? ",\"sampling\":true" : ",\"sampling\":false");
    buf_str(b, ",\"levers\":[");
    for (uint32_t i = 0; i < p->n_levers; i++) key_string(b, i ? "," : "", p->levers[i]);
    key_number(b, "],\"weight_bytes\":", total.weight_bytes);
    key_number(b, ",\"other_bytes\":", total.other_bytes);
    key_number(b, ",\"flops\":", total.flops);
    key_number(b, ",\"pages\":{\"count\":", p->n_pages);
    key_number(b, ",\"bytes\":", p->page_bytes);
    buf_put(b, "}", 1);
}

static void put_task(buf *b, const plan *p, uint32_t id, uint32_t worker) {
    const kp_task *t = &p->tasks[id];
    const plan_instance *n = &p->instances[t->instance];
    const plan_cost *k = &p->costs[id];
    key_number(b, id ? ",\n{\"id\":" : "\n{\"id\":", id);
    key_string(b, ",\"op\":", n->op->name);
    key_string(b, ",\"phase\":", n->op->phases[p->bodies[t->body].phase].name);
    key_string(b, ",\"instance\":", n->name);
    key_layer(b, n->layer);
    key_number(b, ",\"worker\":", worker);
    key_number(b, ",\"lo\":", t->lo);
    key_number(b, ",\"hi\":", t->hi);
    key_number(b, ",\"aux\":", t->aux);
    buf_str(b, ",\"waits\":");
    put_numbers(b, p->waits + t->wait_first, t->n_waits);
    key_index(b, ",\"trigger\":", t->trigger);
    buf_str(b, ",\"pages\":[");
    for (uint32_t s = 0; s < t->n_spans; s++) {
        key_number(b, s ? ",{\"first\":" : "{\"first\":", t->span[s].first_page);
        key_number(b, ",\"count\":", t->span[s].n_pages);
        key_string(b, ",\"release\":", role_name(t->span[s].release_role));
        buf_put(b, "}", 1);
    }
    buf_str(b, "],\"regions\":");
    put_numbers(b, t->region_offset, t->n_regions);
    key_number(b, ",\"bytes\":", k->weight_bytes + k->other_bytes);
    key_number(b, ",\"weight_bytes\":", k->weight_bytes);
    key_number(b, ",\"flops\":", k->flops);
    buf_put(b, "}", 1);
}

static keel_status put_tasks(buf *b, const plan *p, keel_error *err) {
    uint32_t *worker = mem_calloc((size_t)p->n_tasks + 1, sizeof *worker);
    if (!worker) return KEEL_NOMEM_AT(err, "plan as JSON");
    for (uint32_t w = 0; w < p->workers; w++) {
        for (uint32_t i = p->queue_first[w]; i < p->queue_first[w + 1]; i++) worker[p->queue[i]] = w;
    }
    buf_str(b, ",\"tasks\":[");
    for (uint32_t i = 0; i < p->n_tasks && !b->failed; i++) put_task(b, p, i, worker[i]);
    mem_free(worker);
    buf_str(b, "\n],\"queues\":[");
    for (uint32_t w = 0; w < p->workers; w++) {
        buf_str(b, w ? ",\n" : "\n");
        put_numbers(b, p->queue + p->queue_first[w], p->queue_first[w + 1] - p->queue_first[w]);
    }
    return KEEL_OK;
}

static void put_events(buf *b, const plan *p) {
    buf_str(b, "\n],\"events\":[");
    for (uint32_t e = 0; e < p->n_events; e++) {
        const plan_phase *h = &p->phases[p->events[e].phase];
        const plan_instance *n = &p->instances[h->instance];
        key_number(b, e ? ",\n{\"id\":" : "\n{\"id\":", e);
        key_number(b, ",\"triggers\":", p->events[e].triggers);
        key_string(b, ",\"instance\":", n->name);
        key_string(b, ",\"phase\":", n->op->phases[h->phase].name);
        buf_str(b, p->events[e].ranks ? ",\"ranks\":true" : "");
        buf_str(b, p->events[e].weak ? ",\"weak\":true}" : "}");
    }
}

/* What an instance is, by which a program need not look through its tasks. */
static void put_instance(buf *b, const plan *p, uint32_t id) {
    const plan_instance *n = &p->instances[id];
    key_number(b, id ? ",\n{\"id\":" : "\n{\"id\":", id);
    key_string(b, ",\"name\":", n->name);
    key_string(b, ",\"op\":", n->op->name);
    key_layer(b, n->layer);
    buf_str(b, ",\"attrs\":{");
    for (uint32_t i = 0; i < n->n_attrs; i++) {
        key_string(b, i ? "," : "", p->attrs[n->attr_first + i].name);
        buf_printf(b, ":%.17g", p->attrs[n->attr_first + i].value);
    }
    buf_str(b, "},\"buffers\":[");
    for (int k = 0; k < KP_BUFFERS; k++) key_index(b, k ? "," : "", n->buffer[k]);
    buf_str(b, "]}");
}

/* A lifetime is the phases of the first and the last access that the ops declare; weights and constants have none. */
static void put_buffer(buf *b, const plan *p, uint32_t id) {
    const plan_buffer *k = &p->buffers[id];
    key_number(b, id ? ",\n{\"id\":" : "\n{\"id\":", id);
    key_string(b, ",\"name\":", k->name);
    key_string(b, ",\"kind\":", buffer_kind_name(k->kind));
    key_string(b, ",\"dtype\":", dtype_name(k->dtype));
    buf_str(b, ",\"shape\":[");
    for (int i = 0; i < k->rank; i++) key_number(b, i ? "," : "", (uint64_t)k->dim[i]);
    key_number(b, "],\"bytes\":", k->bytes);
    if (k->kind == BUFFER_WEIGHT) {
        key_string(b, ",\"key\":", k->key);
        key_string(b, ",\"shard\":", shard_name(k->shard));
        key_number(b, ",\"shard_dim\":", (uint64_t)k->shard_dim);
    }
    if (buffer_placed(k->kind) || k->kind == BUFFER_CONST) key_number(b, ",\"offset\":", k->offset);
    if (k->rows) buf_str(b, k->rows == GRAPH_M ? ",\"rows\":\"M\"" : ",\"rows\":\"M_LOGIT\"");
    if (k->kind != BUFFER_WEIGHT && k->kind != BUFFER_CONST) {
        key_number(b, ",\"first_phase\":", k->first_phase);
        key_number(b, ",\"last_phase\":", k->last_phase);
    }
    buf_str(b, k->external ? ",\"external\":true}" : "}");
}

keel_status plan_json(const plan *p, buf *out, keel_error *err) {
    put_header(out, p);
    KEEL_TRY(put_tasks(out, p, err));
    put_events(out, p);
    buf_str(out, "\n],\"instances\":[");
    for (uint32_t i = 0; i < p->n_instances && !out->failed; i++) put_instance(out, p, i);
    buf_str(out, "\n],\"buffers\":[");
    for (uint32_t i = 0; i < p->n_buffers && !out->failed; i++) put_buffer(out, p, i);
    buf_str(out, "\n]}\n");
    return out->failed ? KEEL_NOMEM_AT(err, "plan as JSON") : KEEL_OK;
}
