/* SPDX-License-Identifier: Apache-2.0 */
/* Data that carry their epoch: a row of activations in units of 16 columns, each three vectors of 16 bytes. A unit's
 * eight words of two columns stand in words 0 to 2 of its first and second vector and 0 and 1 of its third; the last
 * word of each vector is the epoch. A vector is written and read whole, so one whose epoch is this iteration's holds
 * this iteration's data: no fence stands between writer and reader, and a reader needs no other word that the data are
 * there (docs/protocol.md, "tagged data"). Passes of one row only. */
#ifndef KEEL_DEVICE_TAGGED_H
#define KEEL_DEVICE_TAGGED_H

#include "device/types.h"

enum { KP_TAGGED_COLS = 16, KP_TAGGED_VECS = 3 };

KP_FN kp_u64 kp_tagged_bytes(kp_u64 cols) { return cols / KP_TAGGED_COLS * KP_TAGGED_VECS * 16; }

#endif
