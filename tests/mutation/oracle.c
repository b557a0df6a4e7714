/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle_internal.h"

#include <stdlib.h>

const char *oracle_verdict_name(oracle_verdict v) {
    static const char *const names[] = {
#define X(NAME, text) #NAME,
        ORACLE_MAP(X)
#undef X
    };
    return v < ORACLE_VERDICTS ? names[v] : "?";
}

oracle *oracle_open(void) {
    oracle *o = calloc(1, sizeof *o);
    if (o) o->runner = runner_open();
    if (o && o->runner) return o;
    free(o);
    return NULL;
}

void oracle_close(oracle *o) {
    if (!o) return;
    runner_close(o->runner);
    shadow_free(&o->s);
    free(o);
}

void oracle_blind(oracle *o, enum oracle_blindness b) { o->blind = b; }

keel_status oracle_judge(oracle *o, const plan *const *ranks, uint32_t n, uint32_t first_schedule, uint32_t schedules,
                         oracle_result *out, keel_error *err) {
    *out = (oracle_result){0};
    keel_status s = model_open(&o->m, ranks, n, err);
    for (uint32_t i = first_schedule; i < first_schedule + schedules && s == KEEL_OK && !out->verdict; i++) {
        out->schedule = i;
        out->runs++;
        s = runner_run(o, i, out, err);
    }
    model_close(&o->m);
    return s;
}
