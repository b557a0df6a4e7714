/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that device text takes from the machine: each function here is one instruction of PTX or one intrinsic of
 * the compiler, named after it. All other device text is plain C++ over these; asm, CUDA's built-in variables and its
 * intrinsics stand in this file alone (scripts/check_ptx.sh), because tests/emu supplies the same functions on a CPU
 * (docs/emulator.md). A function added here is added to tests/emu/kx_emu.h too.
 *
 * Sections are those of the PTX ISA manual, 8.x. Pointers are generic ones; where an instruction wants an address of
 * shared memory, the function converts. Functions of a warp are called by all 32 threads of it together. */
#ifndef KEEL_DEVICE_CUDA_PTX_CUH
#define KEEL_DEVICE_CUDA_PTX_CUH

#include "device/types.h"

#define KX_FULL 0xffffffffu

/* ---- kernel entries ------------------------------------------------------------------------------ */

/* KX_KERNEL(name)(parameters) { … }; with KX_KERNEL_OF at most so many threads a block, one block an SM. */
#define KX_KERNEL(name) extern "C" __global__ void name
#define KX_KERNEL_OF(name, threads) extern "C" __global__ void __launch_bounds__(threads, 1) name
/* With KX_KERNEL_CAPPED at most so many registers a thread, where the compiler knows the word (CUDA 12.4 on). */
#if !defined(__CUDACC_VER_MAJOR__) || __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1204
#define KX_KERNEL_CAPPED(name, registers) extern "C" __global__ void __maxnreg__(registers) name
#else
#define KX_KERNEL_CAPPED(name, registers) extern "C" __global__ void name
#endif
/* A parameter whose address may be handed on. */
#define KX_PARAM(type, name) const __grid_constant__ type name
/* In a kernel's own scope. */
#define KX_SHARED(type, name) __shared__ type name
#define KX_SHARED_ARRAY(type, name, n) __shared__ type name[n]

/* A function that is called and not inlined: its text is there once. */
#define KX_OUTLINED static __device__ __noinline__

/* What the launch asked for in dynamic shared memory; by a call, so that the compiler knows what it points to. */
KP_FN kp_u8 *kx_shared_base(void) {
    extern __shared__ __align__(1024) kp_u8 kx_dynamic[];
    return kx_dynamic;
}

/* ---- special registers (10, "Special Registers") ------------------------------------------------- */

KP_FN kp_u32 kx_laneid(void) {
    kp_u32 t;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(t));
    return t;
}
KP_FN kp_u32 kx_thread(void) { return threadIdx.x; }
KP_FN kp_u32 kx_block_threads(void) { return blockDim.x; }
KP_FN kp_u32 kx_block(void) { return blockIdx.x; }
KP_FN kp_u32 kx_blocks(void) { return gridDim.x; }
KP_FN kp_u64 kx_globaltimer(void) {
    kp_u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
KP_FN kp_u64 kx_clock64(void) {
    kp_u64 t;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(t));
    return t;
}

/* ---- a warp (9.7.9 "shfl.sync", 9.7.13 "bar.warp.sync", "vote.sync") ------------------------------ */

KP_FN void kx_syncwarp(void) { __syncwarp(); }
KP_FN kp_u32 kx_shfl(kp_u32 v, kp_u32 from) { return __shfl_sync(KX_FULL, v, (int)from); }
KP_FN kp_u64 kx_shfl(kp_u64 v, kp_u32 from) { return __shfl_sync(KX_FULL, v, (int)from); }
KP_FN float kx_shfl(float v, kp_u32 from) { return __shfl_sync(KX_FULL, v, (int)from); }
KP_FN kp_u32 kx_shfl_xor(kp_u32 v, kp_u32 mask) { return __shfl_xor_sync(KX_FULL, v, (int)mask); }
KP_FN float kx_shfl_xor(float v, kp_u32 mask) { return __shfl_xor_sync(KX_FULL, v, (int)mask); }
/* From the thread `by` below; the lowest `by` threads keep their own. */
KP_FN kp_u32 kx_shfl_up(kp_u32 v, kp_u32 by) { return __shfl_up_sync(KX_FULL, v, by); }
KP_FN float kx_shfl_up(float v, kp_u32 by) { return __shfl_up_sync(KX_FULL, v, by); }
KP_FN int kx_all(int test) { return __all_sync(KX_FULL, test); }
KP_FN int kx_any(int test) { return __any_sync(KX_FULL, test); }
KP_FN kp_u32 kx_ballot(int test) { return __ballot_sync(KX_FULL, test); }
/* Bits that are set (9.7.1 "popc"). */
KP_FN kp_u32 kx_popc(kp_u32 v) { return (kp_u32)__popc(v); }

/* ---- a block (9.7.13 "bar.sync"; barrier 0 is kx_syncthreads') ------------------------------------ */

KP_FN void kx_syncthreads(void) { __syncthreads(); }
KP_FN void kx_bar_sync(kp_u32 barrier, kp_u32 threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/* ---- mbarrier in shared memory (9.7.13.15) -------------------------------------------------------- */

KP_FN kp_u32 kx_smem(const void *p) { return (kp_u32)__cvta_generic_to_shared(p); }
KP_FN void kx_mbar_init(kp_u64 *bar, kp_u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(kx_smem(bar)), "r"(count) : "memory");
}
KP_FN void kx_mbar_arrive(kp_u64 *bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(kx_smem(bar)) : "memory");
}
KP_FN void kx_mbar_expect(kp_u64 *bar, kp_u32 bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(kx_smem(bar)), "r"(bytes) : "memory");
}
KP_FN void kx_mbar_arrive_expect(kp_u64 *bar, kp_u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(kx_smem(bar)), "r"(bytes) : "memory");
}
/* 1: the phase of that parity has completed. May hold the thread up for a while; acquires at CTA scope. */
KP_FN kp_u32 kx_mbar_try(const kp_u64 *bar, kp_u32 parity) {
    kp_u32 done;
    asm volatile("{.reg .pred P; mbarrier.try_wait.parity.shared::cta.b64 P, [%1], %2; selp.u32 %0, 1, 0, P;}"
                 : "=r"(done)
                 : "r"(kx_smem(bar)), "r"(parity)
                 : "memory");
    return done;
}

/* The same without holding up. */
KP_FN kp_u32 kx_mbar_test(const kp_u64 *bar, kp_u32 parity) {
    kp_u32 done;
    asm volatile("{.reg .pred P; mbarrier.test_wait.parity.shared::cta.b64 P, [%1], %2; selp.u32 %0, 1, 0, P;}"
                 : "=r"(done)
                 : "r"(kx_smem(bar)), "r"(parity)
                 : "memory");
    return done;
}

/* ---- bulk copies (9.7.9.25 "cp.async.bulk") ------------------------------------------------------- */

/* Global to shared memory; bytes and both addresses are multiples of 16. Lands its bytes on bar. */
KP_FN void kx_bulk_load(void *to, const void *from, kp_u32 bytes, kp_u64 *bar) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(kx_smem(to)),
        "l"(from), "r"(bytes), "r"(kx_smem(bar))
        : "memory");
}

/* The same of what is read once: the second-level cache gives it up before anything else. */
KP_FN void kx_bulk_load_once(void *to, const void *from, kp_u32 bytes, kp_u64 *bar) {
    asm volatile(
        "{.reg .b64 P; createpolicy.fractional.L2::evict_first.b64 P, 1.0;"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], P;}" ::
            "r"(kx_smem(to)),
        "l"(from), "r"(bytes), "r"(kx_smem(bar))
        : "memory");
}

/* ---- loads and stores (9.7.9 "ld", "ld.global.nc", "st"; 8 "Memory Consistency Model") ------------ */

struct alignas(16) kx_vec { /* aligned, so that shared memory gives it in one access and not in four */
    kp_u32 w[4];
};

/* Relaxed at GPU scope, of global memory: what other workers write, past the first-level cache. */
KP_FN kp_u16 kx_ld16(const kp_u16 *p) {
    kp_u16 v;
    asm volatile("ld.relaxed.gpu.global.u16 %0, [%1];" : "=h"(v) : "l"(p) : "memory");
    return v;
}
KP_FN kp_u32 kx_ld32(const void *p) {
    kp_u32 v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
KP_FN float kx_ld_f32(const float *p) {
    float v;
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
    return v;
}
KP_FN kp_u64 kx_ld64(const kp_u64 *p) {
    kp_u64 v;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
KP_FN kx_vec kx_ld128(const void *p) {
    kx_vec v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "l"(p)
                 : "memory");
    return v;
}
/* The same as one access of 128 bits, which sees a store of all of them or of none (9.7.9.8 "ld", .b128). */
KP_FN kx_vec kx_ld128_whole(const void *p) {
    kx_vec v;
    asm volatile(
        "{.reg .b128 q; .reg .b64 l, h; ld.relaxed.gpu.global.b128 q, [%4]; mov.b128 {l, h}, q; mov.b64 {%0, %1}, l; "
        "mov.b64 {%2, %3}, h;}"
        : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
        : "l"(p)
        : "memory");
    return v;
}
KP_FN void kx_st128_whole(void *p, kx_vec v) {
    asm volatile("{.reg .b128 q; .reg .b64 l, h; mov.b64 l, {%1, %2}; mov.b64 h, {%3, %4}; mov.b128 q, {l, h}; "
                 "st.relaxed.gpu.global.b128 [%0], q;}" ::"l"(p),
                 "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3])
                 : "memory");
}
/* Of global memory that nobody writes while the kernel runs. */
KP_FN kx_vec kx_ld128_const(const void *p) {
    kx_vec v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "l"(p));
    return v;
}
/* A weak one of 16 bytes, at multiples of 16: shared memory in one access, which a plain kx_vec does not promise. */
KP_FN kx_vec kx_ld128_shared(const void *p) {
    kx_vec v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "r"(kx_smem(p))
                 : "memory");
    return v;
}
KP_FN void kx_st128(void *p, kx_vec v) {
    asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3])
                 : "memory");
}
/* Relaxed at GPU scope: words that carry their epoch. */
KP_FN void kx_st32(void *p, kp_u32 v) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
KP_FN void kx_st128_relaxed(void *p, kx_vec v) {
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]),
                 "r"(v.w[3])
                 : "memory");
}
KP_FN kp_u32 kx_ld_volatile(const kp_u32 *p) { return *(volatile const kp_u32 *)p; }

/* ---- order (9.7.9 "ld.acquire", "st.release"; 9.7.13 "atom", "red", "fence") ---------------------- */

KP_FN kp_u32 kx_ld_acquire(const kp_u32 *p) {
    kp_u32 v;
    asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
KP_FN kp_u64 kx_ld_acquire64(const kp_u64 *p) {
    kp_u64 v;
    asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
KP_FN void kx_st_release(kp_u32 *p, kp_u32 v) {
    asm volatile("st.release.gpu.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
KP_FN void kx_st_release64(kp_u64 *p, kp_u64 v) {
    asm volatile("st.release.gpu.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
KP_FN void kx_st_release64_sys(kp_u64 *p, kp_u64 v) {
    asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
/* At CTA scope, of shared memory. */
KP_FN kp_u32 kx_ld_acquire_cta(const kp_u32 *p) {
    kp_u32 v;
    asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(v) : "r"(kx_smem(p)) : "memory");
    return v;
}
KP_FN void kx_st_release_cta(kp_u32 *p, kp_u32 v) {
    asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(kx_smem(p)), "r"(v) : "memory");
}
KP_FN void kx_add_release(kp_u32 *p, kp_u32 v) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
KP_FN void kx_add_relaxed(kp_u32 *p, kp_u32 v) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
/* What was there before. */
KP_FN kp_u32 kx_add_acq_rel(kp_u32 *p, kp_u32 v) {
    kp_u32 old;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
    return old;
}
/* Between accesses by instructions and by bulk copies to the same bytes. */
KP_FN void kx_fence_proxy_async(void) { asm volatile("fence.proxy.async;" ::: "memory"); }

/* v, of which the compiler knows nothing any more: no instruction. */
KP_FN kp_u32 kx_opaque(kp_u32 v) {
    asm("" : "+r"(v));
    return v;
}

/* ---- numbers (9.7.3 floating point, 9.7.9 "cvt") -------------------------------------------------- */

KP_FN kp_u32 kx_clz(kp_u32 v) { return (kp_u32)__clz((int)v); } /* zeros above the first one */
KP_FN float kx_f32_of_bits(kp_u32 v) { return __uint_as_float(v); }
KP_FN kp_u32 kx_bits_of_f32(float v) { return __float_as_uint(v); }
KP_FN float kx_inf(void) { return __int_as_float(0x7f800000); }
KP_FN float kx_max(float a, float b) { return fmaxf(a, b); }
KP_FN float kx_fma(float a, float b, float c) { return fmaf(a, b, c); }
KP_FN float kx_exp(float v) { return __expf(v); } /* ex2.approx: 2 ulp and more */
KP_FN float kx_exp2(float v) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}
KP_FN float kx_rsqrt(float v) { return rsqrtf(v); }
KP_FN kp_u16 kx_bf16_of_f32(float v) {
    kp_u16 r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return r;
}
KP_FN kp_u32 kx_bf16x2_of_f32(float low, float high) {
    kp_u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
KP_FN kp_u32 kx_mul_bf16x2(kp_u32 a, kp_u32 b) {
    kp_u32 r;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

/* ---- matrix products of a warp (9.7.14 "mma.sync.m16n8k16") --------------------------------------- */

/* d [16][8] += a [16][16] × b [16][8], bf16 into f32, each in the register order of the manual's figures. */
KP_FN void kx_mma_bf16(float d[4], kx_vec a, kp_u32 b0, kp_u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a.w[0]), "r"(a.w[1]), "r"(a.w[2]), "r"(a.w[3]), "r"(b0), "r"(b1));
}

#endif
