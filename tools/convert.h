/* SPDX-License-Identifier: Apache-2.0 */
/* What keel convert does besides GGUF files. */
#ifndef KEEL_TOOLS_CONVERT_H
#define KEEL_TOOLS_CONVERT_H

#include "args.h"

/* --build-cache-only: fills the weight cache with one rank or all. */
keel_status convert_cache(const args *a, keel_error *err);
/* --list: what the weight cache holds. */
keel_status convert_list(const args *a, keel_error *err);

#endif
