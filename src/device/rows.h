/* SPDX-License-Identifier: Apache-2.0 */
/* Moving the live rows of an activation between its buffer and a region. A region holds them packed: columns [lo, hi)
 * of row r at (r − first live row) × (hi − lo). Lanes share the rows. */
#ifndef KEEL_DEVICE_ROWS_H
#define KEEL_DEVICE_ROWS_H

#include "device/body.h"

#ifndef __CUDACC__
/* Supplied by the backend (on the device it defines both before it includes this file): bytes of an activation's
 * element, and a copy from SMEM to a buffer, from a storer body only. */
enum { KB_ACT_BYTES = 4 };
KP_FN void kb_store(void *dst, const void *src, kp_u64 bytes) { __builtin_memcpy(dst, src, bytes); }
#endif

/* The live rows [first, end) of a tensor, from logit_from on where logit_rows is 1; and this lane's, [from, to). */
typedef struct kb_rows {
    kp_u32 first, end, from, to;
} kb_rows;

KP_FN kb_rows kb_rows_of(const kp_ctx *c, kp_u32 logit_rows) {
    kb_rows rows;
    rows.first = kb_rows_from(c, logit_rows);
    rows.end = kb_rows_live(c);
    kb_share(c, rows.first, rows.end, 1, &rows.from, &rows.to);
    return rows;
}

/* From a launcher body: columns [lo, hi) of the live rows of `from`, [rows][cols], packed to `to` in SMEM. */
KP_FN void kb_fetch_from(kp_ctx *c, kp_u8 *to, const void *from, kp_u32 cols, kp_u32 lo, kp_u32 hi, kp_u32 logit_rows) {
    kb_rows rows = kb_rows_of(c, logit_rows);
    kp_u64 row = (kp_u64)cols * KB_ACT_BYTES, width = (kp_u64)(hi - lo) * KB_ACT_BYTES;
    const kp_u8 *at = (const kp_u8 *)from + rows.from * row + (kp_u64)lo * KB_ACT_BYTES;
    kp_u32 n = rows.to - rows.from;
    to += (rows.from - rows.first) * width;
    if (width == row) { /* whole rows lie in one piece */
        if (n > 0) kb_bulk(c, to, at, (kp_u32)(n * row));
        return;
    }
    for (kp_u32 i = 0; i < n; i++) kb_bulk(c, to + i * width, at + i * row, (kp_u32)width);
}

/* The same from a buffer into a region. */
KP_FN void kb_fetch_rows(kp_ctx *c, kp_u32 region, kp_u32 buffer, kp_u32 cols, kp_u32 lo, kp_u32 hi,
                         kp_u32 logit_rows) {
    kb_fetch_from(c, (kp_u8 *)kb_region(c, region), kb_buffer(c, buffer), cols, lo, hi, logit_rows);
}

/* From a storer body: into columns [lo, hi) of a buffer [rows][cols]. */
KP_FN void kb_store_rows(const kp_ctx *c, kp_u32 region, kp_u32 buffer, kp_u32 cols, kp_u32 lo, kp_u32 hi,
                         kp_u32 logit_rows) {
    kb_rows rows = kb_rows_of(c, logit_rows);
    kp_u64 row = (kp_u64)cols * KB_ACT_BYTES, width = (kp_u64)(hi - lo) * KB_ACT_BYTES;
    kp_u8 *to = (kp_u8 *)kb_buffer(c, buffer) + (kp_u64)lo * KB_ACT_BYTES;
    const kp_u8 *from = (const kp_u8 *)kb_region(c, region);
    for (kp_u32 r = rows.from; r < rows.to; r++) kb_store(to + r * row, from + (r - rows.first) * width, width);
}

#endif
