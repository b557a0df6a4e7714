/* SPDX-License-Identifier: Apache-2.0 */
/* JSON for machines. */
#ifndef KEEL_TOOLS_JSON_OUT_H
#define KEEL_TOOLS_JSON_OUT_H

#include "keel.h"

#include <jansson.h>

/* A string of any bytes: what is not UTF-8 becomes U+FFFD. NULL when memory is short. */
json_t *json_of_text(const char *text, size_t bytes);
json_t *json_of_ids(const int32_t *ids, size_t n);
/* A number with the digits that a measurement deserves; what is not finite becomes null. */
json_t *json_of_real(double v);

/* Both take the value's reference, which may be NULL (memory was short): KEEL_NOMEM. */
keel_status json_print(json_t *value, keel_error *err);
keel_status json_save(json_t *value, const char *path, keel_error *err);
/* {"error":{"status":…,"detail":…}} */
keel_status json_print_error(const keel_error *what, keel_error *err);

#endif
