/* SPDX-License-Identifier: Apache-2.0 */
/* After the watchdog aborted a CPU run: who waited, for what, and who should have signalled it. */
#ifndef KEEL_EXEC_HANG_H
#define KEEL_EXEC_HANG_H

#include "exec/cpu_worker.h"
#include "plan/plan.h"

/* Returns KEEL_HANG with one line a stuck lane (the first few). Only after cpu_engine_join(). */
keel_status hang_report(const plan *p, const cpu_engine *e, const kp_launch *l, uint32_t seconds, keel_error *err);

#endif
