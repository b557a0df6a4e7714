/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/cuda_api.h"

#include <dlfcn.h>
#include <string.h>

static void *open_first(const char *const *names) {
    void *library = NULL;
    for (; *names && !library; names++) library = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
    return library;
}

/* A function pointer from dlsym's object pointer, as POSIX allows. */
static bool find(void *library, const char *name, void *field) {
    void *at = dlsym(library, name);
    memcpy(field, &at, sizeof at);
    return at != NULL;
}

keel_status cuda_driver_open(cuda_driver *out, keel_error *err) {
    static const char *const names[] = {"libcuda.so.1", "libcuda.so", NULL};
    void *library = open_first(names);
    if (!library)
        return error_set(
            err, KEEL_UNSUPPORTED,
            "no CUDA driver: libcuda.so.1 is not on this machine; install NVIDIA's driver, or use --device "
            "cpu");
#define X(returns, name, field, parameters)                                                                            \
    if (!find(library, #name, &out->field))                                                                            \
        return error_set(err, KEEL_UNSUPPORTED,                                                                        \
                         "libcuda.so.1 has no " #name "; the driver is too old: CUDA 12 or later");
    CUDA_DRIVER_MAP(X)
#undef X
    return KEEL_OK;
}

keel_status cuda_nvrtc_open(cuda_nvrtc *out, keel_error *err) {
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                        "/usr/local/cuda/lib64/libnvrtc.so", NULL};
    void *library = open_first(names);
    if (!library)
        return error_set(err, KEEL_UNSUPPORTED,
                         "no run-time compiler: neither libnvrtc.so.13 nor .12 is found; install CUDA's NVRTC, or name "
                         "its folder in LD_LIBRARY_PATH, or give a compiled --cubin");
#define X(returns, name, field, parameters)                                                                            \
    if (!find(library, #name, &out->field))                                                                            \
        return error_set(err, KEEL_UNSUPPORTED, "libnvrtc has no " #name "; it is too old: CUDA 12 or later");
    CUDA_NVRTC_MAP(X)
#undef X
    return KEEL_OK;
}

void cuda_nvrtc_version(const cuda_nvrtc *n, uint32_t *major, uint32_t *minor) {
    int a = 0, b = 0;
    n->version(&a, &b);
    *major = (uint32_t)a, *minor = (uint32_t)b;
}

keel_status cuda_check(const cuda_driver *d, int result, const char *what, keel_error *err) {
    const char *text = NULL;
    if (!result) return KEEL_OK;
    d->error_string(result, &text);
    return error_set(err, KEEL_IO, "CUDA: %s: error %d: %s", what, result, text ? text : "unknown");
}
