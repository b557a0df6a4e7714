/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA driver and NVRTC, opened at run time: one program runs with and without them. Declarations follow the driver
 * API's and NVRTC's reference manuals; opaque handles are pointers. */
#ifndef KEEL_EXEC_CUDA_API_H
#define KEEL_EXEC_CUDA_API_H

#include "core/error.h"

#include <stddef.h>
#include <stdint.h>

typedef uint64_t cu_ptr; /* device address */

/* X(returns, name in the library, short name, parameters) */
#define CUDA_DRIVER_MAP(X)                                                                                             \
    X(int, cuInit, init, (unsigned flags))                                                                             \
    X(int, cuDriverGetVersion, driver_version, (int *version))                                                         \
    X(int, cuDeviceGetCount, device_count, (int *n))                                                                   \
    X(int, cuDeviceGet, device_get, (int *device, int ordinal))                                                        \
    X(int, cuDeviceGetName, device_name, (char *name, int bytes, int device))                                          \
    X(int, cuDeviceGetAttribute, device_attribute, (int *value, int attribute, int device))                            \
    X(int, cuDevicePrimaryCtxRetain, context_retain, (void **context, int device))                                     \
    X(int, cuDevicePrimaryCtxRelease_v2, context_release, (int device))                                                \
    X(int, cuCtxSetCurrent, context_set, (void *context))                                                              \
    X(int, cuMemGetInfo_v2, mem_info, (size_t * free_bytes, size_t * total_bytes))                                     \
    X(int, cuMemAlloc_v2, mem_alloc, (cu_ptr * at, size_t bytes))                                                      \
    X(int, cuMemFree_v2, mem_free, (cu_ptr at))                                                                        \
    X(int, cuMemHostAlloc, host_alloc, (void **at, size_t bytes, unsigned flags))                                      \
    X(int, cuMemFreeHost, host_free, (void *at))                                                                       \
    X(int, cuMemcpyHtoD_v2, copy_to, (cu_ptr to, const void *from, size_t bytes))                                      \
    X(int, cuMemcpyDtoH_v2, copy_from, (void *to, cu_ptr from, size_t bytes))                                          \
    X(int, cuMemcpyHtoDAsync_v2, copy_to_async, (cu_ptr to, const void *from, size_t bytes, void *stream))             \
    X(int, cuMemcpyDtoHAsync_v2, copy_from_async, (void *to, cu_ptr from, size_t bytes, void *stream))                 \
    X(int, cuMemsetD8Async, set_async, (cu_ptr at, unsigned char value, size_t bytes, void *stream))                   \
    X(int, cuStreamCreate, stream_create, (void **stream, unsigned flags))                                             \
    X(int, cuStreamDestroy_v2, stream_destroy, (void *stream))                                                         \
    X(int, cuStreamSynchronize, stream_wait, (void *stream))                                                           \
    X(int, cuStreamQuery, stream_query, (void *stream))                                                                \
    X(int, cuModuleLoadData, module_load, (void **module, const void *image))                                          \
    X(int, cuModuleUnload, module_unload, (void *module))                                                              \
    X(int, cuModuleGetFunction, module_function, (void **function, void *module, const char *name))                    \
    X(int, cuFuncSetAttribute, function_set, (void *function, int attribute, int value))                               \
    X(int, cuFuncGetAttribute, function_get, (int *value, int attribute, void *function))                              \
    X(int, cuLaunchCooperativeKernel, launch_cooperative,                                                              \
      (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,          \
       unsigned block_z, unsigned smem_bytes, void *stream, void **params))                                            \
    X(int, cuLaunchKernel, launch,                                                                                     \
      (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,          \
       unsigned block_z, unsigned smem_bytes, void *stream, void **params, void **extra))                              \
    X(int, cuEventCreate, event_create, (void **event, unsigned flags))                                                \
    X(int, cuEventDestroy_v2, event_destroy, (void *event))                                                            \
    X(int, cuEventRecord, event_record, (void *event, void *stream))                                                   \
    X(int, cuEventElapsedTime, event_ms, (float *ms, void *from, void *to))                                            \
    X(int, cuGetErrorString, error_string, (int error, const char **text))

#define CUDA_NVRTC_MAP(X)                                                                                              \
    X(int, nvrtcVersion, version, (int *major, int *minor))                                                            \
    X(int, nvrtcCreateProgram, create,                                                                                 \
      (void **program, const char *source, const char *name, int n_headers, const char *const *headers,                \
       const char *const *names))                                                                                      \
    X(int, nvrtcCompileProgram, compile, (void *program, int n_options, const char *const *options))                   \
    X(int, nvrtcGetCUBINSize, cubin_bytes, (void *program, size_t *bytes))                                             \
    X(int, nvrtcGetCUBIN, cubin, (void *program, char *cubin))                                                         \
    X(int, nvrtcGetProgramLogSize, log_bytes, (void *program, size_t *bytes))                                          \
    X(int, nvrtcGetProgramLog, log, (void *program, char *log))                                                        \
    X(int, nvrtcDestroyProgram, destroy, (void **program))                                                             \
    X(const char *, nvrtcGetErrorString, error_string, (int error))

/* Functions of an opened library. A table of its own for each caller; the library stays open until the process ends. */
typedef struct cuda_driver {
#define X(returns, name, field, parameters) returns(*field) parameters;
    CUDA_DRIVER_MAP(X)
#undef X
} cuda_driver;
typedef struct cuda_nvrtc {
#define X(returns, name, field, parameters) returns(*field) parameters;
    CUDA_NVRTC_MAP(X)
#undef X
} cuda_nvrtc;

/* KEEL_UNSUPPORTED says which library or function is missing, and what to install. */
keel_status cuda_driver_open(cuda_driver *out, keel_error *err);
keel_status cuda_nvrtc_open(cuda_nvrtc *out, keel_error *err);
void cuda_nvrtc_version(const cuda_nvrtc *n, uint32_t *major, uint32_t *minor);

/* KEEL_IO with the driver's words for `result`, unless it is 0. */
keel_status cuda_check(const cuda_driver *d, int result, const char *what, keel_error *err);
#define CUDA_TRY(d, what, call) KEEL_TRY(cuda_check((d), (call), (what), err))

enum { CUDA_HOST_MAPPED = 2, CUDA_STREAM_NONBLOCKING = 1, CUDA_NOT_READY = 600 };
enum { CUDA_ATTRIBUTE_SMS = 16, CUDA_ATTRIBUTE_MAJOR = 75, CUDA_ATTRIBUTE_MINOR = 76 };
enum { CUDA_FUNCTION_SMEM = 8, CUDA_FUNCTION_LOCAL = 3, CUDA_FUNCTION_REGISTERS = 4 };

#endif
