/* SPDX-License-Identifier: Apache-2.0 */
/* keel.h: broken plans on purpose. */
#include "exec/api.h"

#include "core/buf.h"
#include "core/mem.h"
#include "plan/mutate.h"

const char *keel_mutation_kind(size_t i, const char **doc) { return mutate_kind(i, doc); }

keel_status keel_plan_mutate(const keel_plan *k, const char *kind, uint64_t seed, keel_plan **out, char **what,
                             keel_error *err) {
    char text[MUTATE_WHAT_BYTES];
    buf copy = {0};
    keel_plan *made = mem_calloc(1, sizeof *made);
    if (!made) return KEEL_NOMEM_AT(err, "plan");
    keel_status s = plan_mutate(k->plan, kind, seed, &made->plan, text, err);
    if (s == KEEL_OK) buf_str(&copy, text);
    char *t = s == KEEL_OK ? buf_take(&copy) : NULL;
    if (s == KEEL_OK && !t) s = KEEL_NOMEM_AT(err, "plan");
    if (s != KEEL_OK) {
        keel_plan_close(made);
        return s;
    }
    *out = made;
    *what = t;
    return KEEL_OK;
}
