/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KEEL_TOOLS_WALL_CLOCK_H
#define KEEL_TOOLS_WALL_CLOCK_H

#include <time.h>

/* Seconds since some moment in the past, never going back. */
static inline double wall_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
