/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of doc_markdown(). */
#ifndef KEEL_PLAN_DOC_MARKDOWN_H
#define KEEL_PLAN_DOC_MARKDOWN_H

#include "plan/doc_parts.h"
#include "plan/plan_view.h"

#include <stdio.h>

enum { DOC_SPAN = 2 * VIEW_BYTES + 8 };
/* "12 kB", "12 kB to 1.2 MB"; "3", "3 to 8". */
const char *doc_span_bytes(doc_span s, char text[DOC_SPAN]);
const char *doc_span_count(doc_span s, char text[DOC_SPAN]);
/* "loader, consumer"; "none". */
void doc_put_roles(unsigned roles, buf *out);

void doc_put_ladder(const doc *d, buf *out);
void doc_put_risks(const doc *d, buf *out);
void doc_put_floor(const doc *d, buf *out);
void doc_put_work(const doc *d, buf *out);
void doc_put_cards(const doc *d, buf *out);

#endif
