/* SPDX-License-Identifier: Apache-2.0 */
/* The graph's weights against real checkpoints: every key is in the files with the same shape and dtype, and the files
 * hold nothing else. The tiny ones lie in the repository; usage with a folder: checkpoint_test MODEL_DIR. Without
 * KEEL_TEST_MODELS the larger one is skipped, and so says the exit status. */
#include "core/file.h"
#include "graph/model.h"
#include "load/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char *model_dir;

static graph *graph_of(const char *dir) {
    char path[4096];
    snprintf(path, sizeof path, "%s/config.json", dir);
    json_t *config;
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (json_read(path, 1 << 20, &config, &err)) fail_msg("%s", err.detail);
    if (model_build(config, path, NULL, &g, &err)) fail_msg("%s", err.detail);
    json_decref(config);
    return g;
}

static void check_folder(const char *dir) {
    graph *g = graph_of(dir);
    safetensors *files;
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (safetensors_open(dir, &files, &err)) fail_msg("%s", err.detail);
    size_t n = 0;
    for (int id = 1; id <= g->n_tensors; id++) {
        const graph_tensor *t = graph_tensor_at(g, id);
        if (t->kind != TENSOR_WEIGHT) continue;
        n++;
        const safetensor *s = safetensors_find(files, t->key);
        if (!s) fail_msg("%s: no tensor %s", dir, t->key);
        if (s->rank != t->rank || memcmp(s->dim, t->dim, (size_t)t->rank * sizeof *t->dim) != 0) {
            fail_msg("%s: %s has another shape", dir, t->key);
        }
        if (s->dtype != t->dtype) fail_msg("%s: %s is %s", dir, t->key, dtype_name(s->dtype));
    }
    print_message("%s: %zu tensors\n", dir, n);
    assert_true(n > 0);
    assert_int_equal(n, safetensors_count(files));
    safetensors_close(files);
    graph_close(g);
}

static void tiny_checkpoints(void **state) {
    (void)state;
    check_folder(KEEL_SOURCE_DIR "/tests/golden/tiny-llama");
    check_folder(KEEL_SOURCE_DIR "/tests/golden/tiny-qwen3");
    check_folder(KEEL_SOURCE_DIR "/tests/golden/tiny-yarn");
}

static void larger_checkpoint(void **state) {
    (void)state;
    if (!model_dir) skip();
    check_folder(model_dir);
}

int main(int argc, char **argv) {
    char path[4096];
    const char *models = getenv("KEEL_TEST_MODELS");
    if (argc > 1) {
        model_dir = argv[1];
    } else if (models && *models) {
        snprintf(path, sizeof path, "%s/qwen3-py-12m", models);
        model_dir = path;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiny_checkpoints), cmocka_unit_test(larger_checkpoint)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed ? 1 : model_dir ? 0 : 77;
}
