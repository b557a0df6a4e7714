/* SPDX-License-Identifier: Apache-2.0 */
/* Fixed-width types in the common subset of C11 and CUDA C++17. No system header: the run-time compiler has none. */
#ifndef KEEL_DEVICE_TYPES_H
#define KEEL_DEVICE_TYPES_H

typedef unsigned char kp_u8;
typedef unsigned short kp_u16;
typedef unsigned int kp_u32;
typedef signed int kp_i32;
typedef unsigned long long kp_u64;

#ifdef __CUDACC__
#define KP_FN static __device__ __forceinline__
#else
#define KP_FN static inline __attribute__((unused))
#endif

/* A loop that the compiler shall not unroll: the roles of a worker share an instruction cache of 128 KiB, and a miss
 * beside a full weight stream costs more than a jump. */
#ifdef __CUDACC__
#define KP_ROLLED _Pragma("unroll 1")
#else
#define KP_ROLLED
#endif

#define KP_NONE 0xffffffffu

/* X(NAME, number, name): the fixed division of labour inside a worker. Numbers stand in plan files. */
#define KP_ROLE_MAP(X)                                                                                                 \
    X(CONTROLLER, 0, "controller")                                                                                     \
    X(LOADER, 1, "loader")                                                                                             \
    X(LAUNCHER, 2, "launcher")                                                                                         \
    X(CONSUMER, 3, "consumer")                                                                                         \
    X(STORER, 4, "storer")

enum kp_role {
#define X(NAME, number, text) KP_##NAME = number,
    KP_ROLE_MAP(X)
#undef X
        KP_ROLES = 5
};

#define KP_ROLE_BIT(role) (1u << (role))

#endif
