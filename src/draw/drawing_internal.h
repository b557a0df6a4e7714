/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the drawing's reader hand to each other, in this order:
 *
 *   drawing_xml.c       bytes → pages and cells (drawing_inflate.c: compressed pages)
 *   drawing_text.c      HTML label → lines of text
 *   drawing_word.c      text → words, shapes, ranges of layers
 *   drawing_near.c      words with a slip of the pen
 *   drawing_label.c     words of a vertex → its node
 *   drawing_node.c      cells → nodes, each with its layers
 *   drawing_page.c      which pages are pages of layers
 *   drawing_instance.c  nodes → instances, one a layer; what a ref names
 *   drawing_edge.c      cells → edges between nodes, each with its slot
 *   drawing_input.c     edges → inputs of instances
 *   drawing_order.c     execution order
 *   drawing_cycle.c     what holds ops back
 *   drawing_fit.c       slots and dimensions that a shape rule alone decides
 *   drawing_build.c     instances → graph
 *
 * A function that returns a keel_status fails only where nothing more can be read (no memory, no XML, a limit); what
 * the drawing says wrongly is a fault, collected, and reading goes on. */
#ifndef KEEL_GRAPH_DRAWING_INTERNAL_H
#define KEEL_GRAPH_DRAWING_INTERNAL_H

#include "core/buf.h"
#include "draw/drawing.h"
#include "graph/names.h"
#include "graph/op.h"

enum {
    DRAWING_BYTES = 32 << 20,      /* of a file */
    DRAWING_INFLATED = 32 << 20,   /* bytes of all compressed pages of a file, once inflated */
    DRAWING_PAGES = 4096,          /* pages of a file */
    DRAWING_CELLS = 500000,        /* cells of a file */
    DRAWING_LABEL = 64 << 10,      /* bytes of a label's text */
    DRAWING_CONST_LABEL = 1 << 20, /* the same where it holds the values of a const */
    DRAWING_HTML = 4 << 20,        /* bytes of a label, tags counted */
    DRAWING_TEXT = 16 << 20,       /* bytes of the text of all labels */
    DRAWING_WORDS = 4096,          /* words of a label */
    DRAWING_VALUES = 1 << 16,      /* numbers of a const */
    DRAWING_STRING = 1000,         /* bytes of a weight's key, of notes, of the architecture: as in the graph's JSON */
    DRAWING_LAYERS = 4096,         /* layer numbers are below */
    DRAWING_INSTANCES = 1 << 16,   /* vertices, repeated ones as often as they are repeated */
    DRAWING_REPEATED = 16 << 20,   /* bytes of keys, notes and values, repeated ones as often as they are repeated */
    DRAWING_QUESTIONS = 400000,    /* how often shape rules are asked about what is left open */
    DRAWING_EDGES_IN = 8 * GRAPH_IN, /* edges into one vertex: each slot a few times, from ranges of layers */
};

/* Layers first … last; −1, −1 outside all layers. */
typedef struct drawing_range {
    int first, last;
} drawing_range;

typedef struct drawing_page {
    const char *name; /* "" without */
    drawing_range layers;
    bool unread; /* the name says layers, and not rightly, or says none where it should */
} drawing_page;

/* Strings are NULL where the attribute is absent, indices −1. */
typedef struct drawing_cell {
    const char *id, *value;
    const char *parent_id, *source_id, *target_id;
    int page, parent, source, target;
    int node;
    drawing_range layers; /* of a group */
    bool vertex, edge;
    bool begins, ends; /* an edge does so here */
    bool holds;        /* other vertices lie in it */
    bool unread;       /* a group whose label says layers, and not rightly */
} drawing_cell;

/* One word of a label. */
typedef struct drawing_word {
    const char *key;   /* lower case; NULL: a note */
    const char *slot;  /* "bias" of w:bias=; NULL without */
    const char *value; /* without the spaces that do not matter */
    const char *raw;   /* as written, one space between two */
} drawing_word;

typedef struct drawing_shape {
    int rank;
    int64_t dim[GRAPH_RANK];
    dtype dtype;
    bool typed; /* the dtype is written */
} drawing_shape;

typedef struct drawing_weight {
    const char *key;
    int slot;            /* −1: the next free one */
    drawing_shape shape; /* rank 0: left out */
    shard_rule shard;
    int shard_dim; /* −1: the usual one */
    bool sharded;  /* shard= is written */
} drawing_weight;

typedef enum drawing_kind {
    DRAWING_OP,
    DRAWING_MODEL,
    DRAWING_CONST,
    DRAWING_CACHE,
    DRAWING_INPUT,
    DRAWING_REF,
} drawing_kind;

/* A vertex that says something. Arrays and strings live in the arena. */
typedef struct drawing_node {
    int cell;
    drawing_kind kind;
    const op_desc *desc; /* ops */
    const char *name;    /* without the prefix of its layer */
    drawing_range layers;
    bool bad;      /* has a fault: what depends on it is not judged */
    bool reported; /* one of its instances has a fault: the others have the same */
    bool excused;  /* who reads it is not known */
    bool prefixed; /* the layers stand in the name */
    bool unplaced; /* in which layers it lies is not known */
    int n_in, n_out, n_weights, n_attrs;
    const drawing_shape *in, *out;
    drawing_weight *weights;
    const graph_attr *attrs;
    const char *collective, *notes; /* NULL without */
    const float *values;            /* [out[0].dim[0]] of a const */
    const char *architecture;       /* of the model */
    int64_t max_position;
    int instance;         /* its first; layer l is instance + l − layers.first. Refs and the model have none */
    int edges, n_edges;   /* those that end here: d->edges[d->edge_order[edges …]] */
    int readers;          /* edges that begin here */
    const char *ref_name; /* refs: what is looked up, without the layer's prefix */
    int ref_output;       /* −1: not in the name */
} drawing_node;

typedef struct drawing_edge {
    int cell, source, target; /* nodes; target −1 = not usable */
    int slot;                 /* −1: by its shape */
    int output;
    bool inside; /* both ends have layers in common */
    bool carry;  /* feeds each layer from the layer before it */
} drawing_edge;

/* One input of an instance. */
typedef struct drawing_input {
    int source, output; /* instance and which of its outputs */
    int slot;           /* −1: by its shape */
    int edge;
} drawing_input;

typedef struct drawing_instance {
    int node, layer;
    const char *name;     /* in full */
    int inputs, n_inputs; /* d->inputs[inputs …] */
    int tensor;           /* the first output in the graph; 0: not built */
    bool read;
} drawing_instance;

typedef struct drawing {
    arena arena;
    const char *file;
    const drawing_options *options;
    keel_error *err;
    size_t inflated, text_bytes; /* so far: of compressed pages, of labels */
    char *text;                  /* of the label at hand */
    int cap_text;
    drawing_page *pages;
    int n_pages, cap_pages;
    drawing_cell *cells;
    int n_cells, cap_cells;
    drawing_node *nodes;
    int n_nodes, cap_nodes;
    drawing_edge *edges;
    int n_edges, cap_edges;
    int *edge_order; /* edges by target, in the order of the file */
    drawing_instance *instances;
    int n_instances;
    drawing_input *inputs;
    int n_inputs, cap_inputs;
    names *names; /* full name → instance */
    int *order;   /* instances in execution order: ops that no cycle holds back */
    int n_order;
    int model;           /* node, −1 */
    drawing_word *words; /* of the label at hand */
    int n_words, cap_words;
    int questions;     /* asked of shape rules */
    bool kinds_listed; /* a fault has named the known kinds */
    bool lost;         /* an edge of layers, or where a node lies, could not be read: which edges close a cycle, too */
    bool unplaced;     /* a node is */
    buf faults;
    int n_faults;
    keel_status fault_status;
} drawing;

/* Room for one more element. */
keel_status drawing_grow(drawing *d, void **array, int used, int *cap, size_t element_bytes);
#define DRAWING_GROW(d, array, used, cap) drawing_grow((d), (void **)&(array), (used), &(cap), sizeof *(array))
keel_status drawing_nomem(drawing *d);

/* A deviation at a cell (−1: of the whole drawing). */
void drawing_fault(drawing *d, int cell, keel_status status, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
#define FAULT(d, cell, ...) drawing_fault((d), (cell), KEEL_FORMAT, __VA_ARGS__)
/* Whether the message has room for no more: further faults are counted. */
bool drawing_faults_full(const drawing *d);
/* KEEL_OK without faults; else the error that names them. */
keel_status drawing_faults_close(drawing *d);
/* text, shortened and with control characters escaped; out has cap bytes. */
const char *drawing_show(const char *text, char *out, size_t cap);

keel_status drawing_xml(drawing *d, const char *data, size_t bytes);
/* The XML in the text of a <diagram>; *out is the caller's (mem_free). where: for messages. */
keel_status drawing_inflate(drawing *d, const char *where, const char *text, size_t bytes, char **out,
                            size_t *out_bytes);

/* Label → text: tags off, entities decoded, block ends are line breaks. NULL when memory is short. */
char *drawing_text(arena *a, const char *html);
/* The same into out, which has room for as many bytes as html has, and its end; how many were written. */
size_t drawing_text_into(char *out, const char *html);
/* Whether a string may stand in a graph: up to `most` bytes without control characters. */
bool drawing_plain(const char *text, size_t most);

/* *found false: no more words. */
keel_status drawing_word_next(drawing *d, const char **at, drawing_word *out, bool *found);
/* "[M,1024]act" at *at, which moves behind it; NULL, or what is wrong with it. */
const char *drawing_shape_read(const char **at, drawing_shape *out);
/* "[M,1024]act" of what stands in a graph or in a label. */
const char *drawing_shape_show(int rank, const int64_t *dim, dtype type, char *out, size_t cap);
const char *drawing_number(const char *text, double *out);
/* A dtype's name in any case; DTYPE_COUNT when unknown. */
dtype drawing_dtype(const char *text, size_t n);

typedef enum drawing_match { DRAWING_NO, DRAWING_YES, DRAWING_MALFORMED } drawing_match;
/* "l3", "layer 3", "l{0-29}", "layer*30": the name of a group or of a page. */
drawing_match drawing_layers_of(const char *text, drawing_range *out);
/* "l3." or "l{0-29}." before a name; *rest stands behind it. */
drawing_match drawing_prefix_of(const char *name, drawing_range *out, const char **rest);

/* The name and the words of a label: d->words; what follows DRAWING_WORDS is not read, d->n_words then says more.
 * *name NULL: the label begins with a key. *crowded: something that is no key=value stands beside the name. */
keel_status drawing_words(drawing *d, const char *text, const char **name, bool *crowded);
/* Takes d->words into the node, whose kind is known. */
keel_status drawing_label(drawing *d, drawing_node *n);
/* The first of the words (NULL ends them) that the key is a slip of. */
const char *drawing_near(const char *const *words, const char *key, size_t bytes);
keel_status drawing_nodes(drawing *d);
/* Its layers could not be read: neither it nor what depends on it is judged. */
void drawing_unplace(drawing *d, drawing_node *n);
/* Sets the layers of every page. */
void drawing_pages(drawing *d);
/* Pages that have no layers and were meant to; the nodes are there. */
keel_status drawing_strange_pages(drawing *d);
keel_status drawing_instances(drawing *d);
keel_status drawing_edges(drawing *d);
keel_status drawing_inputs(drawing *d);
keel_status drawing_sort(drawing *d);
/* Faults the cycles among the instances with held[i] > 0, those that share no vertex; the readers of instance i are
 * next_of[first[i] … first[i + 1]). Clears held[]. */
keel_status drawing_cycles(drawing *d, const int *first, const int *next_of, int *held);
keel_status drawing_build(drawing *d, graph **out);

/* The instance that an edge from this node brings in that layer (−1: outside all layers); −1: there is none. */
int drawing_source(const drawing *d, int node, int layer);
bool drawing_meets(drawing_range a, drawing_range b);

/* What is said against one op; "" is nothing. */
typedef struct drawing_complaint {
    char text[512];
} drawing_complaint;

/* An op before it is built, what is asked being counted in *questions: ids[i] of its n edges, slots[i] theirs or −1.
 * Sets the slots by shape; where only one way is left, it is taken unjudged. False: why says why not. */
bool drawing_fit_slots(const drawing_node *n, const graph *g, const int *ids, int *slots, int count, int *questions,
                       drawing_complaint *why);
/* Sets the dimensions that w= left out. False: why says why not. */
bool drawing_fit_weights(const drawing_node *n, const graph *g, const int *in, int *questions, drawing_complaint *why);
/* Whether what is written agrees with a tensor. */
bool drawing_agrees(const drawing_shape *s, const graph_tensor *t);

static inline bool drawing_has(drawing_range r, int layer) {
    return r.first >= 0 && layer >= r.first && layer <= r.last;
}

#endif
