/* SPDX-License-Identifier: Apache-2.0 */
/* step_begin: what this iteration computes. The prompt goes in passes of request.chunk rows, then one row a token.
 *
 * The host prepares kp_state: cursor 0, position = request.start. Admission and a free-page ring will live here. */
#ifndef KEEL_OPS_STEP_BEGIN_H
#define KEEL_OPS_STEP_BEGIN_H

#include "device/types.h"

enum { STEP_BEGIN_OUT, STEP_BEGIN_BUFFERS };

#endif
