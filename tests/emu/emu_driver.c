/* SPDX-License-Identifier: Apache-2.0 */
/* The fake libcuda.so.1: the part of the driver API that src/exec/cuda_api.h names, over the emulator. A cooperative
 * launch runs beside the host on a thread of its own; everything else is done when the call returns. Work on a stream
 * waits for a launch on it. */
#include "emu.h"
#include "exec/cuda_api.h"

#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { OK, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_IMAGE = 200, NOT_FOUND = 500, TOO_LARGE = 720, FAILED = 719 };
enum { TOTAL_BYTES_SHIFT = 33 };

typedef struct module {
    void *library;
    const void *base;
    int fd;
    char path[64];
} module;
typedef struct function {
    module *module;
    const emu_entry *entry;
    unsigned dynamic_bytes;
    char name[64];
    struct function *next;
} function;
typedef struct stream {
    pthread_t thread;
    bool busy; /* a thread was started and not yet joined */
    bool done; /* atomic: it is through */
    int result;
    emu_launch launch;
} stream;

static function *functions;
static bool running; /* atomic: a launch is under way */

static unsigned number(const char *name, unsigned otherwise) {
    const char *text = getenv(name);
    return text && *text ? (unsigned)strtoul(text, NULL, 0) : otherwise;
}

/* ---- the device ------------------------------------------------------------------------------------ */

EXPORT int cuInit(unsigned flags) { return (int)(flags ? INVALID_VALUE : OK); }
EXPORT int cuDriverGetVersion(int *version) { return *version = 13000, OK; }
EXPORT int cuDeviceGetCount(int *n) { return *n = 1, OK; }
EXPORT int cuDeviceGet(int *device, int ordinal) { return *device = 0, ordinal ? INVALID_VALUE : OK; }
EXPORT int cuDeviceGetName(char *name, int bytes, int device) {
    return snprintf(name, (size_t)bytes, "keel emulator (device %d)", device) > 0 ? OK : INVALID_VALUE;
}
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == CUDA_ATTRIBUTE_MAJOR   ? 9
             : attribute == CUDA_ATTRIBUTE_MINOR ? 0
             : attribute == CUDA_ATTRIBUTE_SMS   ? (int)number("KEEL_EMU_SMS", 4)
                                                 : 0;
    return OK;
}
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) {
    static int primary;
    (void)device;
    return *context = &primary, OK;
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
    (void)device;
    emu_machine_free();
    return OK;
}
EXPORT int cuCtxSetCurrent(void *context) { return context ? OK : INVALID_VALUE; }

static int complain(const char *wrong) {
    if (wrong) fprintf(stderr, "keel emulator: %s\n", wrong);
    return wrong ? INVALID_VALUE : OK;
}

EXPORT int cuGetErrorString(int error, const char **text) {
    static const struct {
        int number;
        const char *text;
    } list[] = {{INVALID_VALUE, "invalid value"},  {OUT_OF_MEMORY, "out of memory"},
                {INVALID_IMAGE, "no device code"}, {NOT_FOUND, "not found"},
                {CUDA_NOT_READY, "not ready"},     {TOO_LARGE, "more blocks than multiprocessors"}};
    *text = error == FAILED ? emu_report_text() : "unknown";
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].number == error) *text = list[i].text;
    return OK;
}

/* ---- streams --------------------------------------------------------------------------------------- */

static int wait_for(stream *s) {
    if (!s || !s->busy) return s ? s->result : OK;
    pthread_join(s->thread, NULL);
    s->busy = false;
    return s->result;
}

EXPORT int cuStreamCreate(void **out, unsigned flags) {
    (void)flags;
    return (*out = calloc(1, sizeof(stream))) ? OK : OUT_OF_MEMORY;
}
EXPORT int cuStreamDestroy_v2(void *s) {
    wait_for(s);
    free(s);
    return OK;
}
EXPORT int cuStreamSynchronize(void *s) { return wait_for(s); }
EXPORT int cuStreamQuery(void *at) {
    stream *s = at;
    if (s->busy && !__atomic_load_n(&s->done, __ATOMIC_ACQUIRE)) return CUDA_NOT_READY;
    return wait_for(s);
}

/* ---- memory ---------------------------------------------------------------------------------------- */

static void *at(cu_ptr p) { return (void *)(uintptr_t)p; }

EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    *free_bytes = *total_bytes = (size_t)1 << TOTAL_BYTES_SHIFT;
    return OK;
}
EXPORT int cuMemAlloc_v2(cu_ptr *out, size_t bytes) {
    void *p = bytes && bytes <= (size_t)1 << TOTAL_BYTES_SHIFT ? emu_alloc(bytes) : NULL;
    *out = (cu_ptr)(uintptr_t)p;
    return p ? OK : OUT_OF_MEMORY;
}
EXPORT int cuMemFree_v2(cu_ptr p) { return complain(emu_free(at(p))); }
EXPORT int cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
    (void)flags;
    return (*out = emu_alloc(bytes)) ? OK : OUT_OF_MEMORY;
}
EXPORT int cuMemFreeHost(void *p) { return complain(emu_free(p)); }

static int copy(void *to, const void *from, size_t bytes, const void *device) {
    if (!emu_inside(device, bytes)) return complain("a copy beyond an allocation");
    bool word = bytes == sizeof(uint32_t) && (uintptr_t)to % bytes == 0 && (uintptr_t)from % bytes == 0;
    if (word) /* the kernel may look at it meanwhile */
        __atomic_store_n((uint32_t *)to, __atomic_load_n((const uint32_t *)from, __ATOMIC_SEQ_CST), __ATOMIC_SEQ_CST);
    else
        memcpy(to, from, bytes);
    if (device == to && __atomic_load_n(&running, __ATOMIC_ACQUIRE)) emu_host_wrote();
    return OK;
}

EXPORT int cuMemcpyHtoDAsync_v2(cu_ptr to, const void *from, size_t bytes, void *s) {
    int result = wait_for(s);
    return result ? result : copy(at(to), from, bytes, at(to));
}
EXPORT int cuMemcpyDtoHAsync_v2(void *to, cu_ptr from, size_t bytes, void *s) {
    int result = wait_for(s);
    return result ? result : copy(to, at(from), bytes, at(from));
}
EXPORT int cuMemcpyHtoD_v2(cu_ptr to, const void *from, size_t bytes) { return copy(at(to), from, bytes, at(to)); }
EXPORT int cuMemcpyDtoH_v2(void *to, cu_ptr from, size_t bytes) { return copy(to, at(from), bytes, at(from)); }
EXPORT int cuMemsetD8Async(cu_ptr to, unsigned char value, size_t bytes, void *s) {
    int result = wait_for(s);
    if (result) return result;
    if (!emu_inside(at(to), bytes)) return complain("a memset beyond an allocation");
    memset(at(to), value, bytes);
    return OK;
}

/* ---- modules --------------------------------------------------------------------------------------- */

static size_t image_bytes(const void *image) {
    Elf64_Ehdr e;
    memcpy(&e, image, sizeof e);
    if (memcmp(e.e_ident, ELFMAG, SELFMAG) != 0 || e.e_type != ET_DYN) return 0;
    return (size_t)(e.e_shoff + (Elf64_Off)e.e_shnum * e.e_shentsize); /* linkers put the section table last */
}

static bool write_all(int fd, const char *p, size_t bytes) {
    while (bytes) {
        ssize_t n = write(fd, p, bytes);
        if (n <= 0) return false;
        p += n, bytes -= (size_t)n;
    }
    return true;
}

EXPORT int cuModuleLoadData(void **out, const void *image) {
    extern const emu_api emu_functions;
    size_t bytes = image_bytes(image);
    module *m = calloc(1, sizeof *m);
    if (!m || !bytes) return free(m), m ? INVALID_IMAGE : OUT_OF_MEMORY;
    m->fd = memfd_create("keel-device-code", MFD_CLOEXEC);
    snprintf(m->path, sizeof m->path, "/proc/%d/fd/%d", (int)getpid(), m->fd);
    if (m->fd >= 0 && write_all(m->fd, image, bytes)) m->library = dlopen(m->path, RTLD_NOW | RTLD_LOCAL);
    const emu_api **api = m->library ? dlsym(m->library, "emu") : NULL;
    if (!api) {
        const char *why = dlerror();
        fprintf(stderr, "keel emulator: %s\n", why ? why : "the device code was not made for it");
        if (m->library) dlclose(m->library);
        close(m->fd);
        free(m);
        return INVALID_IMAGE;
    }
    Dl_info info;
    if (dladdr(api, &info)) m->base = info.dli_fbase;
    *api = &emu_functions;
    *out = m;
    return OK;
}

EXPORT int cuModuleUnload(void *at_module) {
    module *m = at_module;
    for (function **f = &functions; *f;) {
        function *gone = *f;
        if (gone->module != m) {
            f = &gone->next;
            continue;
        }
        *f = gone->next;
        free(gone);
    }
    dlclose(m->library);
    close(m->fd);
    free(m);
    return OK;
}

EXPORT int cuModuleGetFunction(void **out, void *at_module, const char *name) {
    char symbol[96];
    module *m = at_module;
    function *f = calloc(1, sizeof *f);
    if (!f) return OUT_OF_MEMORY;
    snprintf(symbol, sizeof symbol, "emu_entry_%s", name);
    *f = (function){.module = m, .entry = dlsym(m->library, symbol), .next = functions};
    snprintf(f->name, sizeof f->name, "%s", name);
    if (!f->entry) return free(f), NOT_FOUND;
    functions = f;
    *out = f;
    return OK;
}

EXPORT int cuFuncSetAttribute(void *f, int attribute, int value) {
    if (attribute != CUDA_FUNCTION_SMEM) return OK;
    if (value < 0 || value > EMU_SHARED_BYTES) return INVALID_VALUE;
    ((function *)f)->dynamic_bytes = (unsigned)value;
    return OK;
}
EXPORT int cuFuncGetAttribute(int *value, int attribute, void *f) {
    (void)f;
    return *value = attribute == CUDA_FUNCTION_REGISTERS ? 32 : 0, OK;
}

/* ---- launches -------------------------------------------------------------------------------------- */

static void *run(void *argument) {
    stream *s = argument;
    emu_catch_signals();
    __atomic_store_n(&running, true, __ATOMIC_RELEASE);
    s->result = emu_run(&s->launch);
    __atomic_store_n(&running, false, __ATOMIC_RELEASE);
    s->launch.entry->drop(s->launch.taken);
    const char *wrong = s->result ? NULL : emu_check_canaries();
    if (wrong) {
        fprintf(stderr, "keel emulator: after %s: %s\n", s->launch.name, wrong);
        s->result = INVALID_VALUE;
    }
    __atomic_store_n(&s->done, true, __ATOMIC_RELEASE);
    return NULL;
}

static int start(function *f, unsigned grid, unsigned threads, unsigned dynamic_bytes, stream *s, void **params) {
    int before = wait_for(s);
    if (before) return before;
    enum { STATIC_DYNAMIC = 48 << 10 };
    if (!grid || !threads || threads > EMU_MOST_WARPS * EMU_WARP) return INVALID_VALUE;
    if (dynamic_bytes > STATIC_DYNAMIC && dynamic_bytes > f->dynamic_bytes) return INVALID_VALUE;
    s->launch = (emu_launch){.name = f->name,
                             .entry = f->entry,
                             .taken = f->entry->take(params),
                             .grid = grid,
                             .threads = threads,
                             .dynamic_bytes = dynamic_bytes,
                             .sms = number("KEEL_EMU_SMS", 4),
                             .module_path = f->module->path,
                             .base = f->module->base};
    s->done = false;
    return OK;
}

EXPORT int cuLaunchKernel(void *f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned smem_bytes, void *s, void **params,
                          void **extra) {
    if (grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1 || extra) return INVALID_VALUE;
    int result = start(f, grid_x, block_x, smem_bytes, s, params);
    if (result) return result;
    run(s);
    return ((stream *)s)->result;
}

/* All blocks must be on the device at the same time. KEEL_EMU_HELD of them never start: another program holds their
 * multiprocessors. */
EXPORT int cuLaunchCooperativeKernel(void *f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                     unsigned block_y, unsigned block_z, unsigned smem_bytes, void *at_stream,
                                     void **params) {
    stream *s = at_stream;
    if (grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1) return INVALID_VALUE;
    if (grid_x > number("KEEL_EMU_SMS", 4)) return TOO_LARGE;
    int result = start(f, grid_x, block_x, smem_bytes, s, params);
    if (result) return result;
    unsigned held = number("KEEL_EMU_HELD", 0);
    s->launch.held = held < grid_x ? held : grid_x - 1;
    s->busy = pthread_create(&s->thread, NULL, run, s) == 0;
    return s->busy ? OK : OUT_OF_MEMORY;
}

EXPORT int cuEventCreate(void **event, unsigned flags) {
    (void)flags;
    return (*event = calloc(1, sizeof(struct timespec))) ? OK : OUT_OF_MEMORY;
}
EXPORT int cuEventDestroy_v2(void *event) { return free(event), OK; }
EXPORT int cuEventRecord(void *event, void *s) {
    int result = wait_for(s);
    return clock_gettime(CLOCK_MONOTONIC, event) ? INVALID_VALUE : result;
}
EXPORT int cuEventElapsedTime(float *ms, void *from, void *to) {
    const struct timespec *a = from, *b = to;
    *ms = (float)((double)(b->tv_sec - a->tv_sec) * 1e3 + (double)(b->tv_nsec - a->tv_nsec) * 1e-6);
    return OK;
}
