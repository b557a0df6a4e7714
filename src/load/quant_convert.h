/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint's quantised copy, in the form that FP8 checkpoints on Hugging Face have (DeepSeek-V3, Qwen3-8B-FP8):
 * X.weight as F8_E4M3, X.weight_scale_inv as F32 [⌈n / 128⌉][⌈k / 128⌉], and "quantization_config" in config.json.
 * The scale of a block is the greatest of its magnitudes over 448, 1 where all are zero; an element is its value over
 * the scale, rounded to nearest even. Everything else is copied as it is. */
#ifndef KEEL_LOAD_QUANT_CONVERT_H
#define KEEL_LOAD_QUANT_CONVERT_H

#include "graph/model.h"

/* Bytes written so far, of the total. Returning false stops the conversion: KEEL_ABORTED, nothing is left behind. */
typedef bool (*quant_progress)(void *user, uint64_t done, uint64_t total);

/* dir: a checkpoint folder whose weights are F32, BF16 or F16. out_dir must not exist; it appears complete or not at
 * all. Which weights become quantised is the model's to say (model_build with `quant`). progress may be NULL. */
keel_status quant_convert(const char *dir, const char *out_dir, model_quant quant, quant_progress progress, void *user,
                          keel_error *err);

#endif
