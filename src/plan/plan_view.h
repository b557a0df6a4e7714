/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of plan_show. When memory is short they mark the buffer as failed. */
#ifndef KEEL_PLAN_PLAN_VIEW_H
#define KEEL_PLAN_PLAN_VIEW_H

#include "plan/plan.h"

/* "123 B", "4.56 MB"; decimal units, as bandwidths have. */
enum { VIEW_BYTES = 24 };
const char *view_bytes(uint64_t bytes, char text[VIEW_BYTES]);
/* One line a phase; consecutive layers that are the same are told in one line. */
void view_phases(const plan *p, buf *out);
/* Buffers by kind; equal shapes under names that differ in numbers alone are told in one line. */
void view_buffers(const plan *p, buf *out);

#endif
