/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU backend of the protocol: one OS thread a worker; its roles are fibers that switch where they wait. */
#ifndef KEEL_EXEC_CPU_WORKER_H
#define KEEL_EXEC_CPU_WORKER_H

#include "core/error.h"
#include "device/body.h"

typedef struct cpu_config {
    uint32_t lanes; /* lanes a role, 1 or 2; 0 = 1 */
    uint32_t seed;  /* 0: fixed order; else fibers and copies run in an order drawn from it */
    uint32_t n_pages, page_bytes;
    const kb_body *bodies; /* [body index][KP_ROLES]; borrowed */
} cpu_config;

typedef struct cpu_engine cpu_engine;

/* Cores that this process may use (its affinity), at least 1. */
uint32_t cpu_cores(void);

/* Workers, fibers and SMEM for `launch` (borrowed; its arrays may change between runs, not its worker count). */
keel_status cpu_engine_open(const kp_launch *launch, const cpu_config *config, cpu_engine **out, keel_error *err);
/* Starts one run: one thread a worker. The caller has zeroed events and control. */
keel_status cpu_engine_start(cpu_engine *e, keel_error *err);
/* A number that grows while any role of any worker advances; for the watchdog. */
uint64_t cpu_engine_progress(const cpu_engine *e);
/* True when every worker that is still there has looked at all its lanes again and again, sleeping between, and found
 * none that may go on: with no progress meanwhile, that is a hang and not a machine that gives the threads no time. */
bool cpu_engine_idle(const cpu_engine *e);
/* True when all workers have left. */
bool cpu_engine_done(const cpu_engine *e);
/* Waits for all workers to leave. */
void cpu_engine_join(cpu_engine *e);
/* What lane (worker, role, lane) waited for when it last waited; false once it has left in good order. Only after join.
 */
bool cpu_engine_stuck(const cpu_engine *e, uint32_t worker, uint32_t role, uint32_t lane, kp_hint *hint, kp_ctx *at);
void cpu_engine_close(cpu_engine *e);

#endif
