/* SPDX-License-Identifier: Apache-2.0 */
/* Independent pieces of work over all cores. */
#ifndef KEEL_LOAD_EACH_H
#define KEEL_LOAD_EACH_H

#include <stdbool.h>
#include <stddef.h>

/* caller: this call runs on the thread that called each_on_cores(). */
typedef void (*each_fn)(void *context, size_t i, bool caller);
/* fn for every i of [0, n), in no order; returns when all are done. Where threads are short the caller does it all. */
void each_on_cores(size_t n, each_fn fn, void *context);

#endif
