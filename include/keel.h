/* SPDX-License-Identifier: Apache-2.0
 *
 * keel.h: the only public header of Keel.
 *
 * Keel runs a transformer's decode as one persistent program under a static plan:
 *
 *     model (folder, or synthetic weights) -> plan -> session -> tokens
 *
 * Rules that hold for every function below:
 *  - A function that can fail returns keel_status and takes a keel_error as its last argument. On
 *    failure *err holds what went wrong, where (file, offset, tensor, task) and what to do; out
 *    parameters are left untouched. err may be NULL.
 *  - Handles are opaque. Who made a handle closes it; closing NULL is a no-op. A plan and a session
 *    keep no reference to the options they were made with. A session borrows its model and its plan:
 *    close the session first.
 *  - Option structs carry their own size: fill them with the INITIALIZER, then set fields. A later
 *    version may append fields; a zero field always means the documented default.
 *  - Threads: distinct handles may be used from distinct threads. One handle is used by one thread at
 *    a time, except keel_session_stop(), which any thread (or a signal handler) may call.
 *  - Strings are UTF-8, zero-terminated, owned by the handle they came from, unless said otherwise.
 *    Strings returned through `char **` are the caller's: free them with keel_free().
 *  - Nothing here prints, exits or reads the network.
 */
#ifndef KEEL_H
#define KEEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KEEL_VERSION_MAJOR 0
#define KEEL_VERSION_MINOR 1
#define KEEL_VERSION_STRING "0.1.0"

/* ---- status ------------------------------------------------------------------------------------ */

/* X(name, value, exit status of the program, text). */
#define KEEL_STATUS_MAP(X)                                                                                             \
    X(OK, 0, 0, "fine")                                                                                                \
    X(REFUSED, 1, 1, "a gate or a proof says no")                                                                      \
    X(USAGE, 2, 2, "wrong use")                                                                                        \
    X(FORMAT, 3, 2, "malformed input")                                                                                 \
    X(UNSUPPORTED, 4, 2, "well-formed input that this build cannot handle")                                            \
    X(MISSING, 5, 2, "something named does not exist")                                                                 \
    X(IO, 6, 2, "the operating system refused a read or a write")                                                      \
    X(RANGE, 7, 2, "a value outside its limits")                                                                       \
    X(NOMEM, 8, 2, "out of memory")                                                                                    \
    X(HANG, 9, 3, "the run made no progress and was aborted")                                                          \
    X(ABORTED, 10, 3, "the run was aborted")

/* What a call came to. Values are pinned. */
typedef enum keel_status {
#define X(name, value, exit_status, text) KEEL_##name = value,
    KEEL_STATUS_MAP(X)
#undef X
} keel_status;

#define KEEL_ERROR_DETAIL_BYTES 4096

/* The detail of the last failure. Plain data, owned by the caller; start with KEEL_ERROR_INITIALIZER. */
typedef struct keel_error {
    keel_status status;
    char detail[KEEL_ERROR_DETAIL_BYTES]; /* one or more lines, zero-terminated, no trailing newline */
} keel_error;
#define KEEL_ERROR_INITIALIZER                                                                                         \
    {                                                                                                                  \
        KEEL_OK, { 0 }                                                                                                 \
    }

/* Name ("FORMAT"), text and the program's exit status (0..3) of a status; never NULL. */
const char *keel_status_name(keel_status status);
const char *keel_status_text(keel_status status);
int keel_status_exit(keel_status status);

/* Frees a string or array that a function handed over. NULL is fine. */
void keel_free(void *p);

/* ---- model: graph, weights, tokenizer ------------------------------------------------------------ */

/* A model: the graph that config.json gives, its weights (mapped, or synthetic) and its tokenizer. */
typedef struct keel_model keel_model;

/* Where a model comes from. Exactly one of path and synth is set. */
typedef struct keel_model_options {
    size_t struct_size;
    const char *path; /* a Hugging Face checkpoint folder: config.json, safetensors, tokenizer.json */
    const char
        *synth; /* a geometry: a name (keel_geometry_name), or the path of a config.json; weights are synthetic */
    uint32_t synth_seed; /* default 0 */
    int32_t layer_first; /* slice of layers, inclusive; both 0 with layer_slice false = all layers */
    int32_t layer_last;  /* −1: to the last layer */
    bool layer_slice;    /* the two fields above count */
    bool sampling;       /* the chain ends in the sampling op, so that requests may have a temperature */
    bool graph_only;     /* neither weights nor tokenizer are opened: enough to plan, not to run */
    /* One rank of a job: shapes and weights become its own. */
    uint32_t tp;           /* ranks W; default 1 */
    uint32_t ep;           /* groups that experts are dealt to; divides W; default 1 */
    uint32_t rank;         /* 0 … tp − 1 */
    bool vocab_parallel;   /* the head's rows are cut over the ranks */
    const char *cache_dir; /* weight cache, for weights that must be packed; NULL: they are packed in memory */
    uint32_t jobs;         /* processes that may convert into the cache at once; default 2 */
    const char *graph;     /* a drawing or a graph file in place of the builder; path then gives weights and tokenizer,
                              and may be left out with graph_only */
    const char *quant;     /* with synth: "fp8", linear weights of the layers are F8_E4M3 with a scale for each block of
                              128 × 128; NULL: they are not quantised. A folder says of itself what its weights are */
} keel_model_options;
#define KEEL_MODEL_OPTIONS_INITIALIZER                                                                                 \
    { .struct_size = sizeof(keel_model_options), .layer_last = -1 }

/* Opens a model. Every missing or ill-fitting tensor is named at once (KEEL_MISSING, KEEL_FORMAT); an unknown
 * architecture is KEEL_UNSUPPORTED with the known ones; a tokenizer with more ids than the embedding has rows is
 * KEEL_FORMAT. */
keel_status keel_model_open(const keel_model_options *options, keel_model **out, keel_error *err);
/* Unmaps and frees. Sessions on it must be closed before. */
void keel_model_close(keel_model *model);

/* Facts about a model. Strings live as long as the model. */
typedef struct keel_model_info {
    const char *architecture; /* "Qwen3ForCausalLM" */
    uint32_t n_layers;        /* in this slice */
    uint64_t vocab, hidden;   /* rows of the embedding; width of the residual stream */
    uint64_t max_position;    /* positions the model was made for; 0 = not stated */
    uint64_t weight_bytes;    /* of the tensors the graph names, each once */
    bool has_tokenizer;
    const int32_t *stop_ids; /* [n_stop_ids] end-of-text ids of generation_config.json or config.json */
    size_t n_stop_ids;
} keel_model_info;
/* Fills *out; never fails. */
void keel_model_info_get(const keel_model *model, keel_model_info *out);

/* Names of the built-in geometries, for --synth: NULL past the last. */
const char *keel_geometry_name(size_t i);

/* ---- graph --------------------------------------------------------------------------------------- */

/* A graph alone: what a model is made of, with global shapes, weight keys and shard rules. docs/drawing.md. */
typedef struct keel_graph keel_graph;

/* Where a graph comes from. Exactly one of path and synth is set. */
typedef struct keel_graph_options {
    size_t struct_size;
    const char *path;    /* a checkpoint folder, a draw.io drawing or a graph file (JSON): files are told by content */
    const char *synth;   /* a geometry: a name (keel_geometry_name), or the path of a config.json */
    int32_t layer_first; /* slice of layers, inclusive, of what a builder makes; files have the layers they have */
    int32_t layer_last;  /* −1: to the last layer */
    bool layer_slice;    /* the two fields above count */
    bool sampling;       /* the graph ends in the sampling op, also where a file has argmax */
    const char *quant;   /* with synth, as in keel_model_options */
} keel_graph_options;
#define KEEL_GRAPH_OPTIONS_INITIALIZER                                                                                 \
    { .struct_size = sizeof(keel_graph_options), .layer_last = -1 }

/* Opens a graph. All deviations of a drawing from the format are named at once, with page, cell and label. */
keel_status keel_graph_open(const keel_graph_options *options, keel_graph **out, keel_error *err);
/* Frees. */
void keel_graph_close(keel_graph *graph);

/* Facts about a graph. Strings live as long as the graph. */
typedef struct keel_graph_info {
    const char *architecture;
    uint32_t n_ops, n_weights;
    uint32_t n_layers, layer_first;
    uint64_t vocab, hidden, max_position; /* max_position 0 = not stated */
    bool sampling;                        /* ends in the sampling op */
} keel_graph_info;
/* Fills *out; never fails. */
void keel_graph_info_get(const keel_graph *graph, keel_graph_info *out);

/* The graph as canonical JSON: equal graphs have equal bytes. *text is the caller's (keel_free), here and below. */
keel_status keel_graph_json(const keel_graph *graph, char **text, keel_error *err);
/* The graph as a draw.io file, and as an SVG picture. fold: layers that differ by their number alone are drawn once. */
keel_status keel_graph_drawio(const keel_graph *graph, bool fold, char **text, keel_error *err);
keel_status keel_graph_svg(const keel_graph *graph, bool fold, char **text, keel_error *err);
/* A table for people: ops with shapes, weights, shard rules, collectives. */
keel_status keel_graph_text(const keel_graph *graph, char **text, keel_error *err);
/* What makes b another graph than a: a line each, "- …" only in a, "+ …" only in b, "~ …" changed. */
keel_status keel_graph_diff(const keel_graph *a, const keel_graph *b, char **text, size_t *n_differences,
                            keel_error *err);
/* The known kinds of ops with their slots, attributes and formulas, for people and for machines. */
keel_status keel_ops_text(char **text, keel_error *err);
keel_status keel_ops_json(char **text, keel_error *err);

/* ---- text ---------------------------------------------------------------------------------------- */

/* Ids of `bytes` bytes of text. Invalid UTF-8 counts as U+FFFD. add_special: with what the tokenizer adds in front
 * (BOS). *ids is the caller's (keel_free). KEEL_MISSING when the model has no tokenizer. */
keel_status keel_encode(const keel_model *model, const char *text, size_t bytes, bool add_special, int32_t **ids,
                        size_t *n_ids, keel_error *err);
/* One user turn in the model's chat template (ChatML or Llama-3, by the tokens the tokenizer has); system may be NULL:
 * the template's default. KEEL_UNSUPPORTED says which template's tokens are missing. *stop_id (may be NULL) gets the id
 * that ends a turn. */
keel_status keel_chat_encode(const keel_model *model, const char *system, const char *user, size_t user_bytes,
                             int32_t **ids, size_t *n_ids, int32_t *stop_id, keel_error *err);

/* Streaming decoder: never splits a character. */
typedef struct keel_decoder keel_decoder;
/* skip_special: special tokens leave no text. The decoder borrows the model. */
keel_status keel_decoder_open(const keel_model *model, bool skip_special, keel_decoder **out, keel_error *err);
/* The text that this id completes, possibly empty, zero-terminated; valid until the next call on d. *bytes may be NULL.
 */
keel_status keel_decoder_put(keel_decoder *d, int32_t id, const char **text, size_t *bytes, keel_error *err);
/* What is still held back, as U+FFFD. Valid until d is closed. */
keel_status keel_decoder_end(keel_decoder *d, const char **text, size_t *bytes, keel_error *err);
/* Frees. */
void keel_decoder_close(keel_decoder *d);

/* ---- plan ---------------------------------------------------------------------------------------- */

/* A static plan: what every worker executes. A pure function of model graph and options. */
typedef struct keel_plan keel_plan;

/* What a plan is for. Zero fields mean the default given. */
typedef struct keel_plan_options {
    size_t struct_size;
    const char *arch;          /* "cpu" (default) or "sm_90a" */
    uint32_t workers;          /* cpu: the machine's cores; sm_90a: 132 */
    uint32_t batch;            /* rows a pass may carry, 1..16; default 16 */
    uint32_t max_seq;          /* positions the KV pages hold; default min(max_position, 4096) */
    uint32_t page_tokens;      /* tokens a KV page; default 64 */
    uint32_t kv_splits;        /* splits of the KV range in attention; default: as many as keep the workers busy */
    bool allow_absent;         /* plan even where role bodies are missing; such a plan never runs */
    const char *const *levers; /* [n_levers] names */
    uint32_t n_levers;
} keel_plan_options;
#define KEEL_PLAN_OPTIONS_INITIALIZER                                                                                  \
    { .struct_size = sizeof(keel_plan_options) }

/* Plans. KEEL_REFUSED names the role bodies that are missing on the arch, or the task that does not fit. */
keel_status keel_plan_build(const keel_model *model, const keel_plan_options *options, keel_plan **out,
                            keel_error *err);
/* Proves that the plans of all ranks of a job (plans[0 … n), in any order) are safe to run together: complete, free of
 * deadlock, race, overlap, parity aliasing; equal collectives. KEEL_REFUSED with every reason found, each with the
 * shortest chain that shows it (docs/proof.md). *report (may be NULL) gets what was checked, for people; the caller's
 * (keel_free). absent_fine: a plan with missing role bodies is judged by the rest. */
keel_status keel_plan_prove(const keel_plan *const *plans, size_t n, bool absent_fine, char **report, keel_error *err);
/* Is `slice` the model `whole` with fewer layers: is all that stands before and behind the layers there, and every op
 * of the slice reached from its head and reaching its tail? KEEL_REFUSED names what is missing. *text (may be NULL)
 * gets which layers and how many ops are left out, for people; the caller's (keel_free). Both may be opened graph_only,
 * as the same rank. */
keel_status keel_slice_check(const keel_model *whole, const keel_model *slice, char **text, keel_error *err);
/* Reads a plan file of any origin: every index is checked, nothing is proved. KEEL_FORMAT: it is no plan file, or cut
 * short or damaged; KEEL_UNSUPPORTED: of another version; KEEL_REFUSED: what stands in it contradicts itself, or names
 * what this build does not have. */
keel_status keel_plan_load(const char *path, keel_plan **out, keel_error *err);
/* Writes the plan file, complete or not at all. */
keel_status keel_plan_save(const keel_plan *plan, const char *path, keel_error *err);
/* Compiles the plan's device code (archs with a GPU; needs NVRTC, no GPU) and writes it to path, with what it was made
 * from, so that a session of another plan or build refuses it. *report (may be NULL) gets what each kernel, and each
 * role as a kernel of its own, takes in registers, spills, stack and SMEM, as text or as JSON; the caller's; without it
 * the roles are not compiled alone, which takes half as long. KEEL_REFUSED: it does not compile, or something spills or
 * lies in local memory. */
keel_status keel_plan_cubin(const keel_plan *plan, const char *path, bool json, char **report, keel_error *err);
/* For people, and for machines; *text is the caller's (keel_free). */
keel_status keel_plan_text(const keel_plan *plan, char **text, keel_error *err);
keel_status keel_plan_json(const keel_plan *plan, char **text, keel_error *err);

/* What the plan document is told beside the plan. Zero fields mean the default given. */
typedef struct keel_doc_options {
    size_t struct_size;
    const char *model;    /* how a command line names the model; default "MODEL" */
    double bandwidth_tbs; /* of the floor, TB/s; default: what was measured for the arch, if anything was */
    bool drawn;           /* the model is a drawing or a graph file */
} keel_doc_options;
#define KEEL_DOC_OPTIONS_INITIALIZER                                                                                   \
    { .struct_size = sizeof(keel_doc_options) }

/* Writes the plan document (docs/plan-document.md) as DIR/plan.md for people and DIR/plan.json for machines, and makes
 * DIR where it is not there. model: what the plan was made from. The same model, plan and options give the same bytes.
 */
keel_status keel_plan_doc(const keel_model *model, const keel_plan *plan, const keel_doc_options *options,
                          const char *dir, keel_error *err);
/* A copy of the plan with one change that mostly breaks it, of that kind, at a place that the seed chooses: to see that
 * the proof rejects it (docs/mutation.md). *out is the caller's; *what (keel_free) says what was done. KEEL_USAGE lists
 * the kinds; KEEL_RANGE: the plan has no place for this one. */
keel_status keel_plan_mutate(const keel_plan *plan, const char *kind, uint64_t seed, keel_plan **out, char **what,
                             keel_error *err);
/* Kind i and, where doc is not NULL, a line about it; NULL past the last. */
const char *keel_mutation_kind(size_t i, const char **doc);
/* Frees. */
void keel_plan_close(keel_plan *plan);

/* Facts about a plan. Strings live as long as the plan. */
typedef struct keel_plan_info {
    const char *arch;
    uint32_t workers, batch, max_seq, page_tokens;
    uint32_t n_tasks, n_events, n_phases;
    bool complete;             /* every needed role has a body */
    uint64_t weight_bytes;     /* read by one pass of one row */
    uint64_t other_bytes;      /* activations and step data moved by it, without KV */
    uint64_t flops;            /* of one row */
    uint64_t kv_bytes;         /* of all KV pages */
    uint64_t kv_bytes_a_token; /* one position, all layers */
    char hash[65];             /* SHA-256 of the file bytes: the plan's identity */
    uint32_t tp, rank;         /* ranks of the job, and which one this is for */
    uint64_t symmetric_bytes;  /* of what other ranks read */
} keel_plan_info;
/* Fills *out. */
keel_status keel_plan_info_get(const keel_plan *plan, keel_plan_info *out, keel_error *err);

/* ---- session ------------------------------------------------------------------------------------- */

/* A plan bound to a model's weights, with KV pages and activations of its own. */
typedef struct keel_session keel_session;

/* How a backend runs. Zero fields mean the default given. */
typedef struct keel_session_options {
    size_t struct_size;
    uint32_t lanes;      /* lanes a role, 1 or 2; default 1 */
    uint32_t seed;       /* 0: roles run in a fixed order; else in one drawn from the seed (tests) */
    uint32_t page_seed;  /* 0: KV pages in order; else permuted by the seed (tests) */
    uint32_t watchdog_s; /* seconds without progress until the run is aborted with a report; default 10 */
    const char *group;   /* with several ranks: a name that all of the job's processes give, and no other job's */
    /* GPU: */
    const char *cache_dir; /* compiled device code is kept in cache_dir/cubin, made when missing; NULL: nowhere */
    const char *cubin;     /* device code of this plan that keel_plan_cubin() wrote; KEEL_USAGE: of another one */
    uint64_t gpu_memory;   /* bytes of it that the session may take at most; default: what is free */
} keel_session_options;
#define KEEL_SESSION_OPTIONS_INITIALIZER                                                                               \
    { .struct_size = sizeof(keel_session_options) }

/* Removes what a group of ranks leaves in the system when it ends before all ranks have come. For whoever made the
 * ranks' processes, once they are gone. */
void keel_group_remove(const char *group);

/* Opens a session; borrows model and plan. The plan must be complete, for the CPU, and of this model's graph; it is
 * proved here, whatever its origin (KEEL_REFUSED). With several ranks every rank's process opens its own: this call
 * waits for all of them, and rank 0 proves the plans of all. KEEL_ABORTED: another rank failed or is gone. */
keel_status keel_session_open(const keel_model *model, const keel_plan *plan, const keel_session_options *options,
                              keel_session **out, keel_error *err);
/* Frees. */
void keel_session_close(keel_session *session);

/* Bytes of GPU memory that a session took, the driver's own part aside; all 0 for one of the CPU. */
typedef struct keel_session_memory {
    uint64_t total;
    uint64_t weights, kv, activations;
    uint64_t tables; /* tasks, queues, events and what else the plan is in memory */
    uint64_t bound;  /* of the options; 0: none */
} keel_session_memory;
/* Fills *out; never fails. */
void keel_session_memory_get(const keel_session *session, keel_session_memory *out);

/* Called on the thread that runs keel_session_run, in order, as tokens come. index counts from 0; ns is CLOCK_MONOTONIC
 * when the token was chosen. */
typedef void (*keel_on_token)(void *user, uint32_t index, int32_t token, uint64_t ns);

/* A generation. Arrays are borrowed for the call. */
typedef struct keel_request {
    size_t struct_size;
    const int32_t *prompt; /* [n_prompt], at least one id */
    size_t n_prompt;
    uint32_t max_new_tokens; /* 0: the prompt is passed through, nothing is generated */
    const int32_t *stop_ids; /* [n_stop_ids] end the generation, themselves included in the output */
    size_t n_stop_ids;
    const int32_t *forced; /* [n_forced] teacher forcing: token i + 1 is fed from here instead of the prediction */
    size_t n_forced;
    float temperature; /* 0: greedy. > 0 needs a model opened with `sampling` */
    float top_p;       /* 0 or ≥ 1: off */
    uint32_t top_k;    /* 0: off */
    uint32_t seed;
    float *logits;          /* [max_new_tokens][vocab] gets each step's logits; or NULL */
    keel_on_token on_token; /* or NULL */
    void *user;
} keel_request;
#define KEEL_REQUEST_INITIALIZER                                                                                       \
    { .struct_size = sizeof(keel_request) }

/* How a generation went. */
typedef struct keel_result {
    uint32_t n_tokens; /* generated */
    bool stopped;      /* by keel_session_stop() */
    double ttft_ms;    /* launch to first token: the prefill */
    double tpot_ms;    /* mean of the later tokens; 0 with fewer than two */
} keel_result;

/* Runs one generation from position 0, in one launch. A prompt that does not fit the KV pages or an id outside the
 * vocabulary is KEEL_RANGE before anything runs; KEEL_HANG names the waiting workers, roles and tasks. */
keel_status keel_session_run(keel_session *session, const keel_request *request, keel_result *result, keel_error *err);
/* The read ceiling of the device that the session runs on, bytes/s, best of `repeats`: the CPU's over `bytes` bytes by
 * as many threads as there are workers, a GPU's over the session's own memory. */
keel_status keel_session_bandwidth(keel_session *session, uint64_t bytes, uint32_t repeats, double *best,
                                   keel_error *err);
/* With several ranks: rank 0's session, for all of them. Ends the run after the iteration in flight, or the next run
 * after its first iteration when none is in flight. Any thread, any time, also from a signal handler. */
void keel_session_stop(keel_session *session);

/* ---- conversion, measurement, files --------------------------------------------------------------- */

/* Progress of long work: bytes done of bytes in all. Returning false stops it (KEEL_ABORTED, nothing left behind). */
typedef bool (*keel_progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);

/* Writes a GGUF file as a Hugging Face folder. dtype: "f32" or "bf16". out_dir must not exist; it appears complete or
 * not at all. progress may be NULL. */
keel_status keel_convert_gguf(const char *gguf_path, const char *out_dir, const char *dtype, keel_progress progress,
                              void *user, keel_error *err);

/* Writes a quantised copy of the checkpoint folder `path`. quant: "fp8", linear weights of the layers as F8_E4M3 with a
 * scale for each block of 128 × 128, in the form that such checkpoints have on Hugging Face. The rest as above. */
keel_status keel_convert_quant(const char *path, const char *out_dir, const char *quant, keel_progress progress,
                               void *user, keel_error *err);

/* What work on the weight cache is at: waiting for another process (0 of 0 bytes), reading and checking what is
 * there, converting. */
typedef enum keel_cache_phase { KEEL_CACHE_WAITING, KEEL_CACHE_CHECKING, KEEL_CACHE_CONVERTING } keel_cache_phase;
/* Progress of it, on the thread of the call. Returning false stops it (KEEL_ABORTED; the cache stays sound). */
typedef bool (*keel_cache_progress)(void *user, uint32_t rank, keel_cache_phase phase, uint64_t done_bytes,
                                    uint64_t total_bytes);

/* The weights of one rank of a checkpoint, for the weight cache. */
typedef struct keel_convert_options {
    size_t struct_size;
    const char *path;      /* checkpoint folder */
    const char *cache_dir; /* made when missing */
    uint32_t tp, ep;       /* ranks, expert groups; 0 = 1 */
    uint32_t rank;         /* 0 .. tp - 1 */
    bool vocab_parallel;   /* the head's rows are cut over the ranks */
    uint32_t jobs;         /* ranks that convert at once, over all processes that give this number; 0 = 2 */
    int32_t layer_first;   /* slice of layers, as in keel_model_options */
    int32_t layer_last;
    bool layer_slice;
    keel_cache_progress progress; /* or NULL */
    void *user;
} keel_convert_options;
#define KEEL_CONVERT_OPTIONS_INITIALIZER                                                                               \
    { .struct_size = sizeof(keel_convert_options), .layer_last = -1 }

/* What came of it. */
typedef struct keel_convert_result {
    bool stored; /* false: the rank reads the checkpoint as it lies, nothing needs to be cached */
    bool built;  /* now; false: it was there, and was verified */
    uint32_t n_tensors;
    uint64_t bytes; /* of the stored tensors */
    char key[65];   /* with stored: the file is CACHE_DIR/KEY/rank{r}.safetensors */
    char note[512]; /* why an entry that was there could not be used; "" without */
} keel_convert_result;

/* Makes sure that the cache holds a rank's converted weights, verified. Any number of threads and processes may do so
 * at once. A cut that does not divide is KEEL_REFUSED. */
keel_status keel_convert_rank(const keel_convert_options *options, keel_convert_result *result, keel_error *err);

/* An entry of the weight cache. Strings live for the call. */
typedef struct keel_cache_entry {
    const char *key, *path; /* path: of the data */
    const char *model;      /* the checkpoint's folder; "" when the manifest cannot be read, as with the next ones */
    const char *architecture, *recipe, *head;
    uint32_t tp, ep, rank, n_tensors;
    uint64_t bytes;    /* of the data file */
    int64_t created_s; /* since 1970; 0 when not known */
    const char *state; /* "ready", "stale", "damaged", "incomplete" or "busy" (being made) */
    const char *why;   /* of a state that is not ready; may be "" */
} keel_cache_entry;
/* Returning false ends the list. */
typedef bool (*keel_on_cache_entry)(void *user, const keel_cache_entry *entry);

/* The entries of a weight cache, sorted by model, tp and rank; verify: all data is read and its digests are compared. A
 * missing folder has none. */
keel_status keel_cache_list(const char *cache_dir, bool verify, keel_on_cache_entry each, void *user, keel_error *err);

/* The machine's read bandwidth: `threads` threads sum `bytes` bytes of memory `repeats` times; *best gets the best
 * repeat in bytes a second. The ceiling that a decode step is held against. */
keel_status keel_read_bandwidth(uint32_t threads, uint64_t bytes, uint32_t repeats, double *best, keel_error *err);

/* Writes [n][vocab] logits as a safetensors file with one F32 tensor "logits". */
keel_status keel_logits_save(const char *path, const float *logits, uint64_t n, uint64_t vocab, keel_error *err);
/* Writes bytes to path, complete or not at all. */
keel_status keel_file_save(const char *path, const void *data, size_t bytes, keel_error *err);

#ifdef __cplusplus
}
#endif
#endif /* KEEL_H */
