/* SPDX-License-Identifier: Apache-2.0 */
/* keel.h: conversion and files. */
#include "core/file.h"
#include "load/gguf.h"
#include "load/quant_convert.h"
#include "load/safetensors.h"

#include <string.h>

keel_status keel_convert_gguf(const char *gguf_path, const char *out_dir, const char *dtype_text,
                              keel_progress progress, void *user, keel_error *err) {
    if (strcmp(dtype_text, "f32") != 0 && strcmp(dtype_text, "bf16") != 0) {
        return error_set(err, KEEL_USAGE, "--dtype %s: f32 or bf16", dtype_text);
    }
    return gguf_convert(gguf_path, out_dir, strcmp(dtype_text, "f32") == 0 ? DTYPE_F32 : DTYPE_BF16, progress, user,
                        err);
}

keel_status keel_convert_quant(const char *path, const char *out_dir, const char *quant, keel_progress progress,
                               void *user, keel_error *err) {
    model_quant q;
    KEEL_TRY(model_quant_parse(quant, &q, err));
    if (q == QUANT_NONE) return error_set(err, KEEL_USAGE, "%s: quantised to what? known: fp8", path);
    return quant_convert(path, out_dir, q, progress, user, err);
}

keel_status keel_file_save(const char *path, const void *data, size_t bytes, keel_error *err) {
    return file_write(path, data, bytes, err);
}

keel_status keel_logits_save(const char *path, const float *logits, uint64_t n, uint64_t vocab, keel_error *err) {
    safetensor_decl decl = {.name = "logits", .dtype = DTYPE_F32, .rank = 2, .dim = {(int64_t)n, (int64_t)vocab}};
    safetensors_writer *w;
    KEEL_TRY(safetensors_writer_open(path, &decl, 1, &w, err));
    keel_status s = safetensors_writer_put(w, logits, n * vocab * sizeof *logits, err);
    if (s == KEEL_OK) return safetensors_writer_commit(w, err);
    safetensors_writer_abandon(w);
    return s;
}
