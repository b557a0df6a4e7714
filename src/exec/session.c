/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/session.h"

#include "core/mem.h"
#include "exec/cpu_worker.h"
#include "exec/cuda_session.h"
#include "exec/hang.h"

#include "device/emit.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* Tables [world] of what the ranks share. */
typedef struct session_ranks {
    kp_event *events[RANK_GROUP_MAX];
    kp_control *control[RANK_GROUP_MAX];
    kp_u8 *memory[RANK_GROUP_MAX];
} session_ranks;

struct session {
    const plan *p;
    cuda_session *cuda; /* the plan's arch is a GPU's: all the rest is its */
    session_options options;
    uint8_t *arena; /* activations and scratch */
    uint8_t *kv;
    uint64_t kv_bytes;
    void **buffer; /* [n_buffers] */
    kp_instance *instances;
    kb_body *bodies;      /* [n_bodies][KP_ROLES] */
    kp_event *events;     /* [n_events + 1] */
    kp_event *own_events; /* theirs to free, where no other rank touches them */
    uint32_t *triggers;
    uint8_t *event_ranks;
    uint32_t *page_table;
    kp_control *control, own_control;
    uint8_t *symmetric;
    session_ranks ranks;
    kp_step step;
    kp_state state;
    kp_request request;
    kp_launch launch;
    kp_u64 *out, *out_ns;
    uint32_t out_cap;
    cpu_engine *engine;
};

/* Zeroed and committed page by page, as they are touched. */
static void *map_zeroed(uint64_t bytes) {
    void *p = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static keel_status bind_buffer(session *s, const weights *w, uint32_t i, uint64_t *kv_at, keel_error *err) {
    const plan_buffer *b = &s->p->buffers[i];
    dtype type = DTYPE_COUNT;
    switch (b->kind) {
    case BUFFER_WEIGHT:
        s->buffer[i] = (void *)(uintptr_t)weights_find(w, b->name, &type);
        if (!s->buffer[i])
            return error_set(err, KEEL_MISSING, "%s: the plan needs it and the model does not have it", b->key);
        if (type != b->dtype) {
            return error_set(err, KEEL_FORMAT, "%s: the plan was made for %s, the model has %s; plan it again", b->key,
                             dtype_name(b->dtype), dtype_name(type));
        }
        break;
    case BUFFER_CONST:
        s->buffer[i] = s->p->consts + b->offset;
        break;
    case BUFFER_CACHE:
        s->buffer[i] = s->kv + *kv_at;
        *kv_at += (b->bytes + 63) & ~63ull;
        break;
    case BUFFER_STEP:
        s->buffer[i] = &s->step;
        break;
    case BUFFER_SYMMETRIC:
        s->buffer[i] = s->symmetric + b->offset;
        break;
    default:
        s->buffer[i] = s->arena + b->offset;
    }
    return KEEL_OK;
}

/* Control, events, symmetric arena: in that order in a rank's piece of the group's memory. */
static uint64_t control_bytes(void) { return (sizeof(kp_control) + 255) / 256 * 256; }
static uint64_t events_bytes(const plan *p) {
    return ((uint64_t)(p->n_events + 1) * sizeof(kp_event) + 255) / 256 * 256;
}
uint64_t session_rank_bytes(const plan *p) { return control_bytes() + events_bytes(p) + p->symmetric_bytes; }

static keel_status bind_ranks(session *s, keel_error *err) {
    const plan *p = s->p;
    rank_group *group = s->options.group;
    s->control = &s->own_control;
    if (p->tp > 1 && !group)
        return error_set(err, KEEL_USAGE, "the plan is for rank %u of %u; it runs in a group of ranks", p->rank, p->tp);
    if (p->tp <= 1) {
        s->events = s->own_events = mem_aligned(64, ((size_t)p->n_events + 1) * sizeof *s->events);
        return s->events ? KEEL_OK : KEEL_NOMEM_AT(err, "session");
    }
    for (uint32_t r = 0; r < p->tp; r++) {
        uint8_t *memory = rank_group_memory(group, r);
        s->ranks.control[r] = (kp_control *)(void *)memory;
        s->ranks.events[r] = (kp_event *)(void *)(memory + control_bytes());
        s->ranks.memory[r] = memory + control_bytes() + events_bytes(p);
    }
    s->control = s->ranks.control[p->rank];
    s->events = s->ranks.events[p->rank];
    s->symmetric = s->ranks.memory[p->rank];
    return KEEL_OK;
}

static keel_status bind_memory(session *s, const weights *w, keel_error *err) {
    const plan *p = s->p;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        if (p->buffers[i].kind == BUFFER_CACHE) s->kv_bytes += (p->buffers[i].bytes + 63) & ~63ull;
    }
    s->arena = map_zeroed(p->arena_bytes);
    s->kv = map_zeroed(s->kv_bytes);
    s->buffer = mem_calloc((size_t)p->n_buffers + 1, sizeof *s->buffer);
    if (!s->arena || !s->kv || !s->buffer) {
        return error_set(err, KEEL_NOMEM,
                         "session: cannot map %llu bytes of KV pages and %llu of activations; use a smaller --max-seq",
                         (unsigned long long)s->kv_bytes, (unsigned long long)p->arena_bytes);
    }
    uint64_t kv_at = 0;
    for (uint32_t i = 0; i < p->n_buffers; i++) KEEL_TRY(bind_buffer(s, w, i, &kv_at, err));
    return KEEL_OK;
}

static keel_status bind_tables(session *s, keel_error *err) {
    const plan *p = s->p;
    s->instances = mem_calloc((size_t)p->n_instances + 1, sizeof *s->instances);
    s->bodies = mem_calloc((size_t)p->n_bodies * KP_ROLES + 1, sizeof *s->bodies);
    s->event_ranks = mem_calloc((size_t)p->n_events + 1, 1);
    s->triggers = mem_calloc((size_t)p->n_events + 1, sizeof *s->triggers);
    if (!s->instances || !s->bodies || !s->event_ranks || !s->triggers) return KEEL_NOMEM_AT(err, "session");
    for (uint32_t i = 0; i < p->n_instances; i++) {
        s->instances[i].params = p->params + p->instances[i].params_offset;
        for (int k = 0; k < KP_BUFFERS; k++) {
            uint32_t b = p->instances[i].buffer[k];
            s->instances[i].buffer[k] = b == KP_NONE ? NULL : s->buffer[b];
        }
    }
    for (uint32_t b = 0; b < p->n_bodies; b++) {
        memcpy(s->bodies + b * KP_ROLES, p->bodies[b].op->phases[p->bodies[b].phase].cpu, KP_ROLES * sizeof(kb_body));
    }
    for (uint32_t e = 0; e < p->n_events; e++) {
        s->triggers[e] = p->events[e].triggers;
        s->event_ranks[e] = p->events[e].ranks;
    }
    return KEEL_OK;
}

void session_page_table(uint32_t *table, uint32_t n, uint32_t seed) {
    for (uint32_t i = 0; i < n; i++) table[i] = i;
    for (uint32_t i = n, x = seed; seed && i-- > 1;) {
        x = x * 1664525u + 1013904223u;
        uint32_t j = (x >> 8) % (i + 1), t = table[i];
        table[i] = table[j];
        table[j] = t;
    }
}

static keel_status make_page_table(session *s, keel_error *err) {
    uint32_t n = (s->p->max_seq + s->p->page_tokens - 1) / s->p->page_tokens;
    s->page_table = mem_alloc((size_t)n * sizeof *s->page_table);
    if (!s->page_table) return KEEL_NOMEM_AT(err, "session: page table");
    session_page_table(s->page_table, n, s->options.page_seed);
    s->request.pages_per_seq = n;
    return KEEL_OK;
}

static keel_status session_bind(session *s, const weights *w, keel_error *err) {
    const plan *p = s->p;
    KEEL_TRY(plan_check_bodies(p, err));
    KEEL_TRY(bind_ranks(s, err));
    KEEL_TRY(bind_memory(s, w, err));
    KEEL_TRY(bind_tables(s, err));
    KEEL_TRY(make_page_table(s, err));
    s->launch = (kp_launch){.n_workers = p->workers,
                            .tasks = p->tasks,
                            .queue = p->queue,
                            .queue_first = p->queue_first,
                            .waits = p->waits,
                            .triggers = s->triggers,
                            .events = s->events,
                            .control = s->control,
                            .instances = s->instances,
                            .step = &s->step,
                            .state = &s->state,
                            .request = &s->request,
                            .world = p->tp,
                            .rank = p->rank,
                            .event_ranks = s->event_ranks,
                            .rank_events = s->ranks.events,
                            .rank_control = s->ranks.control,
                            .rank_memory = s->ranks.memory};
    cpu_config config = {.lanes = s->options.lanes,
                         .seed = s->options.seed,
                         .n_pages = p->n_pages,
                         .page_bytes = p->page_bytes,
                         .bodies = s->bodies};
    return cpu_engine_open(&s->launch, &config, &s->engine, err);
}

keel_status session_open(const plan *p, const weights *w, const session_options *options, session **out,
                         keel_error *err) {
    session *s = mem_calloc(1, sizeof *s);
    if (!s) return KEEL_NOMEM_AT(err, "session");
    s->p = p;
    s->options = *options;
    if (!s->options.watchdog_s) s->options.watchdog_s = 10;
    keel_status status =
        strcmp(p->arch, "cpu") == 0 ? session_bind(s, w, err) : cuda_session_open(p, w, &s->options, &s->cuda, err);
    if (status != KEEL_OK) {
        session_close(s);
        return status;
    }
    *out = s;
    return KEEL_OK;
}

void session_close(session *s) {
    if (!s) return;
    cuda_session_close(s->cuda);
    cpu_engine_close(s->engine);
    if (s->arena) munmap(s->arena, s->p->arena_bytes ? s->p->arena_bytes : 1);
    if (s->kv) munmap(s->kv, s->kv_bytes ? s->kv_bytes : 1);
    mem_free(s->buffer), mem_free(s->instances), mem_free(s->bodies), mem_free(s->own_events), mem_free(s->triggers);
    mem_free(s->event_ranks);
    mem_free(s->page_table), mem_free(s->out), mem_free(s->out_ns);
    mem_free(s);
}

static keel_status check_request(const session *s, const kp_request *q, keel_error *err) {
    uint64_t last = (uint64_t)q->start + q->n_prompt + q->max_new;
    if (!q->n_prompt) return error_set(err, KEEL_USAGE, "the prompt is empty: give at least one token");
    if ((uint64_t)q->start + q->n_prompt > s->p->max_seq) {
        return error_set(err, KEEL_RANGE, "the prompt has %u tokens; the KV pages hold %u; give a larger --max-seq",
                         q->start + q->n_prompt, s->p->max_seq);
    }
    if (last > (uint64_t)s->p->max_seq + 1) {
        return error_set(
            err, KEEL_RANGE,
            "%u prompt tokens and %u new ones need %llu positions; the KV pages hold %u; give a larger --max-seq",
            q->n_prompt, q->max_new, (unsigned long long)last - 1, s->p->max_seq);
    }
    for (uint32_t i = 0; i < q->n_prompt; i++) {
        if (q->prompt[i] >= s->p->vocab) {
            return error_set(err, KEEL_RANGE, "token %u of the prompt is %d, outside the vocabulary of %llu", i,
                             (int)q->prompt[i], (unsigned long long)s->p->vocab);
        }
    }
    for (uint32_t i = 0; i < q->n_forced; i++) {
        if (q->forced[i] >= s->p->vocab) {
            return error_set(err, KEEL_RANGE, "forced token %u is %d, outside the vocabulary of %llu", i,
                             (int)q->forced[i], (unsigned long long)s->p->vocab);
        }
    }
    if (q->temperature > 0 && !s->p->sampling)
        return error_set(err, KEEL_USAGE, "a temperature needs a plan that samples; this one takes the argmax");
    return KEEL_OK;
}

static keel_status prepare(session *s, const kp_request *q, keel_error *err) {
    KEEL_TRY(check_request(s, q, err));
    uint32_t need = q->max_new ? q->max_new : 1, pages = s->request.pages_per_seq;
    if (need > s->out_cap) {
        mem_free(s->out), mem_free(s->out_ns);
        s->out_cap = 0;
        s->out = mem_calloc(need, sizeof *s->out);
        s->out_ns = mem_calloc(need, sizeof *s->out_ns);
        if (!s->out || !s->out_ns) return KEEL_NOMEM_AT(err, "session: token ring");
        s->out_cap = need;
    }
    s->request = *q;
    s->request.page_table = s->page_table;
    s->request.pages_per_seq = pages;
    s->request.max_seq = s->p->max_seq;
    s->request.vocab = (uint32_t)s->p->vocab;
    s->request.out = s->out;
    s->request.out_ns = s->out_ns;
    if (!s->request.chunk || s->request.chunk > s->p->m_max) s->request.chunk = s->p->m_max;
    memset(s->out, 0, need * sizeof *s->out);
    memset(s->events, 0, ((size_t)s->p->n_events + 1) * sizeof *s->events);
    s->control->arrived = s->control->ranks_arrived = s->control->abort = 0;
    s->control->go = 0; /* stop_request stays: a stop that came before the run ends it after its first iteration */
    s->step = (kp_step){0};
    s->state = (kp_state){.position = q->start};
    return s->p->tp > 1 ? rank_group_barrier(s->options.group, err) : KEEL_OK;
}

/* Hands over what has come since. */
static uint32_t drain_tokens(session *s, uint32_t seen, session_token on_token, void *user) {
    while (seen < s->request.max_new) {
        uint64_t word = __atomic_load_n(&s->out[seen], __ATOMIC_ACQUIRE);
        if (word >> 32 != seen + 1) break;
        if (on_token) on_token(user, seen, (uint32_t)word, s->out_ns[seen]);
        seen++;
    }
    return seen;
}

/* How many times the watchdog's seconds a body may take when the workers are not all waiting. */
enum { BODY_PATIENCE = 30 };

typedef enum session_end { END_WELL, END_HUNG, END_LOST } session_end;

/* Advances while any rank does. */
static uint64_t progress_of(session *s) {
    uint64_t mine = cpu_engine_progress(s->engine);
    return s->p->tp > 1 ? rank_group_progress(s->options.group, mine) : mine;
}

static uint32_t watch(session *s, session_token on_token, void *user, session_end *end, keel_error *err) {
    uint32_t seen = 0;
    uint64_t progress = 0, since = kb_now_ns(), limit = (uint64_t)s->options.watchdog_s * 1000000000u;
    while (!cpu_engine_done(s->engine)) {
        nanosleep(&(struct timespec){0, 500000}, NULL);
        seen = drain_tokens(s, seen, on_token, user);
        uint64_t now = kb_now_ns(), p = progress_of(s);
        if (p != progress) since = now;
        progress = p;
        bool waiting = now - since >= limit && cpu_engine_idle(s->engine);
        if (s->p->tp > 1 && rank_group_failed(s->options.group, err)) {
            *end = END_LOST;
        } else if (waiting || now - since >= BODY_PATIENCE * limit) {
            *end = END_HUNG;
        } else {
            continue; /* running, starved, or in a long body */
        }
        __atomic_store_n(&s->control->abort, 1, __ATOMIC_RELEASE);
        break;
    }
    cpu_engine_join(s->engine);
    return drain_tokens(s, seen, on_token, user);
}

keel_status session_run(session *s, const kp_request *request, session_token on_token, void *user,
                        session_result *result, keel_error *err) {
    if (s->cuda) {
        KEEL_TRY(check_request(s, request, err));
        return cuda_session_run(s->cuda, request, on_token, user, result, err);
    }
    KEEL_TRY(prepare(s, request, err));
    session_end end = END_WELL;
    *result = (session_result){.start_ns = kb_now_ns()};
    KEEL_TRY(cpu_engine_start(s->engine, err));
    result->n_tokens = watch(s, on_token, user, &end, err);
    if (end == END_LOST) return KEEL_ABORTED;
    if (end == END_HUNG) {
        if (s->p->tp > 1) rank_group_abort(s->options.group, "no progress");
        return hang_report(s->p, s->engine, &s->launch, s->options.watchdog_s, err);
    }
    if (result->n_tokens) {
        result->first_ns = s->out_ns[0];
        result->last_ns = s->out_ns[result->n_tokens - 1];
    }
    result->stopped = __atomic_exchange_n(&s->control->stop_request, 0, __ATOMIC_ACQ_REL) && !s->state.finished;
    return KEEL_OK;
}

void session_stop(session *s) {
    if (s->cuda) {
        cuda_session_stop(s->cuda);
        return;
    }
    __atomic_store_n(&s->control->stop_request, 1, __ATOMIC_RELEASE);
}

void *session_buffer(session *s, uint32_t buffer) {
    return s->cuda ? cuda_session_buffer(s->cuda, buffer) : s->buffer[buffer];
}

uint64_t session_kv_bytes(const session *s) { return s->kv_bytes; }

void session_memory(const session *s, keel_session_memory *out) {
    *out = (keel_session_memory){0};
    if (s->cuda) cuda_session_memory(s->cuda, out);
}

keel_status session_bandwidth(session *s, uint64_t bytes, uint32_t repeats, double *best, keel_error *err) {
    if (s->cuda) return cuda_session_bandwidth(s->cuda, repeats, best, err);
    return keel_read_bandwidth(s->p->workers, bytes, repeats, best, err);
}
