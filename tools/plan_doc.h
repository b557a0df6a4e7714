/* SPDX-License-Identifier: Apache-2.0 */
/* keel plan --doc DIR. */
#ifndef KEEL_TOOLS_PLAN_DOC_H
#define KEEL_TOOLS_PLAN_DOC_H

#include "args.h"

/* KEEL_USAGE for options that go with --doc only. */
keel_status plan_doc_check(const args *a, keel_error *err);
/* Writes the documents of a plan, if they are asked for, and says so unless --json is given. */
keel_status plan_doc_write(const args *a, const keel_model *model, const keel_plan *plan, keel_error *err);

#endif
