#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Acceptance of roadmap topic 1: the frame, the static plan and the CPU runtime, up to real text from a real model.
# One check an acceptance line: PASS, FAIL or NOT RUN: reason, with the figure.
#   tests/accept/01-frame.sh [--quick]     --quick leaves out the clean clone and the AddressSanitizer build (long)
# Needs build/keel (make build). KEEL_TEST_MODELS: the trained checkpoints (default ../shared/models). The demo model is
# taken from models-cache (make demo). LLAMA_BENCH, LLAMA_GGUF: llama.cpp's bench program and a bf16 GGUF, see bench/README.md.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tests/accept/lib.sh
quick=0
[ "${1:-}" = --quick ] && quick=1

# check NAME FIGURE COMMAND...: FIGURE may be "-": then the last line of the output
check() {
    local name=$1 figure=$2
    shift 2
    if "$@" >"$work/out" 2>&1; then
        [ "$figure" = - ] && figure=$(tail -n 1 "$work/out")
        pass "$name" "$figure"
    else
        fail "$name" "$(tail -n 3 "$work/out" | tr '\n' ' ')"
    fi
}
tests() { (cd build && ctest --no-tests=error -R "$1" 2>&1 | grep -E "tests passed|tests failed" | grep "100% tests passed" >/dev/null && ctest -N -R "$1" | tail -n 1); }

[ -x "$keel" ] || { echo "FAIL build: no build/keel; run make first"; exit 1; }

# 1 clean clone
if [ $quick = 1 ]; then
    skip "make check from a clean clone, under 12 minutes" "--quick"
    skip "make asan" "--quick"
else
    git clone -q . "$work/clone"
    start=$(date +%s)
    if (cd "$work/clone" && make check) >"$work/check.log" 2>&1; then
        took=$(($(date +%s) - start))
        [ $took -lt 720 ] && pass "make check, clean clone, TSan included" "$took s of 720" || fail "make check, clean clone" "$took s, more than 720"
    else
        fail "make check, clean clone" "$(tail -n 5 "$work/check.log" | tr '\n' ' ')"
    fi
    if make asan >"$work/asan.log" 2>&1; then pass "make asan" "$(grep 'tests passed' "$work/asan.log" | tail -n 1)"; else fail "make asan" "$(tail -n 5 "$work/asan.log" | tr '\n' ' ')"; fi
fi

# 2 tokens
if [ -d "$models/qwen3-py-12m" ]; then
    check "qwen3-py-12m, 12 golden prompts, margin 0.02" - golden "$models/qwen3-py-12m" "$models/qwen3-py-12m/golden.json"
else
    fail "qwen3-py-12m" "no $models/qwen3-py-12m: set KEEL_TEST_MODELS"
fi
for m in tiny-qwen3 tiny-llama tiny-yarn; do check "synthetic golden $m" - golden tests/golden/$m tests/golden/$m/golden.json; done
size=$(du -cb tests/golden/tiny-* | tail -n 1 | cut -f1)
[ "$size" -lt 1000000 ] && pass "synthetic goldens under 1 MB" "$size bytes" || fail "synthetic goldens under 1 MB" "$size bytes"

# 3 SmolLM2
gguf=$(ls models-cache/*.gguf 2>/dev/null | head -n 1)
if [ -n "$gguf" ]; then
    check "SmolLM2 GGUF converts to f32" - "$keel" convert --from-gguf "$gguf" "$work/smollm2" --dtype f32
    check "SmolLM2, 5 prompts of 64 tokens, margin 0.02" - golden "$work/smollm2" tests/golden/smollm2_golden.json
    check "SmolLM2 tokenizer ids, every string of the corpus" "$(python3 -c 'import json; print(len(json.load(open("tests/golden/tokenizer_corpus.json"))))') strings" \
        env KEEL_SMOLLM2_DIR="$work/smollm2" build/tests/test_load_tokenizer
    check "make demo writes text" - make demo
else
    fail "SmolLM2" "no GGUF in models-cache: run make demo once"
fi

# 4 ThreadSanitizer
check "protocol under TSan: 1, 2, 7, 16 workers, 200 iterations; six planted faults red" - tests '^tsan\.protocol'
check "whole model under TSan: 1, 2, 7, 16 workers, 200 decode steps" - tests '^tsan\.decode'

# 5 speed and memory
if [ -x "${LLAMA_BENCH:-}" ] && [ -f "${LLAMA_GGUF:-}" ]; then
    python3 bench/compare.py --keel "$keel" --llama-bench "$LLAMA_BENCH" --gguf "$LLAMA_GGUF" --synth qwen3-0.6b >"$work/out" 2>&1 &&
        pass "Qwen3-0.6B bf16 decode, 2 threads, at least 1.0 x llama.cpp" "$(tail -n 1 "$work/out")" ||
        fail "Qwen3-0.6B bf16 decode, 2 threads, at least 1.0 x llama.cpp" "$(tail -n 1 "$work/out")"
else
    evidence=$(ls docs/perf/cpu-decode-*.txt 2>/dev/null | sort | tail -n 1)
    if [ -n "$evidence" ]; then
        verdict=$(grep '^ratio' "$evidence" | tail -n 1)
        python3 -c 'import re,sys; sys.exit(0 if float(re.search(r"ratio ([0-9.]+)", sys.argv[1]).group(1)) >= 1 else 1)' "$verdict" &&
            pass "Qwen3-0.6B bf16 decode, at least 1.0 x llama.cpp (recorded, ${evidence##*/}, $(grep '^commit' "$evidence"))" "$verdict" ||
            fail "Qwen3-0.6B bf16 decode, at least 1.0 x llama.cpp (recorded, ${evidence##*/})" "$verdict"
    else
        fail "Qwen3-0.6B decode against llama.cpp" "no LLAMA_BENCH and no docs/perf/cpu-decode-*.txt"
    fi
fi
"$keel" bench --synth qwen3-0.6b --ctx 64 --runs 1 --steps 8 --json >"$work/bench.json" 2>/dev/null
rss=$(python3 -c 'import json,sys; b=json.load(open(sys.argv[1])); print("%.3f" % (b["peak_rss_bytes"] / (b["weight_bytes"] + b["kv_bytes"])))' "$work/bench.json" 2>/dev/null)
python3 -c 'import sys; sys.exit(0 if float(sys.argv[1]) <= 1.15 else 1)' "${rss:-9}" && pass "peak RSS at most 1.15 x weights + KV" "$rss" || fail "peak RSS" "${rss:-no figure}"

# 6 plan
plan_bytes() { for i in $(seq 20); do "$keel" plan --synth qwen3-8b --workers 132 -o "$work/p$i.plan" >/dev/null || return 1; done; sha256sum "$work"/p*.plan | cut -d' ' -f1 | sort -u | wc -l | grep -qx 1 && echo "20 plans of Qwen3-8B on 132 workers, one sha256"; }
check "the same input gives the same plan bytes" - plan_bytes
plan_json() { "$keel" plan --synth qwen3-0.6b --json | python3 -c 'import json,sys; p=json.load(sys.stdin); assert all(k in p for k in ("tasks","queues","events","pages","buffers")); assert all("id" in e and "triggers" in e for e in p["events"]); print(len(p["tasks"]), "tasks,", len(p["events"]), "events")'; }
check "keel plan --json" - plan_json
check "keel plan show" "$("$keel" plan show "$work/p1.plan" | wc -l) lines" "$keel" plan show "$work/p1.plan"
guard() { "$keel" plan --synth qwen3-0.6b --arch sm_90a --tp 2 -o "$work/g.plan" >"$work/g" 2>&1; [ $? = 1 ] && [ ! -e "$work/g.plan" ] && grep -q "missing role bodies" "$work/g" && sed -n 2p "$work/g"; }
check "a plan without bodies for needed roles is refused, exit 1" - guard

# 7 extension, ops, input, fuzz, bundle
check "an op from a template is one folder and one line; a model is one file" - tests '^frame\.extend'
check "every op against its reference, in its folder" - tests '^ops\.'
check "bad input: exit 2, names file and place, nothing written" - tests '^cli\.(bad_input|odd_files|usage|convert)'
check "parsers replay their fuzz corpora" - tests '^fuzz\.'
check "make gpu-bundle, at most 15 MiB" - make gpu-bundle

echo "$((failed)) failed, $not_run not run"
[ $failed = 0 ]
