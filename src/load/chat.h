/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates, by the tokens a tokenizer has: ChatML (<|im_start|>, <|im_end|>) or Llama-3
 * (<|start_header_id|>, <|end_header_id|>, <|eot_id|>). */
#ifndef KEEL_LOAD_CHAT_H
#define KEEL_LOAD_CHAT_H

#include "load/tokenizer.h"

/* One user turn, ready for the model to answer. system may be NULL: then the default system message of the folder's
 * chat template (chat_template.jinja, or in tokenizer_config.json) is used where it can be recognised (a literal system
 * block for the case that no system message is given), else none; "" is an empty system message. model_dir may be NULL:
 * no template. Message text is trimmed where the template says so (Llama 3), and encoded with special tokens NOT
 * matched, so that a user cannot smuggle them in. No known template: KEEL_UNSUPPORTED naming which tokens are missing.
 */
keel_status chat_encode(const tokenizer *t, const char *model_dir, const char *system, const char *user,
                        size_t user_bytes, int32_t **ids, size_t *n_ids, keel_error *err);
/* The token that ends a turn (<|im_end|>, <|eot_id|>), or -1. */
int32_t chat_end_of_turn(const tokenizer *t);

#endif
