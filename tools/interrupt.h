/* SPDX-License-Identifier: Apache-2.0 */
/* Ctrl-C and SIGTERM end a run cleanly; a second one kills the program. */
#ifndef KEEL_TOOLS_INTERRUPT_H
#define KEEL_TOOLS_INTERRUPT_H

#include "keel.h"

/* From now on the signals stop session (NULL: are only seen) instead of killing the program. */
void interrupt_watch(keel_session *session);
/* The default again; before the session is closed. */
void interrupt_unwatch(void);
/* A signal came while watching. */
bool interrupt_seen(void);

#endif
