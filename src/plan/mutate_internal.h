/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KEEL_PLAN_MUTATE_INTERNAL_H
#define KEEL_PLAN_MUTATE_INTERNAL_H

#include "plan/mutate.h"

/* A mutation under way. p is a private copy whose arrays may be written; grown arrays come from its arena. */
typedef struct mutation {
    plan *p;
    uint64_t random;
    char *what;
    bool nomem;
} mutation;

/* False: no place found (or nomem is set); p is then thrown away. */
typedef bool (*mutate_fn)(mutation *m);

/* X(name, function, doc) */
#define MUTATE_MAP(X)                                                                                                  \
    X("drop-wait", mutate_drop_wait, "a task no longer waits for one of its events")                                   \
    X("retarget-wait", mutate_retarget_wait, "a task waits for another event instead")                                 \
    X("duplicate-wait", mutate_duplicate_wait, "a task waits for one of its events twice (harmless)")                  \
    X("add-wait", mutate_add_wait, "a task waits for one more event, any")                                             \
    X("drop-trigger", mutate_drop_trigger, "a task no longer triggers its event")                                      \
    X("retarget-trigger", mutate_retarget_trigger, "a task triggers another event instead")                            \
    X("add-trigger", mutate_add_trigger, "a task without an event triggers one")                                       \
    X("trigger-count", mutate_trigger_count, "an event counts one trigger more or less")                               \
    X("event-phase", mutate_event_phase, "an event names another phase (a label: harmless)")                           \
    X("event-weak", mutate_event_weak, "the additions to an event no longer order what its tasks wrote")               \
    X("swap-tasks", mutate_swap_tasks, "two tasks of a queue change places")                                           \
    X("swap-workers", mutate_swap_workers, "two tasks of different queues change places")                              \
    X("move-task", mutate_move_task, "a task goes to a place in another queue")                                        \
    X("overlap-buffers", mutate_overlap_buffers, "a buffer gets the offset of another one")                            \
    X("shift-buffer", mutate_shift_buffer, "a buffer moves by some cache lines")                                       \
    X("rezero-scratch", mutate_rezero_scratch, "what is written in every iteration lies on a scratch buffer")          \
    X("shrink-arena", mutate_shrink_arena, "the arena ends earlier")                                                   \
    X("lifetime", mutate_lifetime, "a buffer's first or last phase is another (a label: harmless)")                    \
    X("buffer-kind", mutate_buffer_kind, "a buffer is of another kind, or the caller's to fill")                       \
    X("swap-binding", mutate_swap_binding, "an instance is bound to another buffer of that shape")                     \
    X("shrink-span", mutate_shrink_span, "a span of pages loses its last page, or vanishes")                           \
    X("move-span", mutate_move_span, "a span goes to other pages, its regions with it")                                \
    X("alias-page", mutate_alias_page, "a span goes to other pages, its regions stay")                                 \
    X("overlap-spans", mutate_overlap_spans, "two spans of a task share a page")                                       \
    X("shift-region", mutate_shift_region, "a region moves within SMEM")                                               \
    X("drop-region", mutate_drop_region, "a task has one region less")                                                 \
    X("release-role", mutate_release_role, "another role releases a span")                                             \
    X("drop-task", mutate_drop_task, "a task is left out; its event may be adjusted")                                  \
    X("duplicate-task", mutate_duplicate_task, "a task runs twice; its event may be adjusted")                         \
    X("resize-tile", mutate_resize_tile, "a task's lo, hi or aux is another")                                          \
    X("drop-body", mutate_drop_body, "a task's role bodies are none, or another phase's")                              \
    X("drop-phase", mutate_drop_phase, "a phase is left out, and the waits for it")                                    \
    X("header", mutate_header, "SMEM, KV splits, positions, rows or the rank are others than the tasks were made for") \
    X("skip-collective", mutate_skip_collective, "this rank leaves out a collective")                                  \
    X("reorder-collective", mutate_reorder_collective, "this rank runs two collectives in the other order")            \
    X("rank-event", mutate_rank_event, "this rank counts an event of all ranks as its own, or the reverse")            \
    X("symmetric-offset", mutate_symmetric_offset, "a symmetric buffer lies elsewhere on this rank")

#define X(name, function, doc) bool function(mutation *m);
MUTATE_MAP(X)
#undef X

/* In [0, n). */
uint32_t mutate_draw(mutation *m, uint32_t n);
/* Writes m->what; returns true, so that a mutation can end with it. */
bool mutate_say(mutation *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A copy of n elements with room for n + extra; NULL sets nomem. */
void *mutate_grow(mutation *m, const void *array, uint32_t n, uint32_t extra, size_t size);

/* "l0.attn.q_proj" of a task. */
const char *mutate_task_name(const mutation *m, uint32_t task);
uint32_t mutate_phase_of(const plan *p, uint32_t task);
/* Takes task `task` out of tasks, queue and phases; what follows is renumbered. An empty phase goes too. */
void mutate_remove_task(mutation *m, uint32_t task);
/* No task waits for `event` any more. */
void mutate_forget_event(mutation *m, uint32_t event);

#endif
