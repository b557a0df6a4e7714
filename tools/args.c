/* SPDX-License-Identifier: Apache-2.0 */
#include "args.h"

#include "fail.h"
#include "option_value.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const option option_table[OPTION_IDS] = {
#define OPTION(id, type, name, letter, metavar, low, high, help)                                                       \
    [OPT_##id] = {OPTION_##type, name, letter, metavar, (double)(low), (double)(high), help},
#include "options.def"
#undef OPTION
};

keel_status args_refuse(const verb *v, keel_error *err, const char *format, ...) {
    char text[KEEL_ERROR_DETAIL_BYTES / 2];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return fail(err, KEEL_USAGE, "%s; see keel %s --help", text, v->name);
}

/* Edit distance with adjacent swaps counted as one, given up as `too_far` above a limit that short words lower. */
static size_t distance(const char *a, const char *b) {
    enum { LONGEST = 40, TOO_FAR = LONGEST };
    size_t rows[3][LONGEST + 1], n = strlen(a), m = strlen(b);
    if (n > LONGEST || m > LONGEST) return TOO_FAR;
    for (size_t j = 0; j <= m; j++) rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *now = rows[i % 3], *before = rows[(i + 2) % 3], *earlier = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = before[j - 1] + (a[i - 1] != b[j - 1]);
            if (before[j] + 1 < best) best = before[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && earlier[j - 2] + 1 < best) best = earlier[j - 2] + 1;
            now[j] = best;
        }
    }
    return rows[n % 3][m];
}

const char *args_nearest(const char *word, args_name name, const void *from, size_t n) {
    const char *nearest = NULL;
    size_t least = strlen(word) < 4 ? 2 : 3; /* a distance below this is near */
    for (size_t i = 0; i < n; i++) {
        size_t d = distance(word, name(from, i));
        if (d < least) {
            least = d;
            nearest = name(from, i);
        }
    }
    for (size_t i = 0; i < n && !nearest && strlen(word) >= 3; i++) {
        if (strncmp(word, name(from, i), strlen(word)) == 0) nearest = name(from, i);
    }
    return nearest;
}

static const char *option_name(const void *from, size_t i) { return option_table[((const option_id *)from)[i]].name; }

/* The option that an argument names, OPTION_IDS when none does. *value is what stands after '=', or NULL. */
static option_id find_option(const verb *v, const char *argument, const char **value) {
    const char *equals = strchr(argument, '=');
    bool is_long = argument[1] == '-';
    const char *name = argument + (is_long ? 2 : 1);
    size_t bytes = is_long && equals ? (size_t)(equals - name) : strlen(name);
    *value = is_long && equals ? equals + 1 : NULL;
    for (size_t i = 0; i < v->n_options; i++) {
        const option *o = &option_table[v->options[i]];
        bool same = is_long ? strlen(o->name) == bytes && memcmp(o->name, name, bytes) == 0
                            : bytes == 1 && o->letter == name[0];
        if (same) return v->options[i];
    }
    return OPTION_IDS;
}

static keel_status unknown_option(const verb *v, const char *argument, keel_error *err) {
    char word[64];
    bool is_long = argument[1] == '-';
    snprintf(word, sizeof word, "%.*s", (int)strcspn(argument + 2, "="), argument + 2);
    const char *near = is_long ? args_nearest(word, option_name, v->options, v->n_options) : NULL;
    if (near) return args_refuse(v, err, "--%s: unknown option (did you mean --%s?)", word, near);
    return args_refuse(v, err, "%.60s: unknown option", argument);
}

/* Takes the option at argv[*at], and its value where it has one. */
static keel_status take_option(const verb *v, int argc, char **argv, int *at, args *out, keel_error *err) {
    const char *value, *unused;
    option_id id = find_option(v, argv[*at], &value);
    if (id == OPTION_IDS) return unknown_option(v, argv[*at], err);
    const option *o = &option_table[id];
    option_value *into = &out->value[id];
    if (into->given && o->type != OPTION_TEXTS && o->type != OPTION_FLAG) {
        return args_refuse(v, err, "--%s: given twice", o->name);
    }
    into->given = true;
    if (o->type == OPTION_FLAG) return value ? args_refuse(v, err, "--%s: takes no value", o->name) : KEEL_OK;
    if (!value && *at + 1 < argc) {
        value = argv[++*at];
        if (value[0] == '-' && value[1] == '-' && find_option(v, value, &unused) != OPTION_IDS) {
            return args_refuse(v, err, "--%s: the value %s is missing (%s follows; write --%s=%s if that is meant)",
                               o->name, o->metavar, value, o->name, value);
        }
    }
    if (!value) return args_refuse(v, err, "--%s: the value %s is missing", o->name, o->metavar);
    return option_value_read(v, o, value, into, err);
}

static keel_status take_operand(const verb *v, const char *argument, args *out, keel_error *err) {
    if (out->n_operands >= v->max_operands) return args_refuse(v, err, "%s: one operand too many", argument);
    out->operand[out->n_operands++] = argument;
    return KEEL_OK;
}

keel_status args_parse(const verb *v, int argc, char **argv, int first, args *out, keel_error *err) {
    bool options = true;
    *out = (args){.verb = v};
    for (int at = first; at < argc; at++) {
        const char *argument = argv[at];
        if (options && strcmp(argument, "--") == 0) {
            options = false;
        } else if (options && argument[0] == '-' && argument[1]) {
            TRY(take_option(v, argc, argv, &at, out, err));
            if (out->value[OPT_HELP].given) return KEEL_OK;
        } else {
            TRY(take_operand(v, argument, out, err));
        }
    }
    return KEEL_OK;
}

void args_free(args *a) {
    for (size_t i = 0; i < OPTION_IDS; i++) {
        free(a->value[i].counts);
        free(a->value[i].texts);
    }
}

uint64_t args_count(const args *a, option_id id, uint64_t fallback) {
    return a->value[id].given ? a->value[id].count : fallback;
}

uint32_t args_count32(const args *a, option_id id, uint32_t fallback) {
    return a->value[id].given ? (uint32_t)a->value[id].count : fallback;
}

bool args_flag(const args *a, option_id id) { return a->value[id].given; }
