/* SPDX-License-Identifier: Apache-2.0 */
#include "token_file.h"

#include "fail.h"
#include "option_value.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t most_bytes = (size_t)1 << 30;
static const char white[] = " \t\r\n";

static keel_status read_all(FILE *f, const char *path, char **out, size_t *bytes, keel_error *err) {
    char *data = NULL;
    size_t n = 0, room = 0;
    for (;;) {
        if (n + 1 >= room) {
            room = room ? room * 2 : 65536;
            char *more = room <= most_bytes ? realloc(data, room) : NULL;
            if (!more) {
                free(data);
                return fail(err, KEEL_RANGE, "%s: too large to be read into memory", path);
            }
            data = more;
        }
        size_t got = fread(data + n, 1, room - n - 1, f);
        n += got;
        if (!got) break;
    }
    if (ferror(f)) {
        free(data);
        return fail(err, KEEL_IO, "%s: %s", path, strerror(errno));
    }
    data[n] = 0;
    *out = data;
    *bytes = n;
    return KEEL_OK;
}

keel_status file_bytes(const char *path, char **out, size_t *bytes, keel_error *err) {
    FILE *f = fopen(path, "rb");
    if (!f) return fail(err, errno == ENOENT ? KEEL_MISSING : KEEL_IO, "%s: %s", path, strerror(errno));
    keel_status s = read_all(f, path, out, bytes, err);
    fclose(f);
    return s;
}

static keel_status json_ids(const char *path, const json_t *list, int32_t *ids, keel_error *err) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value > INT32_MAX) {
            return fail(err, KEEL_FORMAT, "%s: entry %zu of the list is not a token id", path, i);
        }
        ids[i] = (int32_t)value;
    }
    return KEEL_OK;
}

static keel_status read_json(const char *path, const char *text, size_t bytes, int32_t **ids, size_t *n,
                             keel_error *err) {
    json_error_t at;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &at);
    if (!root) return fail(err, KEEL_FORMAT, "%s: line %d, column %d: %s", path, at.line, at.column, at.text);
    const json_t *list = root;
    if (json_is_object(root)) list = json_object_get(root, "token_ids");
    if (json_is_object(root) && !list) list = json_object_get(root, "greedy_ids");
    keel_status s = KEEL_OK;
    int32_t *made = NULL;
    if (!json_is_array(list)) {
        s = fail(err, KEEL_FORMAT, "%s: no list of ids and no \"token_ids\" or \"greedy_ids\" with one", path);
    } else if (!(made = calloc(json_array_size(list) + 1, sizeof *made))) {
        s = fail_memory(err, path);
    }
    if (s == KEEL_OK) s = json_ids(path, list, made, err);
    if (s == KEEL_OK) {
        *ids = made;
        *n = json_array_size(list);
        made = NULL;
    }
    free(made);
    json_decref(root);
    return s;
}

static keel_status read_words(const char *path, const char *text, size_t bytes, int32_t **ids, size_t *n,
                              keel_error *err) {
    int32_t *made = calloc(bytes / 2 + 1, sizeof *made);
    size_t count = 0;
    if (!made) return fail_memory(err, path);
    for (const char *at = text + strspn(text, white); at < text + bytes; at += strspn(at, white)) {
        const char *from = at;
        uint64_t id;
        if (!count_parse(at, &id, &at) || id > INT32_MAX || (at < text + bytes && (!*at || !strchr(white, *at)))) {
            free(made);
            return fail(err, KEEL_FORMAT, "%s: at byte %td, '%.*s': no token id", path, from - text,
                        (int)strcspn(from, white) < 40 ? (int)strcspn(from, white) : 40, from);
        }
        made[count++] = (int32_t)id;
    }
    *ids = made;
    *n = count;
    return KEEL_OK;
}

keel_status token_file_read(const char *path, int32_t **ids, size_t *n, keel_error *err) {
    char *text;
    size_t bytes, count = 0;
    int32_t *made = NULL;
    TRY(file_bytes(path, &text, &bytes, err));
    char first = text[strspn(text, white)];
    keel_status s = first == '[' || first == '{' ? read_json(path, text, bytes, &made, &count, err)
                                                 : read_words(path, text, bytes, &made, &count, err);
    free(text);
    if (s == KEEL_OK && !count) s = fail(err, KEEL_FORMAT, "%s: holds no token id", path);
    if (s != KEEL_OK) {
        free(made);
        return s;
    }
    *ids = made;
    *n = count;
    return KEEL_OK;
}
