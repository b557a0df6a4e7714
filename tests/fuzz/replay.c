/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target without libFuzzer: every file of its corpus, then mutations of each that are the same on every
 * machine. usage: replay_NAME CORPUS_DIR MUTATIONS. On a crash the signal handler names the input. */
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static char current_input[512]; /* "FILE" or "FILE, mutation N" */

static void crash_report(int sig) {
    /* Only async-signal-safe calls; the message is ready made. */
    ssize_t n = write(STDERR_FILENO, current_input, strlen(current_input));
    n += write(STDERR_FILENO, ": crashed here\n", 15);
    (void)n;
    signal(sig, SIG_DFL);
    raise(sig);
}

static uint8_t *file_bytes(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    uint8_t *data = NULL;
    size_t have = 0, room = 0, got;
    do {
        if (have == room) {
            room = room ? 2 * room : 65536;
            uint8_t *grown = realloc(data, room);
            if (!grown) break;
            data = grown;
        }
        got = fread(data + have, 1, room - have, f);
        have += got;
    } while (got);
    fclose(f);
    *bytes = have;
    return data;
}

static uint32_t rng_next(uint32_t *state) { /* xorshift32, Marsaglia 2003 */
    uint32_t x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

/* Cuts the end off in one case of four; else changes one to eight bytes. A copy of the exact size, so that
 * AddressSanitizer sees a read past the end. */
static void run_mutation(const uint8_t *data, size_t bytes, uint32_t seed) {
    uint32_t state = seed * 2654435761u + 1u;
    size_t length = rng_next(&state) % 4 == 0 ? rng_next(&state) % bytes : bytes;
    uint8_t *copy = malloc(length ? length : 1);
    if (!copy) return;
    memcpy(copy, data, length);
    if (length == bytes) {
        for (uint32_t n = rng_next(&state) % 8 + 1; n; n--) {
            static const uint8_t edges[] = {0x00, 0xff, 0x7f, 0x80, '"', '{', '}', '9'};
            uint32_t r = rng_next(&state);
            copy[rng_next(&state) % length] = r & 256 ? (uint8_t)r : edges[r % sizeof edges];
        }
    }
    LLVMFuzzerTestOneInput(copy, length);
    free(copy);
}

static int run_file(const char *dir, const char *name, uint32_t mutations) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    size_t bytes;
    uint8_t *data = file_bytes(path, &bytes);
    if (!data) {
        fprintf(stderr, "%s: cannot read\n", path);
        return 1;
    }
    snprintf(current_input, sizeof current_input, "%.400s", name);
    uint8_t *exact = malloc(bytes ? bytes : 1);
    if (exact) memcpy(exact, data, bytes);
    free(data);
    if (!exact) return 1;
    LLVMFuzzerTestOneInput(exact, bytes);
    for (uint32_t i = 0; bytes && i < mutations; i++) {
        snprintf(current_input, sizeof current_input, "%.400s, mutation %u", name, i);
        run_mutation(exact, bytes, i);
    }
    free(exact);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s CORPUS_DIR MUTATIONS\n", argv[0]);
        return 2;
    }
    static const int signals[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) signal(signals[i], crash_report);
    struct dirent **entries;
    int n = scandir(argv[1], &entries, NULL, alphasort), files = 0, bad = 0;
    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.') {
            bad += run_file(argv[1], entries[i]->d_name, (uint32_t)strtoul(argv[2], NULL, 10));
            files++;
        }
        free(entries[i]);
    }
    if (n >= 0) free(entries);
    if (!files) fprintf(stderr, "%s: no corpus; a fuzz target needs at least one well-formed seed\n", argv[1]);
    printf("%d files replayed, %s mutations each\n", files, argv[2]);
    return files && !bad ? 0 : 1;
}
