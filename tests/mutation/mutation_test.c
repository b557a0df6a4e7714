/* SPDX-License-Identifier: Apache-2.0 */
/* timeout: 240
 * The mutation suite over plans of real ops, one worker to five, one rank and two. Options: suite_main.h. */
#include "mutation/suite_main.h"

int main(int argc, char **argv) {
    suite s = {.program = "mutation_test", .floors = SUITE_FLOORS_REAL};
    for (size_t i = 0; i < SUITE_REAL_JOBS; i++) {
        suite_job job;
        if (!suite_real_job(i, &job) || !suite_add(&s, &job)) return 1;
    }
    return suite_main(&s, argc, argv);
}
