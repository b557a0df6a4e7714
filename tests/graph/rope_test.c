/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary frequencies against transformers' own (rope_golden.json, made by make_golden.py), and what is refused. */
#include "graph/rope.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static void check_case(const json_t *c) {
    const char *name = json_string_value(json_object_get(c, "name"));
    rope r;
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_status s = rope_from_config(json_object_get(c, "config"), "config.json",
                                     json_integer_value(json_object_get(c, "rotary_dim")), &r, &err);
    if (s != KEEL_OK) fail_msg("%s: %s", name, err.detail);
    const json_t *want = json_object_get(c, "inv_freq_bits");
    assert_int_equal(r.half, json_array_size(want));
    for (int i = 0; i < r.half; i++) {
        int64_t delta = (int64_t)bits_of(r.inv_freq[i]) - json_integer_value(json_array_get(want, (size_t)i));
        if (delta < -1 || delta > 1) fail_msg("%s: frequency %d is %lld ulp off", name, i, (long long)delta);
    }
    double factor = json_number_value(json_object_get(c, "attention_factor"));
    if (fabs(r.attention_factor - factor) > 1e-15 * factor) fail_msg("%s: factor %.17g", name, r.attention_factor);
}

static void matches_reference(void **state) {
    (void)state;
    json_t *root;
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_status s = json_read(KEEL_SOURCE_DIR "/tests/graph/rope_golden.json", 1 << 20, &root, &err);
    if (s != KEEL_OK) fail_msg("%s", err.detail);
    const json_t *cases = json_object_get(root, "cases");
    assert_true(json_array_size(cases) >= 16);
    for (size_t i = 0; i < json_array_size(cases); i++) check_case(json_array_get(cases, i));
    json_decref(root);
}

static void refused(const char *config, keel_status status, const char *words) {
    json_t *c = json_loads(config, 0, NULL);
    assert_non_null(c);
    rope r = {.half = -7};
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_status got = rope_from_config(c, "config.json", 64, &r, &err);
    if (got != status || !strstr(err.detail, words)) fail_msg("%s: %s: %s", config, keel_status_name(got), err.detail);
    assert_non_null(strstr(err.detail, "config.json"));
    assert_int_equal(r.half, -7);
    assert_int_equal(rope_from_config(c, "config.json", 64, &r, NULL), status);
    json_decref(c);
}

#define LONG "\"max_position_embeddings\":4096,"
#define L3 LONG "\"rope_scaling\":{\"rope_type\":\"llama3\","
#define YARN LONG "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,"

static void refuses_types(void **state) {
    (void)state;
    refused("{\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}", KEEL_UNSUPPORTED,
            "default, linear, llama3, yarn");
    refused("{\"rope_parameters\":{\"rope_type\":\"longrope\"}}", KEEL_UNSUPPORTED, "longrope");
    refused("{\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"}}}", KEEL_UNSUPPORTED,
            "full_attention");
    refused("{\"rope_scaling\":[1]}", KEEL_FORMAT, "rope_scaling");
    refused("{\"rope_scaling\":{\"rope_type\":4}}", KEEL_FORMAT, "rope_type");
}

static void refuses_numbers(void **state) {
    (void)state;
    refused("{\"rope_theta\":\"10000\"}", KEEL_FORMAT, "rope_theta");
    refused("{\"rope_theta\":1}", KEEL_RANGE, "rope_theta");
    refused("{\"rope_parameters\":{\"rope_theta\":-3.5}}", KEEL_RANGE, "rope_theta");
    refused("{\"partial_rotary_factor\":0}", KEEL_RANGE, "partial_rotary_factor");
    refused("{\"partial_rotary_factor\":1.5}", KEEL_RANGE, "partial_rotary_factor");
    refused("{\"partial_rotary_factor\":0.02}", KEEL_RANGE, "even number");
    refused("{\"rope_scaling\":{\"type\":\"linear\"}}", KEEL_MISSING, "factor");
    refused("{\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}}", KEEL_RANGE, "factor");
    refused("{" L3 "\"low_freq_factor\":1,\"high_freq_factor\":4}}", KEEL_MISSING, "\"factor\"");
    refused("{" L3 "\"factor\":8,\"high_freq_factor\":4}}", KEEL_MISSING, "low_freq_factor");
    refused("{" L3 "\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":4}}", KEEL_RANGE, "high_freq_factor");
    refused("{" YARN "\"beta_fast\":1,\"beta_slow\":32}}", KEEL_RANGE, "beta_fast");
    refused("{" YARN "\"beta_slow\":-1}}", KEEL_RANGE, "beta_slow");
    refused("{" YARN "\"truncate\":3}}", KEEL_FORMAT, "truncate");
    refused("{" YARN "\"mscale\":1,\"mscale_all_dim\":-100}}", KEEL_RANGE, "mscale_all_dim");
    refused("{" YARN "\"original_max_position_embeddings\":0}}", KEEL_RANGE, "original_max_position_embeddings");
    refused("{\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4}}", KEEL_MISSING, "max_position_embeddings");
}

static void refuses_widths(void **state) {
    (void)state;
    static const int64_t widths[] = {0, 1, -2, 7, 2 * ROPE_MAX_HALF + 2, INT64_MAX};
    json_t *c = json_object();
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        rope r;
        keel_error err = KEEL_ERROR_INITIALIZER;
        assert_int_equal(rope_from_config(c, "config.json", widths[i], &r, &err), KEEL_RANGE);
    }
    rope r;
    assert_int_equal(rope_from_config(c, "config.json", 2 * ROPE_MAX_HALF, &r, NULL), KEEL_OK);
    assert_int_equal(r.half, ROPE_MAX_HALF);
    json_decref(c);
}

/* rope_scaling, when it says anything, wins over rope_parameters; inner values win over outer ones. */
static void precedence(void **state) {
    (void)state;
    json_t *c = json_loads("{\"rope_theta\":100,\"rope_scaling\":{\"type\":\"linear\",\"rope_type\":\"default\","
                           "\"rope_theta\":16},\"rope_parameters\":{\"rope_theta\":9}}",
                           0, NULL);
    rope r;
    assert_int_equal(rope_from_config(c, "config.json", 4, &r, NULL), KEEL_OK);
    assert_true(r.inv_freq[0] == 1.0f && r.inv_freq[1] == 0.25f);
    json_object_set_new(c, "rope_scaling", json_object());
    assert_int_equal(rope_from_config(c, "config.json", 4, &r, NULL), KEEL_OK);
    assert_true(fabsf(r.inv_freq[1] - 1 / 3.0f) < 1e-7f);
    json_decref(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_reference), cmocka_unit_test(refuses_types), cmocka_unit_test(refuses_numbers),
        cmocka_unit_test(refuses_widths),    cmocka_unit_test(precedence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
