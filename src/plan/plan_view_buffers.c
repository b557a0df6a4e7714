/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers by kind. Names that differ in a number alone ("l3.attn.q", "model.layers.3.…") and have the same shape stand
 * in one line, with a star for the number. */
#include "plan/plan_view.h"

#include "core/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct row {
    const plan_buffer *b;
    const char *pattern;
    uint32_t index;
    uint32_t count;       /* of the group that begins here; 0 inside one */
    uint64_t least, most; /* offsets in the group */
} row;

static bool lives(const plan_buffer *b) {
    return buffer_placed(b->kind) || b->kind == BUFFER_CACHE || b->kind == BUFFER_STEP;
}

/* A copy with every component "7" or "l7" between dots as "*" or "l*". */
static const char *make_pattern(arena *a, const char *name) {
    char *pattern = arena_strdup(a, name), *to = pattern;
    if (!pattern) return NULL;
    for (const char *from = name; *from;) {
        size_t n = strcspn(from, "."), prefix = from[0] == 'l' && n > 1;
        bool number = n > 0 && strspn(from + prefix, "0123456789") == n - prefix;
        size_t keep = number ? prefix : n;
        memcpy(to, from, keep);
        to += keep;
        if (number) *to++ = '*';
        from += n;
        if (*from) *to++ = *from++;
    }
    *to = '\0';
    return pattern;
}

static int compare_numbers(uint64_t a, uint64_t b) { return a < b ? -1 : a > b; }

/* 0 when both are told in one line. */
static int compare_shown(const row *x, const row *y) {
    int d = compare_numbers(x->b->kind, y->b->kind);
    if (!d) d = strcmp(x->pattern, y->pattern);
    if (!d) d = compare_numbers(x->b->dtype, y->b->dtype);
    if (!d) d = compare_numbers((uint64_t)x->b->rank, (uint64_t)y->b->rank);
    if (!d) d = memcmp(x->b->dim, y->b->dim, sizeof x->b->dim);
    if (!d) d = compare_numbers(x->b->external, y->b->external);
    if (!d) d = compare_numbers(x->b->shard, y->b->shard);
    if (!d) d = compare_numbers((uint64_t)x->b->shard_dim, (uint64_t)y->b->shard_dim);
    return d;
}

static int compare_rows(const void *a, const void *b) {
    const row *x = a, *y = b;
    int d = compare_shown(x, y);
    return d ? d : compare_numbers(x->index, y->index);
}

/* Groups in the order of their first buffer, by kind. */
static int compare_groups(const void *a, const void *b) {
    const row *x = a, *y = b;
    int d = compare_numbers(!x->count, !y->count);
    if (!d) d = compare_numbers(x->b->kind, y->b->kind);
    return d ? d : compare_numbers(x->index, y->index);
}

static int compare_u64(const void *a, const void *b) {
    return compare_numbers(*(const uint64_t *)a, *(const uint64_t *)b);
}

/* How many of n sorted values are below v. */
static uint32_t count_below(const uint64_t *sorted, uint32_t n, uint64_t v) {
    uint32_t lo = 0, hi = n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (sorted[mid] < v)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

typedef struct spans {
    uint64_t *starts, *ends; /* of the buffers in one arena, sorted */
    uint32_t n;
} spans;

/* Other buffers with a byte in common: those that begin before b ends, less those that end before it begins, less b. */
static uint32_t sharers(const spans *s, const plan_buffer *b) {
    if (!b->bytes) return 0;
    return count_below(s->starts, s->n, b->offset + b->bytes) - count_below(s->ends, s->n, b->offset + 1) - 1;
}

static void put_row(const row *r, const spans *s, buf *out) {
    const plan_buffer *b = r->b;
    char bytes[VIEW_BYTES], shape[96], offset[48] = "", life[32] = "", count[16] = "";
    int at = 0;
    for (int i = 0; i < b->rank; i++)
        at += snprintf(shape + at, sizeof shape - (size_t)at, "[%lld]", (long long)b->dim[i]);
    if (buffer_placed(b->kind) || b->kind == BUFFER_CONST) {
        int n = snprintf(offset, sizeof offset, "%llu", (unsigned long long)r->least);
        if (r->most != r->least) snprintf(offset + n, sizeof offset - (size_t)n, "-%llu", (unsigned long long)r->most);
    }
    if (lives(b)) snprintf(life, sizeof life, "%u-%u", b->first_phase, b->last_phase);
    if (r->count > 1) snprintf(count, sizeof count, "x%u", r->count);
    buf_printf(out, "  %-44s %6s  %-7s %-18s %8s %15s  %-9s", r->count > 1 ? r->pattern : b->name, count,
               dtype_name(b->dtype), shape, view_bytes(b->bytes, bytes), offset, life);
    uint32_t others = buffer_placed(b->kind) ? sharers(&s[b->kind == BUFFER_SYMMETRIC], b) : 0;
    if (others) buf_printf(out, " shared with %u", others);
    if (b->shard) buf_printf(out, " %s(dim=%d)", shard_name(b->shard), b->shard_dim);
    if (b->external) buf_str(out, " external");
    while (out->len && !out->failed && out->data[out->len - 1] == ' ') out->len--;
    buf_str(out, "\n");
}

static void put_kind(const plan *p, buffer_kind kind, buf *out) {
    uint64_t n = 0, bytes = 0;
    char a[VIEW_BYTES], b[VIEW_BYTES];
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        if (p->buffers[i].kind != kind) continue;
        n++;
        bytes += p->buffers[i].bytes;
    }
    if (!n) return;
    buf_printf(out, "%s: %llu, %s", buffer_kind_name(kind), (unsigned long long)n, view_bytes(bytes, a));
    if (kind == BUFFER_ACTIVATION) buf_printf(out, " (with scratch in an arena of %s)", view_bytes(p->arena_bytes, b));
    if (kind == BUFFER_SYMMETRIC)
        buf_printf(out, " (in an arena of %s on every rank)", view_bytes(p->symmetric_bytes, b));
    buf_str(out, "\n");
}

static void put_table(const plan *p, row *rows, const spans *s, buf *out) {
    uint32_t n = p->n_buffers, leader = 0;
    qsort(rows, n, sizeof *rows, compare_rows);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t at = rows[i].b->offset;
        if (i == 0 || compare_shown(&rows[leader], &rows[i]) != 0) leader = i;
        row *group = &rows[leader];
        if (!group->count || at < group->least) group->least = at;
        if (!group->count || at > group->most) group->most = at;
        group->count++;
    }
    qsort(rows, n, sizeof *rows, compare_groups);
    buf_str(out, "\nbuffers: name, how many, dtype, shape, bytes each, offsets; of the first one its phases and who "
                 "shares its bytes\n");
    for (uint32_t i = 0; i < n && rows[i].count && !out->failed; i++) {
        if (i == 0 || rows[i - 1].b->kind != rows[i].b->kind) put_kind(p, rows[i].b->kind, out);
        put_row(&rows[i], s, out);
    }
}

void view_buffers(const plan *p, buf *out) {
    arena names = {0};
    row *rows = mem_calloc(p->n_buffers, sizeof *rows);
    spans s[2] = {{0}}; /* of the rank's own arena; of the symmetric one */
    bool ok = rows != NULL;
    for (int i = 0; i < 2; i++) {
        s[i].starts = mem_calloc(p->n_buffers, sizeof *s[i].starts);
        s[i].ends = mem_calloc(p->n_buffers, sizeof *s[i].ends);
        ok = ok && s[i].starts && s[i].ends;
    }
    for (uint32_t i = 0; ok && i < p->n_buffers; i++) {
        const plan_buffer *b = &p->buffers[i];
        rows[i] = (row){.b = b, .pattern = make_pattern(&names, b->name), .index = i};
        ok = rows[i].pattern != NULL;
        if (!buffer_placed(b->kind) || !b->bytes) continue;
        spans *in = &s[b->kind == BUFFER_SYMMETRIC];
        in->starts[in->n] = b->offset;
        in->ends[in->n++] = b->offset + b->bytes;
    }
    for (int i = 0; ok && i < 2; i++) {
        qsort(s[i].starts, s[i].n, sizeof *s[i].starts, compare_u64);
        qsort(s[i].ends, s[i].n, sizeof *s[i].ends, compare_u64);
    }
    if (ok)
        put_table(p, rows, s, out);
    else
        out->failed = true;
    mem_free(rows);
    for (int i = 0; i < 2; i++) mem_free(s[i].starts), mem_free(s[i].ends);
    arena_free(&names);
}
