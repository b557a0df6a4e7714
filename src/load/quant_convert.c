/* SPDX-License-Identifier: Apache-2.0 */
#include "load/quant_convert.h"

#include "core/file.h"
#include "core/mem.h"
#include "core/vec.h"
#include "load/each.h"
#include "load/out_folder.h"
#include "load/safetensors.h"
#include "load/weights.h"

#include <dirent.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CONFIG_MAX_BYTES = 16 << 20, BANDS = 16, COPY_BYTES = 4 << 20 };

/* The conversion's working memory and where it stands. */
typedef struct stream {
    const safetensors *files;
    const graph *g; /* as it will be: quantised */
    safetensors_writer *writer;
    safetensor_decl *decls;
    char **names; /* [n_decls] of the scales; NULL of others */
    size_t n_decls;
    uint8_t *codes; /* BANDS × 128 rows of the longest */
    float *scales;  /* of the largest */
    uint64_t done, total;
    quant_progress progress;
    void *user;
} stream;

static bool quantised(const graph *g, const char *key) {
    for (int id = 1; id <= g->n_tensors; id++) {
        const graph_tensor *t = graph_tensor_at(g, id);
        if (t->kind == TENSOR_WEIGHT && t->dtype == DTYPE_F8E4M3 && strcmp(t->key, key) == 0) return true;
    }
    return false;
}

/* BANDS bands of 128 rows, a job each. */
typedef struct band_work {
    const safetensor *from;
    int64_t row; /* first of all bands */
    uint8_t *codes;
    float *scales; /* of the first band */
    bool bad;      /* a value is not finite */
} band_work;

static float block_scale(const band_work *w, const unsigned char *at, size_t row_bytes, size_t rows, size_t n) {
    float v[FP8_BLOCK], most = 0;
    for (size_t i = 0; i < rows; i++) {
        vec_convert_to_f32(w->from->dtype, at + i * row_bytes, v, n);
        for (size_t j = 0; j < n; j++) {
            float a = fabsf(v[j]);
            if (!(a <= most)) most = a; /* NaN too */
            if (!isfinite(a)) return NAN;
        }
    }
    float scale = most / 448.0f;
    return most == 0 ? 1.0f : scale < FLT_MIN ? FLT_MIN : scale;
}

static void quantise_band(void *context, size_t band, bool caller) {
    band_work *w = context;
    int64_t n = w->from->dim[0], k = w->from->dim[1], blocks = fp8_blocks(k);
    int64_t first = w->row + (int64_t)band * FP8_BLOCK, rows = n - first < FP8_BLOCK ? n - first : FP8_BLOCK;
    size_t element = dtype_bytes(w->from->dtype), row_bytes = (size_t)k * element;
    (void)caller;
    for (int64_t b = 0; b < blocks; b++) {
        int64_t col = b * FP8_BLOCK;
        size_t some = (size_t)(k - col < FP8_BLOCK ? k - col : FP8_BLOCK);
        const unsigned char *at =
            (const unsigned char *)w->from->data + (size_t)first * row_bytes + (size_t)col * element;
        float scale = block_scale(w, at, row_bytes, (size_t)rows, some), v[FP8_BLOCK];
        if (isnan(scale)) __atomic_store_n(&w->bad, true, __ATOMIC_RELAXED);
        w->scales[(int64_t)band * blocks + b] = scale;
        for (int64_t i = 0; i < rows; i++) {
            uint8_t *to = w->codes + ((int64_t)band * FP8_BLOCK + i) * k + col;
            vec_convert_to_f32(w->from->dtype, at + (size_t)i * row_bytes, v, some);
            for (size_t j = 0; j < some; j++) to[j] = f8e4m3_from_f32(v[j] / scale);
        }
    }
}

static keel_status put(stream *s, const void *data, uint64_t bytes, keel_error *err) {
    KEEL_TRY(safetensors_writer_put(s->writer, data, (size_t)bytes, err));
    s->done += bytes;
    if (!s->progress || s->progress(s->user, s->done, s->total)) return KEEL_OK;
    return error_set(err, KEEL_ABORTED, "the conversion was stopped; nothing was written");
}

static keel_status quantise(stream *s, const safetensor *t, keel_error *err) {
    int64_t n = t->dim[0], k = t->dim[1], blocks = fp8_blocks(k);
    for (int64_t row = 0; row < n; row += BANDS * FP8_BLOCK) {
        int64_t rows = n - row < BANDS * FP8_BLOCK ? n - row : BANDS * FP8_BLOCK;
        band_work w = {.from = t, .row = row, .codes = s->codes, .scales = s->scales + row / FP8_BLOCK * blocks};
        each_on_cores((size_t)fp8_blocks(rows), quantise_band, &w);
        if (w.bad)
            return error_set(err, KEEL_RANGE,
                             "%s: tensor %s: rows %lld to %lld hold a value that is not finite and cannot be quantised",
                             t->file, t->name, (long long)row, (long long)(row + rows - 1));
        KEEL_TRY(put(s, s->codes, (uint64_t)(rows * k), err));
    }
    return put(s, s->scales, (uint64_t)(fp8_blocks(n) * blocks) * sizeof *s->scales, err);
}

static keel_status copy(stream *s, const safetensor *t, keel_error *err) {
    for (uint64_t at = 0; at < t->bytes; at += COPY_BYTES) {
        uint64_t some = t->bytes - at < COPY_BYTES ? t->bytes - at : COPY_BYTES;
        KEEL_TRY(put(s, (const unsigned char *)t->data + at, some, err));
    }
    return KEEL_OK;
}

/* What will be written, and the memory for it. */
static keel_status declare(stream *s, keel_error *err) {
    size_t n = safetensors_count(s->files);
    uint64_t longest = 1, most = 1;
    s->decls = mem_calloc(2 * n + 1, sizeof *s->decls);
    s->names = mem_calloc(2 * n + 1, sizeof *s->names);
    if (!s->decls || !s->names) return KEEL_NOMEM_AT(err, "conversion");
    for (size_t i = 0; i < n; i++) {
        const safetensor *t = safetensors_at(s->files, i);
        safetensor_decl *d = &s->decls[s->n_decls++];
        if (t->dtype == DTYPE_COUNT)
            return error_set(err, KEEL_UNSUPPORTED, "%s: tensor %s is of type %s, which cannot be copied; remove it",
                             t->file, t->name, t->type_name);
        *d = (safetensor_decl){.name = t->name, .dtype = t->dtype, .rank = t->rank};
        memcpy(d->dim, t->dim, sizeof d->dim);
        s->total += t->bytes;
        if (!quantised(s->g, t->name)) continue;
        size_t bytes = strlen(t->name) + sizeof "_scale_inv";
        char *name = s->names[s->n_decls] = mem_alloc(bytes);
        if (!name) return KEEL_NOMEM_AT(err, "conversion");
        snprintf(name, bytes, "%s_scale_inv", t->name);
        d->dtype = DTYPE_F8E4M3;
        uint64_t blocks = (uint64_t)(fp8_blocks(t->dim[0]) * fp8_blocks(t->dim[1]));
        s->decls[s->n_decls++] = (safetensor_decl){
            .name = name, .dtype = DTYPE_F32, .rank = 2, .dim = {fp8_blocks(t->dim[0]), fp8_blocks(t->dim[1])}};
        s->total += (uint64_t)(t->dim[0] * t->dim[1]) + blocks * sizeof *s->scales - t->bytes;
        if ((uint64_t)t->dim[1] > longest) longest = (uint64_t)t->dim[1];
        if (blocks > most) most = blocks;
    }
    s->codes = mem_alloc((size_t)longest * BANDS * FP8_BLOCK);
    s->scales = mem_alloc((size_t)most * sizeof *s->scales);
    return s->codes && s->scales ? KEEL_OK : KEEL_NOMEM_AT(err, "conversion");
}

static keel_status write_all(stream *s, const char *out_dir, keel_error *err) {
    KEEL_TRY(declare(s, err));
    char *path = path_join(out_dir, "model.safetensors");
    keel_status status = path ? KEEL_OK : KEEL_NOMEM_AT(err, out_dir);
    if (status == KEEL_OK) status = safetensors_writer_open(path, s->decls, s->n_decls, &s->writer, err);
    for (size_t i = 0; status == KEEL_OK && i < safetensors_count(s->files); i++) {
        const safetensor *t = safetensors_at(s->files, i);
        status = quantised(s->g, t->name) ? quantise(s, t, err) : copy(s, t, err);
    }
    if (s->writer && status == KEEL_OK)
        status = safetensors_writer_commit(s->writer, err);
    else if (s->writer)
        safetensors_writer_abandon(s->writer);
    keel_free(path);
    return status;
}

/* The weights of the model as the folder has them fit it, and are not quantised yet; *out: as they will be. */
static keel_status quantised_graph(const char *dir, const char *file, const json_t *config, model_quant quant,
                                   graph **out, keel_error *err) {
    const json_t *had = json_object_get(config, "quantization_config");
    model_options o = {.layer_first = 0, .layer_last = -1};
    weights *w = NULL;
    graph *g;
    if (had && !json_is_null(had))
        return error_set(err, KEEL_USAGE, "%s: \"quantization_config\" is there: the weights are quantised already",
                         file);
    KEEL_TRY(model_build(config, file, &o, &g, err));
    keel_status s = weights_open(dir, &w, err);
    if (s == KEEL_OK) s = weights_match(w, g, err);
    weights_close(w);
    graph_close(g);
    o.quant = quant;
    return s == KEEL_OK ? model_build(config, file, &o, out, err) : s;
}

static keel_status write_weights(const char *dir, const graph *g, const char *out_dir, stream *s, keel_error *err) {
    safetensors *files;
    KEEL_TRY(safetensors_open(dir, &files, err));
    s->files = files;
    s->g = g;
    keel_status status = write_all(s, out_dir, err);
    for (size_t i = 0; s->names && i < s->n_decls; i++) mem_free(s->names[i]);
    mem_free(s->decls), mem_free(s->names), mem_free(s->codes), mem_free(s->scales);
    safetensors_close(files);
    return status;
}

static keel_status write_config(const json_t *config, const char *out_dir, keel_error *err) {
    char *path = path_join(out_dir, "config.json");
    json_t *root = json_deep_copy(config);
    json_t *q = json_pack("{s:s,s:s,s:s,s:[i,i],s:[s]}", "quant_method", "fp8", "fmt", "e4m3", "activation_scheme",
                          "dynamic", "weight_block_size", FP8_BLOCK, FP8_BLOCK, "modules_to_not_convert", "lm_head");
    bool good = path && root && json_object_set_new(root, "quantization_config", q) == 0;
    keel_status s = good ? json_write(path, root, JSON_INDENT(2), err) : KEEL_NOMEM_AT(err, out_dir);
    json_decref(root);
    keel_free(path);
    return s;
}

/* The tokenizer, the chat template and what else belongs to the model besides config.json and weights. */
static bool goes_along(const char *name) {
    static const char *const tails[] = {".json", ".jinja", ".txt", ".model"};
    const char *dot = strrchr(name, '.');
    if (!dot || strcmp(name, "config.json") == 0 || strstr(name, ".index.json")) return false;
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        if (strcmp(dot, tails[i]) == 0) return true;
    }
    return false;
}

static keel_status copy_file(const char *dir, const char *name, const char *out_dir, keel_error *err) {
    char *from = path_join(dir, name), *to = path_join(out_dir, name);
    file_map map;
    keel_status s = from && to ? file_map_open(from, &map, err) : KEEL_NOMEM_AT(err, name);
    if (s == KEEL_OK) {
        s = file_write(to, map.data, map.bytes, err);
        file_map_close(&map);
    }
    keel_free(from), keel_free(to);
    return s;
}

static keel_status copy_files(const char *dir, const char *out_dir, keel_error *err) {
    DIR *d = opendir(dir);
    keel_status s = d ? KEEL_OK : error_errno(err, dir, "read the folder");
    for (const struct dirent *e; s == KEEL_OK && (e = readdir(d));) {
        if (goes_along(e->d_name)) s = copy_file(dir, e->d_name, out_dir, err);
    }
    if (d) closedir(d);
    return s;
}

static keel_status convert_config(const char *dir, const char *file, const json_t *config, model_quant quant,
                                  const char *out_dir, stream *s, keel_error *err) {
    graph *g;
    out_folder folder;
    KEEL_TRY(quantised_graph(dir, file, config, quant, &g, err));
    keel_status status = out_folder_begin(out_dir, &folder, err);
    if (status == KEEL_OK) {
        status = copy_files(dir, folder.tmp, err);
        if (status == KEEL_OK) status = write_config(config, folder.tmp, err);
        if (status == KEEL_OK) status = write_weights(dir, g, folder.tmp, s, err);
        status = out_folder_end(&folder, status, err);
    }
    graph_close(g);
    return status;
}

keel_status quant_convert(const char *dir, const char *out_dir, model_quant quant, quant_progress progress, void *user,
                          keel_error *err) {
    char *file = path_join(dir, "config.json");
    json_t *config = NULL;
    stream s = {.progress = progress, .user = user};
    keel_status status = file ? json_read(file, CONFIG_MAX_BYTES, &config, err) : KEEL_NOMEM_AT(err, dir);
    if (status == KEEL_OK) status = convert_config(dir, file, config, quant, out_dir, &s, err);
    json_decref(config);
    keel_free(file);
    return status;
}
