# timeout: 180
# SPDX-License-Identifier: Apache-2.0
# keel bench: the numbers are there and agree with each other. How large they are is not asked here.
. "$KEEL_SOURCE_DIR/tests/cli/lib.sh" || exit 1

expect 0 bench --synth tiny-qwen3 --device cpu --ctx 20,70 --runs 3 --steps 10 --workers 2 --json
[ ! -s err ] || wrong "progress where there is no terminal: $(cat err)"
holds bench out 'v["workers"] == 2 and v["runs"] == 3 and v["steps"] == 10 and [c["ctx"] for c in v["contexts"]] == [20, 70]'
for part in decode_ms_a_token prefill_ms; do
    holds "bench $part" out "all(len(c['$part']['runs']) == 3 and c['$part']['median'] == sorted(c['$part']['runs'])[1]
        and 0 < c['$part']['min'] == min(c['$part']['runs']) and c['$part']['max'] == max(c['$part']['runs']) for c in v['contexts'])"
done
holds "bench rates" out 'all(abs(c["tokens_per_s"] * c["decode_ms_a_token"]["median"] - 1000) < 0.01
    and abs(c["achieved_bytes_per_s"] / (c["bytes_a_token"] * c["tokens_per_s"]) - 1) < 1e-5
    and abs(c["share_of_bandwidth"] * max(c["bandwidth_before_bytes_per_s"], c["bandwidth_after_bytes_per_s"]) / c["achieved_bytes_per_s"] - 1) < 1e-5
    for c in v["contexts"])'
holds "bench bandwidth" out 'all(1e8 < c[k] < 1e13 for c in v["contexts"] for k in ("bandwidth_before_bytes_per_s", "bandwidth_after_bytes_per_s"))'
# Steps 1..10 attend to ctx + 1 .. ctx + 10 positions: 2 layers of K and V, 2 heads of 32, in 2 or 4 bytes each.
holds "bench bytes" out 'all((c["bytes_a_token"] - v["weight_bytes_a_token"]) / (c["ctx"] + 5.5) / (2 * 2 * 2 * 32) in (2, 4) for c in v["contexts"])'
holds "bench memory" out 'v["weight_bytes"] + v["kv_bytes"] < v["peak_rss_bytes"] and (not v["peak_rss_exact"] or v["peak_rss_bytes"] < 300e6)'

holds "bench startup" out 'all(0 <= v["startup"][k] < 30 for k in ("model_s", "plan_s", "session_s")) and v["startup"]["session_s"] > 0'

# The runs as pieces of one generation: 3 × 10 steps behind one prefill, contexts ctx + 1 .. ctx + 30.
expect 0 bench --synth tiny-qwen3 --device cpu --ctx 20,70 --runs 3 --steps 10 --one-prefill --workers 2 --json
holds "bench --one-prefill" out 'all(len(c["decode_ms_a_token"]["runs"]) == 3 and c["decode_ms_a_token"]["min"] > 0 and len(set(c["prefill_ms"]["runs"])) == 1
    and (c["bytes_a_token"] - v["weight_bytes_a_token"]) / (c["ctx"] + 15.5) / (2 * 2 * 2 * 32) in (2, 4) for c in v["contexts"])'
refused 2 '1000 tokens and 30 steps.* 1024 positions' bench "$golden/tiny-llama" --ctx 1000 --runs 3 --steps 10 --one-prefill

expect 0 bench "$golden/tiny-llama" --runs 2 --steps 5 --workers 1
for word in 'context 128' 'ms/token' 'tokens/s' 'GB/s' '% of the read bandwidth' 'prefill' 'startup' 'peak RSS'; do
    grep -q -- "$word" out || { wrong "bench: no $word"; show_output; }
done
refused 2 '2000 tokens and 32 steps.* 1024 positions' bench "$golden/tiny-llama" --ctx 2000
refused 2 'no model' bench
refused 2 "--ctx: '0' \(entry 1\)" bench --synth tiny-qwen3 --ctx 16,0
finish
