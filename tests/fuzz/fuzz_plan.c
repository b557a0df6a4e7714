/* SPDX-License-Identifier: Apache-2.0 */
/* timeout: 120 */
/* Bytes → plan. What is accepted can be shown, told as JSON and written again, to the same bytes. On toy ops, so that
 * the seeds (written by tests/plan/file_test.c) stay good whatever the real ops become. */
#include "plan/toy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    plan *p = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_status s = plan_read("fuzz.plan", data, bytes, &p, &err);
    if (s != KEEL_OK) {
        if (p || err.status != s || !err.detail[0]) abort();
        return 0;
    }
    buf again = {0}, view = {0};
    if (plan_write(p, &again, NULL) != KEEL_OK || again.len != bytes || memcmp(again.data, data, bytes) != 0) abort();
    plan_show(p, &view);
    if (view.failed || plan_json(p, &view, NULL) != KEEL_OK) abort();
    (void)plan_check_bodies(p, &err);
    buf_free(&again);
    buf_free(&view);
    plan_close(p);
    return 0;
}
