/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/lever.h"

#include "core/buf.h"

#include <string.h>

const lever_desc lever_table[] = {
    {"chain", "no fused ops where the arch has them: every op of the graph is one of the plan"},
    {"fused", "fused ops on the CPU too, which gains nothing there: to compare them with the chain"},
    {NULL, NULL},
};

static bool lever_known(const char *name) {
    for (const lever_desc *l = lever_table; l->name; l++) {
        if (strcmp(l->name, name) == 0) return true;
    }
    return false;
}

keel_status lever_check(const char *const *names, uint32_t n, keel_error *err) {
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (strcmp(names[i], names[j]) == 0) return error_set(err, KEEL_USAGE, "--lever %s: given twice", names[i]);
        }
        if (lever_known(names[i])) continue;
        buf known = {0};
        for (const lever_desc *l = lever_table; l->name; l++) buf_printf(&known, " %s", l->name);
        keel_status s = error_set(err, KEEL_USAGE, "--lever %s: no such lever; known:%s", names[i],
                                  known.data ? (const char *)known.data : " none yet");
        buf_free(&known);
        return s;
    }
    return KEEL_OK;
}
