/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (libcrypto). */
#ifndef KEEL_CORE_SHA256_H
#define KEEL_CORE_SHA256_H

#include "core/error.h"

enum { SHA256_HEX = 65 };
/* Lower-case hexadecimal, zero-terminated. */
keel_status sha256_hex(const void *data, size_t bytes, char hex[SHA256_HEX], keel_error *err);

#endif
