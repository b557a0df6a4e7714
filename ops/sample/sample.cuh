/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KEEL_OPS_SAMPLE_CUH
#define KEEL_OPS_SAMPLE_CUH

#include "device/cuda_best.cuh"
#include "device/emit.h"
#include "sample.h"

/* The request and the logits, as all three phases see them. */
typedef struct kd_draw {
    const sample_params *p;
    const kd_act *x;
    float t, max; /* temperature; the largest logit by it */
    kp_u32 best;  /* its token */
    kp_u32 top_k; /* 0: all */
    float top_p;  /* 0: all */
} kd_draw;

KP_FN kp_u32 kd_draw_parts(const kd_draw *d) { return d->p->tiles * SAMPLE_PARTS; }
KP_FN kp_u32 kd_draw_lanes(const kp_ctx *c) { return kd_threads(c) / KD_WARP; }
/* Logits [*from, *to) of a part. */
KP_FN void kd_draw_bounds(const sample_params *p, kp_u32 part, kp_u32 *from, kp_u32 *to) {
    kp_u32 a = part * p->each, b = a + p->each;
    *from = a < p->vocab ? a : p->vocab;
    *to = b < p->vocab ? b : p->vocab;
}
KP_FN float kd_draw_logit(const kd_draw *d, kp_u32 i) { return kd_f32(kd_load_act(d->x + i)); }
KP_FN kp_u64 kd_draw_weight(const kd_draw *d, float logit) { return sample_weight(logit / d->t, d->max); }
/* bf16 has 16 bits of order. */
KP_FN kp_u32 kd_draw_key(float logit) { return sample_key(logit) >> 16; }

KP_FN const kd_act *kd_draw_row(const kp_ctx *c, const sample_params *p) {
    return (const kd_act *)kb_buffer(c, SAMPLE_LOGITS) + (kp_u64)(kb_rows_live(c) - 1) * p->vocab;
}

KP_FN kp_u64 kd_draw_xor(kp_u64 v, kp_u32 mask) {
    return kx_shfl_xor((kp_u32)v, mask) | (kp_u64)kx_shfl_xor((kp_u32)(v >> 32), mask) << 32;
}
KP_FN kp_u64 kd_draw_sum(kp_u64 v) {
    for (kp_u32 o = KD_WARP / 2; o; o >>= 1) v += kd_draw_xor(v, o);
    return v;
}
/* The sum of this thread's and all lower ones'. */
KP_FN kp_u64 kd_draw_scan(kp_u64 v) {
    for (kp_u32 o = 1; o < KD_WARP; o <<= 1) {
        kp_u64 below = kx_shfl_up((kp_u32)v, o) | (kp_u64)kx_shfl_up((kp_u32)(v >> 32), o) << 32;
        if (kd_lane_thread() >= o) v += below;
    }
    return v;
}

KP_FN sample_best kd_draw_best_of(const kp_ctx *c, kp_u32 part) {
    kp_u64 v = kx_ld64((const kp_u64 *)kb_buffer(c, SAMPLE_BEST) + part);
    sample_best b = {kx_f32_of_bits((kp_u32)v), (kp_u32)(v >> 32)};
    return b;
}

/* By a whole warp, behind phase "best". 0: nothing to draw from, the token is d->best. */
KP_FN int kd_draw_begin(const kp_ctx *c, kd_draw *d) {
    const kp_request *q = c->worker->launch->request;
    d->p = (const sample_params *)kb_params(c);
    d->x = kd_draw_row(c, d->p);
    d->t = q->temperature;
    d->top_k = q->top_k < d->p->vocab ? q->top_k : 0;
    d->top_p = q->top_p > 0 && q->top_p < 1 ? q->top_p : 0;
    sample_best best = {-kx_inf(), 0};
    for (kp_u32 i = kd_lane_thread(); i < kd_draw_parts(d); i += KD_WARP) best = kd_better(best, kd_draw_best_of(c, i));
    best = kd_warp_best(best);
    d->best = best.index;
    d->max = best.value / d->t;
    return d->t > 0 && d->max > -kx_inf();
}

/* ---- best, gather -------------------------------------------------------------------------------- */

KD_BODY(sample, best, CONSUMER) {
    const sample_params *p = (const sample_params *)kb_params(c);
    if (!kp_emit_wanted(c->worker->launch)) return;
    const kd_act *x = kd_draw_row(c, p);
    for (kp_u32 part = c->lane; part < SAMPLE_PARTS; part += kd_draw_lanes(c)) {
        kp_u32 from, to, at = c->task->aux * SAMPLE_PARTS + part;
        kd_draw_bounds(p, at, &from, &to);
        sample_best best = {-kx_inf(), from};
#pragma unroll 8
        for (kp_u32 i = from + kd_lane_thread(); i < to; i += KD_WARP) {
            float v = kd_f32(kd_load_act(x + i));
            if (v > best.value) best = sample_best{v, i};
        }
        best = kd_warp_best(best);
        if (kd_first())
            ((kp_u64 *)kb_buffer(c, SAMPLE_BEST))[at] = kx_bits_of_f32(best.value) | (kp_u64)best.index << 32;
    }
}

/* How many of the parts' best ones a candidate must at least reach: none where nothing is cut. */
KP_FN kp_u32 kd_draw_reach(const kd_draw *d) {
    kp_u32 parts = kd_draw_parts(d), j = d->top_k ? d->top_k : d->top_p > 0 ? (kp_u32)SAMPLE_SURE : 0u;
    return j < parts ? j : parts;
}

/* The largest key that `reach` of n keys reach: bit by bit. By a whole warp. */
KP_FN kp_u32 kd_draw_bound(const kp_u32 *key, kp_u32 n, kp_u32 reach) {
    kp_u32 bound = 0;
    for (kp_u32 bit = 0x8000; bit; bit >>= 1) {
        kp_u32 count = 0;
        for (kp_u32 i = kd_lane_thread(); i < n; i += KD_WARP) count += key[i] >= (bound | bit);
        for (kp_u32 o = KD_WARP / 2; o; o >>= 1) count += kx_shfl_xor(count, o);
        if (count >= reach) bound |= bit;
    }
    return bound;
}

/* One part: what it weighs, and its candidates in the order of the vocabulary. reach 0: none. */
KP_FN void kd_draw_gather(kp_ctx *c, const kd_draw *d, kp_u32 part, kp_u32 reach, kp_u32 bound) {
    sample_candidate *list = (sample_candidate *)kb_buffer(c, SAMPLE_LISTS) + (kp_u64)part * SAMPLE_EACH;
    kp_u64 sum = 0;
    kp_u32 n = 0, from, to;
    kd_draw_bounds(d->p, part, &from, &to);
    for (kp_u32 i = from; i < to; i += KD_WARP) {
        kp_u32 me = i + kd_lane_thread();
        float v = me < to ? kd_draw_logit(d, me) : -kx_inf();
        if (me < to) sum += kd_draw_weight(d, v);
        int is = reach && me < to && kd_draw_key(v) >= bound;
        kp_u32 all = kx_ballot(is), at = n + kx_popc(all & ((1u << kd_lane_thread()) - 1));
        if (is && at < SAMPLE_EACH) list[at] = sample_candidate{v, me};
        n += kx_popc(all);
    }
    sum = kd_draw_sum(sum);
    if (kd_first()) ((sample_sum *)kb_buffer(c, SAMPLE_SUMS))[part] = sample_sum{sum, n, 0};
}

KD_BODY(sample, gather, CONSUMER) {
    kd_draw d;
    if (!kp_emit_wanted(c->worker->launch) || !kd_draw_begin(c, &d)) return;
    kp_u32 *key = (kp_u32 *)kb_region(c, SAMPLE_REGION_KEYS), parts = kd_draw_parts(&d), reach = kd_draw_reach(&d);
    if (reach) {
        for (kp_u32 i = kd_thread(c); i < parts; i += kd_threads(c)) key[i] = kd_draw_key(kd_draw_best_of(c, i).value);
        kd_role_sync(c);
    }
    kp_u32 bound = reach ? kd_draw_bound(key, parts, reach) : 0;
    for (kp_u32 part = c->lane; part < SAMPLE_PARTS; part += kd_draw_lanes(c))
        kd_draw_gather(c, &d, c->task->aux * SAMPLE_PARTS + part, reach, bound);
}

/* ---- pick ---------------------------------------------------------------------------------------- */

/* Sums of gather. */
KP_FN kp_u64 kd_draw_sum_of(const kp_ctx *c, kp_u32 part) {
    return kx_ld64(&((const sample_sum *)kb_buffer(c, SAMPLE_SUMS))[part].weight);
}
KP_FN kp_u32 kd_draw_listed(const kp_ctx *c, kp_u32 part) {
    return kx_ld32(&((const sample_sum *)kb_buffer(c, SAMPLE_SUMS))[part].candidates);
}

/* The first of n weights, and those before it, that sum to more than `at`; what(i) weighs. By a whole warp. */
template <class F> KP_FN kp_u32 kd_draw_first(kp_u32 from, kp_u32 to, kp_u64 *at, F what) {
    for (kp_u32 i = from; i < to; i += KD_WARP) {
        kp_u32 me = i + kd_lane_thread();
        kp_u64 w = me < to ? what(me) : 0, sum = kd_draw_scan(w), before = sum - w;
        kp_u32 over = kx_ballot(sum > *at);
        if (over) {
            kp_u32 first = kx_popc((over & (0u - over)) - 1);
            *at -= kx_shfl(before, first);
            return i + first;
        }
        *at -= kx_shfl(sum, KD_WARP - 1);
    }
    return to ? to - 1 : 0;
}

/* Nothing is cut: the part, then the token in it. By one warp. */
KP_FN kp_u32 kd_draw_plain(const kp_ctx *c, const kd_draw *d, kp_u64 number) {
    kp_u32 parts = kd_draw_parts(d), from, to;
    kp_u64 total = 0;
    for (kp_u32 i = kd_lane_thread(); i < parts; i += KD_WARP) total += kd_draw_sum_of(c, i);
    kp_u64 at = sample_scale(number, kd_draw_sum(total));
    kp_u32 part = kd_draw_first(0, parts, &at, [&](kp_u32 i) { return kd_draw_sum_of(c, i); });
    kd_draw_bounds(d->p, part, &from, &to);
    return kd_draw_first(from, to, &at, [&](kp_u32 i) { return kd_draw_weight(d, kd_draw_logit(d, i)); });
}

/* By one warp: where each part's candidates begin in the list. KP_NONE: there are too many. */
KP_FN kp_u32 kd_draw_offsets(const kp_ctx *c, const kd_draw *d, sample_list *s) {
    kp_u32 n = 0, parts = kd_draw_parts(d);
    int fits = 1;
    for (kp_u32 i = 0; i < parts; i += KD_WARP) {
        kp_u32 me = i + kd_lane_thread(), k = me < parts ? kd_draw_listed(c, me) : 0;
        kp_u32 upto = (kp_u32)kd_draw_scan(k);
        fits = fits && kx_all(k <= SAMPLE_EACH);
        if (me < parts) s->first[me] = n + upto - k;
        n += kx_shfl(upto, KD_WARP - 1);
    }
    if (kd_first()) s->first[parts] = n;
    return fits && n <= SAMPLE_LIST ? n : KP_NONE;
}

/* Candidate i: of the last part that begins at or before it. */
KP_FN void kd_draw_bring(const kp_ctx *c, const kd_draw *d, sample_list *s, kp_u32 i) {
    kp_u32 lo = 0, hi = kd_draw_parts(d);
    while (hi - lo > 1) {
        kp_u32 mid = (lo + hi) / 2;
        if (s->first[mid] <= i)
            lo = mid;
        else
            hi = mid;
    }
    const sample_candidate *list = (const sample_candidate *)kb_buffer(c, SAMPLE_LISTS);
    kp_u64 v = kx_ld64((const kp_u64 *)(list + (kp_u64)lo * SAMPLE_EACH + (i - s->first[lo])));
    float logit = kx_f32_of_bits((kp_u32)v);
    s->key[i] = kd_draw_key(logit);
    s->index[i] = (kp_u32)(v >> 32);
    s->weight[i] = kd_draw_weight(d, logit);
}

/* How many candidates are larger, and what comes before this one weighs. */
KP_FN void kd_draw_rank(sample_list *s, kp_u32 n, kp_u32 i) {
    kp_u32 key = s->key[i], larger = 0;
    kp_u64 before = 0;
#pragma unroll 4
    for (kp_u32 j = 0; j < n; j++) {
        kp_u32 k = s->key[j];
        larger += k > key;
        if (k > key || (k == key && j < i)) before += s->weight[j];
    }
    s->larger[i] = larger;
    s->before[i] = before;
}

/* The draw among n ranked candidates, by one warp. KP_NONE: they are not enough to tell. */
KP_FN kp_u32 kd_draw_listed_token(const kp_ctx *c, const kd_draw *d, sample_list *s, kp_u32 n, kp_u64 number) {
    kp_u64 listed = 0, total = 0, share = ~0ull, kept = 0;
    kp_u32 k = d->top_k ? d->top_k : KP_NONE;
    if (d->top_k && n < d->top_k) return KP_NONE;
    for (kp_u32 i = kd_lane_thread(); i < n; i += KD_WARP) listed += s->larger[i] < k ? s->weight[i] : 0;
    listed = total = kd_draw_sum(listed);
    if (!d->top_k) {
        total = 0;
        for (kp_u32 i = kd_lane_thread(); i < kd_draw_parts(d); i += KD_WARP) total += kd_draw_sum_of(c, i);
        total = kd_draw_sum(total);
    }
    if (d->top_p > 0) share = sample_share(d->top_p, total);
    if (!d->top_k && listed < share) return KP_NONE;
    for (kp_u32 i = kd_lane_thread(); i < n; i += KD_WARP) {
        if (s->larger[i] >= k || s->before[i] >= share) s->weight[i] = 0;
        kept += s->weight[i];
    }
    kp_u64 at = sample_scale(number, kd_draw_sum(kept));
    kx_syncwarp();
    return s->index[kd_draw_first(0, n, &at, [&](kp_u32 i) { return s->weight[i]; })];
}

/* ---- pick among all logits: slow, and rarely needed ------------------------------------------------- */

/* The largest key, of those from `floor` up, at which the sum of all keys from it up reaches `target`; *above = the sum
 * of all larger ones. Weights, or (count) 1 each. All threads of the role; four bits a pass over the logits. */
KP_FN kp_u32 kd_draw_select(kp_ctx *c, const kd_draw *d, sample_list *s, kp_u32 floor, int count, kp_u64 target,
                            kp_u64 *above) {
    kp_u32 found = 0;
    *above = 0;
    for (kp_u32 shift = 16; shift; shift -= 4) {
        kp_u64 sum[16] = {0};
        for (kp_u32 i = kd_thread(c); i < d->p->vocab; i += kd_threads(c)) {
            float v = kd_draw_logit(d, i);
            kp_u32 key = kd_draw_key(v);
            if (key < found || key < floor) continue;
            kp_u64 w = count ? 1 : kd_draw_weight(d, v);
#pragma unroll
            for (kp_u32 j = 1; j < 16; j++) sum[j] += key >= found + (j << (shift - 4)) ? w : 0;
        }
        kd_role_sync(c); /* the sums of the last pass have been read */
#pragma unroll
        for (kp_u32 j = 1; j < 16; j++) {
            kp_u64 all = kd_draw_sum(sum[j]);
            if (kd_first()) s->sum[c->lane][j] = all;
        }
        kd_role_sync(c);
        kp_u32 most = 0;
        for (kp_u32 j = 15; j; j--) {
            kp_u64 all = 0;
            for (kp_u32 l = 0; l < kd_draw_lanes(c); l++) all += s->sum[l][j];
            if (all >= target) {
                most = j;
                break;
            }
            *above = all;
        }
        found += most << (shift - 4);
    }
    return found;
}

/* What is kept: keys above `cut`, and the first `ties` of those equal to it. */
typedef struct kd_kept {
    kp_u32 cut;
    kp_u64 ties;
} kd_kept;

KP_FN kd_kept kd_draw_cuts(kp_ctx *c, const kd_draw *d, sample_list *s) {
    kd_kept k = {0, ~0ull};
    kp_u64 above = 0, total, share;
    if (d->top_k) k.cut = kd_draw_select(c, d, s, 0, 1, d->top_k, &above);
    if (!(d->top_p > 0)) return k;
    total = 0;
    for (kp_u32 i = kd_thread(c); i < d->p->vocab; i += kd_threads(c)) {
        float v = kd_draw_logit(d, i);
        if (kd_draw_key(v) >= k.cut) total += kd_draw_weight(d, v);
    }
    total = kd_draw_sum(total);
    kd_role_sync(c);
    if (kd_first()) s->sum[c->lane][0] = total;
    kd_role_sync(c);
    total = 0;
    for (kp_u32 l = 0; l < kd_draw_lanes(c); l++) total += s->sum[l][0];
    share = sample_share(d->top_p, total);
    k.cut = kd_draw_select(c, d, s, k.cut, 0, share, &above);
    kp_u32 bits = k.cut & 0x8000 ? (k.cut & 0x7fff) << 16 : (~k.cut & 0xffff) << 16; /* sample_key() backwards */
    kp_u64 w = kd_draw_weight(d, kx_f32_of_bits(bits));
    k.ties = w ? (share - above + w - 1) / w : 0;
    return k;
}

/* This thread's own logits, in the order of the vocabulary: the sum of what is kept, from `ties` ties on. With `at`:
 * the token at which the sum exceeds it, else the sum of keys above the cut alone, and *equal. */
KP_FN kp_u32 kd_draw_walk(const kd_draw *d, kd_kept k, kp_u32 from, kp_u32 to, kp_u64 ties, const kp_u64 *at,
                          kp_u64 *sum, kp_u32 *equal) {
    kp_u32 last = from;
    *sum = 0;
    *equal = 0;
    for (kp_u32 i = from; i < to; i++) {
        float v = kd_draw_logit(d, i);
        kp_u32 key = kd_draw_key(v);
        if (key < k.cut) continue;
        if (key == k.cut) ++*equal;
        if (key > k.cut || (at && ties++ < k.ties)) *sum += kd_draw_weight(d, v);
        last = i;
        if (at && *sum > *at) return i;
    }
    return last;
}

KP_FN kp_u32 kd_draw_all(kp_ctx *c, const kd_draw *d, sample_list *s, kp_u64 number) {
    kd_kept k = kd_draw_cuts(c, d, s);
    kp_u32 me = kd_thread(c), n = kd_threads(c), each = (d->p->vocab + n - 1) / n, equal, token = 0;
    kp_u32 from = me * each < d->p->vocab ? me * each : d->p->vocab;
    kp_u32 to = from + each < d->p->vocab ? from + each : d->p->vocab;
    kp_u64 sum;
    kp_u32 bits = k.cut & 0x8000 ? (k.cut & 0x7fff) << 16 : (~k.cut & 0xffff) << 16;
    kp_u64 tie = k.cut ? kd_draw_weight(d, kx_f32_of_bits(bits)) : 0;
    (void)kd_draw_walk(d, k, from, to, 0, (const kp_u64 *)0, &sum, &equal);
    s->weight[me] = sum;
    s->larger[me] = equal;
    kd_role_sync(c);
    if (me == 0) {
        kp_u64 total = 0, before = 0;
        for (kp_u32 i = 0; i < n; i++) { /* the kept ties join the sums; index: ties before */
            kp_u64 left = k.ties > before ? k.ties - before : 0;
            s->before[i] = before;
            before += s->larger[i];
            s->weight[i] += (left < s->larger[i] ? left : s->larger[i]) * tie;
            total += s->weight[i];
        }
        kp_u64 at = sample_scale(number, total);
        kp_u32 owner = 0;
        while (owner + 1 < n && at >= s->weight[owner]) at -= s->weight[owner++];
        s->owner = owner;
        s->rest = at;
    }
    kd_role_sync(c);
    kp_u64 at = s->rest;
    if (me == s->owner) token = kd_draw_walk(d, k, from, to, s->before[me], &at, &sum, &equal);
    return me == s->owner ? token : KP_NONE;
}

/* Lists, ranks and draws; the token in *out. All threads of the role. */
KP_FN void kd_draw_cut(kp_ctx *c, const kd_draw *d, kp_u64 number, kp_u32 *out) {
    sample_list *s = (sample_list *)kb_region(c, SAMPLE_REGION_LIST);
    if (c->lane == 0) {
        kp_u32 n = kd_draw_offsets(c, d, s);
        if (kd_first()) s->owner = n;
    }
    kd_role_sync(c);
    kp_u32 n = s->owner;
    if (n != KP_NONE) {
        for (kp_u32 i = kd_thread(c); i < n; i += kd_threads(c)) kd_draw_bring(c, d, s, i);
        kd_role_sync(c);
        for (kp_u32 i = kd_thread(c); i < n; i += kd_threads(c)) kd_draw_rank(s, n, i);
        kd_role_sync(c);
        if (c->lane == 0) {
            kp_u32 token = kd_draw_listed_token(c, d, s, n, number);
            if (kd_first()) *out = s->owner = token;
        }
        kd_role_sync(c);
        n = s->owner;
    }
    if (n != KP_NONE) return;
    kd_role_sync(c); /* owner has been read */
    kp_u32 token = kd_draw_all(c, d, s, number);
    if (token != KP_NONE) *out = token;
}

KD_BODY(sample, pick, CONSUMER) {
    const kp_launch *l = c->worker->launch;
    kd_draw d;
    if (!kp_emit_wanted(l)) return;
    int draws = kd_draw_begin(c, &d);
    kp_u32 *token = (kp_u32 *)kb_region(c, SAMPLE_REGION_TOKEN);
    kp_u64 number = sample_number(l->request->seed, l->state->n_out);
    if (l->request->logits) {
        float *to = l->request->logits + (kp_u64)l->state->n_out * d.p->vocab;
        for (kp_u32 i = kd_thread(c); i < d.p->vocab; i += kd_threads(c)) to[i] = kd_draw_logit(&d, i);
    }
    if (!draws) {
        if (kd_thread(c) == 0) *token = d.best;
    } else if (d.top_k || d.top_p > 0) {
        kd_draw_cut(c, &d, number, token);
    } else if (c->lane == 0) {
        kp_u32 drawn = kd_draw_plain(c, &d, number);
        if (kd_first()) *token = drawn;
    }
}

KD_BODY(sample, pick, STORER) {
    const kp_launch *l = c->worker->launch;
    if (kd_thread(c) != 0 || !kp_emit_wanted(l)) return;
    kp_emit_token(l, *(const kp_u32 *)kb_region(c, SAMPLE_REGION_TOKEN));
}

#endif
