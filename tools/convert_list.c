/* SPDX-License-Identifier: Apache-2.0 */
/* keel convert --list. */
#include "cache_dir.h"
#include "convert.h"
#include "fail.h"
#include "json_out.h"
#include "out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct list_state {
    json_t *list; /* NULL: as text */
    size_t n, bad;
    keel_status status;
    keel_error *err;
} list_state;

static json_t *text_json(const char *text) { return json_of_text(text, strlen(text)); }

static json_t *entry_json(const keel_cache_entry *e) {
    return json_pack("{s:o,s:o,s:o,s:o,s:I,s:I,s:I,s:o,s:o,s:I,s:I,s:I,s:s,s:o}", "key", text_json(e->key), "path",
                     text_json(e->path), "model", text_json(e->model), "architecture", text_json(e->architecture), "tp",
                     (json_int_t)e->tp, "ep", (json_int_t)e->ep, "rank", (json_int_t)e->rank, "head",
                     text_json(e->head), "recipe", text_json(e->recipe), "tensors", (json_int_t)e->n_tensors, "bytes",
                     (json_int_t)e->bytes, "created_s", (json_int_t)e->created_s, "state", e->state, "why",
                     text_json(e->why));
}

typedef struct age_text {
    char text[32];
} age_text;

static age_text age_of(int64_t created_s) {
    static const struct {
        int64_t seconds;
        const char *unit;
    } units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    age_text a = {"?"};
    int64_t age = (int64_t)time(NULL) - created_s;
    if (created_s <= 0) return a;
    if (age < 0) age = 0;
    size_t i = 0;
    while (i < 3 && age < units[i].seconds) i++;
    snprintf(a.text, sizeof a.text, "%lld %s", (long long)(age / units[i].seconds), units[i].unit);
    return a;
}

static keel_status put_entry(const keel_cache_entry *e, keel_error *err) {
    if (!e->model[0]) {
        TRY(out_format(err, "%s: %s, %s", e->path, e->state, out_size(e->bytes).text));
    } else {
        TRY(out_format(err, "%s: %s, rank %u of %u", e->model, e->architecture, e->rank, e->tp));
        if (e->ep > 1) TRY(out_format(err, ", ep %u", e->ep));
        TRY(out_format(err, ", head %s, %s, %u tensors, %s, %s old: %s", e->head, e->recipe, e->n_tensors,
                       out_size(e->bytes).text, age_of(e->created_s).text, e->state));
    }
    return out_format(err, "%s%s\n", e->why[0] ? ", " : "", e->why);
}

static bool each(void *user, const keel_cache_entry *e) {
    list_state *l = user;
    l->n++;
    l->bad += strcmp(e->state, "damaged") == 0;
    if (!l->list) {
        l->status = put_entry(e, l->err);
    } else if (json_array_append_new(l->list, entry_json(e)) != 0) {
        l->status = fail_memory(l->err, "--list");
    }
    return l->status == KEEL_OK;
}

static keel_status report(const args *a, const char *dir, list_state *l, keel_error *err) {
    TRY(keel_cache_list(dir, args_flag(a, OPT_VERIFY), each, l, err));
    TRY(l->status);
    if (l->list)
        TRY(json_print(json_pack("{s:o,s:O}", "cache_dir", text_json(dir), "entries", l->list), err));
    else if (!l->n)
        TRY(out_format(err, "%s: empty\n", dir));
    if (!args_flag(a, OPT_VERIFY) || !l->bad) return KEEL_OK;
    return fail(err, KEEL_REFUSED, "%zu of %zu entries are damaged; the next use makes them again", l->bad, l->n);
}

keel_status convert_list(const args *a, keel_error *err) {
    if (a->n_operands) return args_refuse(a->verb, err, "--list: takes no MODEL; it lists all that the cache holds");
    char *dir;
    TRY(cache_dir_of(a, &dir, err));
    list_state l = {.list = args_flag(a, OPT_JSON) ? json_array() : NULL, .err = err};
    keel_status s = report(a, dir, &l, err);
    json_decref(l.list);
    free(dir);
    return s;
}
