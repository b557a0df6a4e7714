/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: verbs declare which options of options.def they take; parsing and help are the same for all. */
#ifndef KEEL_TOOLS_ARGS_H
#define KEEL_TOOLS_ARGS_H

#include "keel.h"

typedef enum option_type {
    OPTION_FLAG,
    OPTION_TEXT,
    OPTION_TEXTS,  /* may be repeated */
    OPTION_CHOICE, /* one of the words in the metavar */
    OPTION_COUNT,  /* a whole number */
    OPTION_COUNTS, /* whole numbers with commas between */
    OPTION_REAL,
    OPTION_RANGE, /* A-B, A- or A */
    OPTION_BYTES, /* a number with a unit, or bytes; limits are bytes */
} option_type;

typedef enum option_id {
#define OPTION(id, type, name, letter, metavar, low, high, help) OPT_##id,
#include "options.def"
#undef OPTION
    OPTION_IDS
} option_id;

typedef struct option {
    option_type type;
    const char *name;
    char letter; /* 0: none */
    const char *metavar;
    double low, high; /* limits of numbers, both allowed */
    const char *help;
} option;
extern const option option_table[OPTION_IDS];

/* What the command line gave. */
typedef struct option_value {
    bool given;
    const char *text;   /* TEXT, CHOICE; borrowed from argv */
    const char **texts; /* [n] TEXTS */
    uint64_t count;     /* COUNT, BYTES; A of RANGE */
    int64_t last;       /* B of RANGE; −1: open */
    double real;        /* REAL */
    uint64_t *counts;   /* [n] COUNTS */
    size_t n;
} option_value;

enum { ARGS_OPERANDS = 2 };

typedef struct args {
    const struct verb *verb;
    option_value value[OPTION_IDS];
    const char *operand[ARGS_OPERANDS];
    size_t n_operands;
} args;

typedef struct verb {
    const char *name;     /* one word or two: "plan show" */
    const char *synopsis; /* operands for the usage line */
    const char *summary;  /* one line */
    const char *example;  /* whole lines */
    size_t max_operands;
    const option_id *options; /* [n_options], in the order of the help */
    size_t n_options;
    keel_status (*run)(const args *a, keel_error *err);
} verb;

/* Reads argv[first..argc) for v into *out, zeroed before. KEEL_USAGE with a message that ends in where to find help.
 * Free with args_free() in either case. With --help among the options nothing else is checked after it. */
keel_status args_parse(const verb *v, int argc, char **argv, int first, args *out, keel_error *err);
void args_free(args *a);
/* KEEL_USAGE: the message, and "; see keel VERB --help". */
keel_status args_refuse(const verb *v, keel_error *err, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The value of a COUNT, or what holds without it. */
uint64_t args_count(const args *a, option_id id, uint64_t fallback);
uint32_t args_count32(const args *a, option_id id, uint32_t fallback);
bool args_flag(const args *a, option_id id);

/* Of the n names the one that is nearly word, or NULL. */
typedef const char *(*args_name)(const void *from, size_t i);
const char *args_nearest(const char *word, args_name name, const void *from, size_t n);

#endif
