/* SPDX-License-Identifier: Apache-2.0 */
/* The fake libnvrtc.so.13: writes the device text into a folder, kx_emu.h in the place of device/cuda_ptx.cuh, and
 * calls the system's C++ compiler. What it gives for a cubin is a shared library for the emulator. */
#include "exec/cuda_api.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { OK, OUT_OF_MEMORY = 1, COMPILATION = 6, INTERNAL = 11, MOST_BYTES = 64 << 20 };

typedef struct program {
    char folder[256], *log, *code;
    size_t code_bytes;
    char entries[1024]; /* lines that export the kernels */
} program;

static const char *const flags =
    "-std=c++17 -O1 -g1 -w -fPIC -fvisibility=hidden -fno-omit-frame-pointer -fno-optimize-sibling-calls "
    "-fno-strict-aliasing -fwrapv -fno-exceptions -fno-rtti -ffp-contract=off "
    "-fsanitize=alignment,shift,integer-divide-by-zero,bounds -fno-sanitize-recover=all "
    "-DKEEL_EMULATED -D__CUDACC__ -D__device__= -D__forceinline__=inline";

/* Every plain access calls a hook of kx_emu.h. */
static const char *const race_flags = "-fsanitize=thread --param tsan-instrument-func-entry-exit=0";

static char *read_file(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    char *data = NULL;
    *bytes = 0;
    if (f && fseek(f, 0, SEEK_END) == 0) {
        long n = ftell(f);
        rewind(f);
        data = n >= 0 && n < MOST_BYTES ? malloc((size_t)n + 1) : NULL;
        if (data) *bytes = fread(data, 1, (size_t)n, f), data[*bytes] = '\0';
    }
    if (f) fclose(f);
    return data;
}

/* The emulator's own headers and the flags are part of the compiler: its version follows them, so that no cache mixes
 * them up. */
EXPORT int nvrtcVersion(int *major, int *minor) {
    static const char *const files[] = {EMU_FOLDER "/kx_emu.h", EMU_FOLDER "/emu_api.h"};
    unsigned hash = 2166136261u;
    const char *more = getenv("KEEL_EMU_CXXFLAGS");
    if (getenv("KEEL_EMU_RACES")) hash ^= 0x5a5a5a50u;
    for (const char *p = flags; *p; p++) hash = (hash ^ (unsigned char)*p) * 16777619u;
    for (const char *p = more; p && *p; p++) hash = (hash ^ (unsigned char)*p) * 16777619u;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t bytes;
        char *text = read_file(files[i], &bytes);
        for (size_t k = 0; text && k < bytes; k++) hash = (hash ^ (unsigned char)text[k]) * 16777619u;
        free(text);
    }
    *major = 13;
    *minor = 1000 + (int)(hash >> 4);
    return OK;
}

static bool put(const program *p, const char *name, const char *text, const char *more) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", p->folder, name);
    char *slash = strchr(path + strlen(p->folder) + 1, '/');
    if (slash) {
        *slash = '\0';
        if (mkdir(path, 0700) && errno != EEXIST) return false;
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    if (!f) return false;
    bool fine = fputs(text, f) >= 0 && fputs(more, f) >= 0;
    return fclose(f) == 0 && fine;
}

/* KX_KERNEL(name) and KX_KERNEL_OF(name, …) at the head of a line. */
static void find_entries(program *p, const char *text) {
    for (const char *at = text; (at = strstr(at, "\nKX_KERNEL")); at++) {
        const char *name = strchr(at, '(');
        size_t len = name ? strspn(name + 1, "abcdefghijklmnopqrstuvwxyz_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") : 0;
        size_t have = strlen(p->entries);
        if (len && have + len + 32 < sizeof p->entries)
            sprintf(p->entries + have, "KX_EMU_ENTRY(%.*s)\n", (int)len, name + 1);
    }
}

EXPORT int nvrtcCreateProgram(void **out, const char *source, const char *name, int n_headers,
                              const char *const *headers, const char *const *names) {
    const char *tmp = getenv("TMPDIR");
    program *p = calloc(1, sizeof *p);
    if (!p) return OUT_OF_MEMORY;
    *out = p;
    snprintf(p->folder, sizeof p->folder, "%.200s/keel-emu.XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(p->folder)) return INTERNAL;
    bool fine = true;
    find_entries(p, source);
    for (int i = 0; i < n_headers && fine; i++) {
        find_entries(p, headers[i]);
        bool ptx = strcmp(names[i], "device/cuda_ptx.cuh") == 0;
        fine = put(p, names[i], ptx ? "#include \"kx_emu.h\"\n" : headers[i], "");
    }
    return fine && put(p, name, source, p->entries) ? OK : INTERNAL;
}

EXPORT int nvrtcCompileProgram(void *at, int n_options, const char *const *options) {
    program *p = at;
    char command[2048], path[300];
    const char *compiler = getenv("KEEL_EMU_CXX") ? getenv("KEEL_EMU_CXX") : "g++", *more = getenv("KEEL_EMU_CXXFLAGS");
    size_t bytes;
    (void)n_options, (void)options;
    snprintf(command, sizeof command,
             "cd '%s' && %s %s %s %s -I. -I'%s' -x c++ -c plan.cu -o code.o >log 2>&1 && %s -shared code.o -o code.so "
             ">>log 2>&1",
             p->folder, compiler, flags, getenv("KEEL_EMU_RACES") ? race_flags : "", more ? more : "", EMU_FOLDER,
             compiler);
    int status = system(command);
    snprintf(path, sizeof path, "%s/log", p->folder);
    p->log = read_file(path, &bytes);
    snprintf(path, sizeof path, "%s/code.so", p->folder);
    if (status == 0) p->code = read_file(path, &p->code_bytes);
    return p->code ? OK : COMPILATION;
}

EXPORT int nvrtcGetCUBINSize(void *at, size_t *bytes) { return *bytes = ((program *)at)->code_bytes, OK; }
EXPORT int nvrtcGetCUBIN(void *at, char *cubin) {
    const program *p = at;
    if (!p->code) return INTERNAL;
    memcpy(cubin, p->code, p->code_bytes);
    return OK;
}
EXPORT int nvrtcGetProgramLogSize(void *at, size_t *bytes) {
    const program *p = at;
    return *bytes = p->log ? strlen(p->log) + 1 : 1, OK;
}
EXPORT int nvrtcGetProgramLog(void *at, char *log) {
    const program *p = at;
    strcpy(log, p->log ? p->log : "");
    return OK;
}
EXPORT int nvrtcDestroyProgram(void **at) {
    char command[300];
    program *p = *at;
    snprintf(command, sizeof command, "rm -rf '%s'", p->folder);
    if (!getenv("KEEL_EMU_KEEP") && system(command)) fprintf(stderr, "keel emulator: %s stays\n", p->folder);
    free(p->log), free(p->code), free(p);
    *at = NULL;
    return OK;
}
EXPORT const char *nvrtcGetErrorString(int error) {
    return error == COMPILATION ? "compilation by the emulator's C++ compiler" : error ? "emulator" : "none";
}
