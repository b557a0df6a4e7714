/* SPDX-License-Identifier: Apache-2.0 */
/* --tp W: one process a rank, on this machine. */
#ifndef KEEL_TOOLS_RANKS_H
#define KEEL_TOOLS_RANKS_H

#include "args.h"

typedef struct ranks {
    uint32_t rank;
    bool parent;    /* of the ranks' processes: they have done the work, and this one is to return */
    char group[64]; /* for keel_session_options.group; "" without --tp */
} ranks;

/* With --tp W over 1: makes W processes and returns in each of them, with its rank; what ranks above 0 write to
 * standard output is lost. The parent waits for them, passes signals on to rank 0, ends the job when one fails, tells
 * what ranks above 0 had to say where it is news, and returns as rank 0 ended. Call it before there are threads. */
keel_status ranks_start(const args *a, ranks *r, keel_error *err);

/* The file of one rank of a job: FILE itself of one rank, FILE.rank3 of several. The caller's (free); NULL when memory
 * is short. */
char *ranks_file(const char *file, uint32_t tp, uint32_t rank);

#endif
