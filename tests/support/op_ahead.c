/* SPDX-License-Identifier: Apache-2.0 */
#include "support/op_ahead.h"

#include "core/sha256.h"
#include "exec/cuda_code.h"
#include "exec/cuda_compile.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 4096 };

static unsigned most_jobs, running, n_seen;
static op_ahead_count count;
static char seen[MOST][SHA256_HEX];

void op_ahead_begin(unsigned jobs) { most_jobs = jobs; }

bool op_ahead(void) { return most_jobs > 0; }

static void wait_one(void) {
    int status = 0;
    if (wait(&status) < 0) return;
    running--;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        count.compiled++;
    else
        count.failed++;
}

op_ahead_count op_ahead_end(void) {
    while (running) wait_one();
    return count;
}

static bool is_new(const char *key) {
    for (unsigned i = 0; i < n_seen; i++) {
        if (strcmp(seen[i], key) == 0) return false;
    }
    if (n_seen < MOST) memcpy(seen[n_seen++], key, SHA256_HEX);
    return true;
}

static void compile(const plan *p) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    buf code = {0};
    while (running >= most_jobs) wait_one();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        keel_status s = cuda_compile_get(p, ".", NULL, &code, &err);
        if (s != KEEL_OK) fprintf(stderr, "compiling ahead: %s\n", err.detail);
        fflush(stderr);
        _exit(s == KEEL_OK ? 0 : 1);
    }
    if (child > 0) running++;
}

void op_ahead_plan(const graph *g, const plan_options *options) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    plan *p = NULL;
    buf source = {0};
    char key[SHA256_HEX];
    /* what cannot be planned or compiled says so where it runs on the GPU */
    if (plan_build(g, options, &p, &err) == KEEL_OK && plan_check_bodies(p, &err) == KEEL_OK &&
        cuda_code_source(p, &source, &err) == KEEL_OK && sha256_hex(source.data, source.len, key, &err) == KEEL_OK &&
        is_new(key))
        compile(p);
    buf_free(&source);
    plan_close(p);
}
