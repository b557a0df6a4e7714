/* SPDX-License-Identifier: Apache-2.0 */
/* Files that the user names as input: whole, and lists of token ids. */
#ifndef KEEL_TOOLS_TOKEN_FILE_H
#define KEEL_TOOLS_TOKEN_FILE_H

#include "keel.h"

/* All bytes of a file or a pipe, zero-terminated; free with free(). */
keel_status file_bytes(const char *path, char **out, size_t *bytes, keel_error *err);

/* Ids: a JSON array, a JSON object with the array "token_ids" or "greedy_ids", or numbers with white space between.
 * Free *ids with free(). */
keel_status token_file_read(const char *path, int32_t **ids, size_t *n, keel_error *err);

#endif
