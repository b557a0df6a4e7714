/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of the primitives listed in src/device/protocol.h, to compile the device text without a backend. */
#ifndef KEEL_TESTS_DEVICE_PRIMITIVES_H
#define KEEL_TESTS_DEVICE_PRIMITIVES_H

#include "device/worker.h"

kp_u32 kp_load_acquire(const kp_u32 *p);
void kp_store_release(kp_u32 *p, kp_u32 v);
void kp_add_release(kp_u32 *p, kp_u32 v);
kp_u64 kp_load_acquire64(const kp_u64 *p);
void kp_store_release64(kp_u64 *p, kp_u64 v);
void kp_bar_init(kp_bar *b, kp_u32 count);
void kp_bar_arrive(kp_bar *b);
void kp_bar_expect(kp_bar *b, kp_u32 bytes);
int kp_bar_test(kp_bar *b, kp_u32 parity);
void kp_bulk_start(kp_ctx *c, void *dst, const void *src, kp_u32 bytes, kp_bar *b);
void kp_yield(kp_ctx *c, kp_hint hint);
int kp_abort_poll(kp_ctx *c);
void kp_dispatch(kp_ctx *c);
void kp_slot_fill(kp_ctx *c, kp_slot *slot, kp_u32 q);
void kp_events_passed(kp_ctx *c, const kp_task *t);
kp_u32 kp_count(kp_u32 *p);
int kp_run_over(const kp_launch *launch);

#endif
