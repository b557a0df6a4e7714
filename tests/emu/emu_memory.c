/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory: poisoned when it is new, canaries on both sides; and shared memory, one block of it an emulated SM. */
#include "emu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { POISON = 0xff, SHARED_POISON = 0xfd, CANARY = 0xa5 };

typedef struct allocation {
    char *at;
    size_t bytes, shadow_bytes;
    void *shadow; /* emu_race.c's */
    struct allocation *next;
} allocation;
static allocation *all, *last_hit;

void *emu_alloc(size_t bytes) {
    size_t room = (bytes + 255) / 256 * 256;
    char *p = NULL;
    if (posix_memalign((void **)&p, 4096, room + 2 * EMU_CANARY)) return NULL;
    allocation *a = malloc(sizeof *a);
    if (!a) return free(p), NULL;
    *a = (allocation){.at = p + EMU_CANARY, .bytes = bytes, .next = all};
    memset(p, CANARY, EMU_CANARY);
    memset(a->at, POISON, bytes);
    memset(a->at + bytes, CANARY, room - bytes + EMU_CANARY);
    all = a;
    return a->at;
}

static bool intact(const char *p, size_t bytes) {
    while (bytes && (unsigned char)*p == CANARY) p++, bytes--;
    return !bytes;
}

static const char *check(const allocation *a) {
    size_t room = (a->bytes + 255) / 256 * 256;
    if (!intact(a->at - EMU_CANARY, EMU_CANARY)) return "bytes in front of an allocation were overwritten";
    if (!intact(a->at + a->bytes, room - a->bytes + EMU_CANARY)) return "bytes behind an allocation were overwritten";
    return NULL;
}

const char *emu_check_canaries(void) {
    const char *wrong = NULL;
    for (const allocation *a = all; a && !wrong; a = a->next) wrong = check(a);
    return wrong;
}

const char *emu_free(void *p) {
    allocation **at = &all;
    while (*at && (*at)->at != p) at = &(*at)->next;
    allocation *a = *at;
    if (!a) return "free of what is no allocation";
    const char *wrong = check(a);
    *at = a->next;
    last_hit = NULL;
    if (a->shadow) munmap(a->shadow, a->shadow_bytes);
    free(a->at - EMU_CANARY);
    free(a);
    return wrong;
}

static bool holds(const allocation *a, const char *p, size_t bytes) {
    return p >= a->at && p <= a->at + a->bytes && bytes <= (size_t)(a->at + a->bytes - p);
}

bool emu_inside(const void *p, size_t bytes) {
    if (last_hit && holds(last_hit, p, bytes)) return true;
    for (allocation *a = all; a; a = a->next) {
        if (!holds(a, p, bytes)) continue;
        last_hit = a;
        return true;
    }
    return false;
}

bool emu_in_shared(const void *p, size_t bytes) {
    const emu_block *b = emu_m.warp->block;
    const char *at = p;
    return at >= b->shared && bytes <= b->shared_used && at <= b->shared + b->shared_used - bytes;
}

void emu_touch(const void *p, unsigned bytes, enum emu_space space, enum emu_access access) {
    static const char *const spaces[] = {"any", "global", "shared"};
    const char *verb = access & EMU_WRITE ? "write" : "read";
    if ((uintptr_t)p % bytes) emu_fault("a %s of %u bytes at %p, which is no multiple of them", verb, bytes, p);
    bool shared = emu_in_shared(p, bytes);
    if (shared ? space != EMU_GLOBAL : space != EMU_SHARED && emu_inside(p, bytes)) {
        void **frame = __builtin_frame_address(0); /* the helper's caller is the device text */
        if (emu_races) emu_race_access(p, bytes, access, ((void **)frame[0])[1]);
        return;
    }
    char where[128];
    emu_address_text(p, where, sizeof where);
    emu_fault("a %s of %u bytes of %s memory at %p (%s)", verb, bytes, spaces[space], p, where);
}

void *emu_global_shadow(const void *p, size_t bytes, unsigned per_byte) {
    if (!emu_inside(p, bytes)) return NULL;
    allocation *a = last_hit;
    if (!a->shadow) {
        a->shadow_bytes = (a->bytes + 16) * per_byte;
        a->shadow =
            mmap(NULL, a->shadow_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (a->shadow == MAP_FAILED) abort();
    }
    return (char *)a->shadow + (size_t)((const char *)p - a->at) / 2 * 2 * per_byte;
}

void emu_clear_shadows(void) {
    for (allocation *a = all; a; a = a->next) {
        if (a->shadow) munmap(a->shadow, a->shadow_bytes);
        a->shadow = NULL;
    }
}

/* The thread's own stack is its own affair. */
void emu_plain(const void *p, unsigned bytes, enum emu_access access, const void *pc) {
    if (!emu_m.thread) return; /* the host takes parameters */
    const char *at = p, *stack = emu_m.thread->stack;
    if ((at >= stack && at < stack + EMU_STACK) || !bytes) return;
    const emu_block *b = emu_m.warp->block;
    if (at >= b->shared && at < b->shared + EMU_SHARED_BYTES && !emu_in_shared(p, bytes))
        emu_fault("a plain access beyond the block's shared memory");
    emu_race_access(p, bytes, access, pc);
}

void *emu_shared_dynamic(void) { return emu_m.warp->block->shared; }

void *emu_shared_of(unsigned id, unsigned bytes, unsigned align, const char *name) {
    emu_block *b = emu_m.warp->block;
    for (unsigned i = 0; i < b->n_names; i++) {
        if (b->name[i].id == id) return b->shared + b->name[i].offset;
    }
    if (align < 16) align = 16;
    unsigned at = (b->shared_used + align - 1) / align * align;
    if (at + bytes > EMU_SHARED_BYTES || b->n_names == EMU_MOST_SHARED)
        emu_fault("%s: a block has %d bytes of shared memory; this needs %u", name, EMU_SHARED_BYTES, at + bytes);
    b->name[b->n_names++] = (emu_shared){.id = id, .offset = at, .bytes = bytes, .name = name};
    b->shared_used = at + bytes;
    memset(b->shared + at, SHARED_POISON, bytes);
    return b->shared + at;
}

unsigned emu_shared_offset(const void *p) {
    if (!emu_in_shared(p, 0)) emu_fault("%p is no address of this block's shared memory", p);
    return (unsigned)((const char *)p - emu_m.warp->block->shared);
}

void emu_address_text(const void *p, char *text, size_t bytes) {
    const char *at = p;
    for (unsigned i = 0; i < emu_m.n_blocks; i++) {
        const emu_block *b = &emu_m.block[i];
        if (at < b->shared || at >= b->shared + EMU_SHARED_BYTES) continue;
        unsigned offset = (unsigned)(at - b->shared);
        for (unsigned k = 0; k < b->n_names; k++) {
            if (offset < b->name[k].offset || offset >= b->name[k].offset + b->name[k].bytes) continue;
            snprintf(text, bytes, "block %u shared %s+0x%x", b->index, b->name[k].name, offset - b->name[k].offset);
            return;
        }
        snprintf(text, bytes, "block %u shared+0x%x", b->index, offset);
        return;
    }
    for (const allocation *a = all; a; a = a->next) {
        if (at + EMU_CANARY < a->at || at >= a->at + a->bytes + EMU_CANARY) continue;
        snprintf(text, bytes, "allocation of %zu bytes at offset %td", a->bytes, at - a->at);
        return;
    }
    snprintf(text, bytes, "no memory of the device");
}
