/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sha256.h"

#include <openssl/evp.h>
#include <stdio.h>

keel_status sha256_hex(const void *data, size_t bytes, char hex[SHA256_HEX], keel_error *err) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (!EVP_Digest(data, bytes, digest, &n, EVP_sha256(), NULL) || n != 32)
        return error_set(err, KEEL_NOMEM, "SHA-256 failed");
    for (unsigned i = 0; i < n; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return KEEL_OK;
}
