/* SPDX-License-Identifier: Apache-2.0 */
/* timeout: 120 */
/* Drawings: what stands in the labels, whether boxes and lines keep out of each other's way (judged from the file's
 * own geometry by an XML parser), and whether reading a drawing gives back the graph to the byte. */
#include "core/mem.h"
#include "draw/draw.h"
#include "draw/drawing.h"

#include <expat.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "graph/graph_cases.h"

enum { RANDOM_GRAPHS = 300 };

/* ---- a drawing as a reader sees it --------------------------------------------------------------- */

typedef struct cell {
    char *id, *value, *style, *parent, *source, *target;
    bool vertex, edge;
    double x, y, w, h; /* as written; then absolute */
    double px[16], py[16];
    int n_points;
} cell;

typedef struct page {
    cell *cells;
    int n, cap;
} page;

static char *copy_of(const char **attrs, const char *name) {
    for (; *attrs; attrs += 2) {
        if (strcmp(attrs[0], name) == 0) return strdup(attrs[1]);
    }
    return strdup("");
}

static double number_of(const char **attrs, const char *name) {
    char *text = copy_of(attrs, name);
    double v = atof(text);
    free(text);
    return v;
}

static void on_element(void *user, const char *name, const char **attrs) {
    page *p = user;
    if (strcmp(name, "mxCell") == 0) {
        if (p->n == p->cap) p->cells = realloc(p->cells, (size_t)(p->cap = 2 * p->cap + 64) * sizeof *p->cells);
        cell *c = &p->cells[p->n++];
        *c = (cell){.id = copy_of(attrs, "id"),
                    .value = copy_of(attrs, "value"),
                    .style = copy_of(attrs, "style"),
                    .parent = copy_of(attrs, "parent"),
                    .source = copy_of(attrs, "source"),
                    .target = copy_of(attrs, "target")};
        c->vertex = number_of(attrs, "vertex") == 1;
        c->edge = number_of(attrs, "edge") == 1;
    } else if (strcmp(name, "mxGeometry") == 0) {
        cell *c = &p->cells[p->n - 1];
        c->x = number_of(attrs, "x"), c->y = number_of(attrs, "y");
        c->w = number_of(attrs, "width"), c->h = number_of(attrs, "height");
    } else if (strcmp(name, "mxPoint") == 0) {
        cell *c = &p->cells[p->n - 1];
        char *as = copy_of(attrs, "as");
        assert_true(c->n_points < 14);
        if (!*as) c->px[c->n_points] = number_of(attrs, "x"), c->py[c->n_points++] = number_of(attrs, "y");
        free(as);
    }
}

static cell *cell_by_id(const page *p, const char *id) {
    for (int i = 0; i < p->n; i++) {
        if (strcmp(p->cells[i].id, id) == 0) return &p->cells[i];
    }
    fail_msg("no cell %s", id);
    return NULL;
}

static double style_number(const cell *c, const char *key) {
    const char *at = strstr(c->style, key);
    assert_non_null(at);
    return atof(at + strlen(key));
}

static bool is_box(const cell *c) { return c->vertex && !strstr(c->style, "swimlane"); }

static page read_page(const buf *text) {
    page p = {0};
    XML_Parser parser = XML_ParserCreate(NULL);
    XML_SetUserData(parser, &p);
    XML_SetStartElementHandler(parser, on_element);
    assert_int_equal(XML_Parse(parser, (const char *)text->data, (int)text->len, 1), XML_STATUS_OK);
    XML_ParserFree(parser);
    for (int i = 0; i < p.n; i++) {
        cell *c = &p.cells[i];
        if (!is_box(c) || strcmp(c->parent, "1") == 0) continue;
        const cell *group = cell_by_id(&p, c->parent);
        assert_true(c->x >= 0 && c->y >= 20 && c->x + c->w <= group->w && c->y + c->h <= group->h);
        c->x += group->x, c->y += group->y;
    }
    return p;
}

static void free_page(page *p) {
    for (int i = 0; i < p->n; i++) {
        cell *c = &p->cells[i];
        free(c->id), free(c->value), free(c->style), free(c->parent), free(c->source), free(c->target);
    }
    free(p->cells);
}

/* ---- geometry ------------------------------------------------------------------------------------ */

static int by_top(const void *a, const void *b) {
    double x = (*(cell *const *)a)->y, y = (*(cell *const *)b)->y;
    return x < y ? -1 : x > y;
}

/* Boxes as a sorted list, so that a drawing of a thousand boxes costs no million comparisons. */
static int list_boxes(page *p, cell **boxes) {
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        if (is_box(&p->cells[i])) boxes[n++] = &p->cells[i];
    }
    qsort(boxes, (size_t)n, sizeof *boxes, by_top);
    return n;
}

static void check_boxes(const char *what, cell **boxes, int n) {
    for (int i = 0; i < n; i++) {
        const cell *a = boxes[i];
        assert_true(a->w >= 40 && a->h >= 20 && a->x >= 0 && a->y >= 0);
        for (int k = i + 1; k < n && boxes[k]->y < a->y + a->h; k++) {
            const cell *b = boxes[k];
            if (a->x < b->x + b->w && b->x < a->x + a->w) fail_msg("%s: %s overlaps %s", what, a->value, b->value);
        }
    }
}

/* Longest line and how many: no text is wider than 5 pixels a character here (Helvetica of 11: 5.5 on average). */
static void check_text_fits(const cell *c) {
    size_t longest = 0, lines = 1;
    for (const char *at = c->value; *at;) {
        const char *end = strstr(at, "<br>");
        size_t bytes = 0, stop = end ? (size_t)(end - at) : strlen(at);
        for (size_t i = 0; i < stop; i++, bytes++) i += at[i] == '&' ? strcspn(at + i, ";") : 0;
        if (strncmp(at, "<b>", 3) == 0) bytes -= 7;
        if (bytes > longest) longest = bytes;
        lines += end != NULL;
        at = end ? end + 4 : at + strlen(at);
    }
    if (c->w < 5 * (double)longest || c->h < 13 * (double)lines) fail_msg("%s: the box is too small", c->value);
}

static void check_segment(const char *what, const cell *e, double x0, double y0, double x1, double y1, cell **boxes,
                          int n) {
    double left = x0 < x1 ? x0 : x1, right = x0 < x1 ? x1 : x0, top = y0 < y1 ? y0 : y1, bottom = y0 < y1 ? y1 : y0;
    if (right - left > 0.5 && bottom - top > 0.5) fail_msg("%s: edge %s is not orthogonal", what, e->value);
    for (int i = 0; i < n && boxes[i]->y < bottom - 0.5; i++) {
        const cell *b = boxes[i];
        bool through = b->y + b->h > top + 0.5 && b->x + 0.5 < right && b->x + b->w - 0.5 > left;
        if (right == left) through = through && b->x + 0.5 < left && b->x + b->w - 0.5 > left;
        if (through) fail_msg("%s: edge %s goes through %s", what, e->value, b->value);
    }
}

static void check_edge(const char *what, page *p, cell *e, cell **boxes, int n) {
    const cell *from = cell_by_id(p, e->source), *to = cell_by_id(p, e->target);
    double x = from->x + from->w * style_number(e, "exitX="), y = from->y + from->h * style_number(e, "exitY=");
    assert_true(is_box(from) && is_box(to));
    e->px[e->n_points] = to->x + to->w * style_number(e, "entryX=");
    e->py[e->n_points++] = to->y + to->h * style_number(e, "entryY=");
    for (int i = 0; i < e->n_points; i++) {
        check_segment(what, e, x, y, e->px[i], e->py[i], boxes, n);
        x = e->px[i], y = e->py[i];
    }
    assert_true(*e->value && e->x >= -1 && e->x <= 1);
}

/* Containers stand one below the other. */
static void check_groups(const char *what, const page *p) {
    double bottom = 0;
    for (int i = 0; i < p->n; i++) {
        const cell *c = &p->cells[i];
        if (!strstr(c->style, "swimlane")) continue;
        if (c->y < bottom) fail_msg("%s: group %s overlaps the one above", what, c->value);
        bottom = c->y + c->h;
    }
}

static void check_drawing(const char *what, const buf *text) {
    page p = read_page(text);
    check_groups(what, &p);
    cell **boxes = calloc((size_t)p.n + 1, sizeof *boxes);
    int n = list_boxes(&p, boxes);
    assert_true(n > 2);
    check_boxes(what, boxes, n);
    for (int i = 0; i < n; i++) check_text_fits(boxes[i]);
    for (int i = 0; i < p.n; i++) {
        if (p.cells[i].edge && p.n < 1500) check_edge(what, &p, &p.cells[i], boxes, n);
    }
    free(boxes);
    free_page(&p);
}

/* ---- round trips --------------------------------------------------------------------------------- */

static buf drawn(const graph *g, bool fold) {
    buf b = {0};
    keel_error err = KEEL_ERROR_INITIALIZER;
    case_ok(draw_drawio(g, &(draw_options){.fold = fold}, &b, &err), &err);
    return b;
}

static void round_trip(const char *name, const graph *g, bool small) {
    for (int fold = 0; fold < 2; fold++) {
        buf b = drawn(g, fold), again;
        graph *back = NULL;
        keel_error err = KEEL_ERROR_INITIALIZER;
        keel_status s = drawing_read(name, (const char *)b.data, b.len, NULL, &back, &err);
        if (s != KEEL_OK) fail_msg("%s, fold %d: %s", name, fold, err.detail);
        case_equal(name, g, back, small);
        check_drawing(name, &b);
        again = drawn(back, fold);
        assert_true(again.len == b.len && memcmp(again.data, b.data, b.len) == 0);
        graph_close(back);
        buf_free(&again);
        buf_free(&b);
    }
}

static void test_models(void **state) {
    (void)state;
    case_each(round_trip);
}

static void test_random(void **state) {
    (void)state;
    int folded = 0;
    for (uint32_t seed = 1; seed <= RANDOM_GRAPHS; seed++) {
        char name[32];
        snprintf(name, sizeof name, "seed %u", seed);
        graph *g = case_random_graph(seed);
        round_trip(name, g, false);
        buf whole = drawn(g, false), fold = drawn(g, true);
        folded += fold.len < whole.len;
        buf_free(&whole);
        buf_free(&fold);
        graph_close(g);
    }
    if (folded < RANDOM_GRAPHS / 12) fail_msg("only %d of %d random graphs fold", folded, RANDOM_GRAPHS);
}

/* ---- labels -------------------------------------------------------------------------------------- */

/* The one vertex whose label begins so. */
static void expect_label(const page *p, const char *want) {
    size_t name = strcspn(want, "\n");
    buf html = {0};
    buf_str(&html, "<b>");
    buf_put(&html, want, name);
    buf_str(&html, "</b>");
    size_t head = html.len;
    for (want += name; *want; want++) {
        if (*want == '\n') {
            buf_str(&html, "<br>");
        } else {
            buf_put(&html, want, 1);
        }
    }
    for (int i = 0; i < p->n; i++) {
        const cell *c = &p->cells[i];
        if (!c->vertex || strncmp(c->value, (const char *)html.data, head) != 0) continue;
        assert_string_equal(c->value, (const char *)html.data);
        buf_free(&html);
        return;
    }
    fail_msg("no vertex %s", (const char *)html.data);
}

static void expect_edge(const page *p, const char *label, int times) {
    int n = 0;
    for (int i = 0; i < p->n; i++) n += p->cells[i].edge && strcmp(p->cells[i].value, label) == 0;
    if (n != times) fail_msg("edge %s stands %d times, expected %d", label, n, times);
}

static void expect_group(const page *p, const char *label) {
    for (int i = 0; i < p->n; i++) {
        if (strstr(p->cells[i].style, "swimlane") && strcmp(p->cells[i].value, label) == 0) return;
    }
    fail_msg("no group %s", label);
}

static void test_labels(void **state) {
    (void)state;
    graph *g = case_geometry("qwen3-0.6b", 1, false);
    buf b = drawn(g, false);
    page p = read_page(&b);
    expect_label(&p, "model\nkind=model\narchitecture=Qwen3ForCausalLM\nmax_position=40960");
    expect_label(&p, "rope.inv_freq\nkind=const\nout=[64]f32 values=rope(theta=1000000)");
    expect_label(&p, "embed\nkind=embedding\nout=[M,1024]act\nw=model.embed_tokens.weight[151936,1024]bf16");
    expect_label(&p, "l0.attn.q_proj\nkind=linear\nin=[M,1024]act out=[M,2048]act\n"
                     "w=model.layers.0.self_attn.q_proj.weight[2048,1024]bf16 shard=col");
    expect_label(&p, "l1.attn.o_proj\nkind=linear_residual\nin=[M,2048]act,[M,1024]act out=[M,1024]act\n"
                     "w=model.layers.1.self_attn.o_proj.weight[1024,2048]bf16 shard=row\ncollective=AR");
    expect_label(&p, "l1.attn.cache_v\nkind=cache\nout=[8,128]act");
    expect_label(&p, "final.norm\nkind=rmsnorm\nin=[M,1024]act out=[M_logit,1024]act\n"
                     "w=model.norm.weight[1024]bf16\neps=1e-06 logit_rows=1");
    expect_label(&p, "argmax\nkind=argmax\nin=[M_logit,151936]act");
    expect_group(&p, "l0");
    expect_group(&p, "l1");
    expect_edge(&p, "l0.attn.norm", 3);
    expect_edge(&p, "l0.mlp.gate_proj \xe2\x86\x92 gate", 1);
    expect_edge(&p, "rope \xe2\x86\x92 rope", 2);
    expect_edge(&p, "l0.mlp.down_proj \xe2\x86\x92 residual", 1);
    free_page(&p);
    buf_free(&b);
    graph_close(g);
}

static void test_folded_labels(void **state) {
    (void)state;
    graph *g = case_geometry("qwen3-0.6b", -1, false);
    buf b = drawn(g, true);
    page p = read_page(&b);
    expect_group(&p, "l{0-27}.");
    expect_label(&p, "l{0-27}.attn.q_proj\nkind=linear\nin=[M,1024]act out=[M,2048]act\n"
                     "w=model.layers.{i}.self_attn.q_proj.weight[2048,1024]bf16 shard=col");
    expect_edge(&p, "embed", 1);
    expect_edge(&p, "l{0-27}.mlp.down_proj", 2); /* to the next layer, and to the end */
    expect_edge(&p, "l{0-27}.mlp.down_proj \xe2\x86\x92 residual", 1);
    free_page(&p);
    buf_free(&b);
    graph_close(g);
}

/* Several kinds of layers become several ranges; keys keep numbers that are not the layer's. */
static void test_ranges(void **state) {
    (void)state;
    graph *g = case_two_kinds(3, 4);
    buf b = drawn(g, true);
    page p = read_page(&b);
    expect_group(&p, "l{0-2}.");
    expect_group(&p, "l{3-6}.");
    expect_label(&p, "l{3-6}.up\nkind=linear\nin=[M,16]act out=[M,16]act\nw=layers.{i}.up.3[16,16]bf16 shard=col");
    expect_edge(&p, "l{0-2}.down", 2);
    expect_edge(&p, "l{3-6}.down", 2);
    free_page(&p);
    buf_free(&b);
    round_trip("two kinds", g, true);
    graph_close(g);
    g = case_two_kinds(1, 4); /* a single layer stands for itself */
    b = drawn(g, true);
    p = read_page(&b);
    expect_group(&p, "l0");
    expect_group(&p, "l{1-4}.");
    free_page(&p);
    buf_free(&b);
    round_trip("one and four", g, true);
    graph_close(g);
}

/* llama3's scaled frequencies are no power of one base: they stand as numbers. */
static void test_values(void **state) {
    (void)state;
    graph *g = case_geometry("llama-3.1-8b", 0, false);
    buf b = drawn(g, false);
    assert_non_null(strstr((const char *)b.data, "values=1 "));
    assert_null(strstr((const char *)b.data, "values=rope"));
    buf_free(&b);
    graph_close(g);
}

/* ---- what cannot be drawn ------------------------------------------------------------------------ */

static void test_refused(void **state) {
    static const struct {
        const char *name, *key, *notes, *expected;
    } cases[] = {
        {"a b", "k", "", "\"a b\""},    {"a{1}", "k", "", "\"a{1}\""},    {"a", "k v", "", "\"k v\""},
        {"a", "k[0]", "", "\"k[0]\""},  {"a", "k", "eps=3", "\"eps=3\""}, {"a", "k", "ok W=3 x", "\"ok W=3 x\""},
        {"a->b", "k", "", "\"a->b\""},  {"l3.", "k", "", "\"l3.\""},      {"a", "k", "Shard =row", "\"Shard =row\""},
        {"a", "k", "ep=3", "\"ep=3\""}, {"a", "k", "plain x=3 y:z", NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        build b;
        graph *g = NULL;
        buf out = {0};
        keel_error err = KEEL_ERROR_INITIALIZER;
        case_ok(build_begin(&b, "refused", "Refused", DTYPE_BF16, &err), &err);
        op_spec op = {.kind = "rmsnorm", .name = cases[i].name, .attr = {{"eps", 1e-5}}, .notes = cases[i].notes};
        op.in[0] = build_input(&b, "x", 8);
        op.weight[0] = (weight_spec){cases[i].key, {8}, SHARD_REP, 0};
        build_op(&b, op);
        case_ok(build_finish(&b, &g), &err);
        keel_status s = draw_drawio(g, NULL, &out, &err);
        assert_int_equal(s, cases[i].expected ? KEEL_UNSUPPORTED : KEEL_OK);
        if (cases[i].expected) assert_non_null(strstr(err.detail, cases[i].expected));
        buf_free(&out);
        graph_close(g);
    }
}

static void test_rank(void **state) {
    (void)state;
    graph *g = case_geometry("tiny-qwen3", -1, false);
    buf out = {0};
    keel_error err = KEEL_ERROR_INITIALIZER;
    g->tp = 2, g->rank = 1;
    assert_int_equal(draw_drawio(g, NULL, &out, &err), KEEL_UNSUPPORTED);
    assert_non_null(strstr(err.detail, "rank 1 of 2"));
    assert_int_equal(draw_svg(g, NULL, &out, &err), KEEL_OK);
    buf_free(&out);
    graph_close(g);
}

static void test_short_memory(void **state) {
    (void)state;
    graph *g = case_geometry("tiny-qwen3", -1, false);
    keel_status s = KEEL_NOMEM;
    for (int svg = 0; svg < 2; svg++) {
        for (uint64_t n = 1; n < 10000; n++) {
            buf out = {0};
            keel_error err = KEEL_ERROR_INITIALIZER;
            draw_options o = {.fold = true};
            mem_fail_after(n);
            s = svg ? draw_svg(g, &o, &out, &err) : draw_drawio(g, &o, &out, &err);
            mem_fail_after(0);
            buf_free(&out);
            if (s == KEEL_OK) break;
            assert_int_equal(s, KEEL_NOMEM);
        }
        assert_int_equal(s, KEEL_OK);
    }
    graph_close(g);
}

/* The picture is well-formed XML and shows every op. */
static void test_picture(void **state) {
    (void)state;
    graph *g = case_geometry("tiny-qwen3", -1, false);
    buf b = {0};
    keel_error err = KEEL_ERROR_INITIALIZER;
    case_ok(draw_svg(g, NULL, &b, &err), &err);
    XML_Parser parser = XML_ParserCreate(NULL);
    assert_int_equal(XML_Parse(parser, (const char *)b.data, (int)b.len, 1), XML_STATUS_OK);
    XML_ParserFree(parser);
    for (int i = 1; i < g->n_ops; i++) {
        char text[256];
        snprintf(text, sizeof text, ">%s</text>", g->ops[i].name);
        assert_non_null(strstr((const char *)b.data, text));
    }
    buf_free(&b);
    graph_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_labels),       cmocka_unit_test(test_folded_labels), cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_values),       cmocka_unit_test(test_refused),       cmocka_unit_test(test_rank),
        cmocka_unit_test(test_models),       cmocka_unit_test(test_random),        cmocka_unit_test(test_picture),
        cmocka_unit_test(test_short_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
