/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/rank_group.h"

#include "core/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WHY_BYTES = 512, NAME_BYTES = 80, POLL_NS = 100000 };

/* What each rank says about itself. */
typedef struct member {
    uint32_t pid;  /* 0: not there yet */
    uint32_t left; /* closed in good order */
    uint64_t progress;
    char text[RANK_GROUP_HASH];
} member;

/* In shared memory, zeroed by the system when made. Counters only grow. */
typedef struct header {
    uint64_t bytes; /* of a rank's memory, set by the first */
    uint32_t world, joined, arrived, aborted, why_set;
    char why[WHY_BYTES];
    member member[RANK_GROUP_MAX];
} header;

struct rank_group {
    char name[NAME_BYTES];
    uint32_t world, rank, barriers;
    uint64_t bytes, mapped;
    header *shared;
};

static uint64_t header_bytes(void) { return (sizeof(header) + PAGE - 1) / PAGE * PAGE; }

static uint64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static keel_status shm_name(const char *name, char out[NAME_BYTES], keel_error *err) {
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    if (!name || !*name || strspn(name, good) != strlen(name) || strlen(name) > NAME_BYTES - 8)
        return error_set(err, KEEL_USAGE, "rank group \"%s\": 1 to %d letters, digits, '-', '_' or '.'",
                         name ? name : "", NAME_BYTES - 8);
    snprintf(out, NAME_BYTES, "/keel.%s", name);
    return KEEL_OK;
}

void rank_group_remove(const char *name) {
    char path[NAME_BYTES];
    if (shm_name(name, path, NULL) == KEEL_OK) shm_unlink(path);
}

static keel_status map_group(rank_group *g, keel_error *err) {
    int fd = shm_open(g->name, O_RDWR | O_CREAT, 0600);
    if (fd < 0) return error_set(err, KEEL_IO, "shared memory %s: cannot open: %s", g->name, strerror(errno));
    struct stat at;
    keel_status s = KEEL_OK;
    g->mapped = header_bytes() + g->world * g->bytes;
    if (fstat(fd, &at) != 0 || ((uint64_t)at.st_size < g->mapped && ftruncate(fd, (off_t)g->mapped) != 0)) {
        s = error_set(err, KEEL_NOMEM, "shared memory %s: cannot grow to %llu bytes: %s; free space under /dev/shm",
                      g->name, (unsigned long long)g->mapped, strerror(errno));
    } else {
        void *p = mmap(NULL, g->mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
        if (p == MAP_FAILED)
            s = error_set(err, KEEL_NOMEM, "shared memory %s: cannot map %llu bytes: %s", g->name,
                          (unsigned long long)g->mapped, strerror(errno));
        else
            g->shared = p;
    }
    close(fd);
    return s;
}

/* The first to come fixes world and bytes; the others must agree. */
static keel_status join(rank_group *g, keel_error *err) {
    header *h = g->shared;
    uint64_t none = 0, bytes = g->bytes + 1;
    uint32_t nobody = 0, pid = (uint32_t)getpid();
    bool first = __atomic_compare_exchange_n(&h->bytes, &none, bytes, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    if (first) __atomic_store_n(&h->world, g->world, __ATOMIC_RELEASE);
    uint32_t world = __atomic_load_n(&h->world, __ATOMIC_ACQUIRE);
    if ((!first && none != bytes) || (world && world != g->world)) {
        rank_group_abort(g, "the ranks were made for different plans");
        return error_set(err, KEEL_USAGE, "rank %u of %u: the group %s was made for %u ranks of %llu bytes, not %llu",
                         g->rank, g->world, g->name, world, (unsigned long long)none - 1, (unsigned long long)g->bytes);
    }
    if (!__atomic_compare_exchange_n(&h->member[g->rank].pid, &nobody, pid, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return error_set(err, KEEL_USAGE, "rank %u of the group %s is taken by process %u; give the job another name",
                         g->rank, g->name, nobody);
    __atomic_fetch_add(&h->joined, 1, __ATOMIC_ACQ_REL);
    return KEEL_OK;
}

static void nap(void) { nanosleep(&(struct timespec){0, POLL_NS}, NULL); }

static keel_status await_all(rank_group *g, uint32_t timeout_s, keel_error *err) {
    uint64_t until = now_ms() + 1000ull * timeout_s;
    while (__atomic_load_n(&g->shared->joined, __ATOMIC_ACQUIRE) < g->world) {
        if (rank_group_failed(g, err)) return KEEL_ABORTED;
        if (now_ms() > until) {
            rank_group_abort(g, "not all ranks came in time");
            error_set(err, KEEL_ABORTED, "rank %u of %u: these ranks did not come within %u s:", g->rank, g->world,
                      timeout_s);
            for (uint32_t r = 0; r < g->world; r++) {
                if (!__atomic_load_n(&g->shared->member[r].pid, __ATOMIC_ACQUIRE)) error_append(err, "  rank %u", r);
            }
            return KEEL_ABORTED;
        }
        nap();
    }
    return KEEL_OK;
}

keel_status rank_group_open(const char *name, uint32_t world, uint32_t rank, uint64_t bytes, uint32_t timeout_s,
                            rank_group **out, keel_error *err) {
    if (world < 1 || world > RANK_GROUP_MAX || rank >= world)
        return error_set(err, KEEL_RANGE, "rank %u of %u: a job on one host has 1 to %d ranks", rank, world,
                         RANK_GROUP_MAX);
    rank_group *g = mem_calloc(1, sizeof *g);
    if (!g) return KEEL_NOMEM_AT(err, "rank group");
    *g = (rank_group){.world = world, .rank = rank, .bytes = (bytes + PAGE - 1) / PAGE * PAGE};
    keel_status s = shm_name(name, g->name, err);
    if (s == KEEL_OK) s = map_group(g, err);
    if (s == KEEL_OK) s = join(g, err);
    if (s == KEEL_OK) s = await_all(g, timeout_s, err);
    if (s == KEEL_OK) s = rank_group_barrier(g, err);
    if (s == KEEL_OK && rank == 0) shm_unlink(g->name);
    if (s != KEEL_OK) {
        rank_group_close(g);
        return s;
    }
    *out = g;
    return KEEL_OK;
}

void rank_group_close(rank_group *g) {
    if (!g) return;
    if (g->shared) {
        uint32_t mine = (uint32_t)getpid();
        if (g->shared->member[g->rank].pid == mine)
            __atomic_store_n(&g->shared->member[g->rank].left, 1, __ATOMIC_RELEASE);
        munmap(g->shared, g->mapped);
    }
    mem_free(g);
}

uint8_t *rank_group_memory(const rank_group *g, uint32_t r) {
    return (uint8_t *)g->shared + header_bytes() + r * g->bytes;
}

static bool all_arrived(const rank_group *g, uint32_t all) {
    return (int32_t)(__atomic_load_n(&g->shared->arrived, __ATOMIC_ACQUIRE) - all) >= 0;
}

/* A rank that has closed the group; world when there is none. */
static uint32_t who_left(const rank_group *g) {
    uint32_t r = 0;
    while (r < g->world && !__atomic_load_n(&g->shared->member[r].left, __ATOMIC_ACQUIRE)) r++;
    return r;
}

keel_status rank_group_barrier(rank_group *g, keel_error *err) {
    uint32_t all = g->world * ++g->barriers;
    __atomic_fetch_add(&g->shared->arrived, 1, __ATOMIC_ACQ_REL);
    while (!all_arrived(g, all)) {
        if (rank_group_failed(g, err)) return KEEL_ABORTED;
        uint32_t r = who_left(g);
        if (r < g->world && !all_arrived(g, all)) { /* none leaves before a barrier that the others are in */
            rank_group_abort(g, "waits for a rank that has left");
            return error_set(err, KEEL_ABORTED, "rank %u of %u: rank %u has left the job", g->rank, g->world, r);
        }
        nap();
    }
    return KEEL_OK;
}

void rank_group_publish(rank_group *g, const char text[RANK_GROUP_HASH]) {
    memcpy(g->shared->member[g->rank].text, text, RANK_GROUP_HASH);
}

const char *rank_group_published(const rank_group *g, uint32_t r) { return g->shared->member[r].text; }

void rank_group_abort(rank_group *g, const char *why) {
    header *h = g->shared;
    uint32_t unset = 0;
    if (__atomic_compare_exchange_n(&h->why_set, &unset, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        snprintf(h->why, sizeof h->why, "rank %u: %s", g->rank, why);
    }
    __atomic_store_n(&h->aborted, 1, __ATOMIC_RELEASE);
}

bool rank_group_failed(rank_group *g, keel_error *err) {
    header *h = g->shared;
    if (__atomic_load_n(&h->aborted, __ATOMIC_ACQUIRE)) {
        error_set(err, KEEL_ABORTED, "rank %u of %u: the job was ended by another rank: %.500s", g->rank, g->world,
                  h->why);
        return true;
    }
    for (uint32_t r = 0; r < g->world; r++) {
        uint32_t pid = __atomic_load_n(&h->member[r].pid, __ATOMIC_ACQUIRE);
        bool gone = pid && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
        if (!gone || __atomic_load_n(&h->member[r].left, __ATOMIC_ACQUIRE)) continue;
        char why[64];
        snprintf(why, sizeof why, "rank %u (process %u) is gone", r, pid);
        rank_group_abort(g, why);
        error_set(err, KEEL_ABORTED, "rank %u of %u: %s", g->rank, g->world, why);
        return true;
    }
    return false;
}

uint64_t rank_group_progress(rank_group *g, uint64_t mine) {
    uint64_t sum = 0;
    __atomic_store_n(&g->shared->member[g->rank].progress, mine, __ATOMIC_RELEASE);
    for (uint32_t r = 0; r < g->world; r++) sum += __atomic_load_n(&g->shared->member[r].progress, __ATOMIC_ACQUIRE);
    return sum;
}
