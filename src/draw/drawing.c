/* SPDX-License-Identifier: Apache-2.0 */
#include "draw/drawing_internal.h"

#include "core/mem.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { FAULT_LINES = 50, FAULT_BYTES = 400, FAULT_ROOM = KEEL_ERROR_DETAIL_BYTES - 320, LABEL_BYTES = 48 };

keel_status drawing_nomem(drawing *d) { return error_set(d->err, KEEL_NOMEM, "%s: out of memory", d->file); }

keel_status drawing_grow(drawing *d, void **array, int used, int *cap, size_t element_bytes) {
    if (used < *cap) return KEEL_OK;
    if (*cap > INT_MAX / 2) return drawing_nomem(d);
    int more = *cap ? 2 * *cap : 64;
    void *p = mem_realloc(*array, (size_t)more * element_bytes);
    if (!p) return drawing_nomem(d);
    *array = p;
    *cap = more;
    return KEEL_OK;
}

/* ---- faults ----------------------------------------------------------------------------------------- */

const char *drawing_show(const char *text, char *out, size_t cap) {
    size_t n = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        bool plain = *p >= 0x20 && *p != 0x7f;
        bool starts = (*p & 0xc0) != 0x80;
        if (starts && n + 9 > cap) { /* the longest character, "...", the end */
            snprintf(out + n, cap - n, "...");
            return out;
        }
        if (plain) {
            out[n++] = (char)*p;
        } else {
            n += (size_t)snprintf(out + n, cap - n, *p == '\n' ? " " : "\\x%02x", *p);
        }
        if (n + 1 >= cap) break;
    }
    out[n] = '\0';
    return out;
}

/* "page "main", cell q3, "l0.attn.q_proj": " */
static void put_place(drawing *d, int cell) {
    const drawing_cell *c = &d->cells[cell];
    char page[LABEL_BYTES], id[LABEL_BYTES], label[LABEL_BYTES];
    buf_printf(&d->faults, "page \"%s\"", drawing_show(d->pages[c->page].name, page, sizeof page));
    buf_printf(&d->faults, ", cell %s", c->id ? drawing_show(c->id, id, sizeof id) : "without id");
    char *text = c->value && *c->value ? drawing_text(&d->arena, c->value) : NULL;
    if (c->value && *c->value && !text) d->faults.failed = true;
    if (text) {
        text += strspn(text, " \t\r\n");
        text[strcspn(text, "\r\n")] = '\0';
        buf_printf(&d->faults, ", \"%s\"", drawing_show(text, label, sizeof label));
    }
    buf_str(&d->faults, ": ");
}

bool drawing_faults_full(const drawing *d) { return d->n_faults >= FAULT_LINES || d->faults.len > FAULT_ROOM; }

void drawing_fault(drawing *d, int cell, keel_status status, const char *fmt, ...) {
    char text[KEEL_ERROR_DETAIL_BYTES], shown[FAULT_BYTES];
    d->fault_status = !d->n_faults || d->fault_status == status ? status : KEEL_FORMAT;
    bool full = drawing_faults_full(d);
    d->n_faults++;
    if (full) return;
    va_list args;
    va_start(args, fmt);
    if (vsnprintf(text, sizeof text, fmt, args) < 0) text[0] = '\0';
    va_end(args);
    buf_str(&d->faults, "\n");
    if (cell >= 0) put_place(d, cell);
    buf_str(&d->faults, drawing_show(text, shown, sizeof shown));
}

/* Whole lines that fit, and how many more there are. */
keel_status drawing_faults_close(drawing *d) {
    if (!d->n_faults) return KEEL_OK;
    if (d->faults.failed) return drawing_nomem(d);
    char *text = (char *)d->faults.data, *at = text;
    int lines = 0;
    for (char *p = text; (p = strchr(p, '\n')) != NULL; p++) lines++;
    size_t room = KEEL_ERROR_DETAIL_BYTES - 64 - (strlen(d->file) < 1024 ? strlen(d->file) : 1024);
    while (d->faults.len > room && lines > 1) {
        at = strrchr(text, '\n');
        *at = '\0';
        d->faults.len = (size_t)(at - text);
        lines--;
    }
    const char *one = text + 1, *separator = d->n_faults == 1 ? ": " : "";
    char head[64] = "", tail[64] = "";
    if (d->n_faults > 1) snprintf(head, sizeof head, ": %d faults in the drawing:\n", d->n_faults);
    if (d->n_faults > lines) snprintf(tail, sizeof tail, "\nand %d more", d->n_faults - lines);
    return error_set(d->err, d->fault_status, "%.1024s%s%s%s%s", d->file, separator, head, one, tail);
}

/* ---- the whole -------------------------------------------------------------------------------------- */

static keel_status read_all(drawing *d, const char *data, size_t bytes, graph **out) {
    if (bytes > DRAWING_BYTES) {
        return error_set(d->err, KEEL_RANGE,
                         "%s: the drawing has more than %d MB; split it into pages and compress them, or draw repeated "
                         "layers once (layer*N)",
                         d->file, DRAWING_BYTES >> 20);
    }
    KEEL_TRY(drawing_xml(d, data, bytes));
    KEEL_TRY(drawing_nodes(d));
    KEEL_TRY(drawing_instances(d));
    KEEL_TRY(drawing_edges(d));
    KEEL_TRY(drawing_inputs(d));
    KEEL_TRY(drawing_sort(d));
    return drawing_build(d, out);
}

keel_status drawing_read(const char *file, const char *data, size_t bytes, const drawing_options *o, graph **out,
                         keel_error *err) {
    static const drawing_options none;
    drawing d = {.file = file, .options = o ? o : &none, .err = err, .model = -1};
    keel_status s = read_all(&d, data, bytes, out);
    mem_free(d.pages);
    mem_free(d.cells);
    mem_free(d.nodes);
    mem_free(d.edges);
    mem_free(d.edge_order);
    mem_free(d.instances);
    mem_free(d.inputs);
    mem_free(d.order);
    mem_free(d.words);
    mem_free(d.text);
    names_free(d.names);
    buf_free(&d.faults);
    arena_free(&d.arena);
    return s;
}
