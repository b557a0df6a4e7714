/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF: reading, dequantising, and conversion to a Hugging Face folder. Format: ggml's docs/gguf.md (v2, v3). */
#ifndef KEEL_LOAD_GGUF_H
#define KEEL_LOAD_GGUF_H

#include "core/dtype.h"
#include "core/error.h"

typedef struct gguf gguf;

/* Checked on the way in: magic, version, every count, length and nesting against the file's size, no key and no tensor
 * twice, alignment a power of two, offsets aligned, tensors inside the file and not overlapping. */
keel_status gguf_open(const char *path, gguf **out, keel_error *err);
/* Over bytes that outlive *out; for fuzzing and tests. */
keel_status gguf_parse(const char *file, const uint8_t *data, size_t bytes, gguf **out, keel_error *err);
void gguf_close(gguf *g);

/* Dequantises n elements (a whole number of blocks, else KEEL_RANGE) of a GGML type to f32; blocks needs no alignment.
 * Types: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K; for others KEEL_UNSUPPORTED names the type. */
keel_status gguf_dequantize(uint32_t ggml_type, const void *blocks, uint64_t n, float *out, keel_error *err);
/* Bytes that n elements of a type take, 0 when the type is unknown or n no whole number of blocks. */
uint64_t gguf_type_bytes(uint32_t ggml_type, uint64_t n);

/* Writes OUT_DIR with config.json, generation_config.json, tokenizer.json, tokenizer_config.json and
 * model.safetensors in the wanted dtype (DTYPE_F32 or DTYPE_BF16). Architectures: llama, qwen3, dense. Tokeniser:
 * byte-level BPE with a known tokenizer.ggml.pre; what cannot be said in the folder's files is refused, never dropped.
 * The rotary row permutation that GGUF's llama conversion applies to q and k is undone. Needs memory for a megabyte or
 * two and the vocabulary, not for the weights. The folder appears complete or not at all (it grows as OUT_DIR.tmp.PID
 * beside its place); an existing OUT_DIR is KEEL_USAGE. progress may be NULL: called with done and total bytes of
 * weights. */
typedef bool (*gguf_progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
keel_status gguf_convert(const char *gguf_path, const char *out_dir, dtype to, gguf_progress progress, void *user,
                         keel_error *err);

#endif
