/* SPDX-License-Identifier: Apache-2.0 */
/* A plan bound to a GPU's memory, and runs of it as one persistent kernel. The functions are session.h's, which calls
 * them for plans whose arch is a GPU's. */
#ifndef KEEL_EXEC_CUDA_SESSION_H
#define KEEL_EXEC_CUDA_SESSION_H

#include "exec/session.h"

typedef struct cuda_session cuda_session;

keel_status cuda_session_open(const plan *p, const weights *w, const session_options *options, cuda_session **out,
                              keel_error *err);
void cuda_session_close(cuda_session *s);
keel_status cuda_session_run(cuda_session *s, const kp_request *request, session_token on_token, void *user,
                             session_result *result, keel_error *err);
void cuda_session_stop(cuda_session *s);
/* Bytes a second that the GPU reads of the session's memory at most: the best of some passes of bulk copies. */
keel_status cuda_session_bandwidth(cuda_session *s, uint32_t repeats, double *best, keel_error *err);
/* Where a plan's buffer lies in device memory; NULL: in tiles alone. */
void *cuda_session_buffer(const cuda_session *s, uint32_t buffer);
/* Device memory taken. */
void cuda_session_memory(const cuda_session *s, keel_session_memory *out);

#endif
