/* SPDX-License-Identifier: Apache-2.0 */
/* What a drawing may say wrongly: each deviation is named with page, cell and label, all of them at once. And labels
 * that look odd but say the right thing. */
#include "draw/drawing_cells.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* ---- labels ------------------------------------------------------------------------------------------- */

static void kinds_and_names(void **state) {
    (void)state;
    graph_close(drawn(SMALL));
    REFUSED(UNSUPPORTED, BETWEEN("y&#10;kind=linaer"), "page \"main\", cell x, \"y\": kind=linaer is unknown",
            "rmsnorm", "const");
    WRONG(BETWEEN("y&#10;w=A[16,16]"), "cell x, \"y\": edges begin and end here, but the label has no kind=");
    WRONG(SMALL V("z", "lost&#10;w=A[16,16]"), "cell z, \"lost\": kind= is missing");
    WRONG(BETWEEN("kind=linear w=A[16,16]"), "cell x", "the first line must be the name");
    WRONG(BETWEEN("my op&#10;kind=linear w=A[16,16]"), "cell x, \"my op\": the first line must be the name alone");
    WRONG(BETWEEN("norm&#10;kind=linear w=A[16,16]"), "cell n, \"norm\": the name norm is taken by cell x of page");
    WRONG(BETWEEN("s&#10;kind=step_begin"), "step_begin is not drawn");
    WRONG(EMBED FROM_NORM TO_NORM V("e", "text"), "cell e, \"text\": two cells of the page have this id");
    WRONG(SMALL V("m", "kind=model") V("m2", "kind=model"), "cell m2", "a second kind=model");
    WRONG(SMALL V("m", "kind=model max_position=many"), "max_position=many is not a number");
    WRONG(BETWEEN("a&amp;#7;b&#10;kind=linear w=A[16,16]"), "\"a\\x07b\"", "control characters");
}

static void shapes_and_weights(void **state) {
    (void)state;
    WRONG(BETWEEN("y&#10;kind=linear in=[M,16 w=A[16,16]"), "cell x, \"y\": in=[M,16w=A[16,16]", "expected ]");
    WRONG(BETWEEN("y&#10;kind=linear in=[M,0]act w=A[16,16]"), "a dimension is 0");
    WRONG(BETWEEN("y&#10;kind=linear in=[M,16]bf17 w=A[16,16]"), "unknown dtype; known: act, f32, bf16");
    WRONG(BETWEEN("y&#10;kind=linear in=[M,24]act w=A[16,16]"),
          "cell x, \"y\": in= says [M,24]act for slot x, but embed brings [M,16]act");
    WRONG(BETWEEN("y&#10;kind=linear in=[M,16],[M,16] w=A[16,16]"), "in= has 2 shapes, but 1 edges end here");
    WRONG(BETWEEN("y&#10;kind=linear out=[M,24]act w=A[16,16]"),
          "cell x, \"y\": out= says [M,24]act, but linear makes [M,16]act");
    WRONG(BETWEEN("y&#10;kind=linear out=[M,16],[M,16] w=A[16,16]"), "out= has 2 shapes, linear has 1 outputs");
    WRONG(BETWEEN("y&#10;kind=linear w=A[16,24]"),
          "cell x, \"y\":", "weight A is [16, 24]: the last dimensions must be equal");
    WRONG(BETWEEN("y&#10;kind=linear w=A[16,16,16,16,16]"), "at most 4 dimensions");
    WRONG(BETWEEN("y&#10;kind=linear w=A[M,16]"), "a weight has no M");
    WRONG(BETWEEN("y&#10;kind=linear w=A[16,16]act"), "a weight is not of type act");
    WRONG(BETWEEN("y&#10;kind=linear w=[16,16]"), "expected the name of a tensor of the checkpoint");
    WRONG(BETWEEN("y&#10;kind=linear w=A[16,16] w=B[16] w=C[1,1] w=D[16]"),
          "linear takes 3 weights, this is one more: w=D[16]");
    WRONG(BETWEEN("y&#10;kind=linear w:bais=A[16,16]"), "linear has no weight \"bais\"; it has: w, bias");
    WRONG(BETWEEN("y&#10;kind=linear w:w=A[16,16] w:w=B[16,16]"), "two weights for the slot w");
    WRONG(BETWEEN("y&#10;kind=linear"), "linear needs the weight w");
    WRONG(BETWEEN("y&#10;kind=linear w=A"), "the shapes here do not tell the dimensions of A");
    /* A space in a number is no number. */
#define APART "a space inside a number, or a separator is missing"
    WRONG(BETWEEN("y&#10;kind=linear w=A[1 6,16]"), "cell x, \"y\": w=A[1 6,16]: " APART);
    WRONG(BETWEEN("y&#10;kind=linear w=A[16 16]"), "w=A[16 16]: " APART);
    WRONG(BETWEEN("y&#10;kind=linear w=A[16,16] out=[M,1&lt;br&gt;6]"), "out=[M,1 6]: " APART);
    WRONG(BETWEEN("y&#10;kind=linear w=A[16,16] in=[M 16]"), "in=[M 16]: " APART);
    WRONG(BETWEEN("y&#10;kind=linear w=A[16,16] shard=row(dim=0&#160;1)"), "shard=row(dim=0 1): expected rep, col");
    WRONG(BETWEEN("y&#10;kind=linear w=A[1073741825,16]"), "a dimension is too large");
    WRONG(BETWEEN("y&#10;kind=linear w=E[16,16]"), "weight E stands in the graph already with another shape");
    WRONG(EMBED FROM_NORM TO_NORM V("z", "t&#10;kind=embedding w=T"), "do not tell the dimensions of T");
}

static void shards_and_collectives(void **state) {
    (void)state;
    WRONG(BETWEEN("y&#10;kind=linear shard=col w=A[16,16]"), "shard=col: expected once behind each w=");
    WRONG(BETWEEN("y&#10;kind=linear w=A[16,16] shard=diagonal"), "shard=diagonal: expected rep, col, row or ep");
    WRONG(BETWEEN("y&#10;kind=linear w=A[16,16] shard=col(dim=2)"), "dim=2 of 2 dimensions");
    WRONG(BETWEEN("y&#10;kind=linear w=A[16,16] shard=rep(dim=1)"), "shard=rep(dim=1)");
    WRONG(BETWEEN("y&#10;kind=linear w=A[16,16] shard=col collective=AR"),
          "cell x, \"y\": collective=AR: no weight here");
    WRONG(BETWEEN("y&#10;kind=linear w=A[16,16] shard=row collective=AG"), "collective=AG: its shard rules need AR");
    WRONG(BETWEEN("y&#10;kind=linear w=A[16,16] collective=ARR"), "collective=ARR: expected AR, RS, AG or EP");
    graph_close(drawn(BETWEEN("y&#10;kind=linear w=A[16,16] shard=row collective=ar")));
}

static void attributes(void **state) {
    (void)state;
    WRONG(BETWEEN("y&#10;kind=rmsnorm w=A[16]"), "cell x, \"y\": rmsnorm needs eps=");
    WRONG(BETWEEN("y&#10;kind=rmsnorm w=A[16] eps=tiny"), "eps=tiny is not a number");
    WRONG(BETWEEN("y&#10;kind=rmsnorm w=A[16] eps=1e999"), "eps=1e999 is not a finite number");
    WRONG(BETWEEN("y&#10;kind=rmsnorm w=A[16] eps=1e-6 eps=1e-5"), "eps= stands there twice");
    REFUSED(RANGE, BETWEEN("y&#10;kind=rmsnorm w=A[16] eps=-1"), "cell x, \"y\": eps -1 must not be negative");
    WRONG(BETWEEN("y&#10;kind=linear w=A[16,16] eps=1"), "linear has no attribute eps");
}

#define ROPE(c) SMALL V("r", "rope&#10;kind=rope_table") c E("cr", "c", "r", "")

static void constants_caches_inputs(void **state) {
    (void)state;
    WRONG(ROPE(V("c", "f&#10;kind=const out=[4]f32")), "cell c, \"f\": a const needs values=");
    WRONG(ROPE(V("c", "f&#10;kind=const out=[4]f32 values=1 2 3")), "values= has 3 numbers, out= says 4");
    WRONG(ROPE(V("c", "f&#10;kind=const out=[4]bf16 values=1 2 3 4")), "out= of a const is [n]f32");
    WRONG(ROPE(V("c", "f&#10;kind=const out=[2]f32 values=1 2x")), "value 2 of values= is not a finite number: 2x");
    WRONG(ROPE(V("c", "f&#10;kind=const out=[4]f32 values=rope(theta=0.5)")), "rope(theta=T) with T above 1");
    WRONG(ROPE(V("c", "f&#10;kind=const values=rope(theta=10000)")), "and out=[n]f32");
    WRONG(ROPE(V("c", "f&#10;kind=const out=[4]f32 values=rope(theta=10 000)")), "values=rope(theta=10 000): expected");
    WRONG(ROPE(V("c", "f&#10;kind=const out=[4]f32 values=rope(theta=1e 4)")), "values=rope(theta=1e 4): expected");
    WRONG(ROPE(V("c", "f&#10;kind=const out=[2]f32 values=1 2 w=A[2]")), "kind=const has no w=");
    WRONG(ROPE(V("c", "f&#10;kind=cache out=[2]act")), "a cache needs out=[kv_heads,head_dim]act");
    WRONG(ROPE(V("c", "f&#10;kind=input out=[8,16]act")), "an input needs out=[M,columns]act");
    WRONG(ROPE(V("c", "f&#10;kind=input out=[M,16]act")), "cell r, \"rope\": input 0 must be a constant");
    WRONG(SMALL E("bad", "n", "c", "") V("c", "f&#10;kind=cache out=[2,8]act"),
          "cell bad: the edge ends at f, which reads nothing");
}

/* ---- edges --------------------------------------------------------------------------------------------- */

static void edges(void **state) {
    (void)state;
    WRONG(SMALL "<mxCell id=\"q\" edge=\"1\" parent=\"1\" source=\"e\"/>",
          "page \"main\", cell q: the edge has no target (it begins at embed); connect both of its ends");
    WRONG(SMALL "<mxCell id=\"q\" edge=\"1\" parent=\"1\" target=\"n\"/>",
          "cell q: the edge has no source (it ends at norm); connect both of its ends");
    WRONG(SMALL V("t", "a note&#10;below") "<mxCell id=\"q\" edge=\"1\" parent=\"1\" source=\"t\"/>",
          "cell q: the edge has no target (it begins at a note); connect");
    WRONG(SMALL "<mxCell id=\"q\" edge=\"1\" parent=\"1\"/>", "cell q: the edge has no source; connect",
          "cell q: the edge has no target; connect");
    WRONG(SMALL E("q", "gone", "n", ""), "cell q: its source, cell gone, is not on this page (it ends at norm)");
    WRONG(SMALL E("q", "en", "n", ""), "cell q: its source, cell en, is no vertex");
    WRONG(SMALL V("t", "a note") E("q", "t", "n", ""),
          "x.drawio: page \"main\", cell t, \"a note\": an edge begins here, but the label has no kind=");
    WRONG(SMALL V("t", "a note") E("q", "e", "t", ""),
          "x.drawio: page \"main\", cell t, \"a note\": an edge ends here, but the label has no kind=");
    WRONG(SMALL V("t", "l3") E("q", "t", "n", ""), "cell t, \"l3\": an edge begins at this group; edges go from op");
    WRONG(SMALL V("m", "kind=model") E("q", "m", "n", ""), "cell m", ": an edge begins at the model vertex");
    WRONG(SMALL E("q", "e", "n", "head"),
          "cell q, \"head\": the label says head, but the edge begins at embed, and rmsnorm has no slot head: x");
    WRONG(SMALL E("q", "e", "n", "embed &#8594; y"), "rmsnorm has no slot \"y\"; it has: x");
    WRONG(SMALL E("q", "a", "n", ""), "cell q: the edge begins at pick, and argmax has no output");
    WRONG(SMALL E("q", "n", "e", ""), "the edge ends at embed, and embedding has no inputs");
    WRONG(SMALL E("q", "e", "n", "embed"), "cell n, \"norm\": two edges fill the slot x of norm: from embed and embed");
    WRONG(PAIR("y&#10;kind=add", E("p", "e", "x", "&#8594; a")), "cell x, \"y\": no edge fills its slot b");
    WRONG(PAIR("y&#10;kind=add in=[M,16],[M,16]", E("p", "e", "x", "&#8594; a")),
          "cell x, \"y\": no edge fills its slot b");
    WRONG(PAIR("y&#10;kind=add", E("p", "e", "x", "-&gt; a") E("q", "e", "x", "a")), "two edges fill the slot a of y");
    WRONG(PAIR("y&#10;kind=linear w=A[16,16]", E("p", "e", "x", "") E("q", "e", "x", "")),
          "two edges fill the slot x of y");
}

#define OTHER V("o", "other&#10;kind=embedding w=O[100,16]bf16")

/* Slots that the edges leave open. The residual of a linear from 16 to 8 columns can be told from its input. */
static void slots_by_shape(void **state) {
    (void)state;
    WRONG(OTHER PAIR("y&#10;kind=linear_residual w=A[16,16]", E("p", "e", "x", "") E("q", "o", "x", "")),
          "cell x, \"y\": its edges fit more than one slot; name it in their labels");
    WRONG(PAIR("y&#10;kind=linear_residual w=A[24,24]", E("p", "e", "x", "") E("q", "e", "x", "")),
          "x.drawio: page \"main\", cell x, \"y\": input embed is [M, 16] but weight A is [24, 24]");
    WRONG(V("d", "down&#10;kind=linear w=D[8,16]") PAIR("y&#10;kind=linear_residual w=A[24,24]",
                                                        E("p", "e", "x", "") E("q", "d", "x", "") E("r", "e", "d", "")),
          "cell x, \"y\": no slot fits the shapes of its edges; name it in their labels");
    graph_close(drawn(PAIR("y&#10;kind=linear_residual w=A[16,16]", E("p", "e", "x", "") E("q", "e", "x", ""))));
    for (int turn = 0; turn < 2; turn++) {
        graph *g = drawn(turn ? OTHER EMBED V("d", "down&#10;kind=linear w=D[8,16]")
                                    V("x", "y&#10;kind=linear_residual w=A[16,8]") FROM_NORM E("p1", "o", "d", "")
                                        E("p2", "d", "x", "") E("p3", "e", "x", "") E("p4", "x", "n", "")
                              : OTHER EMBED V("d", "down&#10;kind=linear w=D[8,16]")
                                    V("x", "y&#10;kind=linear_residual w=A[16,8]") FROM_NORM E("p1", "o", "d", "")
                                        E("p3", "e", "x", "") E("p2", "d", "x", "") E("p4", "x", "n", ""));
        const graph_op *op = &g->ops[4];
        assert_string_equal(op->name, "y");
        assert_string_equal(graph_tensor_at(g, op->in[0])->name, "down");
        assert_string_equal(graph_tensor_at(g, op->in[1])->name, "embed");
        graph_close(g);
    }
}

/* ---- the graph ------------------------------------------------------------------------------------------ */

static void whole_graphs(void **state) {
    (void)state;
    REFUSED(UNSUPPORTED, EMBED NORM LM TO_NORM TO_LM TO_PICK V("a", "pick&#10;kind=argmin"),
            "x.drawio: page \"main\", cell a, \"pick\": kind=argmin");
    WRONG(EMBED NORM LM TO_NORM TO_LM, "no op picks the token: add kind=argmax");
    WRONG(SMALL V("a2", "again&#10;kind=sample") E("q", "h", "a2", ""),
          "cell a2, \"again\": a second op picks the token");
    WRONG(SMALL V("d", "dead&#10;kind=linear w=D[4,16]") E("q", "e", "d", ""), "cell d, \"dead\": nothing reads dead");
    WRONG(SMALL V("c", "k&#10;kind=cache out=[2,8]act"), "cell c, \"k\": nothing reads k");
    WRONG(SMALL V("l", "l1.pick&#10;kind=argmax"), "the op that picks the token lies outside the layers");
    WRONG(BETWEEN("l5.y&#10;kind=linear w=A[16,16]") V("z", "l7.z&#10;kind=linear w=B[16,16]") E("q", "e", "z", ""),
          "layer 6 has no ops, but 5 and 7 have");
}

#define LOOP(n, next) V("k" n, "y" n "&#10;kind=add") E("a" n, "e", "k" n, "a") E("b" n, "k" n, "k" next, "b")

#define ONE(place, text) "x.drawio: page \"main\", cell " place ": " text

static void cycles(void **state) {
    (void)state;
    WRONG(EMBED FROM_NORM LOOP("1", "2") LOOP("2", "3") LOOP("3", "1") E("q", "k3", "n", ""),
          "ops wait for each other: y1 -> y2 -> y3 -> y1; turn or cut an edge");
    WRONG(EMBED FROM_NORM LOOP("1", "1") E("q", "k1", "n", ""), "ops wait for each other: y1 -> y1;");
    /* All that share no op, and no more. */
    WRONG(EMBED FROM_NORM LOOP("1", "2") LOOP("2", "3") LOOP("3", "1") LOOP("4", "5") LOOP("5", "4")
              E("q", "k3", "n", ""),
          "x.drawio: 2 faults", "ops wait for each other: y1 -> y2 -> y3 -> y1;",
          "ops wait for each other: y4 -> y5 -> y4;");
    /* Two that hang on each other by one edge, two that do by two, two through one op: the shorter one. */
    WRONG(EMBED FROM_NORM LOOP("1", "1") LOOP("2", "2") E("c", "k1", "k2", "a") E("q", "k2", "n", ""), "y1 -> y1;",
          "y2 -> y2;");
    WRONG(EMBED FROM_NORM LOOP("1", "2") LOOP("2", "1") LOOP("3", "4") LOOP("4", "3") V("s", "s&#10;kind=add")
              E("c", "k2", "s", "a") E("c2", "s", "k4", "a") E("c3", "k3", "s", "b") E("q", "k4", "n", ""),
          "y1 -> y2 -> y1;", "y3 -> y4 -> y3;");
    WRONG(EMBED FROM_NORM V("k1", "y1&#10;kind=add") V("k2", "y2&#10;kind=silu_mul") V("k3", "y3&#10;kind=add")
              E("a1", "k1", "k2", "") E("b", "k2", "k1", "a") E("c", "k2", "k3", "a") E("d", "k3", "k1", "b")
                  E("f", "e", "k3", "b") E("q", "k1", "n", ""),
          ONE("k1, \"y1\"", "ops wait for each other: y1 -> y2 -> y1;"));
    /* One edge in each of many layers is one fault. */
    WRONG(EMBED FROM_NORM V("x", "l{0-30}.y&#10;kind=add") E("p1", "e", "x", "a") E("p2", "x", "x", "b")
              E("p3", "x", "n", ""),
          ONE("x, \"l{0-30}.y\"", "ops wait for each other: l0.y -> l0.y;"));
    buf b = {0};
    for (int i = 0; i < 60; i++) {
        buf_printf(&b, V("k%d", "y%d&#10;kind=linear w=K[16,16]"), i, i);
        buf_printf(&b, E("l%d", "k%d", "k%d", ""), i, i, i);
    }
    buf_printf(&b, SMALL);
    WRONG((const char *)b.data, "x.drawio: 60 faults", "y0 -> y0", "y20 -> y20", "\nand ", " more");
    buf_free(&b);
}

/* ---- layers --------------------------------------------------------------------------------------------- */

#define GROUP(id, label) V(id, label)
#define STEP(group, id, name) IN(group, id, name "&#10;kind=linear w=" id "{i}[16,16]")

static void layers(void **state) {
    (void)state;
    graph_close(
        drawn(GROUP("g", "l3") EMBED STEP("g", "x", "y") FROM_NORM E("p1", "e", "x", "") E("p2", "x", "n", "l3.y")));
    REFUSED(UNSUPPORTED,
            GROUP("g", "l3") EMBED IN("g", "x", "y&#10;kind=what") FROM_NORM E("p1", "e", "x", "")
                E("p2", "x", "n", "l3.y"),
            "x.drawio: page \"main\", cell x, \"y\": kind=what"); /* and nothing follows from it */
    WRONG(GROUP("g", "l3") EMBED STEP("g", "x", "l4.y") FROM_NORM E("p1", "e", "x", "") E("p2", "x", "n", ""),
          "cell x, \"l4.y\": it is in l4, but its group says l3");
    WRONG(GROUP("g", "layer{5-2}") EMBED FROM_NORM TO_NORM, "cell g, \"layer{5-2}\": a group of layers is called");
    WRONG(BETWEEN("l{5-2}.y&#10;kind=linear w=A[16,16]"), "cell x, \"l{5-2}.y\": expected l3.NAME or l{0-29}.NAME");
    WRONG(BETWEEN("l9999.y&#10;kind=linear w=A[16,16]"), "expected l3.NAME or l{0-29}.NAME");
    WRONG(GROUP("g", "l3") SMALL E("q", "e", "g", ""), "cell g, \"l3\": an edge ends at this group");
    WRONG(BETWEEN("y&#10;kind=linear w=A{i}[16,16]"),
          "cell x, \"y\": weight A{i}: {i} is the op's layer, and the op is in none");
    WRONG(BETWEEN("l{0-1}.y&#10;kind=linear w=A{j}[16,16]"), "nothing else stands in braces");
    WRONG(BETWEEN("l{0-3}.y&#10;kind=linear w=A{i}[16,16]"), "nothing reads l0.y");
    WRONG(EMBED STEP("1", "x", "l{0-3}.y") STEP("1", "z", "l{3-5}.y") FROM_NORM E("p1", "e", "x", "")
              E("p2", "x", "n", ""),
          "cell z, \"l{3-5}.y\": the name l3.y is taken by cell x");
    WRONG(EMBED STEP("1", "x", "l{0-3}.y") FROM_NORM E("p1", "x", "x", "") E("p2", "x", "n", ""),
          "ops wait for each other: l0.y -> l0.y");
    WRONG(SMALL V("r", "nowhere&#10;kind=ref"), "cell r, \"nowhere\": no tensor of this name is drawn");
    WRONG(SMALL V("r", "embed&#10;kind=ref"), "cell r, \"embed\": no edge begins at this ref");
    WRONG(EMBED FROM_NORM V("r", "embed&#10;kind=ref out=[M,24]act") E("q", "r", "n", ""),
          "cell r, \"embed\": out= says [M,24]act, but embed is [M,16]act");
}

/* A chain of four layers: the outside edge feeds the first, the inside one each from the one before, the tail reads the
 * last. */
static void a_range_feeds_itself(void **state) {
    (void)state;
    graph *g = drawn(EMBED STEP("1", "x", "l{0-3}.y") FROM_NORM E("p1", "e", "x", "") E("p2", "x", "x", "")
                         E("p3", "x", "n", ""));
    static const char *const names[] = {"step", "embed", "l0.y", "l1.y", "l2.y", "l3.y", "norm", "head", "pick"};
    assert_int_equal(g->n_ops, 9);
    for (int i = 0; i < 9; i++) assert_string_equal(g->ops[i].name, names[i]);
    for (int i = 2; i < 9; i++) assert_int_equal(g->ops[i].in[0], g->ops[i - 1].out[0]);
    assert_string_equal(graph_tensor_at(g, g->ops[4].weight[0])->key, "x2");
    assert_int_equal(g->n_layers, 4);
    assert_int_equal(g->layer_first, 0);
    graph_close(g);
}

/* Two kinds of layers under one norm: 0-1 and 2-4, as in models whose first layers are dense. */
static void ranges_follow_each_other(void **state) {
    (void)state;
    graph *g =
        drawn(EMBED V("m", "l{0-4}.m&#10;kind=rmsnorm w=m{i}[16] eps=0") STEP("1", "d", "l{0-1}.out")
                  STEP("1", "f", "l{2-4}.out") FROM_NORM E("p1", "e", "m", "embed") E("p2", "m", "d", "")
                      E("p3", "m", "f", "") E("p4", "d", "m", "") E("p5", "f", "m", "out") E("p6", "f", "n", ""));
    static const char *const names[] = {"step",   "embed", "l0.m",   "l0.out", "l1.m",   "l1.out", "l2.m",
                                        "l2.out", "l3.m",  "l3.out", "l4.m",   "l4.out", "norm"};
    for (int i = 0; i < 13; i++) assert_string_equal(g->ops[i].name, names[i]);
    for (int i = 2; i < 13; i++) assert_int_equal(g->ops[i].in[0], g->ops[i - 1].out[0]);
    assert_string_equal(graph_tensor_at(g, g->ops[5].weight[0])->key, "d1");
    assert_string_equal(graph_tensor_at(g, g->ops[7].weight[0])->key, "f2");
    graph_close(g);
}

/* What a layer does not wait for still stands in it; a slot fed from inside and from outside is no carry without a
 * cycle. */
static void layers_stay_together(void **state) {
    (void)state;
    graph *g = drawn(STEP("1", "t", "l{0-1}.t") V("x", "l{0-1}.y&#10;kind=add") EMBED FROM_NORM E("p1", "e", "t", "") E(
        "p2", "t", "x", ": a") E("p3", "e", "x", ": b") E("p4", "x", "x", ": b") E("p5", "x", "n", ""));
    static const char *const names[] = {"step", "embed", "l0.t", "l0.y", "l1.t", "l1.y", "norm"};
    for (int i = 0; i < 7; i++) assert_string_equal(g->ops[i].name, names[i]);
    assert_int_equal(g->ops[5].in[1], g->ops[3].out[0]);
    graph_close(g);
    WRONG(STEP("1", "t", "l{0-1}.t") STEP("1", "x", "l{0-1}.y") EMBED FROM_NORM E("p1", "e", "t", "")
              E("p2", "t", "x", "") E("p3", "e", "x", "") E("p4", "x", "t", "") E("p5", "x", "n", ""),
          "cell x, \"l{0-1}.y\": two edges fill the slot x of l0.y: from t and embed");
}

static void pages_and_groups_agree(void **state) {
    (void)state;
#define PAGE(name, cells) "</root></mxGraphModel></diagram><diagram name=\"" name "\"><mxGraphModel><root>" cells
    WRONG(SMALL PAGE("layer{1-2}", V("x", "l3.y&#10;kind=add")),
          "page \"layer{1-2}\", cell x, \"l3.y\": it is in l3, but its page says l{1-2}");
    WRONG(SMALL PAGE("layer 4", V("g", "l3") IN("g", "x", "y&#10;kind=add")), "it is in l3, but its page says l4");
    WRONG(SMALL PAGE("two", V("x", "embed&#10;kind=add")),
          "page \"two\", cell x, \"embed\": the name embed is taken by cell e of page \"main\"");
    graph *g = drawn(EMBED FROM_NORM V("r", "l1.y&#10;kind=ref") E("p1", "r", "n", "") PAGE(
        "layer*2", STEP("1", "x", "y") V("r", "embed&#10;kind=ref") E("p1", "r", "x", "") E("p2", "x", "x", "")));
    assert_string_equal(g->ops[3].name, "l1.y");
    assert_int_equal(g->ops[4].in[0], g->ops[3].out[0]);
    graph_close(g);
}

#define ATTEND V("x", "y&#10;kind=attention q_heads=1 kv_heads=1 head_dim=16")
#define FROM_CACHES E("p4", "ck", "x", "ck : cache_k") E("p5", "cv", "x", "cv&#8594;cache_v")
#define FROM_EMBED E("p1", "e", "x", ":q") E("p2", "e", "x", ":k") E("p3", "e", "x", ": 2")

/* Attention without a rotation: a hole among the slots. */
static void a_slot_may_stay_empty(void **state) {
    (void)state;
    graph *g = drawn(EMBED ATTEND CACHE("ck") CACHE("cv") FROM_EMBED FROM_CACHES FROM_NORM E("p6", "x", "n", ""));
    const graph_op *op = &g->ops[2];
    assert_int_equal(op->n_in, 6);
    assert_int_equal(op->in[3], 0);
    assert_string_equal(graph_tensor_at(g, op->in[5])->name, "cv");
    graph_close(g);
}

/* ---- one cause, one line --------------------------------------------------------------------------------- */

/* A layer, twice: a reads the layer before and feeds p and c, c feeds p, p feeds z. Behind it the tail. `x.drawio:
 * page` begins a message of one fault only. */
#define LAYER_BOXES(p) STEP("1", "s", "l{0-1}.a") STEP("1", "c", "l{0-1}.c") V("p", p) STEP("1", "z", "l{0-1}.z")
#define INTO_LAYER E("i1", "e", "s", "") E("i2", "z", "s", "")
#define IN_LAYER(slot) E("i3", "s", "c", "") E("i4", "s", "p", slot) E("i5", "c", "p", "b")
#define OUT_OF_LAYER E("i6", "p", "z", "") E("i7", "z", "n", "")
#define ADD "l{0-1}.p&#10;kind=add"

static void follow_on_faults(void **state) {
    (void)state;
    graph_close(drawn(EMBED FROM_NORM LAYER_BOXES(ADD) INTO_LAYER IN_LAYER("a") OUT_OF_LAYER));
    WRONG(EMBED FROM_NORM LAYER_BOXES(ADD) INTO_LAYER IN_LAYER("b") OUT_OF_LAYER,
          ONE("p, \"l{0-1}.p\"", "two edges fill the slot b of l0.p: from a and c"));
    /* The cycle that makes z -> a a carry: an op on it, an edge of it. */
    WRONG(EMBED FROM_NORM LAYER_BOXES(ADD " w:qnorm=Q") INTO_LAYER IN_LAYER("a") OUT_OF_LAYER,
          ONE("p, \"l{0-1}.p\"", "add takes 0 weights"));
    WRONG(GROUP("g", "l{0-1}") EMBED FROM_NORM STEP("g", "s", "a") STEP("g", "c", "c") IN("g", "p", "kind=add")
              STEP("g", "z", "z") INTO_LAYER IN_LAYER("a") OUT_OF_LAYER,
          ONE("p, \"kind=add\"", "the first line must be the name"));
    WRONG(EMBED FROM_NORM LAYER_BOXES(ADD) INTO_LAYER IN_LAYER("a") E("i6", "p", "z", "y") E("i7", "z", "n", ""),
          ONE("i6, \"y\"", "the label says y, but the edge begins at p"));
    WRONG(EMBED FROM_NORM LAYER_BOXES("p") INTO_LAYER IN_LAYER("a") OUT_OF_LAYER,
          ONE("p, \"p\"", "edges begin and end here, but the label has no kind="));
    /* And what makes it one from the outside. */
    WRONG(EMBED FROM_NORM LAYER_BOXES(ADD) V("r", "l{0-1}.gone&#10;kind=ref") E("i1", "r", "s", "")
              E("i2", "z", "s", "") E("i3", "e", "c", "") E("i4", "s", "p", "a") E("i5", "c", "p", "b") OUT_OF_LAYER,
          ONE("r, \"l{0-1}.gone\"", "no tensor of this name is drawn"));
    WRONG(EMBED FROM_NORM LAYER_BOXES(ADD) "<mxCell id=\"i1\" edge=\"1\" source=\"e\"/>" E("i2", "z", "s", "")
              IN_LAYER("a") OUT_OF_LAYER,
          ONE("i1", "the edge has no target (it begins at embed); connect both of its ends"));
    WRONG(PAIR("y&#10;kind=add", E("p", "e", "x", "a") E("q", "r", "x", "b")) V("r", "nowhere&#10;kind=ref"),
          ONE("r, \"nowhere\"", "no tensor of this name is drawn"));
}

static void pages_that_are_none(void **state) {
    (void)state;
#define TEMPLATE(page, ref, x)                                                                                         \
    EMBED FROM_NORM V("r", ref "&#10;kind=ref") E("q", "r", "n", "") PAGE(                                             \
        page, STEP("1", "w", "v") STEP("1", "x", x) V("r", "embed&#10;kind=ref") V("c", "k&#10;kind=const values=1 2") \
                  E("p1", "r", "w", "") E("p2", "x", "w", "") E("p3", "w", "x", ""))
#define NO_PAGE(page) "x.drawio: page \"" page "\" is no page of layers, but its keys have {i}; name it "
    WRONG(TEMPLATE("Page-2", "l{0-1}.y", "y"), NO_PAGE("Page-2") "layer*2");
    WRONG(TEMPLATE("layer x 4", "l3.y", "y"), NO_PAGE("layer x 4") "layer*4");
    WRONG(TEMPLATE("Page-2", "l{2-4}.y", "y"), NO_PAGE("Page-2") "layer{2-4}");
    WRONG(TEMPLATE("Page-2", "y", "y"), NO_PAGE("Page-2") "layer*N, N the number of layers");
    WRONG(TEMPLATE("layer*0", "l{0-1}.y", "y"), "x.drawio: page \"layer*0\": a page of layers is called layer*30");
    WRONG(TEMPLATE("layer*0", "l{0-1}.z", "y"), "x.drawio: 2 faults", "cell r, \"l{0-1}.z\": no tensor of this name");
    WRONG(TEMPLATE("layer{0-1}", "l{0-1}.y", "l{5-2}.y"), "cell x, \"l{5-2}.y\": expected l3.NAME or l{0-29}.NAME");
    /* What has a name of that page, and numbers of layers. */
    WRONG(STEP("1", "w", "norm") STEP("1", "x", "y") V("r", "embed&#10;kind=ref") E("p1", "r", "w", "")
              E("p2", "x", "w", "") E("p3", "w", "x", "")
                  PAGE("rest", EMBED FROM_NORM V("r", "l{0-1}.y&#10;kind=ref") E("q", "r", "n", "")),
          NO_PAGE("main") "layer*2");
    WRONG(EMBED FROM_NORM STEP("1", "x", "l5.y") STEP("1", "z", "l7.z") E("p1", "e", "x", "") E("p2", "x", "z", "")
              E("p3", "z", "n", "") PAGE("layer{6-}", STEP("1", "u", "u")),
          "x.drawio: page \"layer{6-}\": a page of layers is called");
    WRONG(GROUP("g", "layer{5-2}") EMBED STEP("g", "x", "y") FROM_NORM E("p1", "e", "x", "") E("p2", "x", "n", ""),
          ONE("g, \"layer{5-2}\"", "a group of layers is called"));
}

/* The rule's own words, where all edges have a slot or only one is left. */
static void the_rule_refuses(void **state) {
    (void)state;
#define ROPED(q, dims, freqs, weight)                                                                                  \
    EMBED V("x", "y&#10;kind=attention q_heads=" q " kv_heads=1 head_dim=16 " weight)                                  \
        V("ck", "ck&#10;kind=cache out=" dims) CACHE("cv") FROM_EMBED FROM_CACHES FROM_NORM E("p6", "x", "n", "")      \
            V("f", "f&#10;kind=const values=" freqs) V("r", "rope&#10;kind=rope_table") E("p7", "f", "r", "")          \
                E("p8", "r", "x", "rope")
    graph_close(drawn(ROPED("1", "[1,16]", "1 2 3 4", "w:q_norm=Q w:k_norm=K")));
    WRONG(ROPED("2", "[1,16]", "1 2 3 4", ""), ONE("x, \"y\"", "input 0 (q) must be [M, 32]"));
    WRONG(ROPED("2", "[1,16]", "1 2 3 4", "w:q_norm=Q"), ONE("x, \"y\"", "input 0 (q) must be [M, 32]"));
    WRONG(ROPED("1", "[2,16]", "1 2 3 4", "w:q_norm=Q"), ONE("x, \"y\"", "inputs 4 and 5 must be two caches [1, 16]"));
    WRONG(ROPED("1", "[1,16]", "1 2 3 4", "out=[M,24]"),
          ONE("x, \"y\"", "out= says [M,24]act, but attention makes [M,16]act"));
    WRONG(ROPED("1", "[1,16]", "1 2 3 4 5 6 7 8 9", ""), ONE("x, \"y\"", "input 3 (rope table) must be"));
    WRONG(EMBED FROM_NORM V("x", "y&#10;kind=add") V("z", "z&#10;kind=rmsnorm w=Z eps=0") E("p", "e", "x", "a")
              E("q", "z", "x", "b") E("r", "x", "n", ""),
          ONE("z, \"z\"", "no edge fills its slot x"));
}

static void slips(void **state) {
    (void)state;
    WRONG(BETWEEN("y&#10;kind=rmsnorm w=A[16] esp=1e-6"), "cell x, \"y\": esp= is no word here; did you mean eps=?");
    WRONG(BETWEEN("y&#10;kind=rmsnorm w=A[16] eps=0 logitrow=1"), "did you mean logit_rows=?");
    WRONG(BETWEEN("y&#10;kind=linear w=A[16,16] shar=col"), "shar= is no word here; did you mean shard=?");
    WRONG(BETWEEN("y&#10;kind=linear w=A[16,16] colective=AR"), "did you mean collective=?");
    WRONG(BETWEEN("y&#10;kind=linear w=A[16,16] Otu=[M,16]"), "otu= is no word here; did you mean out=?");
    WRONG(SMALL V("m", "kind=model architectur=X"), "cell m", "did you mean architecture=?");
    WRONG(ROPE(V("c", "f&#10;kind=const value=1 2")), "cell c, \"f\": value= is no word here; did you mean values=?");
    WRONG(SMALL V("c", "f&#10;kind=cache ou=[2,8]act"), "cell c, \"f\": ou= is no word here; did you mean out=?");
    graph *g = drawn(BETWEEN("y&#10;kind=linear w=A[16,16] shar shade=2 i=3 wx=4 colouring=blue out:=1"));
    assert_string_equal(g->ops[2].notes, "shar shade=2 i=3 wx=4 colouring=blue out:=1");
    graph_close(g);
}

/* ---- odd but right --------------------------------------------------------------------------------------- */

static void odd_labels(void **state) {
    (void)state;
    graph *g = drawn(V("t", "&lt;h1&gt;A title&lt;/h1&gt; in words") V("e2", "") EMBED V(
        "x",
        "&lt;div&gt;y&lt;/div&gt;&lt;span style='a&gt;b'&gt;KIND = Linear&lt;/span&gt;&lt;br/&gt;in = [ m x 16 ] ACT "
        "fused-candidate, see below&lt;p&gt;w : = 3 w = A [16 * 16] BF16 shard = row ( dim = 0 )&amp;nbsp;later")
                         FROM_NORM E("p1", "e", "x", "&lt;b&gt;embed&lt;/b&gt;&amp;rarr;X") E("p2", "x", "n", "y : 0"));
    const graph_op *op = &g->ops[2];
    assert_string_equal(op->name, "y");
    assert_string_equal(op->notes, "fused-candidate, see below w : = 3 later");
    const graph_tensor *w = graph_tensor_at(g, op->weight[0]);
    assert_string_equal(w->key, "A");
    assert_int_equal(w->dtype, DTYPE_BF16);
    assert_int_equal(w->shard, SHARD_ROW);
    assert_int_equal(w->shard_dim, 0);
    assert_string_equal(g->architecture, "Drawn");
    assert_int_equal(g->max_position, 0);
    assert_int_equal(g->vocab, 100);
    assert_int_equal(g->hidden, 16);
    graph_close(g);
}

/* Spaces of all kinds, lists in one word or in several. */
static void spaces_in_labels(void **state) {
    (void)state;
    graph_close(drawn(EMBED V("x", "y&#10;kind=add\xc2\xa0in=[M,16] , [ M \xc3\x97 16 ] f32,&#9;out=[M&#160;,16] ")
                          E("p1", "e", "x", ":a") E("p2", "e", "x", ":b") E("p3", "x", "n", "") FROM_NORM));
    WRONG(EMBED V("x", "y&#10;kind=add in=[M,16] in=[M,8]") E("p1", "e", "x", ":a") E("p2", "e", "x", ":b")
              E("p3", "x", "n", "") FROM_NORM,
          "in= says [M,8]act for slot b, but embed brings [M,16]act");
}

static void weights_keep_their_dtype(void **state) {
    (void)state;
    graph *g = drawn(BETWEEN("y&#10;kind=linear w=A[16,16]f32 w:bias=B[16]f16 out=[M,16]bf16"));
    assert_int_equal(graph_tensor_at(g, g->ops[2].weight[0])->dtype, DTYPE_F32);
    assert_int_equal(graph_tensor_at(g, g->ops[2].weight[1])->dtype, DTYPE_F16);
    assert_int_equal(graph_tensor_at(g, g->ops[1].weight[0])->dtype, DTYPE_BF16);
    graph_close(g);
}

/* ---- files ------------------------------------------------------------------------------------------------ */

static void bytes_refused(keel_status status, const char *text, const char *words) {
    refused_text(text, strlen(text), status, (const char *const[]){words, NULL});
}

static void files(void **state) {
    (void)state;
    bytes_refused(KEEL_FORMAT, "", "line 1, column 1: not well-formed XML");
    bytes_refused(KEEL_FORMAT, HEAD SMALL, "not well-formed XML");
    bytes_refused(KEEL_FORMAT, "<svg/>", "the outermost element is <svg>");
    bytes_refused(KEEL_FORMAT, "<mxfile/>", "the drawing has no cells");
    bytes_refused(KEEL_FORMAT, "<!DOCTYPE mxfile [<!ENTITY a \"b\">]><mxfile>&a;</mxfile>", "a DOCTYPE");
    bytes_refused(KEEL_FORMAT, "<mxfile><diagram name=\"p\">no base64!</diagram></mxfile>",
                  "page \"p\": the text is neither XML nor base64");
    bytes_refused(KEEL_FORMAT, "<mxfile><diagram name=\"p\">AAAA</diagram></mxfile>",
                  "page \"p\": the compressed text is damaged");
    bytes_refused(KEEL_FORMAT, "<mxfile><diagram name=\"p\">%3Cb%3E</diagram></mxfile>",
                  "page \"p\": the outermost element is <b>");
    bytes_refused(KEEL_FORMAT,
                  "<mxfile><diagram name=\"layer*0\"><mxGraphModel><root><mxCell "
                  "id=\"0\"/></root></mxGraphModel></diagram></mxfile>",
                  "page \"layer*0\": a page of layers is called");
}

static void many_faults_in_one_message(void **state) {
    (void)state;
    WRONG(EMBED V("x", "l2.y&#10;kind=linear w=A[16,24]") V("z", "z&#10;kind=rmsnorm w=B[16]") V("u", "u&#10;kind=what")
              FROM_NORM E("p1", "e", "x", "") E("p2", "x", "n", "") E("p3", "e", "z", "") E("p4", "z", "u", "")
                  E("p5", "e", "gone", ""),
          "x.drawio: 4 faults in the drawing:\npage \"main\", cell", "cell x, \"l2.y\"",
          "cell z, \"z\": rmsnorm needs eps=", "cell u, \"u\": kind=what is unknown", "cell p5: its target, cell gone");
    buf b = {0};
    for (int i = 0; i < 300; i++) buf_printf(&b, V("v%d", "lost %d&#10;w=A"), i, i);
    WRONG((const char *)b.data, "x.drawio: 301 faults in the drawing:\n", "cell v0, \"lost 0\": kind= is missing",
          "\nand 2");
    buf_free(&b);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A hundred thousand cells, a chain of ops; the time is bounded loosely, for slow machines and sanitizers. */
static void large_drawings(void **state) {
    (void)state;
    enum { N = 50000 };
    buf b = {0};
    buf_str(&b, HEAD EMBED FROM_NORM);
    for (int i = 0; i < N; i++) {
        buf_printf(&b, V("v%d", "y%d&#10;kind=linear w=A%d[16,16]"), i, i, i);
        if (i) buf_printf(&b, E("e%d", "v%d", "v%d", ""), i, i - 1, i);
    }
    buf_printf(&b, E("first", "e", "v0", "") E("last", "v%d", "n", "") TAIL, N - 1);
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    double start = seconds();
    keel_status s = drawing_read("x.drawio", (const char *)b.data, b.len, NULL, &g, &err);
    double took = seconds() - start;
    if (s != KEEL_OK) fail_msg("%s", err.detail);
    assert_int_equal(g->n_ops, N + 5);
    assert_true(took < 20);
    print_message("%d cells: %.2f s\n", 2 * N, took);
    graph_close(g);
    buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_and_names),
        cmocka_unit_test(shapes_and_weights),
        cmocka_unit_test(shards_and_collectives),
        cmocka_unit_test(attributes),
        cmocka_unit_test(constants_caches_inputs),
        cmocka_unit_test(edges),
        cmocka_unit_test(slots_by_shape),
        cmocka_unit_test(whole_graphs),
        cmocka_unit_test(cycles),
        cmocka_unit_test(layers),
        cmocka_unit_test(a_range_feeds_itself),
        cmocka_unit_test(ranges_follow_each_other),
        cmocka_unit_test(layers_stay_together),
        cmocka_unit_test(pages_and_groups_agree),
        cmocka_unit_test(a_slot_may_stay_empty),
        cmocka_unit_test(follow_on_faults),
        cmocka_unit_test(pages_that_are_none),
        cmocka_unit_test(the_rule_refuses),
        cmocka_unit_test(slips),
        cmocka_unit_test(spaces_in_labels),
        cmocka_unit_test(odd_labels),
        cmocka_unit_test(weights_keep_their_dtype),
        cmocka_unit_test(files),
        cmocka_unit_test(many_faults_in_one_message),
        cmocka_unit_test(large_drawings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
