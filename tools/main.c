/* SPDX-License-Identifier: Apache-2.0 */
/* The program: finds the verb, lets it run, and tells how it went. */
#include "args.h"
#include "fail.h"
#include "help.h"
#include "json_out.h"
#include "out.h"

#include <signal.h>
#include <string.h>

static const char *verb_name(const void *from, size_t i) { return ((const verb *const *)from)[i]->name; }

/* The verb of one or two words at argv[1], the longer one first; *words of argv it takes. */
static const verb *find_verb(int argc, char **argv, int *words) {
    const verb *found = NULL;
    *words = 1;
    for (size_t i = 0; i < verb_count; i++) {
        const char *name = verb_table[i]->name, *space = strchr(name, ' ');
        if (!space && strcmp(name, argv[1]) == 0 && !found) found = verb_table[i];
        if (!space || argc < 3 || strcmp(space + 1, argv[2]) != 0) continue;
        if (strncmp(name, argv[1], (size_t)(space - name)) != 0 || argv[1][space - name]) continue;
        found = verb_table[i];
        *words = 2;
    }
    return found;
}

/* --json counts wherever it stands, also where an earlier argument is at fault. */
static bool wants_json(int argc, char **argv) {
    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--json") == 0) return true;
    }
    return false;
}

static int report(const char *name, keel_status status, const keel_error *err, bool json) {
    if (status == KEEL_OK) return 0;
    if (err->detail[0]) {
        fflush(stdout);
        fprintf(stderr, "keel%s%s: %s\n", name ? " " : "", name ? name : "", err->detail);
        if (json) json_print_error(err, NULL);
    }
    return keel_status_exit(status);
}

static keel_status run_verb(const verb *v, int argc, char **argv, int first, keel_error *err) {
    args a;
    keel_status s = args_parse(v, argc, argv, first, &a, err);
    if (s == KEEL_OK && args_flag(&a, OPT_HELP)) {
        help_verb(v, stdout);
    } else if (s == KEEL_OK) {
        s = v->run(&a, err);
    }
    args_free(&a);
    if (s == KEEL_OK) s = out_flush(err);
    return s;
}

static keel_status run_program(int argc, char **argv, const char **name, keel_error *err) {
    if (argc < 2) return fail(err, KEEL_USAGE, "no verb; see keel --help");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        help_program(stdout);
        return out_flush(err);
    }
    if (strcmp(argv[1], "--version") == 0) {
        TRY(out_format(err, "keel %s\n", KEEL_VERSION_STRING));
        return out_flush(err);
    }
    int words;
    const verb *v = find_verb(argc, argv, &words);
    if (v) {
        *name = v->name;
        return run_verb(v, argc, argv, 1 + words, err);
    }
    if (help_family(argv[1], NULL)) {
        bool asked = argc > 2 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0);
        if (!asked) return fail(err, KEEL_USAGE, "%s: which of its verbs? See keel %s --help", argv[1], argv[1]);
        help_family(argv[1], stdout);
        return out_flush(err);
    }
    const char *near = args_nearest(argv[1], verb_name, verb_table, verb_count);
    if (near) return fail(err, KEEL_USAGE, "%.60s: unknown verb (did you mean %s?); see keel --help", argv[1], near);
    return fail(err, KEEL_USAGE, "%.60s: unknown %s; see keel --help", argv[1], argv[1][0] == '-' ? "option" : "verb");
}

int main(int argc, char **argv) {
    /* A closed pipe and a file-size limit come back as errors of the write, where they can be told. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    keel_error err = KEEL_ERROR_INITIALIZER;
    const char *name = NULL;
    keel_status s = run_program(argc, argv, &name, &err);
    return report(name, s, &err, wants_json(argc, argv));
}
