/* SPDX-License-Identifier: Apache-2.0 */
/* The file of compiled device code: what was sealed comes out, every damaged byte is seen, a foreign file is named. */
#include "exec/cuda_cubin.h"

#include "core/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char code[] = "\x7f"
                           "ELF and what follows";
static const char source[] = "#define A 1\n#define B 2\nend\n";

static cubin_origin origin(void) {
    cubin_origin o = {.arch = "sm_90a", .nvrtc_major = 13, .nvrtc_minor = 1, .source = source};
    memset(o.text, '7', sizeof o.text - 1);
    return o;
}

static void sealed(buf *b) {
    cubin_origin o = origin();
    *b = (buf){0};
    buf_put(b, code, sizeof code);
    assert_int_equal(cubin_seal(&o, b, NULL), KEEL_OK);
}

static void what_went_in_comes_out(void **state) {
    (void)state;
    buf b;
    cubin_parts p;
    cubin_origin o = origin();
    sealed(&b);
    assert_int_equal(cubin_take("x", b.data, b.len, &p, NULL), KEEL_OK);
    assert_int_equal(p.code_bytes, sizeof code);
    assert_memory_equal(p.code, code, sizeof code);
    assert_string_equal(p.origin.source, source);
    assert_string_equal(p.origin.arch, "sm_90a");
    assert_int_equal(p.origin.nvrtc_major, 13);
    assert_int_equal(p.origin.nvrtc_minor, 1);
    assert_int_equal(cubin_match("x", &p.origin, &o, NULL), KEEL_OK);
    o.nvrtc_minor = 2; /* a file may come from a machine with another compiler */
    assert_int_equal(cubin_match("x", &p.origin, &o, NULL), KEEL_OK);
    cubin_parts_free(&p);
    buf_free(&b);
}

/* Each byte changed, each length cut. */
static void damage_is_seen(void **state) {
    (void)state;
    buf b;
    cubin_parts p;
    sealed(&b);
    for (size_t i = 0; i < b.len; i++) {
        b.data[i] ^= 0x20;
        assert_int_equal(cubin_take("x", b.data, b.len, &p, NULL), KEEL_FORMAT);
        b.data[i] ^= 0x20;
        assert_int_equal(cubin_take("x", b.data, i, &p, NULL), KEEL_FORMAT);
        assert_int_equal(cubin_take("x", b.data + i + 1, b.len - i - 1, &p, NULL), KEEL_FORMAT);
    }
    assert_int_equal(cubin_take("x", b.data, b.len, &p, NULL), KEEL_OK);
    cubin_parts_free(&p);
    buf_free(&b);
}

static void refuse(cubin_origin want, const char *const *words) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    cubin_origin have = origin();
    assert_int_equal(cubin_match("the.cubin", &have, &want, &err), KEEL_USAGE);
    for (; *words; words++) {
        if (!strstr(err.detail, *words)) fail_msg("no '%s' in: %s", *words, err.detail);
    }
}

static void a_foreign_file_is_named(void **state) {
    (void)state;
    cubin_origin want = origin();
    strcpy(want.arch, "sm_100a");
    refuse(want, (const char *const[]){"the.cubin", "for sm_90a", "for sm_100a", NULL});
    want = origin();
    want.text[3] = '8';
    refuse(want, (const char *const[]){"the.cubin", "another build", NULL});
    want = origin();
    want.source = "#define A 1\n#define B 3\nend\n";
    refuse(want, (const char *const[]){"the.cubin", "\"#define B 2\"", "\"#define B 3\"", NULL});
    want.source = "#define A 1\n#define B 2\nend\nmore\n";
    refuse(want, (const char *const[]){"it has \"\"", "\"more\"", NULL});
    want.source = "#define A 1\n";
    refuse(want, (const char *const[]){"\"#define B 2\"", "has \"\"", NULL});
}

static void short_memory_is_an_error(void **state) {
    (void)state;
    buf b;
    cubin_parts p;
    sealed(&b);
    mem_fail_after(1);
    assert_int_equal(cubin_take("x", b.data, b.len, &p, NULL), KEEL_NOMEM);
    mem_fail_after(0);
    buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_went_in_comes_out),
        cmocka_unit_test(damage_is_seen),
        cmocka_unit_test(a_foreign_file_is_named),
        cmocka_unit_test(short_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
