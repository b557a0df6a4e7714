/* SPDX-License-Identifier: Apache-2.0 */
/* The state that the protocol works on. SMEM: kp_worker with its slots and page barriers. Global: kp_launch and what
 * it points to. */
#ifndef KEEL_DEVICE_WORKER_H
#define KEEL_DEVICE_WORKER_H

#include "device/task.h"

#ifndef KP_SLOTS       /* tests/model sets others */
enum { KP_SLOTS = 6 }; /* instruction ring: how many tasks are in flight in a worker */
#endif

/* A slot barrier. `word`: bits 0–31 bytes still to land (modulo 2^32), 32–47 arrivals still missing, 48–63 phase. */
typedef struct kp_bar {
    kp_u64 word;
#ifndef __CUDACC__ /* there the word is the hardware's */
    kp_u32 count, pad;
#endif
} kp_bar;

enum { KP_BAND_LANES = 8 }; /* consumer lanes at most, on a GPU */

/* An event's monotonic counter, alone on its cache line. Never reset between iterations. */
typedef struct kp_event {
    kp_u32 count;
    kp_u32 pad[15];
} kp_event;

/* One op of the graph as bound to memory. */
enum { KP_BUFFERS = 14, KP_RECORD_WAITS = 4 };
typedef struct kp_instance {
    const void *params;       /* the op's own parameter struct */
    void *buffer[KP_BUFFERS]; /* inputs, then weights, then outputs, then scratch, in the op's order */
} kp_instance;

/* GPU: all that the roles need of a queue entry, in one piece, so that one copy brings it; made by the host. */
typedef struct kp_record {
    kp_task task;
    kp_u32 variant;  /* which case of the plan's dispatch runs it */
    kp_u32 entry;    /* of the queues */
    kp_u32 weak;     /* 1: the additions to its event need not order what it wrote, which is tagged */
    kp_u32 by_step;  /* 1: of its events it waits for the step's alone */
    kp_u32 by_bands; /* 1: its storer stores band by band, as the consumer's lanes have them ready */
    kp_u32 pad;
    void *buffer[KP_BUFFERS];
    kp_u32 event[KP_RECORD_WAITS], triggers[KP_RECORD_WAITS]; /* of the task's first waits */
} kp_record;

typedef struct kp_control {
    kp_u32 arrived; /* workers × iterations that reached the border */
    kp_u32 pad0[15];
    kp_u64 go; /* (iteration << 1) | stop */
    kp_u64 pad1[7];
    kp_u32 abort; /* polled by every wait */
    kp_u32 pad2[15];
    kp_u32 stop_request; /* set by the host at any time; worker 0's controller looks */
    kp_u32 pad3[15];
    kp_u32 checked_in; /* GPU: workers that have started */
    kp_u32 pad5[15];
    kp_u32 ranks_arrived; /* rank 0: ranks × iterations that reached the border */
    kp_u32 pad4[15];
} kp_control;

typedef struct kp_launch {
    kp_u32 n_workers;
    const kp_task *tasks;
    const kp_u32 *queue, *queue_first; /* worker w runs tasks[queue[i]] for i in [queue_first[w], queue_first[w+1]) */
    const kp_u32 *waits;               /* event ids */
    const kp_u32 *triggers;            /* by event: additions an iteration */
    kp_event *events;
    kp_control *control;
    const kp_instance *instances;
    const kp_record *records; /* GPU: by queue entry */
    kp_step *step;
    kp_state *state;
    const kp_request *request;
    /* The other ranks of the job; 1, 0 and null without. Tables [world] of each rank's own, this one's among them. */
    kp_u32 world, rank;
    const kp_u8 *event_ranks; /* by event: 1 = a task that triggers it adds to every rank's counter */
    kp_event *const *rank_events;
    kp_control *const *rank_control;
    kp_u64 *trace; /* GPU, with a trace: [queue entries][KP_MARKS] globaltimer << 32 | clock of trace_iteration */
    kp_u32 trace_iteration;
    kp_u32 epoch;              /* GPU: of the first iteration; no two iterations of a session have the same */
    void *report;              /* GPU: where each lane says how it ended */
    kp_u8 *const *rank_memory; /* symmetric arenas: the same offset is the same buffer on every rank */
} kp_launch;

/* What the roles of a worker share about one task in flight. Every barrier completes exactly one phase a slot use, so
 * one parity, (sequence / KP_SLOTS) & 1, serves them all. */
typedef struct kp_slot {
#ifdef __CUDACC__
    alignas(16) kp_record record; /* the target of a bulk copy */
    kp_u32 bands[KP_BAND_LANES];  /* where it is stored by bands: how many each consumer lane has ready; 0 when free */
#else
    kp_task task;
#endif
    kp_u32 iteration, terminate;
    kp_bar arrived;        /* controller → all: the descriptor is here */
    kp_bar claimed;        /* loader → loader, launcher: the task's pages are its own */
    kp_bar ready;          /* launcher lane 0 → its sister lanes: the events are satisfied */
    kp_bar loaded;         /* loader, launcher and copies → consumer: all has landed */
    kp_bar computed;       /* consumer → storer */
    kp_bar finished;       /* every lane of every role → controller: the slot is free */
    kp_bar join[KP_ROLES]; /* lanes of one role among themselves */
} kp_slot;

KP_FN kp_task *kp_slot_task(kp_slot *slot) {
#ifdef __CUDACC__
    return &slot->record.task;
#else
    return &slot->task;
#endif
}

typedef struct kp_worker {
    kp_u32 index;
    kp_u32 lanes[KP_ROLES]; /* lanes of each role; a lane is a fiber on the CPU, a warp on the GPU */
    kp_u32 n_pages, page_bytes;
    kp_u8 *smem;       /* [n_pages][page_bytes] */
    kp_bar *page_free; /* [n_pages] one phase a release */
    kp_u32 *claims;    /* [n_pages] the loader lane's own count */
    const kp_launch *launch;
#ifdef __CUDACC__
    kp_step step; /* a copy of the step record, made once an iteration */
    kp_u32 step_of;
#endif
    kp_slot slot[KP_SLOTS];
} kp_worker;

/* A backend may know the lanes of a role when it is compiled. */
#ifdef KD_LANES_OF
constexpr KP_FN kp_u32 kd_pick(kp_u32 i, kp_u32 a, kp_u32 b, kp_u32 c, kp_u32 d, kp_u32 e) {
    return i == 0 ? a : i == 1 ? b : i == 2 ? c : i == 3 ? d : e;
}
KP_FN kp_u32 kd_lanes(kp_u32 role) { return kd_pick(role, KD_LANES_OF); }
#define KP_LANES(c, role) kd_lanes(role)
#else
#define KP_LANES(c, role) ((c)->worker->lanes[role])
#endif

/* A lane of a role. */
typedef struct kp_ctx {
    kp_worker *worker;
    kp_u32 role, lane;
    kp_u32 iteration;
    kp_u32 stream;       /* stages that this lane has pushed or seen go by since the launch (device/cuda_stream.cuh) */
    kp_slot *slot;       /* of the task in hand */
    kp_u32 parity;       /* of its barriers */
    const kp_task *task; /* in the slot */
    void *backend;
#ifdef __CUDACC__
    const void *params; /* of the task in hand */
#ifdef KD_TRACE
    kp_u32 held; /* cycles that the ring kept it waiting since the last mark */
#endif
    kp_u32 tagged; /* its slots whose buffers are tagged (device/tagged.h), a bit each */
#endif
} kp_ctx;

/* Moments in a task's life that a trace keeps, of one lane a role. X(NAME) */
#define KP_MARK_MAP(X)                                                                                                 \
    X(LOADER_BEGINS)                                                                                                   \
    X(LOADER_DONE)                                                                                                     \
    X(CLAIMED)                                                                                                         \
    X(EVENTS)                                                                                                          \
    X(FETCHED)                                                                                                         \
    X(LOADED)                                                                                                          \
    X(COMPUTED)                                                                                                        \
    X(STORER_BEGINS)                                                                                                   \
    X(STORED)                                                                                                          \
    X(SIGNALLED)
enum kp_mark {
#define X(NAME) KP_MARK_##NAME,
    KP_MARK_MAP(X)
#undef X
        KP_MARKS
};

/* What a waiting lane waits for: lets the CPU scheduler look without switching, and names it in reports. */
enum kp_hint_kind { KP_HINT_RUN, KP_HINT_BAR, KP_HINT_COUNTER, KP_HINT_GO, KP_HINT_AGENT };
/* X(NAME, in a report: "waits for …") */
#define KP_WHAT_MAP(X)                                                                                                 \
    X(ARRIVED, "the next task")                                                                                        \
    X(CLAIMED, "its pages to be claimed")                                                                              \
    X(READY, "its events")                                                                                             \
    X(LOADED, "its inputs to land")                                                                                    \
    X(COMPUTED, "the consumer's result")                                                                               \
    X(FINISHED, "a free instruction slot")                                                                             \
    X(JOIN, "its sister lane")                                                                                         \
    X(BORDER, "the other workers at the iteration border")                                                             \
    X(GO, "worker 0's go word")                                                                                        \
    X(COPY, "a copy")                                                                                                  \
    X(STREAM, "the weight stream")                                                                                     \
    X(TAGGED, "tagged data of this iteration")                                                                         \
    X(STEP, "this iteration's step record")
enum kp_what {
#define X(NAME, text) KP_WHAT_##NAME,
    KP_WHAT_MAP(X)
#undef X
        KP_WHAT_PAGE = 0x10000000, /* + page */
    KP_WHAT_EVENT = 0x20000000,    /* + event */
};
typedef struct kp_hint {
    kp_u32 kind, what, target;
    kp_u64 *go;
    kp_bar *bar;
    kp_u32 *count;
} kp_hint;

#endif
