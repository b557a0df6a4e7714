/* SPDX-License-Identifier: Apache-2.0 */
/* Help texts, made from the tables of verbs and options. */
#ifndef KEEL_TOOLS_HELP_H
#define KEEL_TOOLS_HELP_H

#include "args.h"

#include <stdio.h>

/* The verbs, from verbs.def. */
extern const verb *const verb_table[];
extern const size_t verb_count;

void help_program(FILE *to);
void help_verb(const verb *v, FILE *to);
/* The verbs whose first of two words is `word`; returns how many there are. to may be NULL. */
size_t help_family(const char *word, FILE *to);

#endif
