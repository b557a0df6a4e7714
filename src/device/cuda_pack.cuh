/* SPDX-License-Identifier: Apache-2.0 */
/* How packed weights (device/columns.h, docs/hopper.md) are made of what the checkpoint has: kernels of their own. */
#ifndef KEEL_DEVICE_CUDA_PACK_CUH
#define KEEL_DEVICE_CUDA_PACK_CUH

#include "device/columns.h"
#include "device/cuda_weight.cuh"

/* Thread `lane` of a tile whose columns begin at col: row and first column of register e of mma.m16n8k16's A (PTX ISA,
 * "matrix fragments for mma.m16n8k16"). */
KP_FN kp_u32 kd_row_of(kp_u32 band, kp_u32 lane, kp_u32 e) { return band * 16 + lane / 4 + (e & 1) * 8; }
KP_FN kp_u32 kd_col_of(kp_u32 col, kp_u32 lane, kp_u32 e) { return col + lane % 4 * 2 + (e >> 1) * 8; }

/* The same of tile `tile` of a row of `tiles` of bf16: of a whole group thread `lane` has columns lane % 4 × 16 and 15
 * more, four of each tile. */
KP_FN kp_u32 kd_group_col_of(kp_u32 tile, kp_u32 tiles, kp_u32 lane, kp_u32 e) {
    if (tile / KP_GROUP * KP_GROUP + KP_GROUP > tiles) return kd_col_of(tile * 16, lane, e);
    return tile / KP_GROUP * KP_GROUP * 16 + lane % 4 * 16 + tile % KP_GROUP * 4 + (e >> 1) * 2;
}

/* Weights [n][k] of bf16 as the checkpoint has them → tiles, a band after the other; what is beyond n and k is 0. */
KX_KERNEL(keel_pack)(const kd_act *from, kd_vec *to, kp_u32 n, kp_u32 k, kp_u64 vecs) {
    kp_u32 tiles = kp_tiles(k);
    kp_u64 all = kx_blocks() * (kp_u64)kx_block_threads();
    for (kp_u64 i = kx_block() * (kp_u64)kx_block_threads() + kx_thread(); i < vecs; i += all) {
        kp_u32 lane = (kp_u32)(i % KD_WARP), tile = (kp_u32)(i / KD_WARP % tiles), band = (kp_u32)(i / KD_WARP / tiles);
        kd_vec v;
        for (kp_u32 e = 0; e < 4; e++) {
            kp_u32 row = kd_row_of(band, lane, e), col = kd_group_col_of(tile, tiles, lane, e);
            kp_u32 low = row < n && col < k ? from[(kp_u64)row * k + col] : 0;
            kp_u32 high = row < n && col + 1 < k ? from[(kp_u64)row * k + col + 1] : 0;
            v.w[e] = low | high << 16;
        }
        to[i] = v;
    }
}

/* Two tiles of codes from column `first` on, of whose 32 columns a thread has 8 that lie together: what kd_f8_tile()
 * and kd_eight_of() take. */
KP_FN kd_vec kd_pack_codes(const kp_u8 *from, kp_u32 n, kp_u32 k, kp_u32 band, kp_u32 first, kp_u32 lane) {
    kd_vec v;
    for (kp_u32 i = 0; i < 4; i++) {
        kp_u32 col = first + lane % 4 * 8 + i * 2, reg[2];
        for (kp_u32 e = 0; e < 2; e++) {
            kp_u32 row = kd_row_of(band, lane, e);
            kp_u32 low = row < n && col < k ? from[(kp_u64)row * k + col] : 0;
            kp_u32 high = row < n && col + 1 < k ? from[(kp_u64)row * k + col + 1] : 0;
            reg[e] = kd_f8_spread(low, high);
        }
        v.w[i] = kd_f8_word(reg[0], reg[1]);
    }
    return v;
}

/* The scale of a band's block; NaN where one of the codes is, which as bf16 would be a number. */
KP_FN kp_u32 kd_pack_scale(const kp_u8 *from, const kp_u32 *scale, kp_u32 n, kp_u32 k, kp_u32 band, kp_u32 block) {
    kp_u32 blocks = (k + KP_F8_BLOCK - 1) / KP_F8_BLOCK, end = (block + 1) * KP_F8_BLOCK;
    if (block >= blocks) return 0;
    for (kp_u32 row = band * 16; row < band * 16 + 16 && row < n; row++) {
        for (kp_u32 col = block * KP_F8_BLOCK; col < end && col < k; col++) {
            if ((from[(kp_u64)row * k + col] & 0x7f) == 0x7f) return 0x7fc00000u;
        }
    }
    return scale[(kp_u64)(band * 16 / KP_F8_BLOCK) * blocks + block];
}

/* Weights [n][k] of F8E4M3 and their scales, f32 → stages of tiles and scales. */
KX_KERNEL(keel_pack_f8)(const kp_u8 *from, const kp_u32 *scale, kd_vec *to, kp_u32 n, kp_u32 k, kp_u64 vecs) {
    kp_u32 band_vecs = kp_band_bytes(1, k, KD_STAGE_BYTES) / 16, stage_vecs = kp_stage_bytes(1, KD_STAGE_BYTES) / 16;
    kp_u32 most = kp_stage_tiles(1, KD_STAGE_BYTES);
    kp_u64 all = kx_blocks() * (kp_u64)kx_block_threads();
    for (kp_u64 i = kx_block() * (kp_u64)kx_block_threads() + kx_thread(); i < vecs; i += all) {
        kp_u32 band = (kp_u32)(i / band_vecs), at = (kp_u32)(i % band_vecs), s = at / stage_vecs, o = at % stage_vecs;
        kp_u32 left = kp_tiles(k) - s * most, codes = kp_stage_codes(1, left < most ? left : most) / 16;
        kd_vec v;
        if (o < codes) {
            v = kd_pack_codes(from, n, k, band, (s * most + o / KD_WARP * 2) * 16, o % KD_WARP);
        } else {
            for (kp_u32 e = 0; e < 4; e++) {
                kp_u32 b = (o - codes) * 4 + e;
                v.w[e] = b < most / 8 ? kd_pack_scale(from, scale, n, k, band, s * most / 8 + b) : 0;
            }
        }
        to[i] = v;
    }
}

#endif
