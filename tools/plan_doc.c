/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_doc.h"

#include "fail.h"
#include "out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Appends one word of a command line, quoted where a shell would read it otherwise. */
static bool put_word(FILE *to, const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:,+-@%=";
    if (*word && word[strspn(word, plain)] == '\0') return fputs(word, to) >= 0;
    bool ok = fputc('\'', to) != EOF;
    for (; *word && ok; word++) ok = *word == '\'' ? fputs("'\\''", to) >= 0 : fputc(*word, to) != EOF;
    return ok && fputc('\'', to) != EOF;
}

/* A file in place of a folder is a drawing or a graph. */
static bool is_drawn(const char *operand) {
    struct stat at;
    return operand && stat(operand, &at) == 0 && !S_ISDIR(at.st_mode);
}

/* What the document's commands call the model; the caller's (free), NULL when memory is short. */
static char *model_words(const args *a) {
    const char *synth = a->value[OPT_SYNTH].text, *weights = a->value[OPT_WEIGHTS].text;
    const char *quant = a->value[OPT_QUANT].text;
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to) return NULL;
    bool ok = !synth || fputs("--synth ", to) >= 0;
    ok = ok && put_word(to, synth ? synth : a->operand[0]);
    if (quant) ok = ok && fprintf(to, " --quant %s", quant) >= 0;
    if (weights) ok = ok && fputs(" --weights ", to) >= 0 && put_word(to, weights);
    if (fclose(to) == 0 && ok) return text;
    free(text);
    return NULL;
}

keel_status plan_doc_check(const args *a, keel_error *err) {
    if (a->value[OPT_BANDWIDTH].given && !a->value[OPT_DOC].given)
        return args_refuse(a->verb, err, "--bandwidth goes with --doc");
    if (a->value[OPT_DOC].given && !*a->value[OPT_DOC].text) return args_refuse(a->verb, err, "--doc: names no folder");
    return KEEL_OK;
}

keel_status plan_doc_write(const args *a, const keel_model *model, const keel_plan *plan, keel_error *err) {
    const char *dir = a->value[OPT_DOC].text;
    if (!dir) return KEEL_OK;
    keel_doc_options options = KEEL_DOC_OPTIONS_INITIALIZER;
    char *words = model_words(a);
    if (!words) return fail_memory(err, "plan document");
    options.model = words;
    options.drawn = is_drawn(a->n_operands ? a->operand[0] : NULL);
    options.bandwidth_tbs = a->value[OPT_BANDWIDTH].real;
    keel_status s = keel_plan_doc(model, plan, &options, dir, err);
    free(words);
    if (s != KEEL_OK || args_flag(a, OPT_JSON)) return s;
    return out_format(err, "document  %s/plan.md, %s/plan.json\n", dir, dir);
}
