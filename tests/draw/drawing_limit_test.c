/* SPDX-License-Identifier: Apache-2.0 */
/* How much a drawing may hold, and what it must not bring into a graph. */
#include "core/file.h"
#include "core/mem.h"
#include "draw/drawing_cells.h"

/* A misspelt kind in thirty boxes: all of them are named, the known kinds once. */
static void known_kinds_once(void **state) {
    (void)state;
    buf b = {0};
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    buf_str(&b, HEAD SMALL);
    for (int i = 0; i < 30; i++) buf_printf(&b, V("v%d", "l%d.attn.o_proj&#10;kind=linaer"), i, i);
    buf_str(&b, TAIL);
    assert_int_equal(drawing_read("x.drawio", (const char *)b.data, b.len, NULL, &g, &err), KEEL_UNSUPPORTED);
    const char *known = strstr(err.detail, "known: ");
    assert_non_null(known);
    assert_null(strstr(known + 1, "known: "));
    for (int i = 0; i < 30; i++) {
        char line[128];
        snprintf(line, sizeof line, "cell v%d, \"l%d.attn.o_proj\": kind=linaer is unknown", i, i);
        if (!strstr(err.detail, line)) fail_msg("%s\nlacks %s", err.detail, line);
    }
    buf_free(&b);
}

static char *repeated(const char *before, const char *part, int n, const char *after) {
    buf b = {0};
    buf_str(&b, before);
    for (int i = 0; i < n; i++) buf_str(&b, part);
    buf_str(&b, after);
    char *text = buf_take(&b);
    assert_non_null(text);
    return text;
}

#define BOX(id) "<mxCell id=\"" id "\" vertex=\"1\" parent=\"1\" value=\""

static void refused_repeated(keel_status status, const char *before, const char *part, int n, const char *after,
                             const char *words) {
    char *text = repeated(before, part, n, after);
    refused(status, text, (const char *const[]){words, NULL});
    keel_free(text);
}

static void drawn_repeated(const char *before, const char *part, int n, const char *after) {
    char *text = repeated(before, part, n, after);
    graph_close(drawn(text));
    keel_free(text);
}

/* What the graph's JSON does not take, the drawing does not bring. */
static void what_json_refuses(void **state) {
    (void)state;
    const char *rest = "[16,16]\"/>" EMBED FROM_NORM E("p", "e", "x", "") E("q", "x", "n", "");
    const char *before = BOX("x") "y&#10;kind=linear w=", *many = "[16,16]\"/>" SMALL;
    drawn_repeated(before, "k", 1000, rest);
    refused_repeated(KEEL_FORMAT, before, "k", 1001, many,
                     "cell x, \"y\": the weight's name is longer than 1000 bytes or has control characters");
    refused_repeated(KEEL_FORMAT, before, "&#127;", 1, many, "cell x, \"y\": the weight's name is longer than 1000");
    refused_repeated(KEEL_FORMAT, BOX("x") "l{1000-1001}.y&#10;kind=linear w=", "{i}", 300, rest,
                     "its name in layer 1000 is longer than 1000 bytes");
    before = BOX("x") "y&#10;kind=linear w=A[16,16] ";
    rest = "\"/>" EMBED FROM_NORM E("p", "e", "x", "") E("q", "x", "n", "");
    drawn_repeated(before, "note ", 200, rest);
    refused_repeated(KEEL_FORMAT, before, "note ", 201, rest, "cell x, \"y\": the notes, all that is no word of the");
    refused_repeated(KEEL_FORMAT, before, "&#127;", 1, rest, "cell x, \"y\": the notes, all that is no word of the");
    refused_repeated(KEEL_FORMAT, SMALL BOX("m") "kind=model architecture=", "&#127;", 1, "\"/>", "cell m, ");
    refused_repeated(KEEL_FORMAT, SMALL BOX("m") "kind=model architecture=", "A", 1001, "\"/>",
                     "architecture= must be");
    WRONG(SMALL V("m", "kind=model architecture="), "architecture= must be a word of up to 1000 bytes");
}

static void long_labels(void **state) {
    (void)state;
    refused_repeated(KEEL_RANGE, BOX("x") "y&#10;kind=rmsnorm ", "n ", 5000, "\"/>" SMALL,
                     "cell x, \"y\": the label has more than 4096 words");
    refused_repeated(KEEL_RANGE, BOX("x") "y&#10;kind=rmsnorm ", "nnnnnnnn", 8192, "\"/>" SMALL,
                     "cell x, \"y\": the label has more than 64 KB of text; only a const may, up to 1024");
    refused_repeated(KEEL_RANGE, BOX("x") "y&#10;kind=const values=", "1.00000000 ", 100000, "\"/>" SMALL,
                     "cell x, \"y\": the label has more than 1024 KB of text");
    refused_repeated(KEEL_RANGE, BOX("x") "y&#10;kind=const values=", "1 ", 65537, "\"/>" SMALL,
                     "cell x, \"y\": a const has at most 65536 values, this one has 65537");
    refused_repeated(KEEL_RANGE, BOX("x") "&lt;b&gt;", "&lt;i&gt;", 1 << 21, "\"/>" SMALL,
                     "cell x, \"\": the label is longer than 4 MB");
    drawn_repeated(SMALL BOX("x"), "&lt;i&gt;", 100000, "a box\"/>"); /* tags are no text */
    char *label = repeated(BOX(""), "nnnnnnnn ", 7000, "\"/>");
    refused_repeated(KEEL_RANGE, SMALL, label, 300, "", "x.drawio: the labels have more than 16 MB of text");
    keel_free(label);
    refused_repeated(KEEL_RANGE, SMALL, "<mxCell/>", 500000, "", "x.drawio: more than 500000 cells");
    refused_repeated(KEEL_RANGE, SMALL TAIL, " ", 1 << 25, "", "x.drawio: the drawing has more than 32 MB");
    refused_repeated(KEEL_RANGE, SMALL "</root></mxGraphModel></diagram>", "<diagram/>", 4096,
                     "<diagram><mxGraphModel><root>", "x.drawio: more than 4096 pages");
}

/* As many values as a const may have, in a label of its own length. */
static void long_const(void **state) {
    (void)state;
    char *text = repeated(HEAD EMBED NORM BOX("c") "c&#10;kind=const values=", "-1.2345678 ", 65536, "\"/>" TAIL);
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    assert_int_equal(drawing_read("x.drawio", text, strlen(text), NULL, &g, &err), KEEL_FORMAT);
    assert_non_null(strstr(err.detail, "nothing reads c; connect it")); /* and nothing else against it */
    assert_null(strstr(err.detail, "values"));
    keel_free(text);
}

/* Constants, names and notes count as often as the layers that repeat them. */
static void repeated_text(void **state) {
    (void)state;
    refused_repeated(
        KEEL_RANGE,
        EMBED FROM_NORM TO_NORM V("r", "l{0-4095}.r&#10;kind=rope_table") E("p", "c", "r", "") E("s", "r", "u", "a")
            V("u", "l{0-4095}.u&#10;kind=add") BOX("c") "l{0-4095}.c&#10;kind=const values=",
        "1 ", 8192, "\"/>", "x.drawio: weight names, notes and values, repeated layers counted, have more than 16 MB");
}

/* Ops that leave much open: the rules are not asked without end. */
static void open_questions(void **state) {
    (void)state;
    buf b = {0};
    buf_str(&b, SMALL CACHE("ck") CACHE("cv"));
    for (int i = 0; i < 15; i++) {
        buf_printf(&b, V("z%d", "l{0-4095}.z%d&#10;kind=attention q_heads=1 kv_heads=1 head_dim=16"), i, i);
        buf_printf(&b, E("a%d", "e", "z%d", "") E("b%d", "e", "z%d", "") E("c%d", "e", "z%d", ""), i, i, i, i, i, i);
        buf_printf(&b, E("d%d", "ck", "z%d", ":cache_k") E("f%d", "cv", "z%d", ":cache_v"), i, i, i, i);
    }
    REFUSED(RANGE, (const char *)b.data, "x.drawio: too many ops whose edges have no slot or whose weights no");
    buf_free(&b);
}

/* Cycles, a fault and a long label, with every allocation failing in turn. */
static void faults_without_memory(void **state) {
    (void)state;
    char *text = repeated(HEAD SMALL V("k", "y&#10;kind=add") E("a", "k", "k", "a") V("l", "z&#10;kind=silu_mul")
                              E("b", "l", "l", "") V("u", "u&#10;kind=what") BOX("n"),
                          "word ", 100, "\"/>" TAIL);
    for (uint64_t n = 1;; n++) {
        graph *g = NULL;
        keel_error err = KEEL_ERROR_INITIALIZER;
        mem_fail_after(n);
        keel_status s = drawing_read("x.drawio", text, strlen(text), NULL, &g, &err);
        mem_fail_after(0);
        assert_null(g);
        if (s == KEEL_FORMAT) {
            assert_true(n > 40);
            assert_non_null(strstr(err.detail, "y -> y;"));
            assert_non_null(strstr(err.detail, "z -> z;"));
            break;
        }
        if (s != KEEL_NOMEM || err.status != s) fail_msg("%d: %s", (int)n, err.detail);
    }
    keel_free(text);
}

static void limits(void **state) {
    (void)state;
    buf b = {0};
    for (int i = 0; i < 16; i++) buf_printf(&b, V("v%d", "l{0-4095}.y%d&#10;kind=add"), i, i);
    buf_str(&b, SMALL);
    REFUSED(RANGE, (const char *)b.data, "65540 ops, repeated layers counted; at most 65536 can be read");
    buf_free(&b);
    size_t bytes;
    char *text;
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_status s = file_read(KEEL_SOURCE_DIR "/tests/draw/drawings/bomb.drawio", 1 << 20, &text, &bytes, &err);
    if (s != KEEL_OK) fail_msg("%s", err.detail);
    refused_text(text, bytes, KEEL_RANGE,
                 (const char *const[]){"page \"bomb\": the compressed pages hold more than 32 MB", NULL});
    keel_free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_kinds_once),      cmocka_unit_test(what_json_refuses),
        cmocka_unit_test(long_labels),           cmocka_unit_test(long_const),
        cmocka_unit_test(repeated_text),         cmocka_unit_test(open_questions),
        cmocka_unit_test(faults_without_memory), cmocka_unit_test(limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
