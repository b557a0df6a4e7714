/* SPDX-License-Identifier: Apache-2.0 */
/* NOT COMMITTED: until the prover is here. */
#include "plan/prove.h"
__attribute__((weak)) keel_status plan_prove(const plan *const *r, uint32_t n, proof *f, keel_error *e) { (void)r,(void)n,(void)f,(void)e; return KEEL_OK; }
__attribute__((weak)) void proof_show(const proof *p, buf *o) { (void)p; buf_printf(o, "pending\n"); }
