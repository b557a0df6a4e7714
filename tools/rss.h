/* SPDX-License-Identifier: Apache-2.0 */
/* Peak of the memory that this process had resident. */
#ifndef KEEL_TOOLS_RSS_H
#define KEEL_TOOLS_RSS_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes, since the start or the last reset. */
uint64_t rss_peak_bytes(void);
/* The peak counts from what is resident now; false where the system does not allow it. */
bool rss_peak_reset(void);

#endif
