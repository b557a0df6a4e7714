/* SPDX-License-Identifier: Apache-2.0 */
/* keel.h: the weight cache. */
#include "exec/api.h"

#include "core/file.h"
#include "graph/model.h"
#include "graph/shard.h"

#include <string.h>

enum { CONFIG_MAX_BYTES = 16 << 20 };

static keel_status rank_graph(const keel_convert_options *o, const json_t *config, const char *file, graph **out,
                              keel_error *err) {
    model_options mo = {.layer_first = 0, .layer_last = -1};
    shard_options so = {
        .tp = o->tp ? o->tp : 1, .ep = o->ep ? o->ep : 1, .rank = o->rank, .vocab_parallel = o->vocab_parallel};
    graph *global;
    if (o->layer_slice) {
        mo.layer_first = o->layer_first;
        mo.layer_last = o->layer_last;
    }
    KEEL_TRY(model_build(config, file, &mo, &global, err));
    keel_status s = graph_shard(global, &so, out, err);
    graph_close(global);
    return s;
}

static keel_status convert(const keel_convert_options *o, const json_t *config, const char *file,
                           weight_cache_result *result, keel_error *err) {
    weight_cache_options cache = {
        .dir = o->cache_dir, .config = config, .jobs = o->jobs, .progress = o->progress, .user = o->user};
    graph *g;
    weights *w = NULL;
    KEEL_TRY(rank_graph(o, config, file, &g, err));
    keel_status s = weights_open(o->path, &w, err);
    if (s == KEEL_OK) {
        weights_use_cache(w, &cache);
        s = weights_bind(w, g, err);
        *result = *weights_cached(w);
    }
    weights_close(w);
    graph_close(g);
    return s;
}

static keel_status options_check(const keel_convert_options *o, keel_error *err) {
    uint32_t tp = o->tp ? o->tp : 1;
    if (!o->path || !*o->path) return error_set(err, KEEL_USAGE, "no checkpoint folder");
    if (!o->cache_dir || !*o->cache_dir) return error_set(err, KEEL_USAGE, "no folder for the weight cache");
    if (o->rank >= tp) return error_set(err, KEEL_USAGE, "rank %u: %u ranks are counted from 0", o->rank, tp);
    if (o->jobs > WEIGHT_CACHE_MOST_JOBS)
        return error_set(err, KEEL_RANGE, "%u jobs: at most %d", o->jobs, WEIGHT_CACHE_MOST_JOBS);
    if (file_exists(o->path) && !file_is_dir(o->path))
        return error_set(err, KEEL_USAGE, "%s: is a file; give the checkpoint's folder", o->path);
    return KEEL_OK;
}

keel_status keel_convert_rank(const keel_convert_options *given, keel_convert_result *result, keel_error *err) {
    API_TAKE(keel_convert_options, o, given, err);
    KEEL_TRY(options_check(&o, err));
    char *file = path_join(o.path, "config.json");
    if (!file) return KEEL_NOMEM_AT(err, o.path);
    json_t *config = NULL;
    weight_cache_result r = {0};
    keel_status s = json_read(file, CONFIG_MAX_BYTES, &config, err);
    if (s == KEEL_OK) s = convert(&o, config, file, &r, err);
    json_decref(config);
    keel_free(file);
    if (s != KEEL_OK) return s;
    *result = (keel_convert_result){.stored = r.used, .built = r.built, .n_tensors = r.n_tensors, .bytes = r.bytes};
    memcpy(result->key, r.key, sizeof result->key);
    _Static_assert(sizeof result->note == sizeof r.note, "keel.h");
    memcpy(result->note, r.note, sizeof result->note);
    return KEEL_OK;
}

keel_status keel_cache_list(const char *cache_dir, bool verify, keel_on_cache_entry each, void *user, keel_error *err) {
    return weight_cache_list(cache_dir, verify, each, user, err);
}
