/* SPDX-License-Identifier: Apache-2.0 */
#include "session_args.h"

#include "cache_dir.h"
#include "out.h"

#include <stdio.h>
#include <stdlib.h>

keel_status session_args_open(const args *a, const keel_model *model, const keel_plan *plan, const char *group,
                              keel_session **out, keel_error *err) {
    keel_session_options options = KEEL_SESSION_OPTIONS_INITIALIZER;
    char *cache = NULL;
    keel_status s = cache_dir_to_read(a, &cache, err);
    if (s != KEEL_OK) return s;
    options.lanes = args_count32(a, OPT_LANES, 0);
    options.watchdog_s = args_count32(a, OPT_WATCHDOG, 0);
    options.group = group;
    options.cache_dir = cache;
    options.cubin = a->value[OPT_CUBIN].text;
    options.gpu_memory = args_count(a, OPT_GPU_MEMORY, 0);
    s = keel_session_open(model, plan, &options, out, err);
    free(cache);
    return s;
}

memory_text session_memory_text(const keel_session *session) {
    keel_session_memory m;
    memory_text t = {""};
    keel_session_memory_get(session, &m);
    if (!m.total) return t;
    int n = snprintf(t.text, sizeof t.text, "GPU memory %s: weights %s, KV pages %s, activations %s, tables %s",
                     out_size(m.total).text, out_size(m.weights).text, out_size(m.kv).text,
                     out_size(m.activations).text, out_size(m.tables).text);
    if (m.bound && n > 0 && (size_t)n < sizeof t.text)
        snprintf(t.text + n, sizeof t.text - (size_t)n, "; at most %s", out_size(m.bound).text);
    return t;
}

json_t *session_memory_json(const keel_session *session) {
    keel_session_memory m;
    keel_session_memory_get(session, &m);
    if (!m.total) return json_null();
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "total", (json_int_t)m.total, "weights", (json_int_t)m.weights, "kv",
                     (json_int_t)m.kv, "activations", (json_int_t)m.activations, "tables", (json_int_t)m.tables,
                     "bound", (json_int_t)m.bound);
}
