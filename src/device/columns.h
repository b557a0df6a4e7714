/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters and SMEM regions of tasks that several ops have in common: each task makes columns [lo, hi) of the output,
 * for all live rows. plan/columns.h cuts them, body/columns.h computes them on the CPU. */
#ifndef KEEL_DEVICE_COLUMNS_H
#define KEEL_DEVICE_COLUMNS_H

#include "device/types.h"

/* out = f(a, b), element by element. Regions: [rows][hi − lo] of activations each. */
enum {
    KP_PAIR_OUT, /* a, until it holds the result; goes back with the storer */
    KP_PAIR_B    /* goes back with the consumer */
};
typedef struct kp_pair {
    kp_u32 n;
    kp_u32 logit_rows; /* 1: only rows from logit_from are there */
} kp_pair;

/* y = x Wᵀ (+ bias), W [n][k]. */
enum {
    KP_MATMUL_X, /* [x_rows][x_pitch] of activations, where x_rows is not 0; goes back with the consumer */
    KP_MATMUL_Y, /* [parts][rows][hi − lo] of f32; goes back with the storer */
    KP_MATMUL_R  /* GPU, with a residual: [rows][hi − lo] of activations, the residual; goes back with the storer */
};
enum { KP_F8E4M3 = 3, KP_F8_BLOCK = 128 }; /* DTYPE_F8E4M3, FP8_BLOCK (core/dtype.h) */
typedef struct kp_matmul {
    kp_u32 n, k;
    kp_u32 weight_dtype, bias_dtype;
    kp_u32 logit_rows; /* 1: only rows from logit_from are there */
    kp_u32 x_rows;     /* rows that KP_MATMUL_X has room for; where more are live, x is read where it lies */
    kp_u32 x_pitch;    /* elements from one row of KP_MATMUL_X to the next */
    kp_u32 parts;      /* partial sums of a column, added up by the storer */
    kp_u32 scale;      /* buffer of the block scales of a W that is F8E4M3, of type scale_dtype; KP_NONE without */
    kp_u32 scale_dtype;
} kp_matmul;
KP_FN kp_u64 kp_matmul_x_bytes(const kp_matmul *p, kp_u32 act_bytes) {
    return (kp_u64)p->x_rows * p->x_pitch * act_bytes;
}
/* Of one column. */
KP_FN kp_u64 kp_matmul_y_bytes(const kp_matmul *p, kp_u32 m_max) { return (kp_u64)p->parts * m_max * sizeof(float); }

/* Where weights stream, W lies packed: bands of 16 rows, each of which is stages of kp_stage_tiles() tiles of 16
 * columns, the last with what is left. A stage of F8E4M3 has two tiles to 512 bytes and behind them the scales of its
 * blocks, so that they come with the weights (docs/hopper.md, "Packed weights"). */
KP_FN kp_u32 kp_tiles(kp_u32 k) { return (k + 15) / 16; }
/* bf16: four tiles share 64 columns so that a thread's share of x is 16 columns side by side. */
enum { KP_GROUP = 4 };
KP_FN kp_u32 kp_stage_tiles(int f8, kp_u32 stage_bytes) {
    return f8 ? (stage_bytes / 2048 - 1) * (KP_F8_BLOCK / 16) : stage_bytes / 512;
}
/* Of one with so many tiles. */
KP_FN kp_u32 kp_stage_codes(int f8, kp_u32 tiles) { return f8 ? (tiles + 1) / 2 * 512 : tiles * 512; }
KP_FN kp_u32 kp_stage_scales(int f8, kp_u32 stage_bytes) {
    return f8 ? (kp_stage_tiles(f8, stage_bytes) / 8 * 4 + 15) / 16 * 16 : 0;
}
KP_FN kp_u32 kp_stage_bytes(int f8, kp_u32 stage_bytes) {
    return kp_stage_codes(f8, kp_stage_tiles(f8, stage_bytes)) + kp_stage_scales(f8, stage_bytes);
}
KP_FN kp_u32 kp_band_bytes(int f8, kp_u32 k, kp_u32 stage_bytes) {
    kp_u32 most = kp_stage_tiles(f8, stage_bytes), stages = (kp_tiles(k) + most - 1) / most;
    return kp_stage_codes(f8, kp_tiles(k)) + stages * kp_stage_scales(f8, stage_bytes);
}

/* rmsnorm(x) Wᵀ (+ bias) of up to three W. Tasks cut the columns of all of them, one W after the other, each filled up
 * to whole bands of KP_BAND columns; a task's lo and hi are multiples of KP_BAND. Or, paired, the columns of two W of
 * one shape at once, of which each task makes one output: KP_MATMUL_Y then holds those of the one behind those of the
 * other, and `parts` counts both. Regions as above, and one more. */
enum { KP_BAND = 16, KP_NORM_MATRICES = 3 };
enum {
    KP_NORM_SUMS = KP_MATMUL_Y + 1
}; /* GPU: [m_max][launcher lanes] of f32, Σ x² of a lane's columns; as KP_MATMUL_Y */
typedef struct kp_norm_matmul {
    kp_matmul m; /* n: all columns as they are cut; all m_max rows of x fit KP_MATMUL_X */
    float eps;
    kp_u32 norm_dtype;
    kp_u32 cols[KP_NORM_MATRICES]; /* of each W; 0 behind the last */
    kp_u32 paired;
} kp_norm_matmul;
KP_FN kp_u32 kp_banded(kp_u32 cols) { return (cols + KP_BAND - 1) / KP_BAND * KP_BAND; }
/* Where the columns of matrix i begin. */
KP_FN kp_u32 kp_norm_first(const kp_norm_matmul *p, kp_u32 i) {
    kp_u32 one = kp_banded(p->cols[0]), two = one + kp_banded(p->cols[1]);
    return p->paired || i == 0 ? 0 : i == 1 ? one : two;
}
/* The columns [*from, *to) of matrix i that lie in [lo, hi) as they are cut, empty where there are none. */
KP_FN void kp_norm_part(const kp_norm_matmul *p, kp_u32 i, kp_u32 lo, kp_u32 hi, kp_u32 *from, kp_u32 *to) {
    kp_u32 cols = i == 0 ? p->cols[0] : i == 1 ? p->cols[1] : p->cols[2];
    kp_u32 first = kp_norm_first(p, i), end = first + cols;
    *from = lo > first ? lo - first : 0;
    *to = hi <= first ? 0 : (hi < end ? hi : end) - first;
    if (*to < *from) *to = *from;
}

#endif
