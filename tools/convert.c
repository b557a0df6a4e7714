/* SPDX-License-Identifier: Apache-2.0 */
/* keel convert: a GGUF file becomes a checkpoint folder, a checkpoint a quantised one, or the weight cache is filled or
 * listed. */
#include "convert.h"
#include "fail.h"
#include "interrupt.h"
#include "json_out.h"
#include "model_args.h"
#include "out.h"
#include "wall_clock.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A bar on standard error, redrawn when the percentage changes. */
typedef struct progress_bar {
    int shown; /* percent; −1: nothing yet */
    bool draws;
} progress_bar;

static bool draw(void *user, uint64_t done, uint64_t total) {
    enum { WIDTH = 40 };
    static const char full[] = "########################################";
    progress_bar *bar = user;
    double share = total ? (double)done / (double)total : 1;
    int percent = (int)(share * 100), filled = (int)(share * WIDTH);
    if (interrupt_seen()) return false;
    if (!bar->draws || percent == bar->shown) return true;
    bar->shown = percent;
    fprintf(stderr, "\rkeel convert: [%-*.*s] %3d %% of %s", WIDTH, filled, full, percent, out_size(total).text);
    fflush(stderr);
    return true;
}

/* Sum over the regular files of a folder; what cannot be read counts nothing. */
static uint64_t folder_bytes(const char *path) {
    uint64_t sum = 0;
    DIR *folder = opendir(path);
    if (!folder) return 0;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        struct stat at;
        if (fstatat(dirfd(folder), entry->d_name, &at, 0) == 0 && S_ISREG(at.st_mode)) sum += (uint64_t)at.st_size;
    }
    closedir(folder);
    return sum;
}

static uint64_t file_size(const char *path) {
    struct stat at;
    return stat(path, &at) == 0 ? (uint64_t)at.st_size : 0;
}

static keel_status report_gguf(const args *a, const char *dtype, double seconds, keel_error *err) {
    const char *from = a->value[OPT_FROM_GGUF].text, *to = a->operand[0];
    uint64_t in = file_size(from), out = folder_bytes(to);
    if (args_flag(a, OPT_JSON)) {
        return json_print(json_pack("{s:o,s:s,s:I,s:I,s:o}", "folder", json_of_text(to, strlen(to)), "dtype", dtype,
                                    "gguf_bytes", (json_int_t)in, "folder_bytes", (json_int_t)out, "seconds",
                                    json_of_real(seconds)),
                          err);
    }
    return out_format(err, "%s: %s of GGUF became %s of %s in %.1f s\n", to, out_size(in).text, out_size(out).text,
                      dtype, seconds);
}

static keel_status convert_gguf(const args *a, keel_error *err) {
    const char *from = a->value[OPT_FROM_GGUF].text, *dtype = a->value[OPT_DTYPE].text;
    if (!a->n_operands) return args_refuse(a->verb, err, "no OUT_DIR: name the folder to make");
    if (a->n_operands > 1) return args_refuse(a->verb, err, "%s: one operand too many", a->operand[1]);
    if (!dtype) dtype = "bf16";
    progress_bar bar = {-1, out_progress_wanted()};
    interrupt_watch(NULL);
    double start = wall_seconds();
    keel_status s = keel_convert_gguf(from, a->operand[0], dtype, draw, &bar, err);
    interrupt_unwatch();
    if (bar.shown >= 0) fprintf(stderr, "\r\033[K");
    return s == KEEL_OK ? report_gguf(a, dtype, wall_seconds() - start, err) : s;
}

static keel_status report_quant(const args *a, double seconds, keel_error *err) {
    const char *from = a->operand[0], *to = a->operand[1], *quant = a->value[OPT_QUANT].text;
    uint64_t in = folder_bytes(from), out = folder_bytes(to);
    if (args_flag(a, OPT_JSON)) {
        return json_print(json_pack("{s:o,s:s,s:I,s:I,s:o}", "folder", json_of_text(to, strlen(to)), "quant", quant,
                                    "model_bytes", (json_int_t)in, "folder_bytes", (json_int_t)out, "seconds",
                                    json_of_real(seconds)),
                          err);
    }
    return out_format(err, "%s: %s became %s with %s weights in %.1f s\n", to, out_size(in).text, out_size(out).text,
                      quant, seconds);
}

static keel_status convert_quant(const args *a, keel_error *err) {
    if (a->n_operands != 2)
        return args_refuse(a->verb, err, "--quant: name MODEL, a checkpoint folder, and OUT_DIR, the folder to make");
    progress_bar bar = {-1, out_progress_wanted()};
    interrupt_watch(NULL);
    double start = wall_seconds();
    keel_status s = keel_convert_quant(a->operand[0], a->operand[1], a->value[OPT_QUANT].text, draw, &bar, err);
    interrupt_unwatch();
    if (bar.shown >= 0) fprintf(stderr, "\r\033[K");
    return s == KEEL_OK ? report_quant(a, wall_seconds() - start, err) : s;
}

/* The four things that the verb does, each by its option, and the options that go with it. */
static const struct way {
    option_id by;
    keel_status (*run)(const args *a, keel_error *err);
    option_id takes[10];
    size_t n_takes;
} ways[] = {
    {OPT_BUILD_CACHE_ONLY, convert_cache, {OPT_TP, OPT_EP, OPT_RANK, OPT_HEAD, OPT_LAYERS, OPT_JOBS, OPT_CACHE_DIR}, 7},
    {OPT_LIST, convert_list, {OPT_VERIFY, OPT_CACHE_DIR}, 2},
    {OPT_FROM_GGUF, convert_gguf, {OPT_DTYPE}, 1},
    {OPT_QUANT, convert_quant, {0}, 0},
};

static bool way_takes(const struct way *w, option_id id) {
    if (id == w->by || id == OPT_JSON || id == OPT_HELP) return true;
    for (size_t i = 0; i < w->n_takes; i++) {
        if (w->takes[i] == id) return true;
    }
    return false;
}

static keel_status convert_run(const args *a, keel_error *err) {
    const struct way *w = NULL;
    for (size_t i = 0; i < sizeof ways / sizeof *ways && !w; i++) {
        if (a->value[ways[i].by].given) w = &ways[i];
    }
    if (!w) {
        return args_refuse(
            a->verb, err,
            "--from-gguf: what to convert is missing (or --quant fp8: quantise MODEL; or --build-cache-only: "
            "fill the weight cache of MODEL; or --list)");
    }
    for (size_t i = 0; i < a->verb->n_options; i++) {
        option_id id = a->verb->options[i];
        if (a->value[id].given && !way_takes(w, id))
            return args_refuse(a->verb, err, "--%s: does not go with --%s", option_table[id].name,
                               option_table[w->by].name);
    }
    return w->run(a, err);
}

static const option_id convert_options[] = {
    OPT_FROM_GGUF, OPT_DTYPE,     OPT_QUANT, OPT_BUILD_CACHE_ONLY, OPT_TP,   OPT_EP,  OPT_RANK, OPT_HEAD, OPT_LAYERS,
    OPT_JOBS,      OPT_CACHE_DIR, OPT_LIST,  OPT_VERIFY,           OPT_JSON, OPT_HELP};
const verb verb_convert = {
    .name = "convert",
    .synopsis = "--from-gguf FILE OUT_DIR | MODEL OUT_DIR --quant fp8 | MODEL --build-cache-only | --list [options]",
    .summary =
        "turn a GGUF file into a checkpoint folder in Hugging Face layout; quantise one; fill or list the weight cache",
    .example = "  keel convert --from-gguf SmolLM2-135M-Instruct.Q4_1.gguf smollm2\n"
               "  keel convert smollm2 smollm2-fp8 --quant fp8\n"
               "  keel convert smollm2 --build-cache-only --tp 4 --jobs 2\n"
               "  keel convert --list --verify\n",
    .max_operands = 2,
    .options = convert_options,
    .n_options = sizeof convert_options / sizeof *convert_options,
    .run = convert_run,
};
