/* SPDX-License-Identifier: Apache-2.0 */
/* What code compiled with -fsanitize=thread calls at each plain access. */
#include "model.h"

#include <string.h>

static void access_at(void *p, size_t bytes, bool write) {
    if (!mc.now || !mc_shared(p)) return;
    if (mc.certify) order_access(p, bytes, write);
    if (write) return;
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t value = 0;
        memcpy(&value, (char *)p + i, bytes - i < 8 ? bytes - i : 8);
        mc.now->history = mc_mix(mc.now->history, value);
    }
}

#define HOOK(n)                                                                                                        \
    void __tsan_read##n(void *p);                                                                                      \
    void __tsan_write##n(void *p);                                                                                     \
    void __tsan_unaligned_read##n(void *p);                                                                            \
    void __tsan_unaligned_write##n(void *p);                                                                           \
    void __tsan_read##n(void *p) { access_at(p, n, false); }                                                           \
    void __tsan_write##n(void *p) { access_at(p, n, true); }                                                           \
    void __tsan_unaligned_read##n(void *p) { access_at(p, n, false); }                                                 \
    void __tsan_unaligned_write##n(void *p) { access_at(p, n, true); }
HOOK(1)
HOOK(2)
HOOK(4)
HOOK(8)
HOOK(16)

void __tsan_read_range(void *p, size_t bytes);
void __tsan_write_range(void *p, size_t bytes);
void *__tsan_memcpy(void *to, const void *from, size_t bytes);
void *__tsan_memset(void *to, int value, size_t bytes);
void __tsan_init(void);
void __tsan_func_entry(void *p);
void __tsan_func_exit(void);

void __tsan_read_range(void *p, size_t bytes) { access_at(p, bytes, false); }
void __tsan_write_range(void *p, size_t bytes) { access_at(p, bytes, true); }
void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
    access_at((void *)(uintptr_t)from, bytes, false);
    access_at(to, bytes, true);
    return memcpy(to, from, bytes);
}
void *__tsan_memset(void *to, int value, size_t bytes) {
    access_at(to, bytes, true);
    return memset(to, value, bytes);
}
void __tsan_init(void) {}
void __tsan_func_entry(void *p) { (void)p; }
void __tsan_func_exit(void) {}
