/* SPDX-License-Identifier: Apache-2.0 */
/* src/device/cuda_ptx.cuh on a CPU: the same functions, over the emulator. The fake NVRTC puts this header in its
 * place. Compiled as C++17 by the system's compiler. */
#ifndef KEEL_TESTS_KX_EMU_H
#define KEEL_TESTS_KX_EMU_H

#include "emu_api.h"

#include <tuple>
#include <type_traits>
#include <utility>

#include "device/types.h"

extern "C" {
__attribute__((visibility("default"))) const emu_api *emu; /* set when the module is loaded */
}

#define KX_FULL 0xffffffffu

/* ---- kernel entries ------------------------------------------------------------------------------ */

#define KX_KERNEL(name) extern "C" void name
#define KX_KERNEL_OF(name, threads) extern "C" void name
#define KX_KERNEL_CAPPED(name, registers) extern "C" void name
#define KX_PARAM(type, name) const type &name
#define KX_SHARED(type, name) type &name = *(type *)emu->shared(__COUNTER__, sizeof(type), alignof(type), #name)
#define KX_SHARED_ARRAY(type, name, n)                                                                                 \
    type(&name)[n] = *(type(*)[n])emu->shared(__COUNTER__, sizeof(type[n]), alignof(type), #name)
KP_FN kp_u8 *kx_shared_base(void) { return (kp_u8 *)emu->shared_dynamic(); }

/* Parameters are kept by value for as long as the launch lasts. */
template <class... A> struct kx_emu_call {
    typedef std::tuple<std::remove_const_t<std::remove_reference_t<A>>...> taken;
    template <std::size_t... I> static void *take(void **p, std::index_sequence<I...>) {
        return new taken(*(std::tuple_element_t<I, taken> *)p[I]...);
    }
    template <std::size_t... I> static void call(void (*f)(A...), void *t, std::index_sequence<I...>) {
        f(std::get<I>(*(taken *)t)...);
    }
};
template <class... A> void *kx_emu_take(void (*)(A...), void **p) {
    return kx_emu_call<A...>::take(p, std::index_sequence_for<A...>());
}
template <class... A> void kx_emu_run(void (*f)(A...), void *t) {
    kx_emu_call<A...>::call(f, t, std::index_sequence_for<A...>());
}
template <class... A> void kx_emu_drop(void (*)(A...), void *t) { delete (typename kx_emu_call<A...>::taken *)t; }
#define KX_EMU_ENTRY(name)                                                                                             \
    extern "C" __attribute__((visibility("default")))                                                                  \
    const emu_entry emu_entry_##name = {[](void **p) { return kx_emu_take(name, p); },                                 \
                                        [](void *t) { kx_emu_run(name, t); }, [](void *t) { kx_emu_drop(name, t); }};

/* ---- special registers --------------------------------------------------------------------------- */

KP_FN kp_u32 kx_laneid(void) { return emu->now->lane; }
KP_FN kp_u32 kx_thread(void) { return emu->now->thread; }
KP_FN kp_u32 kx_block_threads(void) { return emu->now->threads; }
KP_FN kp_u32 kx_block(void) { return emu->now->block; }
KP_FN kp_u32 kx_blocks(void) { return emu->now->blocks; }
KP_FN kp_u64 kx_globaltimer(void) { return emu->now_ns(); }
KP_FN kp_u64 kx_clock64(void) { return emu->now_ns(); }

/* ---- a warp -------------------------------------------------------------------------------------- */

/* Where the caller stands: threads of a warp must come to a collective from the same line. */
#define KX_AT const char *file = __builtin_FILE(), unsigned line = __builtin_LINE()

KP_FN kp_u64 kx_emu_meet(enum emu_meet_kind kind, kp_u64 value, kp_u32 arg, const char *file, unsigned line) {
    emu_deal deal;
    deal.value = value;
    deal.arg = arg;
    deal.file = file;
    deal.line = line;
    emu->meet(kind, &deal);
    return deal.value;
}
KP_FN kp_u32 kx_clz(kp_u32 v) { return v ? (kp_u32)__builtin_clz(v) : 32; }
KP_FN kp_u32 kx_bits_of_f32(float v) {
    kp_u32 r;
    __builtin_memcpy(&r, &v, 4);
    return r;
}
KP_FN float kx_f32_of_bits(kp_u32 v) {
    float r;
    __builtin_memcpy(&r, &v, 4);
    return r;
}
KP_FN void kx_syncwarp(KX_AT) { (void)kx_emu_meet(EMU_MEET_SYNCWARP, 0, 0, file, line); }
KP_FN kp_u32 kx_shfl(kp_u32 v, kp_u32 from, KX_AT) { return (kp_u32)kx_emu_meet(EMU_MEET_SHFL, v, from, file, line); }
KP_FN kp_u64 kx_shfl(kp_u64 v, kp_u32 from, KX_AT) { return kx_emu_meet(EMU_MEET_SHFL, v, from, file, line); }
KP_FN float kx_shfl(float v, kp_u32 from, KX_AT) {
    return kx_f32_of_bits((kp_u32)kx_emu_meet(EMU_MEET_SHFL, kx_bits_of_f32(v), from, file, line));
}
KP_FN kp_u32 kx_shfl_xor(kp_u32 v, kp_u32 mask, KX_AT) {
    return (kp_u32)kx_emu_meet(EMU_MEET_SHFL_XOR, v, mask, file, line);
}
KP_FN float kx_shfl_xor(float v, kp_u32 mask, KX_AT) {
    return kx_f32_of_bits((kp_u32)kx_emu_meet(EMU_MEET_SHFL_XOR, kx_bits_of_f32(v), mask, file, line));
}
KP_FN kp_u32 kx_shfl_up(kp_u32 v, kp_u32 by, KX_AT) { return (kp_u32)kx_emu_meet(EMU_MEET_SHFL_UP, v, by, file, line); }
KP_FN int kx_all(int test, KX_AT) { return (int)kx_emu_meet(EMU_MEET_ALL, test != 0, 0, file, line); }
KP_FN int kx_any(int test, KX_AT) { return (int)kx_emu_meet(EMU_MEET_ANY, test != 0, 0, file, line); }
KP_FN kp_u32 kx_ballot(int test, KX_AT) { return (kp_u32)kx_emu_meet(EMU_MEET_BALLOT, test != 0, 0, file, line); }
KP_FN kp_u32 kx_popc(kp_u32 v) { return (kp_u32)__builtin_popcount(v); }

/* ---- a block ------------------------------------------------------------------------------------- */

KP_FN void kx_bar_sync(kp_u32 barrier, kp_u32 threads) { emu->bar_sync(barrier, threads); }
KP_FN void kx_syncthreads(void) { emu->bar_sync(0, emu->now->threads); }

/* ---- mbarrier ------------------------------------------------------------------------------------ */

KP_FN kp_u32 kx_smem(const void *p) { return emu->shared_offset(p); }
KP_FN void kx_mbar_init(kp_u64 *bar, kp_u32 count) { emu->mbar_init(bar, count); }
KP_FN void kx_mbar_arrive(kp_u64 *bar) { emu->mbar_arrive(bar, 0); }
KP_FN void kx_mbar_expect(kp_u64 *bar, kp_u32 bytes) { emu->mbar_expect(bar, bytes); }
KP_FN void kx_mbar_arrive_expect(kp_u64 *bar, kp_u32 bytes) { emu->mbar_arrive(bar, bytes); }
#define KX_OUTLINED static __attribute__((noinline, unused))
KP_FN kp_u32 kx_mbar_test(const kp_u64 *bar, kp_u32 parity) { return emu->mbar_test(bar, parity); }
KP_FN kp_u32 kx_mbar_try(const kp_u64 *bar, kp_u32 parity) { return emu->mbar_try(bar, parity); }

/* ---- bulk copies --------------------------------------------------------------------------------- */

KP_FN void kx_bulk_load(void *to, const void *from, kp_u32 bytes, kp_u64 *bar) { emu->bulk_load(to, from, bytes, bar); }
KP_FN void kx_bulk_load_once(void *to, const void *from, kp_u32 bytes, kp_u64 *bar) {
    emu->bulk_load(to, from, bytes, bar);
}

/* ---- loads and stores ---------------------------------------------------------------------------- */

struct alignas(16) kx_vec {
    kp_u32 w[4];
};

/* Instrumented neither for races nor inlined where that is: touch() tells of the access, at the caller's place. */
#define KX_EMU_ACCESS template <class T> static __attribute__((noinline, unused, no_sanitize("thread")))

KX_EMU_ACCESS T kx_emu_load(const void *p, enum emu_space space) {
    T v;
    emu->touch(p, sizeof v, space, EMU_READ);
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
/* Words that others may change meanwhile. */
KX_EMU_ACCESS T kx_emu_poll(const void *p, enum emu_space space, enum emu_order order = EMU_RELAXED_LOAD) {
    T v;
    emu->touch(p, sizeof v, space, EMU_ATOMIC);
    __builtin_memcpy(&v, p, sizeof v);
    emu->order(p, order);
    emu->polled(p, &v, sizeof v);
    return v;
}
KX_EMU_ACCESS void kx_emu_store(void *p, T v, enum emu_space space, enum emu_access access = EMU_WRITE) {
    emu->touch(p, sizeof v, space, access);
    __builtin_memcpy(p, &v, sizeof v);
}
/* Words that the host may look at meanwhile. */
KX_EMU_ACCESS void kx_emu_signal(T *p, T v, enum emu_space space, enum emu_order order = EMU_RELAXED_STORE) {
    emu->touch(p, sizeof v, space, EMU_ATOMIC_WRITE);
    emu->order(p, order);
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);
    emu->signal(p, sizeof v);
}
KX_EMU_ACCESS T kx_emu_add(T *p, T v, enum emu_order order) {
    emu->touch(p, sizeof v, EMU_GLOBAL, EMU_ATOMIC_WRITE);
    emu->order(p, order);
    T old = __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
    emu->signal(p, sizeof v);
    return old;
}

KP_FN kp_u16 kx_ld16(const kp_u16 *p) { return kx_emu_load<kp_u16>(p, EMU_GLOBAL); }
KP_FN kp_u32 kx_ld32(const void *p) { return kx_emu_poll<kp_u32>(p, EMU_GLOBAL); }
KP_FN float kx_ld_f32(const float *p) { return kx_emu_load<float>(p, EMU_GLOBAL); }
KP_FN kp_u64 kx_ld64(const kp_u64 *p) { return kx_emu_poll<kp_u64>(p, EMU_GLOBAL); }
KP_FN kx_vec kx_ld128(const void *p) { return kx_emu_load<kx_vec>(p, EMU_GLOBAL); }
KP_FN kx_vec kx_ld128_whole(const void *p) { return kx_emu_poll<kx_vec>(p, EMU_GLOBAL); }
KP_FN kx_vec kx_ld128_const(const void *p) { return kx_emu_load<kx_vec>(p, EMU_GLOBAL); }
KP_FN kx_vec kx_ld128_shared(const void *p) { return kx_emu_load<kx_vec>(p, EMU_SHARED); }
KP_FN void kx_st128(void *p, kx_vec v) { kx_emu_store(p, v, EMU_GLOBAL); }
KP_FN void kx_st32(void *p, kp_u32 v) { kx_emu_signal((kp_u32 *)p, v, EMU_GLOBAL); }
KP_FN void kx_st128_relaxed(void *p, kx_vec v) {
    emu->order(p, EMU_RELAXED_STORE);
    kx_emu_store(p, v, EMU_GLOBAL, EMU_ATOMIC_WRITE);
    emu->signal(p, sizeof v);
}
KP_FN void kx_st128_whole(void *p, kx_vec v) { kx_st128_relaxed(p, v); }
KP_FN kp_u32 kx_ld_volatile(const kp_u32 *p) { return kx_emu_poll<kp_u32>(p, EMU_ANY); }

/* ---- order --------------------------------------------------------------------------------------- */

KP_FN kp_u32 kx_ld_acquire(const kp_u32 *p) { return kx_emu_poll<kp_u32>(p, EMU_ANY, EMU_ACQUIRE); }
KP_FN kp_u32 kx_ld_acquire_cta(const kp_u32 *p) { return kx_emu_poll<kp_u32>(p, EMU_SHARED, EMU_ACQUIRE); }
KP_FN void kx_st_release_cta(kp_u32 *p, kp_u32 v) { kx_emu_signal(p, v, EMU_SHARED, EMU_RELEASE); }
KP_FN kp_u64 kx_ld_acquire64(const kp_u64 *p) { return kx_emu_poll<kp_u64>(p, EMU_ANY, EMU_ACQUIRE); }
KP_FN void kx_st_release(kp_u32 *p, kp_u32 v) { kx_emu_signal(p, v, EMU_ANY, EMU_RELEASE); }
KP_FN void kx_st_release64(kp_u64 *p, kp_u64 v) { kx_emu_signal(p, v, EMU_ANY, EMU_RELEASE); }
KP_FN void kx_st_release64_sys(kp_u64 *p, kp_u64 v) { kx_emu_signal(p, v, EMU_ANY, EMU_RELEASE); }
KP_FN void kx_add_release(kp_u32 *p, kp_u32 v) { (void)kx_emu_add(p, v, EMU_RELEASE); }
KP_FN kp_u32 kx_add_acq_rel(kp_u32 *p, kp_u32 v) { return kx_emu_add(p, v, EMU_ACQ_REL); }
KP_FN void kx_add_relaxed(kp_u32 *p, kp_u32 v) { (void)kx_emu_add(p, v, EMU_RELAXED_STORE); }
KP_FN void kx_fence_proxy_async(void) {}

/* ---- numbers ------------------------------------------------------------------------------------- */

KP_FN float kx_inf(void) { return __builtin_inff(); }
KP_FN float kx_max(float a, float b) { return __builtin_fmaxf(a, b); }
KP_FN float kx_fma(float a, float b, float c) {
    return a * b + c;
} /* two roundings: a CPU without fma is slow at one */
KP_FN float kx_exp(float v) { return __builtin_expf(v); }
KP_FN float kx_exp2(float v) { return __builtin_exp2f(v); }
KP_FN float kx_rsqrt(float v) { return 1 / __builtin_sqrtf(v); }
/* To the nearest, ties to even; NaN becomes the one that the hardware gives. */
KP_FN kp_u16 kx_bf16_of_f32(float v) {
    kp_u32 b = kx_bits_of_f32(v);
    if ((b & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (kp_u16)((b + 0x7fffu + (b >> 16 & 1)) >> 16);
}
KP_FN kp_u32 kx_bf16x2_of_f32(float low, float high) {
    return kx_bf16_of_f32(low) | (kp_u32)kx_bf16_of_f32(high) << 16;
}
/* One rounding: to odd first, in f32, then to bf16. */
KP_FN kp_u32 kx_emu_bf16_of_f64(double v) {
    float f = (float)v;
    kp_u32 b = kx_bits_of_f32(f);
    if ((double)f != v && v == v && (b & 0x7fffffffu) < 0x7f800000u) {
        if (__builtin_fabs((double)f) > __builtin_fabs(v)) b--;
        b |= 1;
    }
    return kx_bf16_of_f32(kx_f32_of_bits(b));
}
KP_FN double kx_emu_half(kp_u32 pair, int high) {
    return (double)kx_f32_of_bits(high ? pair & 0xffff0000u : pair << 16);
}
KP_FN kp_u32 kx_opaque(kp_u32 v) { return v; }
KP_FN kp_u32 kx_mul_bf16x2(kp_u32 a, kp_u32 b) {
    kp_u32 r[2];
    for (int h = 0; h < 2; h++) r[h] = kx_emu_bf16_of_f64(kx_emu_half(a, h) * kx_emu_half(b, h));
    return r[0] | r[1] << 16;
}

/* ---- matrix products of a warp ------------------------------------------------------------------- */

KP_FN void kx_emu_mma(enum emu_meet_kind kind, float d[4], kx_vec a, kp_u32 b0, kp_u32 b1, const char *file,
                      unsigned line) {
    emu_deal deal;
    for (int i = 0; i < 4; i++) deal.a[i] = a.w[i];
    deal.b[0] = b0;
    deal.b[1] = b1;
    deal.d = d;
    deal.file = file;
    deal.line = line;
    emu->meet(kind, &deal);
}
KP_FN void kx_mma_bf16(float d[4], kx_vec a, kp_u32 b0, kp_u32 b1, KX_AT) {
    kx_emu_mma(EMU_MEET_MMA_BF16, d, a, b0, b1, file, line);
}

/* ---- what the compiler's checks call ------------------------------------------------------------- */

typedef struct kx_emu_place {
    const char *file;
    unsigned line, column;
} kx_emu_place;
#define KX_EMU_TRAP(name, what)                                                                                        \
    extern "C" __attribute__((visibility("hidden"), used)) void __ubsan_handle_##name##_abort(kx_emu_place *at) {      \
        emu->fail(what, at->file, at->line);                                                                           \
    }
KX_EMU_TRAP(type_mismatch_v1, "a misaligned or null access")
KX_EMU_TRAP(shift_out_of_bounds, "a shift by more bits than there are")
KX_EMU_TRAP(divrem_overflow, "a division by 0")
KX_EMU_TRAP(out_of_bounds, "an index outside its array")

/* Plain accesses, where the text is compiled with -fsanitize=thread: the hooks are ours, the library is not linked. */
#define KX_EMU_HOOK(name, bytes, access)                                                                               \
    extern "C" __attribute__((visibility("hidden"), used, no_sanitize("thread"))) void name(void *p) {                 \
        emu->plain(p, bytes, access, __builtin_return_address(0));                                                     \
    }
#define KX_EMU_HOOKS(bytes)                                                                                            \
    KX_EMU_HOOK(__tsan_read##bytes, bytes, EMU_READ)                                                                   \
    KX_EMU_HOOK(__tsan_write##bytes, bytes, EMU_WRITE)                                                                 \
    KX_EMU_HOOK(__tsan_unaligned_read##bytes, bytes, EMU_READ)                                                         \
    KX_EMU_HOOK(__tsan_unaligned_write##bytes, bytes, EMU_WRITE)
KX_EMU_HOOKS(1)
KX_EMU_HOOKS(2)
KX_EMU_HOOKS(4)
KX_EMU_HOOKS(8)
KX_EMU_HOOKS(16)
#define KX_EMU_RANGE(name, access)                                                                                     \
    extern "C" __attribute__((visibility("hidden"), used, no_sanitize("thread"))) void name(void *p,                   \
                                                                                            unsigned long bytes) {     \
        emu->plain(p, (unsigned)bytes, access, __builtin_return_address(0));                                           \
    }
KX_EMU_RANGE(__tsan_read_range, EMU_READ)
KX_EMU_RANGE(__tsan_write_range, EMU_WRITE)
extern "C" __attribute__((visibility("hidden"), used, no_sanitize("thread"))) void __tsan_init(void) {}

#endif
