/* SPDX-License-Identifier: Apache-2.0 */
/* Messages name file, place and key; numbers keep their limits. */
#include "core/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static json_t *parse(const char *text) {
    json_t *root = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (json_parse("f.json", text, strlen(text), &root, &err) != KEEL_OK) fail_msg("%s", err.detail);
    return root;
}

static void huge_integers_do_not_spoil_a_file(void **state) {
    (void)state;
    json_t *root = parse("{\"max\": 1000000000000000019884624838656, \"n\": 7, \"x\": 7.5, \"b\": 1e300}");
    int64_t n = 0;
    assert_int_equal(json_get_int("f.json", root, "n", 0, 10, &n, NULL), KEEL_OK);
    assert_int_equal(n, 7);
    assert_int_equal(json_get_int("f.json", root, "x", 0, 10, &n, NULL), KEEL_FORMAT);
    assert_int_equal(json_get_int("f.json", root, "b", 0, 10, &n, NULL), KEEL_FORMAT);
    assert_int_equal(json_get_int("f.json", root, "max", 0, 10, &n, NULL), KEEL_FORMAT);
    json_decref(root);
}

static void errors_name_file_and_key(void **state) {
    (void)state;
    keel_error err = KEEL_ERROR_INITIALIZER;
    json_t *root = NULL;
    assert_int_equal(json_parse("f.json", "{\n\"a\": }", 8, &root, &err), KEEL_FORMAT);
    assert_non_null(strstr(err.detail, "f.json:2:"));
    assert_int_equal(json_parse("f.json", "{\"a\":1,\"a\":2}", 13, &root, &err), KEEL_FORMAT);
    root = parse("{\"a\": 12, \"s\": \"t\", \"z\": null}");
    int64_t n = 5;
    const char *s = NULL;
    bool b = false;
    double d = 0;
    assert_int_equal(json_get_int("f.json", root, "a", 0, 10, &n, &err), KEEL_RANGE);
    assert_non_null(strstr(err.detail, "\"a\" is 12, outside 0..10"));
    assert_int_equal(json_get_int("f.json", root, "none", 0, 10, &n, &err), KEEL_MISSING);
    assert_int_equal(json_get_int("f.json", root, "z", 0, 10, &n, &err), KEEL_MISSING);
    assert_int_equal(json_opt_int("f.json", root, "z", 0, 10, &n, &err), KEEL_OK);
    assert_int_equal(n, 5);
    assert_int_equal(json_opt_string("f.json", root, "a", &s, &err), KEEL_FORMAT);
    assert_int_equal(json_opt_string("f.json", root, "s", &s, &err), KEEL_OK);
    assert_string_equal(s, "t");
    assert_int_equal(json_opt_bool("f.json", root, "s", &b, &err), KEEL_FORMAT);
    assert_int_equal(json_opt_real("f.json", root, "s", &d, &err), KEEL_FORMAT);
    json_decref(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(huge_integers_do_not_spoil_a_file),
        cmocka_unit_test(errors_name_file_and_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
