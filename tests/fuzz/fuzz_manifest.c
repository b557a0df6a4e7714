/* SPDX-License-Identifier: Apache-2.0 */
#include "load/weight_manifest.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What was accepted names plain files and has whole digests. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    manifest m = {0};
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_status s = manifest_parse("fuzz.json", (const char *)data, size, &m, &err);
    if (s != KEEL_OK) {
        if (m.inputs || m.sources || err.status != s || !err.detail[0]) abort();
        return 0;
    }
    if (!json_is_object(m.inputs) || strlen(m.header_sha256) != SHA256_HEX - 1) abort();
    for (size_t i = 0; i < m.n_sources; i++) {
        if (!m.sources[i].name[0] || strchr(m.sources[i].name, '/')) abort();
    }
    for (size_t i = 0; i < m.n_tensors; i++) {
        if (!m.tensors[i].name[0] || strlen(m.tensors[i].sha256) != SHA256_HEX - 1) abort();
    }
    manifest_free(&m);
    return 0;
}
