/* SPDX-License-Identifier: Apache-2.0 */
/* The lever table: optional changes, off by default, recorded in every plan made with them. With all levers off the
 * plan is byte-identical to the last accepted one. */
#ifndef KEEL_PLAN_LEVER_H
#define KEEL_PLAN_LEVER_H

#include "core/error.h"

typedef struct lever_desc {
    const char *name; /* NULL ends the table */
    const char *doc;  /* what it changes, and the prediction it was added with */
} lever_desc;

extern const lever_desc lever_table[];
/* KEEL_USAGE naming the known levers when one is unknown or given twice. */
keel_status lever_check(const char *const *names, uint32_t n, keel_error *err);

#endif
