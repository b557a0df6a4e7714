/* SPDX-License-Identifier: Apache-2.0 */
/* Who has which name while a graph is built: a hash table from a string to an id, with separate spaces for ops, tensors
 * and weight keys. Without it a thousand layers would cost a second of string comparisons. */
#ifndef KEEL_GRAPH_NAMES_H
#define KEEL_GRAPH_NAMES_H

#include <stdbool.h>

typedef enum name_space { NAMES_OP, NAMES_TENSOR, NAMES_KEY } name_space;

typedef struct names names;

/* NULL when memory is short. */
names *names_new(void);
void names_free(names *n);
/* The id put under the name, −1 without. */
int names_find(const names *n, name_space space, const char *name);
/* The name is borrowed and not yet in its space. False when memory is short. */
bool names_put(names *n, name_space space, const char *name, int id);

#endif
