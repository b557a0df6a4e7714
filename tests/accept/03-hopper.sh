#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Acceptance of roadmap topic 3: the Hopper backend. One check an acceptance line: PASS, FAIL or NOT RUN: reason, with the figure.
#   tests/accept/03-hopper.sh
# Needs a built tree (make check), no GPU. What only a GPU can show is read from the evidence that is committed in docs/perf/
# (taken by tests/gpu/run.sh); the line says its file and commit, and whether src, ops or models changed since. Speed is judged by
# the first bar; the line says the goal too. NVRTC in LD_LIBRARY_PATH, for what compiles device code.
# KEEL_TEST_MODELS: the trained checkpoints (default ../shared/models).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tests/accept/lib.sh
export XDG_CACHE_HOME=$work/cache

# check NAME COMMAND...: the figure is the last line of the output; status 77: not run
check() {
    local name=$1 status
    shift
    "$@" >"$work/out" 2>&1
    status=$?
    case $status in
    0) pass "$name" "$(tail -n 1 "$work/out")" ;;
    77) skip "$name" "$(tail -n 1 "$work/out")" ;;
    *) fail "$name" "$(tail -n 3 "$work/out" | tr '\n' ' ')" ;;
    esac
}
tests() {
    (cd build && ctest --no-tests=error -R "$1") >"$work/ctest" 2>&1 || { grep -E '\*\*\*|No tests' "$work/ctest"; return 1; }
    if grep -E 'Not Run|Skipped' "$work/ctest"; then return 77; fi
    (cd build && ctest -N -R "$1" | tail -n 1)
}
# evidence NAME PART REGEX ROWS [CONDITION...]
evidence() {
    local name=$1 text
    text=$(python3 tests/gpu/evidence.py judge docs/perf "$2" "$3" "${@:5}" --rows "$4")
    case $text in
    PASS\ *) pass "$name" "${text#PASS }" ;;
    FAIL\ *) fail "$name" "${text#FAIL }" ;;
    *) skip "$name" "${text#NOT-RUN }" ;;
    esac
}
# share NAME ROW BAR GOAL: percent of the read ceiling of the same call
share() { evidence "$1: first bar $3 %, goal $4 %" bench "^bench/$2\$" 1 "share>=$3" 'steps>=256' 'runs>=5' --goal "share>=$4"; }

[ -x "$keel" ] || { echo "FAIL build: no build/keel; run make check first"; exit 1; }
compiler=yes
"$keel" plan --synth tiny-qwen3 --arch sm_90a --cubin "$work/x.cubin" >/dev/null 2>"$work/err" || ! grep 'no run-time compiler' "$work/err" >/dev/null || compiler=''

# 1 one binary, driver and compiler opened at run time
no_driver() {
    ! ldd "$keel" | grep -E 'libcuda|libnvrtc' || return 1
    "$keel" run --synth tiny-qwen3 --device cuda --tokens 1,2,3 --max-new-tokens 1 2>&1
    case $? in 2) return 0 ;; 0) echo "there is a GPU here, nothing is missing"; return 77 ;; *) return 1 ;; esac
}
check "without a driver: exit 2, and what is missing" no_driver
check "cubin cache: keys, damage, files of other plans" tests '^exec\.cubin'
cubin() { # what the compiler says of a whole Qwen3-8B plan
    [ -n "$compiler" ] || { echo "no NVRTC here: set LD_LIBRARY_PATH"; return 77; }
    local start=$SECONDS
    "$keel" plan --synth qwen3-8b --arch sm_90a --batch "$1" --cubin "$work/c$1" >"$work/report" 2>&1 || { tail -n 3 "$work/report"; return 1; }
    awk '/^keel_(run|read|pack) / { printf "%s %d registers, ", $1, $2; if ($4 || $5) bad = 1; n++ } END { exit bad || n < 3 }' "$work/report" || return 1
    echo "nothing spilled, no stack, $((SECONDS - start)) s on this machine, no GPU"
}
check "device code of a whole Qwen3-8B plan, batch 1" cubin 1
check "device code of a whole Qwen3-8B plan, batch 16" cubin 16
check "device code of every op and of whole plans, in CI" tests '^cli\.cubin'
probes() {
    [ -n "$compiler" ] || { echo "no NVRTC here: set LD_LIBRARY_PATH"; return 77; }
    grep -E '^keel_role_' "$work/report" | awk '{ n++; printf "%s%s %d of %d", (n > 1 ? ", " : ""), substr($1, 11), $2, $3; if ($2 > $3 || $4 || $5) bad = 1 } END { print " registers"; exit bad || n < 5 }'
}
check "each role as a kernel of its own under its own register cap, no spills, no stack" probes
check "sm_100a: every body compiles; sm_80: the compiler names what bodies need and it has not" tests '^exec\.bodies'
evidence "cold compile of Qwen3-8B, at most 25 s" start '^start/compile-qwen3-8b$' 1 'seconds<=25'
evidence "warm start, at most 0.5 s beyond loading weights" start '^start/warm$' 1 'seconds<=0.5'

# 2 roles: the same device text on a CPU
check "device text under the emulator: logits, goldens, stop, abort, held multiprocessors, faults named" tests '^emu\.'
check "device text in the words of one header" tests '^frame\.device'

# 4 one launch; ends
sampling() {
    "$keel" plan --synth qwen3-8b --arch sm_90a --sample >"$work/s" 2>&1 && { echo "a sampling plan is complete"; return 0; }
    echo "sampling has no body for the GPU: $(tail -n 1 "$work/s")"
    return 77
}
check "sampling inside the launch" sampling
fp8() {
    "$keel" plan --synth qwen3-8b --quant fp8 --arch sm_90a >"$work/f" 2>&1 && { echo "an FP8 plan is complete"; return 0; }
    echo "no FP8 plan for the GPU: $(tail -n 1 "$work/f")"
    return 77
}
check "FP8 weights by the same ops" fp8
check "a bound of GPU memory, and the bytes needed" tests '^(cli\.usage|emu\.)'

# 6 and correctness
evidence "qwen3-py-12m, 12 golden prompts, margin 0.1, batch 1 and 16" goldens '^goldens/qwen3-py-12m/batch-(1|16)$' 2
evidence "the same by keel run" goldens '^goldens/qwen3-py-12m/keel-run$' 1
evidence "FP8 copies against a dequantised reference" goldens '^goldens/[^/]*fp8[^/]*/batch' 1
for m in qwen3-0.6b:5 qwen3-1.7b:2 qwen3-8b:2 qwen3-14b:2 llama-3.2-1b:2; do
    evidence "logits of ${m%:*} against transformers, at most 1.3 x its own bf16" correct "^depth/${m%:*}/" "${m#*:}" 'rms_ratio<=1.3' 'max_ratio<=1.3'
done
evidence "first layers of the big models" correct '^depth/[^/]*-l4/' 4 'rms_ratio<=1.3' 'max_ratio<=1.3'
evidence "hidden 2560" correct '^shape/hidden-2560' 4 'rms_ratio<=1.3'
evidence "hidden 5120, 40 query and 8 KV heads" correct '^shape/hidden-5120-heads-40-8' 4 'rms_ratio<=1.3'
evidence "odd vocabularies" correct '^shape/vocab-' 8 'rms_ratio<=1.3'
evidence "1, 8 and 16 query heads a KV head, heads of 64" correct '^shape/gqa-' 12 'rms_ratio<=1.3'
for b in 1 2 3 8 16; do evidence "batch $b" correct "^(depth|shape|context)/[^/]*/batch-$b/" 1 'rms_ratio<=1.3'; done
evidence "context 1 to 32,768 over permuted pages, heads of 128" correct '^context/qwen3-8b' 35 'rms_ratio<=1.3'
evidence "context 1 to 32,768 over permuted pages, heads of 64" correct '^context/llama' 35 'rms_ratio<=1.3'
evidence "20 runs, identical bits" correct '^repeat/(qwen3-0.6b|llama-3.2-1b)/' 7 'runs>=20' 'distinct<=1'
evidence "the same bits wherever the pages lie" correct '^pages-moved/' 7
evidence "other input on the same handle gives that input's answer" correct '^second-input/' 7 'rms_ratio<=1.3'
for t in memcheck racecheck synccheck; do evidence "compute-sanitizer $t on a model of two layers" sanitize "^sanitize/$t/" 2; done
evidence "each op alone on the GPU, poisoned outputs, canaries" ops '^ops/' 14 'cases>=1'

# speed: shares of the read ceiling measured in the same call
share "Qwen3-8B bf16, context 64" qwen3-8b/bf16/ctx-64 90 95
share "Qwen3-8B bf16, context 4096" qwen3-8b/bf16/ctx-4096 88 94
share "Llama-3.2-1B, context 64" llama-3.2-1b/bf16/ctx-64 78 88
share "Llama-3.2-1B, context 1024" llama-3.2-1b/bf16/ctx-1024 76 86
share "Qwen3-1.7B, context 64" qwen3-1.7b/bf16/ctx-64 76 86
share "Qwen3-0.6B, context 64" qwen3-0.6b/bf16/ctx-64 43 60
share "Qwen3-8B FP8, context 64" qwen3-8b/fp8/ctx-64 82 92
share "Qwen3-8B, context 32,768" qwen3-8b/bf16/ctx-32768 80 90
evidence "prefill of 2,048 tokens in batch-1 steps: first bar 135, goal 130" bench '^bench/qwen3-8b/prefill-2048$' 1 'steps<=135' --goal 'steps<=130'
evidence "ahead of every peer in one table" peers '^peers/' 6
notes() { ls docs/perf/*.txt >/dev/null && grep -il 'prediction' docs/perf/* | tr '\n' ' ' | grep .; }
check "notes with prediction, result and dead ideas" notes

echo "$failed failed, $not_run not run"
[ $failed = 0 ]
