/* SPDX-License-Identifier: Apache-2.0 */
/* draw.io's XML: <mxfile> of <diagram> pages, or a bare <mxGraphModel>. A cell is an <mxCell>; with custom data it is
 * wrapped into an <object> or <UserObject>, which then has its id and its label. */
#include "draw/drawing_internal.h"

#include "core/mem.h"

#include <expat.h>
#include <stdio.h>
#include <string.h>

typedef struct reader {
    drawing *d;
    XML_Parser parser;
    const char *where;  /* "page \"x\": " for messages from a compressed page, else "" */
    keel_status status; /* why the parser was stopped */
    int depth, page;    /* page −1: outside */
    bool compressed;    /* these bytes are the text of a page */
    bool has_model;     /* the page's cells came as XML */
    const char *object_id, *object_label;
    int object_depth; /* 0: in no object */
    buf text;         /* of a <diagram> */
} reader;

static void stop(reader *r, keel_status status) {
    if (r->status == KEEL_OK) r->status = status;
    XML_StopParser(r->parser, XML_FALSE);
}

static const char *attribute(const char **list, const char *name) {
    for (; *list; list += 2) {
        if (strcmp(list[0], name) == 0) return list[1];
    }
    return NULL;
}

/* A copy that outlives the parser; NULL for NULL. */
static const char *keep(reader *r, const char *text) {
    const char *copy = text ? arena_strdup(&r->d->arena, text) : NULL;
    if (text && !copy) stop(r, drawing_nomem(r->d));
    return copy;
}

static void begin_page(reader *r, const char **attributes) {
    drawing *d = r->d;
    const char *name = attribute(attributes, "name");
    if (d->n_pages == DRAWING_PAGES) {
        stop(r, error_set(d->err, KEEL_RANGE, "%s: more than %d pages", d->file, DRAWING_PAGES));
        return;
    }
    keel_status s = DRAWING_GROW(d, d->pages, d->n_pages, d->cap_pages);
    name = keep(r, name ? name : "");
    if (s != KEEL_OK || !name) {
        stop(r, KEEL_NOMEM);
        return;
    }
    r->page = d->n_pages++;
    r->has_model = false;
    d->pages[r->page] = (drawing_page){.name = name, .layers = {-1, -1}};
}

static void add_cell(reader *r, const char **a) {
    drawing *d = r->d;
    if (d->n_cells == DRAWING_CELLS) {
        stop(r, error_set(d->err, KEEL_RANGE, "%s: more than %d cells", d->file, DRAWING_CELLS));
        return;
    }
    if (DRAWING_GROW(d, d->cells, d->n_cells, d->cap_cells) != KEEL_OK) {
        stop(r, KEEL_NOMEM);
        return;
    }
    const char *vertex = attribute(a, "vertex"), *edge = attribute(a, "edge");
    drawing_cell c = {.page = r->page, .parent = -1, .source = -1, .target = -1, .node = -1};
    c.vertex = vertex && strcmp(vertex, "1") == 0;
    c.edge = edge && strcmp(edge, "1") == 0;
    c.id = r->object_depth ? r->object_id : keep(r, attribute(a, "id"));
    c.value = r->object_depth ? r->object_label : keep(r, attribute(a, "value"));
    c.parent_id = keep(r, attribute(a, "parent"));
    c.source_id = keep(r, attribute(a, "source"));
    c.target_id = keep(r, attribute(a, "target"));
    d->cells[d->n_cells++] = c;
}

static bool is_object(const char *name) { return strcmp(name, "object") == 0 || strcmp(name, "UserObject") == 0; }

/* What may be the outermost element. */
static bool check_root(reader *r, const char *name) {
    static const char *const roots[] = {"mxfile", "mxGraphModel", "diagram"};
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        if (strcmp(name, roots[i]) == 0) return true;
    }
    char shown[64];
    stop(r, error_set(r->d->err, KEEL_FORMAT,
                      "%s: %sthe outermost element is <%s>; a draw.io drawing begins with <mxfile> or <mxGraphModel>",
                      r->d->file, r->where, drawing_show(name, shown, sizeof shown)));
    return false;
}

static void XMLCALL on_start(void *user, const char *name, const char **attributes) {
    reader *r = user;
    if (r->depth++ == 0 && !check_root(r, name)) return;
    if (strcmp(name, "diagram") == 0 && !r->compressed) {
        begin_page(r, attributes);
    } else if (strcmp(name, "mxGraphModel") == 0) {
        if (r->page < 0) begin_page(r, attributes);
        r->has_model = true;
    } else if (r->page < 0) {
        return;
    } else if (is_object(name) && !r->object_depth) {
        r->object_depth = r->depth;
        r->object_id = keep(r, attribute(attributes, "id"));
        r->object_label = keep(r, attribute(attributes, "label"));
    } else if (strcmp(name, "mxCell") == 0) {
        add_cell(r, attributes);
    }
}

static keel_status read_text(drawing *d, const char *where, const char *data, size_t bytes, int page);

/* A page that came as text. */
static void end_page(reader *r) {
    drawing *d = r->d;
    if (r->text.failed) stop(r, drawing_nomem(d));
    size_t blank = r->text.data ? strspn((const char *)r->text.data, " \t\r\n") : 0;
    if (r->status == KEEL_OK && !r->has_model && blank < r->text.len) {
        char name[64], where[96], *xml = NULL;
        size_t bytes = 0;
        snprintf(where, sizeof where, "page \"%s\"", drawing_show(d->pages[r->page].name, name, sizeof name));
        keel_status s = drawing_inflate(d, where, (const char *)r->text.data, r->text.len, &xml, &bytes);
        if (s == KEEL_OK) s = read_text(d, where, xml, bytes, r->page);
        mem_free(xml);
        if (s != KEEL_OK) stop(r, s);
    }
    buf_free(&r->text);
    r->page = -1;
}

static void XMLCALL on_end(void *user, const char *name) {
    reader *r = user;
    if (r->object_depth == r->depth) r->object_depth = 0;
    if (!r->compressed && r->page >= 0 && strcmp(name, "diagram") == 0) end_page(r);
    r->depth--;
}

static void XMLCALL on_text(void *user, const char *text, int n) {
    reader *r = user;
    if (r->page >= 0 && !r->compressed && !r->has_model) buf_put(&r->text, text, (size_t)n);
}

static void XMLCALL on_doctype(void *user, const char *name, const char *system, const char *public, int internal) {
    (void)name, (void)system, (void)public, (void)internal;
    reader *r = user;
    stop(r, error_set(r->d->err, KEEL_FORMAT, "%s: %sa DOCTYPE; drawings have none, remove it", r->d->file, r->where));
}

static keel_status parse_error(reader *r) {
    enum XML_Error code = XML_GetErrorCode(r->parser);
    if (r->status != KEEL_OK) return r->status;
    if (code == XML_ERROR_NO_MEMORY) return drawing_nomem(r->d);
    return error_set(r->d->err, KEEL_FORMAT, "%s: %sline %lu, column %lu: not well-formed XML: %s", r->d->file,
                     r->where, (unsigned long)XML_GetCurrentLineNumber(r->parser),
                     (unsigned long)XML_GetCurrentColumnNumber(r->parser) + 1, XML_ErrorString(code));
}

static keel_status parse_all(reader *r, const char *data, size_t bytes) {
    static const size_t piece_max = 1 << 24;
    bool last;
    do {
        size_t piece = bytes < piece_max ? bytes : piece_max;
        last = piece == bytes;
        if (XML_Parse(r->parser, data, (int)piece, last) != XML_STATUS_OK) return parse_error(r);
        data += piece;
        bytes -= piece;
    } while (!last);
    return r->status;
}

/* page −1: a file; else the text of that page. */
static keel_status read_text(drawing *d, const char *where, const char *data, size_t bytes, int page) {
    static const XML_Memory_Handling_Suite memory = {mem_alloc, mem_realloc, mem_free};
    char prefix[128] = "";
    if (page >= 0) snprintf(prefix, sizeof prefix, "%s: ", where);
    reader r = {.d = d, .page = page, .compressed = page >= 0, .where = prefix};
    r.parser = XML_ParserCreate_MM(NULL, &memory, NULL);
    if (!r.parser) return drawing_nomem(d);
    XML_SetUserData(r.parser, &r);
    XML_SetElementHandler(r.parser, on_start, on_end);
    XML_SetCharacterDataHandler(r.parser, on_text);
    XML_SetStartDoctypeDeclHandler(r.parser, on_doctype);
    keel_status s = parse_all(&r, data, bytes);
    XML_ParserFree(r.parser);
    buf_free(&r.text);
    return s;
}

keel_status drawing_xml(drawing *d, const char *data, size_t bytes) {
    KEEL_TRY(read_text(d, "", data, bytes, -1));
    if (d->n_cells) return KEEL_OK;
    return error_set(d->err, KEEL_FORMAT, "%s: the drawing has no cells", d->file);
}
