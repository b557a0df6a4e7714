/* SPDX-License-Identifier: Apache-2.0 */
/* keel.h: plans and sessions. */
#include "exec/api.h"

#include "core/file.h"
#include "core/mem.h"
#include "exec/cpu_worker.h"

#include <stdlib.h>
#include <string.h>

enum { PLAN_MAX_BYTES = 1 << 30 };

static keel_status plan_wrap(plan *p, const keel_model *made_for, keel_plan **out, keel_error *err) {
    keel_plan *k = mem_calloc(1, sizeof *k);
    if (!k) {
        plan_close(p);
        return KEEL_NOMEM_AT(err, "plan");
    }
    k->plan = p;
    k->made_for = made_for;
    *out = k;
    return KEEL_OK;
}

keel_status keel_plan_build(const keel_model *m, const keel_plan_options *given, keel_plan **out, keel_error *err) {
    API_TAKE(keel_plan_options, taken, given, err);
    const keel_plan_options *o = &taken;
    plan_options p = {.arch = o->arch ? o->arch : "cpu",
                      .workers = o->workers,
                      .m_max = o->batch,
                      .max_seq = o->max_seq,
                      .page_tokens = o->page_tokens,
                      .kv_splits = o->kv_splits,
                      .allow_absent = o->allow_absent,
                      .levers = o->levers,
                      .n_levers = o->n_levers};
    if (!p.workers && strcmp(p.arch, "cpu") == 0) p.workers = cpu_cores();
    if (m->graph->max_position > 0 && p.max_seq > m->graph->max_position) {
        return error_set(err, KEEL_RANGE, "--max-seq %u: the model was made for %lld positions", p.max_seq,
                         (long long)m->graph->max_position);
    }
    plan *built;
    KEEL_TRY(plan_build(m->graph, &p, &built, err));
    return plan_wrap(built, m, out, err);
}

keel_status keel_plan_load(const char *path, keel_plan **out, keel_error *err) {
    char *data;
    size_t bytes;
    KEEL_TRY(file_read(path, PLAN_MAX_BYTES, &data, &bytes, err));
    plan *p;
    keel_status s = plan_read(path, (const uint8_t *)data, bytes, &p, err);
    mem_free(data);
    return s == KEEL_OK ? plan_wrap(p, NULL, out, err) : s;
}

keel_status keel_plan_save(const keel_plan *k, const char *path, keel_error *err) {
    buf b = {0};
    keel_status s = plan_write(k->plan, &b, err);
    if (s == KEEL_OK) s = file_write(path, b.data, b.len, err);
    buf_free(&b);
    return s;
}

static keel_status text_out(buf *b, keel_status s, char **text, keel_error *err) {
    if (s != KEEL_OK) {
        buf_free(b);
        return s;
    }
    char *t = buf_take(b);
    if (!t) return KEEL_NOMEM_AT(err, "plan view");
    *text = t;
    return KEEL_OK;
}

keel_status keel_plan_text(const keel_plan *k, char **text, keel_error *err) {
    buf b = {0};
    plan_show(k->plan, &b);
    return text_out(&b, KEEL_OK, text, err);
}

keel_status keel_plan_json(const keel_plan *k, char **text, keel_error *err) {
    buf b = {0};
    return text_out(&b, plan_json(k->plan, &b, err), text, err);
}

void keel_plan_close(keel_plan *k) {
    if (!k) return;
    plan_close(k->plan);
    mem_free(k);
}

keel_status keel_plan_info_get(const keel_plan *k, keel_plan_info *out, keel_error *err) {
    const plan *p = k->plan;
    plan_cost cost = plan_total_cost(p);
    keel_plan_info info = {.arch = p->arch,
                           .tp = p->tp,
                           .rank = p->rank,
                           .symmetric_bytes = p->symmetric_bytes,
                           .workers = p->workers,
                           .batch = p->m_max,
                           .max_seq = p->max_seq,
                           .page_tokens = p->page_tokens,
                           .n_tasks = p->n_tasks,
                           .n_events = p->n_events,
                           .n_phases = p->n_phases,
                           .complete = plan_check_bodies(p, NULL) == KEEL_OK,
                           .weight_bytes = cost.weight_bytes,
                           .other_bytes = cost.other_bytes,
                           .flops = cost.flops};
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        const plan_buffer *b = &p->buffers[i];
        if (b->kind != BUFFER_CACHE) continue;
        info.kv_bytes += b->bytes;
        info.kv_bytes_a_token += (uint64_t)b->dim[0] * (uint64_t)b->dim[1] * dtype_bytes(b->dtype);
    }
    KEEL_TRY(plan_hash(p, info.hash, err));
    *out = info;
    return KEEL_OK;
}

/* How long a rank waits for the others to come: they may have weights to load or to convert. */
enum { GROUP_TIMEOUT_S = 3600 };

/* Opens the group and the session in it. */
static keel_status open_session(keel_session *s, const keel_plan *k, const keel_session_options *o, keel_error *err) {
    const keel_model *m = s->model;
    const plan *p = k->plan;
    session_options so = {.lanes = o->lanes,
                          .seed = o->seed,
                          .page_seed = o->page_seed,
                          .watchdog_s = o->watchdog_s,
                          .cache_dir = o->cache_dir,
                          .cubin = o->cubin,
                          .gpu_memory = o->gpu_memory};
    if (strcmp(p->arch, "cpu") == 0 && (o->cubin || o->gpu_memory))
        return error_set(err, KEEL_USAGE, "%s is for a GPU (--device cuda); the plan is for the CPU",
                         o->cubin ? "compiled device code (--cubin)" : "a bound of GPU memory (--gpu-memory)");
    if (k->made_for != m) KEEL_TRY(plan_fits(p, m->graph, err));
    if (p->tp > 1) {
        if (!o->group)
            return error_set(err, KEEL_USAGE, "the plan is for rank %u of %u; name the group of ranks it runs in",
                             p->rank, p->tp);
        KEEL_TRY(rank_group_open(o->group, p->tp, p->rank, session_rank_bytes(p), GROUP_TIMEOUT_S, &s->group, err));
        so.group = s->group;
    }
    keel_status status = api_prove_session(m, k, s->group, err);
    if (status == KEEL_OK) status = session_open(p, m->weights, &so, &s->session, err);
    if (status == KEEL_OK && s->group) status = rank_group_barrier(s->group, err);
    if (status != KEEL_OK && s->group) rank_group_abort(s->group, "could not open its session");
    return status;
}

keel_status keel_session_open(const keel_model *m, const keel_plan *k, const keel_session_options *given,
                              keel_session **out, keel_error *err) {
    API_TAKE(keel_session_options, taken, given, err);
    if (!m->weights)
        return error_set(err, KEEL_USAGE, "the model was opened without weights (graph_only); open it whole to run");
    keel_session *s = mem_calloc(1, sizeof *s);
    if (!s) return KEEL_NOMEM_AT(err, "session");
    s->model = m;
    keel_status status = open_session(s, k, &taken, err);
    if (status != KEEL_OK) {
        keel_session_close(s);
        return status;
    }
    *out = s;
    return KEEL_OK;
}

void keel_group_remove(const char *group) { rank_group_remove(group); }

void keel_session_close(keel_session *s) {
    if (!s) return;
    session_close(s->session);
    rank_group_close(s->group);
    mem_free(s);
}

static void pass_token(void *user, uint32_t index, uint32_t token, uint64_t ns) {
    const keel_request *r = user;
    if (r->on_token) r->on_token(r->user, index, (int32_t)token, ns);
}

keel_status keel_session_run(keel_session *s, const keel_request *given, keel_result *result, keel_error *err) {
    API_TAKE(keel_request, taken, given, err);
    const keel_request *r = &taken;
    if (r->n_prompt > UINT32_MAX || r->n_stop_ids > UINT32_MAX || r->n_forced > UINT32_MAX) {
        return error_set(err, KEEL_RANGE, "a list of ids is longer than 2^32");
    }
    kp_request q = {.prompt = (const kp_u32 *)r->prompt,
                    .n_prompt = (kp_u32)r->n_prompt,
                    .max_new = r->max_new_tokens,
                    .stop_id = (const kp_u32 *)r->stop_ids,
                    .n_stop = (kp_u32)r->n_stop_ids,
                    .forced = (const kp_u32 *)r->forced,
                    .n_forced = (kp_u32)r->n_forced,
                    .temperature = r->temperature,
                    .top_p = r->top_p,
                    .top_k = r->top_k,
                    .seed = r->seed,
                    .logits = r->logits};
    session_result out;
    KEEL_TRY(session_run(s->session, &q, pass_token, (void *)(uintptr_t)r, &out, err));
    *result = (keel_result){.n_tokens = out.n_tokens, .stopped = out.stopped};
    if (out.n_tokens) result->ttft_ms = (double)(out.first_ns - out.start_ns) / 1e6;
    if (out.n_tokens > 1) result->tpot_ms = (double)(out.last_ns - out.first_ns) / 1e6 / (out.n_tokens - 1);
    return KEEL_OK;
}

void keel_session_memory_get(const keel_session *s, keel_session_memory *out) { session_memory(s->session, out); }

void keel_session_stop(keel_session *s) { session_stop(s->session); }

keel_status keel_session_bandwidth(keel_session *s, uint64_t bytes, uint32_t repeats, double *best, keel_error *err) {
    return session_bandwidth(s->session, bytes, repeats, best, err);
}
