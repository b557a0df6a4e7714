/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of one job on one host: processes that share a piece of POSIX memory. It holds, for each rank, what other
 * ranks touch (control words, event counters, the symmetric arena), and a header for what the hosts agree on. */
#ifndef KEEL_EXEC_RANK_GROUP_H
#define KEEL_EXEC_RANK_GROUP_H

#include "core/error.h"

enum { RANK_GROUP_MAX = 64, RANK_GROUP_HASH = 65 };

typedef struct rank_group rank_group;

/* Joins the group `name` (letters, digits, '-', '_', '.'; one job at a time), which the first to come makes, and waits
 * at most timeout_s seconds for the others. bytes: of each rank's memory, the same everywhere. The name is gone from
 * the system once all are there. KEEL_ABORTED: a rank failed, died or did not come. */
keel_status rank_group_open(const char *name, uint32_t world, uint32_t rank, uint64_t bytes, uint32_t timeout_s,
                            rank_group **out, keel_error *err);
/* Unmaps; the memory goes with the last rank. */
void rank_group_close(rank_group *g);
/* Removes what a job that ended early may have left. */
void rank_group_remove(const char *name);

/* Zeroed, 4096-aligned memory of rank r, as long as the group is open. */
uint8_t *rank_group_memory(const rank_group *g, uint32_t r);

/* All ranks have come this far. KEEL_ABORTED when one has aborted or is gone. */
keel_status rank_group_barrier(rank_group *g, keel_error *err);

/* A short text that each rank publishes before a barrier and all may read behind it. */
void rank_group_publish(rank_group *g, const char text[RANK_GROUP_HASH]);
const char *rank_group_published(const rank_group *g, uint32_t r);

/* Ends the job for all ranks; the first reason stays. Any thread. */
void rank_group_abort(rank_group *g, const char *why);
/* Has a rank aborted, or died? Names it. */
bool rank_group_failed(rank_group *g, keel_error *err);
/* This rank's progress becomes `mine`; the sum over all ranks comes back. For watchdogs. */
uint64_t rank_group_progress(rank_group *g, uint64_t mine);

#endif
