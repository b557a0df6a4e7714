/* SPDX-License-Identifier: Apache-2.0 */
#include "help.h"

#include <string.h>

#define VERB(symbol) extern const verb verb_##symbol;
#include "verbs.def"
#undef VERB

const verb *const verb_table[] = {
#define VERB(symbol) &verb_##symbol,
#include "verbs.def"
#undef VERB
};
const size_t verb_count = sizeof verb_table / sizeof *verb_table;

void help_program(FILE *to) {
    fprintf(to, "keel %s: a transformer's decode as one persistent program under a static plan\n\n",
            KEEL_VERSION_STRING);
    fprintf(to, "usage: keel VERB ...\n\n");
    for (size_t i = 0; i < verb_count; i++) fprintf(to, "  %-13s %s\n", verb_table[i]->name, verb_table[i]->summary);
    fprintf(to, "\n  keel VERB --help   options and an example\n  keel --version     the version\n\n");
    fprintf(to, "exit status: 0 fine, 1 a gate says no, 2 wrong use or bad input, 3 the run hung or was aborted\n");
}

static bool takes(const verb *v, option_id id) {
    for (size_t i = 0; i < v->n_options; i++) {
        if (v->options[i] == id) return true;
    }
    return false;
}

static void print_option(const option *o, FILE *to) {
    enum { COLUMN = 30 };
    char head[80];
    int n = o->letter ? snprintf(head, sizeof head, "-%c, ", o->letter) : 0;
    n += snprintf(head + n, sizeof head - (size_t)n, "--%s%s%s", o->name, o->metavar ? " " : "",
                  o->metavar ? o->metavar : "");
    fprintf(to, "  %-*s%s%s\n", COLUMN, head, n >= COLUMN ? " " : "", o->help);
}

void help_verb(const verb *v, FILE *to) {
    fprintf(to, "usage: keel %s %s\n\n%s\n\n", v->name, v->synopsis, v->summary);
    for (size_t i = 0; i < v->n_options; i++) print_option(&option_table[v->options[i]], to);
    if (takes(v, OPT_SYNTH)) {
        fprintf(to, "\nMODEL is a checkpoint folder in Hugging Face layout. Built-in geometries for --synth:\n ");
        for (size_t i = 0; keel_geometry_name(i); i++) fprintf(to, " %s", keel_geometry_name(i));
        fprintf(to, "\n");
    }
    fprintf(to, "\nexample:\n%s", v->example);
}

size_t help_family(const char *word, FILE *to) {
    size_t n = strlen(word), found = 0;
    for (size_t i = 0; i < verb_count; i++) {
        const char *name = verb_table[i]->name;
        if (strncmp(name, word, n) != 0 || name[n] != ' ') continue;
        if (to && !found) fprintf(to, "usage: keel %s VERB ...\n\n", word);
        if (to) fprintf(to, "  %-13s %s\n", name, verb_table[i]->summary);
        found++;
    }
    if (to && found) fprintf(to, "\n  keel %s VERB --help   options and an example\n", word);
    return found;
}
