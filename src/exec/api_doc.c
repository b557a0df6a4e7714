/* SPDX-License-Identifier: Apache-2.0 */
/* keel.h: the plan document. */
#include "exec/api.h"

#include "core/file.h"
#include "core/mem.h"
#include "plan/doc.h"

static keel_status write_file(const char *dir, const char *name, const buf *text, keel_error *err) {
    if (text->failed) return KEEL_NOMEM_AT(err, name);
    char *path = path_join(dir, name);
    if (!path) return KEEL_NOMEM_AT(err, name);
    keel_status s = file_write(path, text->data, text->len, err);
    mem_free(path);
    return s;
}

static keel_status write_doc(const doc *d, const char *dir, keel_error *err) {
    buf markdown = {0}, json = {0};
    doc_markdown(d, &markdown);
    keel_status s = doc_json(d, &json, err);
    if (s == KEEL_OK) s = folders_make(dir, err);
    if (s == KEEL_OK) s = write_file(dir, "plan.md", &markdown, err);
    if (s == KEEL_OK) s = write_file(dir, "plan.json", &json, err);
    buf_free(&markdown);
    buf_free(&json);
    return s;
}

keel_status keel_plan_doc(const keel_model *m, const keel_plan *k, const keel_doc_options *given, const char *dir,
                          keel_error *err) {
    API_TAKE(keel_doc_options, o, given, err);
    if (!(o.bandwidth_tbs >= 0) || o.bandwidth_tbs > 1e6)
        return error_set(err, KEEL_RANGE, "a bandwidth of %g TB/s", o.bandwidth_tbs);
    doc *d;
    doc_options options = {.model = o.model, .drawn = o.drawn, .bandwidth_tbs = o.bandwidth_tbs};
    KEEL_TRY(doc_open(m->global, k->plan, &options, &d, err));
    keel_status s = write_doc(d, dir, err);
    doc_close(d);
    return s;
}
