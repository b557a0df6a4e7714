/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/cuda_session.h"

#include "core/mem.h"
#include "core/vec.h"
#include "device/columns.h"
#include "exec/cuda_api.h"
#include "exec/cuda_code.h"
#include "exec/cuda_compile.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { ALIGN = 256, WARP = 32, REPORT_WORDS = 8 };

/* Where a lane stood when it left: kd_report of device/cuda_main.cuh. */
typedef struct lane_report {
    uint32_t left, role, lane, iteration, instance, what, target, pad;
} lane_report;

/* Pinned memory that both sides see. */
typedef struct mailbox {
    void *host;
    cu_ptr device;
} mailbox;

struct cuda_session {
    const plan *p;
    session_options options;
    cuda_driver d;
    int device;
    bool context;
    void *stream, *side; /* the kernel's; the one that stops it */
    void *module, *function, *pack, *pack_f8, *read;
    cu_ptr base; /* the one allocation */
    uint64_t base_bytes;
    keel_session_memory memory;
    cu_ptr *buffer;  /* [n_buffers]; a weight as it lies, 0 where no op reads it so */
    cu_ptr *packed;  /* [n_buffers]; a weight in tiles, 0 where none streams it */
    uint8_t *use;    /* [n_buffers]: USE_ bits of weights */
    uint32_t *scale; /* [n_buffers]: the buffer of a weight's block scales; KP_NONE without */
    cu_ptr staging;
    cu_ptr events, control, state, step, request;
    uint64_t events_bytes;
    kp_launch launch;
    uint32_t smem_bytes, ring_bytes, lanes, pages_per_seq;
    cu_ptr page_table;
    mailbox reports, out, out_ns;
    cu_ptr prompt; /* prompt, stop ids, forced ids of the run in hand */
    uint64_t prompt_bytes;
    cu_ptr logits;
    uint64_t logits_bytes;
    uint32_t out_cap;
    uint64_t first_ns; /* when the host saw the first token */
    struct pinned {
        uint32_t one;  /* what a stop and an abort write */
        uint32_t beat; /* what the heartbeat reads */
    } * pinned;
};

/* ---- layout of the one allocation ---------------------------------------------------------------- */

typedef struct layout {
    uint64_t at;
} layout;
static uint64_t take(layout *l, uint64_t bytes) {
    uint64_t at = l->at;
    l->at = (at + bytes + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

/* Offsets become addresses once the allocation is there. */
typedef struct places {
    uint64_t arena, consts, records, queue_first, waits, triggers, events, control, state, step, request, page_table;
} places;

enum { USE_PLAIN = 1, USE_PACKED = 2 };

/* As packed: device/cuda_pack.cuh. */
static uint64_t packed_bytes(const cuda_session *s, const plan_buffer *b) {
    uint32_t stage = arch_find(s->p->arch)->stage_bytes;
    return (uint64_t)((b->dim[0] + 15) / 16) * kp_band_bytes(b->dtype == DTYPE_F8E4M3, (kp_u32)b->dim[1], stage);
}

/* Block scales go into the packed weight, and lie nowhere else. */
static bool scales_weight(const op_desc *op, int slot) {
    for (int i = 0; i < op->max_weights; i++) {
        if (op->scale[i] && op->scale[i] == slot && (op->streamed >> i & 1)) return true;
    }
    return false;
}

static void place_all(cuda_session *s, layout *l, places *at, uint64_t *buffer_at) {
    const plan *p = s->p;
    at->arena = take(l, p->arena_bytes);
    at->consts = take(l, p->consts_bytes);
    at->records = take(l, (uint64_t)p->n_tasks * sizeof(kp_record));
    at->queue_first = take(l, ((uint64_t)p->workers + 1) * sizeof *p->queue_first);
    at->waits = take(l, (uint64_t)p->n_waits * sizeof *p->waits);
    at->triggers = take(l, (uint64_t)p->n_events * sizeof(uint32_t));
    s->events_bytes = ((uint64_t)p->n_events + 1) * sizeof(kp_event);
    at->events = take(l, s->events_bytes);
    at->control = take(l, sizeof(kp_control));
    at->state = take(l, sizeof(kp_state));
    at->step = take(l, sizeof(kp_step));
    at->request = take(l, sizeof(kp_request));
    s->pages_per_seq = (p->max_seq + p->page_tokens - 1) / p->page_tokens;
    at->page_table = take(l, (uint64_t)s->pages_per_seq * sizeof(uint32_t));
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        const plan_buffer *b = &p->buffers[i];
        if (b->kind == BUFFER_CACHE || (s->use[i] & USE_PLAIN)) buffer_at[i] = take(l, b->bytes);
        if (s->use[i] & USE_PACKED) s->packed[i] = take(l, packed_bytes(s, b));
    }
}

/* How the ops read each weight. */
static void find_uses(cuda_session *s) {
    const plan *p = s->p;
    for (uint32_t i = 0; i < p->n_buffers; i++) s->scale[i] = KP_NONE;
    for (uint32_t i = 0; i < p->n_instances; i++) {
        const op_desc *op = p->instances[i].op;
        for (int k = 0; k < op->max_weights; k++) {
            uint32_t b = p->instances[i].buffer[op->max_in + k];
            if (b == KP_NONE || scales_weight(op, k)) continue;
            s->use[b] |= op->streamed >> k & 1 ? USE_PACKED : USE_PLAIN;
            if (op->scale[k]) s->scale[b] = p->instances[i].buffer[op->max_in + op->scale[k]];
        }
    }
}

/* Where the scales of weight i stand in the staging area, behind the weight. */
static uint64_t scales_at(const cuda_session *s, uint32_t i) {
    return s->use[i] == USE_PACKED ? (s->p->buffers[i].bytes + ALIGN - 1) / ALIGN * ALIGN : 0;
}

static uint64_t scales_count(const plan_buffer *b) {
    return b->dtype == DTYPE_F8E4M3 ? (uint64_t)(fp8_blocks(b->dim[0]) * fp8_blocks(b->dim[1])) : 0;
}

/* Room for the largest weight that is only streamed, and for scales, while they are packed. */
static uint64_t staging_bytes(const cuda_session *s) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < s->p->n_buffers; i++) {
        uint64_t bytes = scales_at(s, i) + scales_count(&s->p->buffers[i]) * sizeof(float);
        if (s->use[i] & USE_PACKED && bytes > most) most = bytes;
    }
    return most;
}

/* What the `bytes` of the allocation are for. */
static void count_memory(cuda_session *s, uint64_t bytes) {
    keel_session_memory *m = &s->memory;
    layout w = {0}, kv = {0};
    for (uint32_t i = 0; i < s->p->n_buffers; i++) {
        const plan_buffer *b = &s->p->buffers[i];
        if (s->use[i] & USE_PLAIN) (void)take(&w, b->bytes);
        if (s->use[i] & USE_PACKED) (void)take(&w, packed_bytes(s, b));
        if (b->kind == BUFFER_CACHE) (void)take(&kv, b->bytes);
    }
    *m = (keel_session_memory){
        .total = bytes, .weights = w.at, .kv = kv.at, .activations = s->p->arena_bytes, .bound = s->options.gpu_memory};
    m->tables = bytes - m->weights - m->kv - m->activations;
}

static keel_status no_room(const cuda_session *s, uint64_t staging, uint64_t room, const char *why, keel_error *err) {
    const keel_session_memory *m = &s->memory;
    return error_set(
        err, KEEL_NOMEM,
        "the session needs %llu bytes of GPU memory (weights %llu, KV pages %llu, activations %llu, tables "
        "%llu, and %llu while weights are packed); %s %llu; use a smaller --max-seq or a smaller model",
        (unsigned long long)(m->total + staging), (unsigned long long)m->weights, (unsigned long long)m->kv,
        (unsigned long long)m->activations, (unsigned long long)m->tables, (unsigned long long)staging, why,
        (unsigned long long)room);
}

static keel_status allocate(cuda_session *s, uint64_t bytes, keel_error *err) {
    size_t free_bytes = 0, total = 0;
    uint64_t staging = staging_bytes(s), bound = s->options.gpu_memory;
    CUDA_TRY(&s->d, "cuMemGetInfo", s->d.mem_info(&free_bytes, &total));
    count_memory(s, bytes);
    if (bound && bytes + staging > bound) return no_room(s, staging, bound, "--gpu-memory allows", err);
    if (bytes + staging > total) return no_room(s, staging, total, "this GPU has", err);
    if (bytes + staging > free_bytes) return no_room(s, staging, free_bytes, "other programs leave free", err);
    CUDA_TRY(&s->d, "cuMemAlloc", s->d.mem_alloc(&s->base, bytes));
    s->base_bytes = bytes;
    return staging ? cuda_check(&s->d, s->d.mem_alloc(&s->staging, staging), "cuMemAlloc", err) : KEEL_OK;
}

/* ---- upload --------------------------------------------------------------------------------------- */

static keel_status upload(cuda_session *s, cu_ptr to, const void *from, uint64_t bytes, keel_error *err) {
    if (!bytes) return KEEL_OK;
    /* on the kernels' stream: a plain copy from pageable memory may still be on its way when it returns */
    return cuda_check(&s->d, s->d.copy_to_async(to, from, bytes, s->stream), "copy to the GPU", err);
}

static keel_status no_weight(const plan_buffer *b, keel_error *err) {
    return error_set(err, KEEL_MISSING, "%s: the plan needs it as %s", b->name, dtype_name(b->dtype));
}

/* The scales of weight i as f32, into the staging area. */
static keel_status upload_scales(cuda_session *s, const weights *w, uint32_t i, cu_ptr *at, keel_error *err) {
    const plan_buffer *b = &s->p->buffers[i];
    uint64_t n = scales_count(b);
    dtype type = DTYPE_COUNT;
    *at = s->staging + scales_at(s, i);
    if (!n) return KEEL_OK;
    const void *data = s->scale[i] == KP_NONE ? NULL : weights_find(w, s->p->buffers[s->scale[i]].name, &type);
    if (!data || !vec_reads(type)) return no_weight(b, err);
    float *f32 = mem_alloc(n * sizeof *f32);
    if (!f32) return KEEL_NOMEM_AT(err, "session");
    vec_convert_to_f32(type, data, f32, n);
    keel_status status = upload(s, *at, f32, n * sizeof *f32, err);
    if (status == KEEL_OK) status = cuda_check(&s->d, s->d.stream_wait(s->stream), "copy to the GPU", err);
    mem_free(f32);
    return status;
}

/* As it lies, packed, or both. */
static keel_status upload_weight(cuda_session *s, const weights *w, uint32_t i, const void *data, keel_error *err) {
    const plan_buffer *b = &s->p->buffers[i];
    if (s->use[i] & USE_PLAIN) KEEL_TRY(upload(s, s->buffer[i], data, b->bytes, err));
    if (!(s->use[i] & USE_PACKED)) return KEEL_OK;
    cu_ptr from = s->use[i] & USE_PLAIN ? s->buffer[i] : s->staging;
    if (!(s->use[i] & USE_PLAIN)) KEEL_TRY(upload(s, from, data, b->bytes, err));
    s->packed[i] += s->base;
    uint32_t n = (uint32_t)b->dim[0], k = (uint32_t)b->dim[1];
    uint64_t vecs = packed_bytes(s, b) / 16;
    cu_ptr scales;
    KEEL_TRY(upload_scales(s, w, i, &scales, err));
    void *params[] = {&from, &s->packed[i], &n, &k, &vecs}, *f8[] = {&from, &scales, &s->packed[i], &n, &k, &vecs};
    bool is_f8 = b->dtype == DTYPE_F8E4M3;
    CUDA_TRY(&s->d, "pack",
             s->d.launch(is_f8 ? s->pack_f8 : s->pack, 1024, 1, 1, 256, 1, 1, 0, s->stream, is_f8 ? f8 : params, NULL));
    return cuda_check(&s->d, s->d.stream_wait(s->stream), "pack", err);
}

static keel_status bind_buffers(cuda_session *s, const weights *w, const places *at, const uint64_t *buffer_at,
                                keel_error *err) {
    const plan *p = s->p;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        const plan_buffer *b = &p->buffers[i];
        if (b->kind == BUFFER_CONST) {
            s->buffer[i] = s->base + at->consts + b->offset;
        } else if (b->kind == BUFFER_STEP) {
            s->buffer[i] = s->base + at->step;
        } else if (b->kind == BUFFER_WEIGHT) {
            dtype type = DTYPE_COUNT;
            const void *data = weights_find(w, b->name, &type);
            if (s->use[i] & USE_PLAIN) s->buffer[i] = s->base + buffer_at[i];
            if (!data || type != b->dtype) return no_weight(b, err);
            if (s->use[i] && type != DTYPE_BF16 && (type != DTYPE_F8E4M3 || s->use[i] != USE_PACKED))
                return error_set(err, KEEL_UNSUPPORTED,
                                 "%s is %s; the GPU backend reads BF16 weights, and F8_E4M3 ones "
                                 "of linear ops",
                                 b->name, dtype_name(type));
            KEEL_TRY(upload_weight(s, w, i, data, err));
        } else if (b->kind == BUFFER_CACHE) {
            s->buffer[i] = s->base + buffer_at[i];
        } else {
            s->buffer[i] = s->base + at->arena + b->offset;
        }
    }
    return KEEL_OK;
}

static void *address(cu_ptr at) { return (void *)(uintptr_t)at; }

_Static_assert(sizeof(kp_record) % 16 == 0, "a record is brought into SMEM by one copy of whole 16 bytes");

static void fill_buffers(const cuda_session *s, const plan_instance *inst, void **buffer) {
    for (int k = 0; k < KP_BUFFERS; k++) {
        uint32_t b = inst->buffer[k];
        int weight = k - inst->op->max_in;
        bool packed = weight >= 0 && weight < inst->op->max_weights && (inst->op->streamed >> weight & 1);
        if (b != KP_NONE) buffer[k] = address(packed ? s->packed[b] : s->buffer[b]);
    }
}

static bool makes_step(const plan *p, const plan_phase *ph) {
    const plan_instance *inst = &p->instances[ph->instance];
    for (uint32_t k = 0; k < KP_BUFFERS; k++) {
        if (inst->buffer[k] != KP_NONE && p->buffers[inst->buffer[k]].kind == BUFFER_STEP) return true;
    }
    return false;
}

static bool stores_by_bands(const plan *p, const kp_task *t) {
    const plan_instance *inst = &p->instances[t->instance];
    uint32_t out = inst->buffer[inst->op->max_in + inst->op->max_weights];
    return inst->op->phases[p->bodies[t->body].phase].by_bands && p->m_max == 1 && out != KP_NONE &&
           p->buffers[out].kind == BUFFER_TAGGED;
}

/* Where they fit into the record: without the weak ones, since the launcher looks at the data themselves. */
static void fill_waits(const plan *p, const kp_task *t, kp_record *r) {
    uint32_t strong = 0;
    for (uint32_t i = 0; i < t->n_waits; i++) strong += !p->events[p->waits[t->wait_first + i]].weak;
    bool fits = strong <= KP_RECORD_WAITS;
    for (uint32_t i = 0, n = 0; i < t->n_waits && n < KP_RECORD_WAITS; i++) {
        uint32_t event = p->waits[t->wait_first + i];
        if (fits && p->events[event].weak) continue;
        r->event[n] = event;
        r->triggers[n++] = p->events[event].triggers;
    }
    if (fits) r->task.n_waits = (kp_u16)strong;
    r->by_step = r->task.n_waits == 1 && makes_step(p, &p->phases[p->events[r->event[0]].phase]);
}

static void fill_record(const cuda_session *s, uint32_t entry, uint32_t variant, kp_record *r) {
    const plan *p = s->p;
    uint32_t task = p->queue[entry];
    const kp_task *t = &p->tasks[task];
    *r = (kp_record){
        .task = *t, .variant = variant, .entry = entry, .weak = t->trigger != KP_NONE && p->events[t->trigger].weak};
    r->by_bands = stores_by_bands(p, t);
    fill_buffers(s, &p->instances[t->instance], r->buffer);
    fill_waits(p, t, r);
}

/* Records in the order of the queues: a controller reads its own one after the other. */
static keel_status upload_records(cuda_session *s, const places *at, keel_error *err) {
    const plan *p = s->p;
    cuda_cases cases;
    KEEL_TRY(cuda_cases_make(p, &cases, err));
    kp_record *list = mem_calloc((size_t)p->n_tasks + 1, sizeof *list);
    uint32_t *variant = mem_calloc((size_t)p->n_tasks + 1, sizeof *variant);
    keel_status status = list && variant ? KEEL_OK : KEEL_NOMEM_AT(err, "session");
    for (uint32_t i = 0; status == KEEL_OK && i < p->n_phases; i++) {
        for (uint32_t k = 0; k < p->phases[i].n_tasks; k++) variant[p->phases[i].first_task + k] = cases.of_phase[i];
    }
    for (uint32_t q = 0; status == KEEL_OK && q < p->n_tasks; q++) fill_record(s, q, variant[p->queue[q]], &list[q]);
    if (status == KEEL_OK) status = upload(s, s->base + at->records, list, (uint64_t)p->n_tasks * sizeof *list, err);
    if (status == KEEL_OK) status = cuda_check(&s->d, s->d.stream_wait(s->stream), "copy to the GPU", err);
    mem_free(list), mem_free(variant);
    cuda_cases_free(&cases);
    return status;
}

static keel_status upload_page_table(cuda_session *s, const places *at, keel_error *err) {
    uint32_t n = s->pages_per_seq, x = s->options.page_seed, *table = mem_alloc((size_t)n * sizeof *table);
    if (!table) return KEEL_NOMEM_AT(err, "session");
    session_page_table(table, n, x);
    keel_status status = upload(s, s->base + at->page_table, table, (uint64_t)n * sizeof *table, err);
    mem_free(table);
    return status;
}

static keel_status upload_tables(cuda_session *s, const places *at, keel_error *err) {
    const plan *p = s->p;
    cu_ptr base = s->base;
    uint32_t *triggers = mem_alloc(((size_t)p->n_events + 1) * sizeof *triggers);
    if (!triggers) return KEEL_NOMEM_AT(err, "session");
    for (uint32_t e = 0; e < p->n_events; e++) triggers[e] = p->events[e].triggers;
    keel_status status = upload(s, base + at->triggers, triggers, (uint64_t)p->n_events * sizeof *triggers, err);
    mem_free(triggers);
    KEEL_TRY(status);
    KEEL_TRY(upload(s, base + at->consts, p->consts, p->consts_bytes, err));
    KEEL_TRY(
        upload(s, base + at->queue_first, p->queue_first, ((uint64_t)p->workers + 1) * sizeof *p->queue_first, err));
    KEEL_TRY(upload(s, base + at->waits, p->waits, (uint64_t)p->n_waits * sizeof *p->waits, err));
    KEEL_TRY(upload_records(s, at, err));
    return upload_page_table(s, at, err);
}

static void set_launch(cuda_session *s, const places *at) {
    cu_ptr base = s->base;
    s->events = base + at->events, s->control = base + at->control, s->state = base + at->state;
    s->step = base + at->step, s->request = base + at->request, s->page_table = base + at->page_table;
    s->launch = (kp_launch){.n_workers = s->p->workers,
                            .records = address(base + at->records),
                            .queue_first = address(base + at->queue_first),
                            .waits = address(base + at->waits),
                            .triggers = address(base + at->triggers),
                            .events = address(s->events),
                            .control = address(s->control),
                            .step = address(s->step),
                            .state = address(s->state),
                            .request = address(s->request),
                            .world = 1,
                            .report = address(s->reports.device)};
}

/* ---- opening -------------------------------------------------------------------------------------- */

static keel_status make_mailbox(cuda_session *s, uint64_t bytes, mailbox *m, keel_error *err) {
    CUDA_TRY(&s->d, "cuMemHostAlloc", s->d.host_alloc(&m->host, bytes, CUDA_HOST_MAPPED));
    m->device = (cu_ptr)(uintptr_t)m->host; /* unified addressing */
    memset(m->host, 0, bytes);
    return KEEL_OK;
}

static keel_status open_device(cuda_session *s, keel_error *err) {
    void *context;
    int count = 0, major = 0, minor = 0, sms = 0;
    KEEL_TRY(cuda_driver_open(&s->d, err));
    CUDA_TRY(&s->d, "cuInit", s->d.init(0));
    CUDA_TRY(&s->d, "cuDeviceGetCount", s->d.device_count(&count));
    if (!count) return error_set(err, KEEL_UNSUPPORTED, "no GPU is visible; use --device cpu");
    CUDA_TRY(&s->d, "cuDeviceGet", s->d.device_get(&s->device, 0));
    CUDA_TRY(&s->d, "cuDeviceGetAttribute", s->d.device_attribute(&major, CUDA_ATTRIBUTE_MAJOR, s->device));
    CUDA_TRY(&s->d, "cuDeviceGetAttribute", s->d.device_attribute(&minor, CUDA_ATTRIBUTE_MINOR, s->device));
    CUDA_TRY(&s->d, "cuDeviceGetAttribute", s->d.device_attribute(&sms, CUDA_ATTRIBUTE_SMS, s->device));
    char arch[32];
    snprintf(arch, sizeof arch, "sm_%d%d", major, minor);
    if (strncmp(arch, s->p->arch, strlen(arch)) != 0)
        return error_set(err, KEEL_UNSUPPORTED, "the plan is for %s; this GPU is %s", s->p->arch, arch);
    if (s->p->workers > (uint32_t)sms)
        return error_set(err, KEEL_RANGE, "the plan has %u workers; this GPU has %d multiprocessors; give --workers %d",
                         s->p->workers, sms, sms);
    CUDA_TRY(&s->d, "cuDevicePrimaryCtxRetain", s->d.context_retain(&context, s->device));
    s->context = true;
    CUDA_TRY(&s->d, "cuCtxSetCurrent", s->d.context_set(context));
    CUDA_TRY(&s->d, "cuStreamCreate", s->d.stream_create(&s->stream, CUDA_STREAM_NONBLOCKING));
    CUDA_TRY(&s->d, "cuStreamCreate", s->d.stream_create(&s->side, CUDA_STREAM_NONBLOCKING));
    return KEEL_OK;
}

static keel_status load_code(cuda_session *s, keel_error *err) {
    buf cubin = {0};
    keel_status status = cuda_compile_get(s->p, s->options.cache_dir, s->options.cubin, &cubin, err);
    if (status == KEEL_OK)
        status = cuda_check(&s->d, s->d.module_load(&s->module, cubin.data), "cuModuleLoadData", err);
    buf_free(&cubin);
    KEEL_TRY(status);
    CUDA_TRY(&s->d, "cuModuleGetFunction", s->d.module_function(&s->function, s->module, "keel_run"));
    CUDA_TRY(&s->d, "cuModuleGetFunction", s->d.module_function(&s->pack, s->module, "keel_pack"));
    CUDA_TRY(&s->d, "cuModuleGetFunction", s->d.module_function(&s->pack_f8, s->module, "keel_pack_f8"));
    CUDA_TRY(&s->d, "cuModuleGetFunction", s->d.module_function(&s->read, s->module, "keel_read"));
    s->ring_bytes = cuda_code_stages(s->p) * arch_find(s->p->arch)->stage_bytes;
    CUDA_TRY(&s->d, "shared memory", s->d.function_set(s->read, CUDA_FUNCTION_SMEM, (int)s->ring_bytes));
    s->smem_bytes = s->p->n_pages * s->p->page_bytes + cuda_code_stages(s->p) * arch_find(s->p->arch)->stage_bytes;
    s->lanes = cuda_code_lanes(s->p);
    return cuda_check(&s->d, s->d.function_set(s->function, CUDA_FUNCTION_SMEM, (int)s->smem_bytes),
                      "dynamic shared memory", err);
}

static void free_device(cuda_session *s, cu_ptr at) {
    if (at) s->d.mem_free(at);
}

static keel_status bind(cuda_session *s, const weights *w, keel_error *err) {
    layout l = {0};
    places at;
    uint64_t *buffer_at = mem_calloc((size_t)s->p->n_buffers + 1, sizeof *buffer_at);
    s->buffer = mem_calloc((size_t)s->p->n_buffers + 1, sizeof *s->buffer);
    s->packed = mem_calloc((size_t)s->p->n_buffers + 1, sizeof *s->packed);
    s->use = mem_calloc((size_t)s->p->n_buffers + 1, 1);
    s->scale = mem_alloc(((size_t)s->p->n_buffers + 1) * sizeof *s->scale);
    keel_status status =
        buffer_at && s->buffer && s->packed && s->use && s->scale ? KEEL_OK : KEEL_NOMEM_AT(err, "session");
    if (status == KEEL_OK) {
        find_uses(s);
        place_all(s, &l, &at, buffer_at);
        status = allocate(s, l.at, err);
    }
    if (status == KEEL_OK) status = bind_buffers(s, w, &at, buffer_at, err);
    free_device(s, s->staging);
    s->staging = 0;
    if (status == KEEL_OK) status = upload_tables(s, &at, err);
    if (status == KEEL_OK)
        status = make_mailbox(s, (uint64_t)s->p->workers * s->lanes * sizeof(lane_report), &s->reports, err);
    if (status == KEEL_OK) set_launch(s, &at);
    mem_free(buffer_at);
    return status;
}

keel_status cuda_session_open(const plan *p, const weights *w, const session_options *options, cuda_session **out,
                              keel_error *err) {
    cuda_session *s = mem_calloc(1, sizeof *s);
    if (!s) return KEEL_NOMEM_AT(err, "session");
    s->p = p;
    s->options = *options;
    keel_status status = plan_check_bodies(p, err);
    if (status == KEEL_OK) status = open_device(s, err);
    if (status == KEEL_OK) status = load_code(s, err);
    if (status == KEEL_OK) status = bind(s, w, err);
    void *one = NULL;
    if (status == KEEL_OK) status = cuda_check(&s->d, s->d.host_alloc(&one, 64, 0), "cuMemHostAlloc", err);
    s->pinned = one;
    if (s->pinned) *s->pinned = (struct pinned){.one = 1};
    if (status != KEEL_OK) {
        cuda_session_close(s);
        return status;
    }
    *out = s;
    return KEEL_OK;
}

void cuda_session_close(cuda_session *s) {
    if (!s) return;
    if (s->context) {
        if (s->stream) s->d.stream_wait(s->stream);
        if (s->reports.host) s->d.host_free(s->reports.host);
        if (s->out.host) s->d.host_free(s->out.host);
        if (s->out_ns.host) s->d.host_free(s->out_ns.host);
        if (s->pinned) s->d.host_free(s->pinned);
        free_device(s, s->base), free_device(s, s->prompt), free_device(s, s->logits);
        if (s->module) s->d.module_unload(s->module);
        if (s->stream) s->d.stream_destroy(s->stream);
        if (s->side) s->d.stream_destroy(s->side);
        s->d.context_release(s->device);
    }
    mem_free(s->buffer), mem_free(s->packed), mem_free(s->use), mem_free(s->scale);
    mem_free(s);
}

/* ---- a run ---------------------------------------------------------------------------------------- */

static keel_status grow_device(cuda_session *s, cu_ptr *at, uint64_t *have, uint64_t need, keel_error *err) {
    if (need <= *have) return KEEL_OK;
    free_device(s, *at);
    s->memory.total -= *have;
    *at = 0, *have = 0;
    if (s->memory.bound && s->memory.total + need > s->memory.bound)
        return error_set(err, KEEL_NOMEM,
                         "the request's ids or logits need %llu bytes of GPU memory; the session has %llu and "
                         "--gpu-memory allows %llu; ask for fewer tokens, or without logits",
                         (unsigned long long)need, (unsigned long long)s->memory.total,
                         (unsigned long long)s->memory.bound);
    CUDA_TRY(&s->d, "cuMemAlloc", s->d.mem_alloc(at, need));
    *have = need;
    s->memory.total += need;
    return KEEL_OK;
}

static keel_status grow_out(cuda_session *s, uint32_t n, keel_error *err) {
    if (n <= s->out_cap) return KEEL_OK;
    if (s->out.host) s->d.host_free(s->out.host);
    if (s->out_ns.host) s->d.host_free(s->out_ns.host);
    s->out = s->out_ns = (mailbox){0};
    s->out_cap = 0;
    KEEL_TRY(make_mailbox(s, (uint64_t)n * sizeof(uint64_t), &s->out, err));
    KEEL_TRY(make_mailbox(s, (uint64_t)n * sizeof(uint64_t), &s->out_ns, err));
    s->out_cap = n;
    return KEEL_OK;
}

/* The request as the kernel sees it: its lists in device memory, the tokens in memory that the host sees. */
static keel_status send_request(cuda_session *s, const kp_request *given, keel_error *err) {
    kp_request q = *given;
    uint64_t ids = (uint64_t)q.n_prompt + q.n_stop + q.n_forced, vocab = s->p->vocab;
    KEEL_TRY(grow_device(s, &s->prompt, &s->prompt_bytes, (ids + 1) * sizeof(uint32_t), err));
    KEEL_TRY(upload(s, s->prompt, q.prompt, (uint64_t)q.n_prompt * sizeof(uint32_t), err));
    q.prompt = address(s->prompt);
    cu_ptr stop = s->prompt + (uint64_t)q.n_prompt * sizeof(uint32_t);
    KEEL_TRY(upload(s, stop, q.stop_id, (uint64_t)q.n_stop * sizeof(uint32_t), err));
    q.stop_id = address(stop);
    cu_ptr forced = stop + (uint64_t)q.n_stop * sizeof(uint32_t);
    KEEL_TRY(upload(s, forced, q.forced, (uint64_t)q.n_forced * sizeof(uint32_t), err));
    q.forced = address(forced);
    if (q.logits) {
        KEEL_TRY(grow_device(s, &s->logits, &s->logits_bytes, (uint64_t)q.max_new * vocab * sizeof(float), err));
        q.logits = address(s->logits);
    }
    KEEL_TRY(grow_out(s, q.max_new ? q.max_new : 1, err));
    memset(s->out.host, 0, (size_t)s->out_cap * sizeof(uint64_t));
    q.out = address(s->out.device);
    q.out_ns = address(s->out_ns.device);
    q.page_table = address(s->page_table);
    q.pages_per_seq = s->pages_per_seq;
    q.max_seq = s->p->max_seq;
    q.vocab = (uint32_t)vocab;
    if (!q.chunk || q.chunk > s->p->m_max) q.chunk = s->p->m_max;
    kp_state state = {.position = q.start};
    KEEL_TRY(upload(s, s->request, &q, sizeof q, err));
    return upload(s, s->state, &state, sizeof state, err);
}

/* Counts of an op's own, and the tags of an earlier launch. */
static keel_status clear_old(cuda_session *s, keel_error *err) {
    for (uint32_t i = 0; i < s->p->n_buffers; i++) {
        const plan_buffer *b = &s->p->buffers[i];
        if (b->kind == BUFFER_SCRATCH || b->kind == BUFFER_TAGGED)
            CUDA_TRY(&s->d, "cuMemset", s->d.set_async(s->buffer[i], 0, b->bytes, s->stream));
    }
    return KEEL_OK;
}

static keel_status start(cuda_session *s, keel_error *err) {
    void *params[] = {&s->launch};
    memset(s->reports.host, 0, (size_t)s->p->workers * s->lanes * sizeof(lane_report));
    KEEL_TRY(clear_old(s, err));
    CUDA_TRY(&s->d, "cuMemset", s->d.set_async(s->events, 0, s->events_bytes, s->stream));
    CUDA_TRY(&s->d, "cuMemset", s->d.set_async(s->control, 0, sizeof(kp_control), s->stream));
    CUDA_TRY(&s->d, "cuStreamSynchronize", s->d.stream_wait(s->stream));
    return cuda_check(&s->d,
                      s->d.launch_cooperative(s->function, s->p->workers, 1, 1, s->lanes * WARP, 1, 1, s->smem_bytes,
                                              s->stream, params),
                      "launch", err);
}

static uint64_t host_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint32_t drain(cuda_session *s, uint32_t max_new, uint32_t seen, session_token on_token, void *user) {
    const uint64_t *out = s->out.host, *ns = s->out_ns.host;
    while (seen < max_new) {
        uint64_t word = __atomic_load_n(&out[seen], __ATOMIC_ACQUIRE);
        if (word >> 32 != seen + 1) break;
        if (!seen) s->first_ns = host_ns(); /* the GPU's clock counts from elsewhere: only its differences are used */
        if (on_token) on_token(user, seen, (uint32_t)word, s->first_ns + (ns[seen] - ns[0]));
        seen++;
    }
    return seen;
}

static void set_word(cuda_session *s, uint64_t offset) {
    s->d.copy_to_async(s->control + offset, &s->pinned->one, sizeof(uint32_t), s->side);
}

/* What a lane waited for, and for an event who should have signalled it. */
static void waited_for(const plan *p, const lane_report *r, char *out, size_t cap) {
    static const char *const names[] = {
#define X(NAME, text) text,
        KP_WHAT_MAP(X)
#undef X
    };
    uint32_t event = r->what - KP_WHAT_EVENT;
    if (r->what >= KP_WHAT_EVENT && event < p->n_events)
        snprintf(out, cap, "event %u (target %u; from %u tasks of %s)", event, r->target, p->events[event].triggers,
                 p->instances[p->phases[p->events[event].phase].instance].name);
    else if (r->what >= KP_WHAT_PAGE)
        snprintf(out, cap, "page %u", r->what - KP_WHAT_PAGE);
    else
        snprintf(out, cap, "%s", r->what < sizeof names / sizeof *names ? names[r->what] : "nothing known");
}

/* Lanes that wait for what other workers or earlier tasks owe (events, pages), or those that wait within their own
 * task; lanes of a role that say the same are told once. Returns how many were left out. */
static uint32_t tell(const cuda_session *s, bool owed, uint32_t *told, keel_error *err) {
    enum { MOST = 16 };
    uint32_t more = 0;
    const lane_report *list = s->reports.host, *last = NULL;
    for (uint32_t i = 0; i < s->p->workers * s->lanes; i++) {
        const lane_report *r = &list[i];
        char what[256];
        if (r->left || r->what == KP_WHAT_ARRIVED || (r->role == 0 && r->lane)) continue;
        if ((r->what >= KP_WHAT_PAGE) != owed) continue;
        if (last && r->lane && last + r->lane >= r && last->role == r->role && last->what == r->what) continue;
        last = r;
        if (*told == MOST) {
            more++;
            continue;
        }
        waited_for(s->p, r, what, sizeof what);
        error_append(err, "  worker %u %s, iteration %u, %s: waits for %s", i / s->lanes, role_name(r->role),
                     r->iteration, r->instance < s->p->n_instances ? s->p->instances[r->instance].name : "no task",
                     what);
        ++*told;
    }
    return more;
}

static keel_status hang(const cuda_session *s, keel_error *err) {
    keel_status status =
        error_set(err, KEEL_HANG, "no progress for %u s; the run was aborted. Waiting:", s->options.watchdog_s);
    uint32_t told = 0, more = tell(s, true, &told, err);
    more += tell(s, false, &told, err);
    if (more) error_append(err, "  and %u more", more);
    return status;
}

/* The iteration that the kernel is at, as a copy that is under way now and then brings it: a sign of life also while no
 * token can come, in a long prompt. */
static uint32_t heartbeat(cuda_session *s, uint64_t now, uint64_t *asked) {
    enum { EVERY_NS = 50000000 };
    if (now - *asked >= EVERY_NS && s->d.stream_query(s->side) == 0) {
        s->d.copy_from_async(&s->pinned->beat, s->step, sizeof s->pinned->beat, s->side); /* kp_step.iteration */
        *asked = now;
    }
    return __atomic_load_n(&s->pinned->beat, __ATOMIC_RELAXED);
}

/* Until the kernel has ended. Neither a token nor a new iteration for the watchdog's time: the run is aborted. */
static keel_status watch(cuda_session *s, uint32_t max_new, session_token on_token, void *user, uint32_t *seen,
                         keel_error *err) {
    uint64_t since = host_ns(), asked = 0, limit = (uint64_t)s->options.watchdog_s * 1000000000u;
    uint32_t beat = 0;
    bool aborted = false;
    int result;
    while ((result = s->d.stream_query(s->stream)) == CUDA_NOT_READY) {
        uint64_t now = host_ns();
        uint32_t tokens = drain(s, max_new, *seen, on_token, user), b = heartbeat(s, now, &asked);
        if (tokens != *seen || b != beat) since = now;
        *seen = tokens;
        beat = b;
        if (!aborted && now - since > limit) {
            set_word(s, offsetof(kp_control, abort));
            aborted = true;
        }
        nanosleep(&(struct timespec){0, 20000}, NULL);
    }
    *seen = drain(s, max_new, *seen, on_token, user);
    s->d.stream_wait(s->side);
    KEEL_TRY(cuda_check(&s->d, result, "the run", err));
    return aborted ? hang(s, err) : KEEL_OK;
}

keel_status cuda_session_run(cuda_session *s, const kp_request *request, session_token on_token, void *user,
                             session_result *result, keel_error *err) {
    kp_state state;
    kp_control control;
    KEEL_TRY(send_request(s, request, err));
    *result = (session_result){.start_ns = host_ns()};
    KEEL_TRY(start(s, err));
    KEEL_TRY(watch(s, request->max_new, on_token, user, &result->n_tokens, err));
    CUDA_TRY(&s->d, "copy back", s->d.copy_from(&state, s->state, sizeof state));
    CUDA_TRY(&s->d, "copy back", s->d.copy_from(&control, s->control, sizeof control));
    if (control.checked_in < s->p->workers)
        return error_set(err, KEEL_ABORTED, "only %u of %u workers could start: another program holds multiprocessors",
                         control.checked_in, s->p->workers);
    if (request->logits && result->n_tokens)
        CUDA_TRY(&s->d, "copy of the logits",
                 s->d.copy_from(request->logits, s->logits, (uint64_t)result->n_tokens * s->p->vocab * sizeof(float)));
    const uint64_t *ns = s->out_ns.host;
    if (result->n_tokens) {
        result->first_ns = s->first_ns;
        result->last_ns = s->first_ns + (ns[result->n_tokens - 1] - ns[0]);
    }
    result->stopped = control.stop_request && !state.finished;
    return KEEL_OK;
}

void cuda_session_stop(cuda_session *s) { set_word(s, offsetof(kp_control, stop_request)); }

void *cuda_session_buffer(const cuda_session *s, uint32_t buffer) { return address(s->buffer[buffer]); }

void cuda_session_memory(const cuda_session *s, keel_session_memory *out) { *out = s->memory; }

/* One timed pass over the allocation, in ms. */
static keel_status read_once(cuda_session *s, void *from, void *to, uint64_t stages, float *ms, keel_error *err) {
    void *params[] = {&s->base, &stages};
    CUDA_TRY(&s->d, "event", s->d.event_record(from, s->stream));
    CUDA_TRY(&s->d, "read ceiling",
             s->d.launch(s->read, s->p->workers, 1, 1, WARP, 1, 1, s->ring_bytes, s->stream, params, NULL));
    CUDA_TRY(&s->d, "event", s->d.event_record(to, s->stream));
    CUDA_TRY(&s->d, "read ceiling", s->d.stream_wait(s->stream));
    return cuda_check(&s->d, s->d.event_ms(ms, from, to), "event", err);
}

keel_status cuda_session_bandwidth(cuda_session *s, uint32_t repeats, double *best, keel_error *err) {
    void *from = NULL, *to = NULL;
    uint64_t stages = s->base_bytes / arch_find(s->p->arch)->stage_bytes;
    *best = 0;
    keel_status status = cuda_check(&s->d, s->d.event_create(&from, 0), "event", err);
    if (status == KEEL_OK) status = cuda_check(&s->d, s->d.event_create(&to, 0), "event", err);
    for (uint32_t i = 0; i < repeats && status == KEEL_OK; i++) {
        float ms = 0;
        status = read_once(s, from, to, stages, &ms, err);
        double rate = ms > 0 ? (double)stages * arch_find(s->p->arch)->stage_bytes / ms * 1e3 : 0;
        if (rate > *best) *best = rate;
    }
    if (from) s->d.event_destroy(from);
    if (to) s->d.event_destroy(to);
    return status;
}
