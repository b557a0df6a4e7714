/* SPDX-License-Identifier: Apache-2.0 */
/* The value of one option, from its text. */
#ifndef KEEL_TOOLS_OPTION_VALUE_H
#define KEEL_TOOLS_OPTION_VALUE_H

#include "args.h"

/* Adds text to *out as o's type asks; KEEL_USAGE says what was expected. */
keel_status option_value_read(const verb *v, const option *o, const char *text, option_value *out, keel_error *err);
/* A whole number in decimal digits and nothing else, ending at *end (NULL: at the end of text). */
bool count_parse(const char *text, uint64_t *out, const char **end);

#endif
