#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Takes evidence on a machine with a GPU: each part writes OUT/gpu-PART.txt (format: docs/perf/README.md) and prints a table at the end.
#   tests/gpu/run.sh --commit C --out DIR [--device cuda] [--bundle gpu-bundle] [--seconds 540] PART...
# PART             what                                                              on one H200, estimated
#   goldens        qwen3-py-12m, 12 prompts, margin 0.1, batch 1 and 16               1 min
#   sanitize       compute-sanitizer memcheck, racecheck, synccheck on 2 layers       3 min
#   correct        logits against transformers (tests/gpu/correct.py), all groups     9 min; correct:REGEX takes some of them
#   ops            each op alone, the ops' own tests by keel-ops                       1 min; ops:REGEX takes some of them
#   start          compile and start-up times                                         1 min
#   ceilings       the read ceiling by another program; bench behind it takes it       20 s
#   bench          the speed table, --runs 5, ceiling of the same run                 9 min; bench:REGEX takes some rows
#   peers          keel beside PyTorch                                                9 min; peers:REGEX takes some rows
#   all            goldens ceilings bench correct ops sanitize peers start, as far as --seconds reach
# Weights are made on the machine; nothing is fetched. Needs the bundle (make gpu-bundle) with keel, keel-sessions and keel-ops, Python 3 with
# PyTorch and transformers, NVRTC; in the bundle also, copied there by whoever carries it: qwen3-py-12m/ (goldens, sanitize),
# torch_decode.py (peers), ceilings.cu (ceilings; nvcc). A part that fails or runs out of time does not stop the others; exit status 1 when any row failed.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
commit='' out='' device=cuda bundle=$root/gpu-bundle seconds=540 options=()
usage() { sed -n '4,18s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
while [ $# -gt 0 ]; do
    case $1 in
    --commit) commit=${2:-}; shift 2 || usage ;;
    --out) out=${2:-}; shift 2 || usage ;;
    --device) device=${2:-}; shift 2 || usage ;;
    --bundle) bundle=${2:-}; shift 2 || usage ;;
    --seconds) seconds=${2:-}; shift 2 || usage ;;
    --tiny) options+=(--tiny); shift ;; # a try without a GPU: small shapes, few steps
    -*) usage ;;
    *) break ;;
    esac
done
[ $# -gt 0 ] && [ -n "$commit" ] && [ -n "$out" ] || usage
keel=$bundle/keel sessions=$bundle/keel-sessions model=$bundle/qwen3-py-12m
[ -x "$keel" ] && [ -x "$sessions" ] || { echo "run.sh: no $keel or no $sessions: make gpu-bundle" >&2; exit 2; }
mkdir -p "$out"
export PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
tiny=${options[*]:+yes}
began=$SECONDS failed=0 done_parts=()

# NVRTC comes with PyTorch where the system has none.
if ! ldconfig -p | grep 'libnvrtc\.so' >/dev/null; then
    nvrtc=$(python3 -c 'import glob, os, sysconfig; print(next((os.path.dirname(p) for p in glob.glob(os.path.join(sysconfig.get_path("purelib"), "nvidia/*/lib/libnvrtc.so.1*"))), ""))')
    export LD_LIBRARY_PATH=$nvrtc${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi

left() { echo $((seconds - (SECONDS - began) > 5 ? seconds - (SECONDS - began) : 5)); }
least() { echo $(($1 < $2 ? $1 : $2)); }
row() { printf '%s\n' "$*"; }

goldens() {
    [ -d "$model" ] || { row "NOT-RUN goldens | no $model: copy the folder of the trained checkpoint there"; return; }
    timeout "$(left)" python3 "$root/tests/gpu/goldens.py" "$model" --keel "$keel" --sessions "$sessions" --device "$device"
    over $? goldens
    timeout "$(left)" python3 "$root/tests/gpu/goldens.py" "$model" --keel "$keel" --sessions "$sessions" --device "$device" --quant fp8
    over $? goldens
}

# A finding counts whatever it is called: errors, hazards, warnings.
sanitize() {
    local tool batch log summary source=(--synth tiny-qwen3)
    command -v compute-sanitizer >/dev/null || { row "NOT-RUN sanitize | no compute-sanitizer here"; return; }
    [ ! -d "$model" ] || source=("$model" --layers 0-1)
    for tool in memcheck synccheck racecheck; do
        for batch in 1 16; do
            log=$out/sanitize.log
            timeout "$(least "$(left)" 150)" compute-sanitizer --tool $tool "$keel" run "${source[@]}" --device "$device" \
                --tokens 5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22 --max-new-tokens 4 --ignore-eos --workers 8 --batch $batch --watchdog 240 >"$log" 2>&1
            local status=$?
            summary=$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -n 1 | sed 's/^=* *//')
            if [ $status -eq 124 ]; then
                row "NOT-RUN sanitize/$tool/batch-$batch | no end within 150 s, or the time that was left"
            elif [ $status -eq 0 ] && grep -E 'ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards' "$log" >/dev/null; then
                row "PASS sanitize/$tool/batch-$batch | $summary"
            else
                row "FAIL sanitize/$tool/batch-$batch status=$status | ${summary:-no summary}: $(grep -m 1 -E '^=+ +(Error|Warning|Invalid|Potential|Race)' "$log" | sed 's/^=* *//')"
                grep -E '^=' "$log" | head -n 40 | sed 's/^/  /'
            fi
            rm -f "$log"
        done
    done
}

correct() {
    timeout "$(left)" python3 "$root/tests/gpu/correct.py" --sessions "$sessions" --device "$device" --only "$1" --seconds $(($(left) - 20)) \
        ${tiny:+--tiny --workers 2 --repeats 2 --steps 8}
    over $? correct
}

# One op's test after the other, while device code for the next ones is compiled on all cores.
ops() { # REGEX
    local program folder names=() name status counts began_ms jobs=$(($(nproc) / 3 + 1)) ahead
    program=$(realpath "$bundle/keel-ops") folder=$(realpath "$out")/ops.folder
    [ -x "$program" ] || { row "NOT-RUN ops | no $bundle/keel-ops: make gpu-bundle"; return; }
    rm -rf "$folder" && mkdir -p "$folder" && cd "$folder" || return
    mapfile -t names < <("$program" --list | grep -E "$1")
    [ ${#names[@]} -gt 0 ] || { row "NOT-RUN ops | no op $1"; return; }
    "$program" --check 2>check.err || { row "NOT-RUN ops | $(cat check.err)"; return; }
    # shellcheck disable=SC2016  # the inner shell expands it
    printf '%s\n' "${names[@]}" | timeout "$(left)" xargs -P 3 -I{} sh -c '"$0" --ahead "$1" {} >{}.ahead.log 2>&1; touch {}.ahead' "$program" "$jobs" &
    ahead=$!
    for name in "${names[@]}"; do
        until [ -e "$name.ahead" ] || ! kill -0 $ahead 2>/dev/null; do sleep 0.1; done
        began_ms=$(date +%s%3N)
        timeout "$(left)" "$program" "$name" >"$name.out" 2>"$name.err"
        status=$?
        counts="$(grep -E '^cases=' "$name.out" | tail -n 1) seconds=$(awk -v ms=$(($(date +%s%3N) - began_ms)) 'BEGIN { print ms / 1000 }')"
        case $status in
        0) row "PASS ops/$name ${counts# }" ;;
        2) row "NOT-RUN ops/$name | $(tail -n 1 "$name.err")" ;;
        124) row "NOT-RUN ops/$name | stopped: --seconds $seconds were over" ;;
        *)
            row "FAIL ops/$name status=$status ${counts# } | $(grep -v '^\[' "$name.err" | head -n 2 | tr '\n' ' ' | cut -c 1-300)"
            grep -hE -v '^\[ +(OK|RUN) ' "$name.err" | head -n 40 | sed 's/^/  /' ;;
        esac
        row "  ahead: $(tail -n 1 "$name.ahead.log")"
        grep -h '^planted: ' "$name.out" | sed 's/^/  /'
    done
    wait $ahead
    cd "$root" && rm -rf "$folder"
}

# The highest of its figures over at least 2 GiB stands beside keel's own ceilings: a slow reader would flatter every share.
ceilings() {
    local text ceiling program=$out/ceilings.program
    [ -f "$bundle/ceilings.cu" ] || { row "NOT-RUN ceilings | no $bundle/ceilings.cu: copy the program there"; return; }
    command -v nvcc >/dev/null || { row "NOT-RUN ceilings | no nvcc here"; return; }
    if text=$(nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -o "$program" "$bundle/ceilings.cu" -lcuda && timeout "$(left)" "$program"); then
        ceiling=$(sed -nE 's/^read_[A-Za-z0-9_]*_(2048|8192|16384)MB[a-z0-9_]* ([0-9.]+) GB\/s$/\2/p' <<<"$text" | sort -n | tail -n 1)
        row "PASS ceilings gbs=$ceiling"
        sed 's/^/  /' <<<"$text"
    else
        row "FAIL ceilings | $(tail -n 1 <<<"$text")"
    fi
    rm -f "$program"
}

measure() { # WHAT REGEX
    local ceiling peer=()
    ceiling=$(sed -nE 's/^PASS ceilings gbs=//p' "$out/gpu-ceilings.txt" 2>/dev/null)
    [ ! -f "$bundle/torch_decode.py" ] || peer=(--torch-decode "$bundle/torch_decode.py")
    if [ "$1" = peers ] && [ ${#peer[@]} -eq 0 ]; then
        row "NOT-RUN peers | no $bundle/torch_decode.py: copy PyTorch's program there"
        return
    fi
    timeout "$(left)" python3 "$root/bench/gpu.py" "$1" --keel "$keel" --sessions "$sessions" --device "$device" --only "$2" --seconds $(($(left) - 10)) "${peer[@]}" --ceiling "${ceiling:-0}" \
        ${tiny:+--runs 1 --steps 2}
    over $? "$1"
}
over() { [ "$1" -ne 124 ] || row "NOT-RUN $2 | stopped: --seconds $seconds were over"; }

part() { # NAME REGEX
    local file=$out/gpu-$1.txt start=$SECONDS program=$keel
    [ "$1" != ops ] || [ ! -x "$bundle/keel-ops" ] || program=$bundle/keel-ops
    python3 "$root/tests/gpu/evidence.py" header "$1" --commit "$commit" --keel "$program" --command "tests/gpu/run.sh --device $device ${options[*]} $1${2:+:$2}" >"$file"
    echo "== $1${2:+ $2}"
    case $1 in
    goldens | sanitize | ceilings) $1 ;;
    correct | ops) "$1" "$2" ;;
    start | bench | peers) measure "$1" "$2" ;;
    esac 2>>"$out/stderr.log" | tee -a "$file" | cut -c 1-400
    case $1 in goldens | correct | start | bench | peers)
        grep -E "^end: |^NOT-RUN $1 " "$file" >/dev/null || row "FAIL $1 | ended early: $(tail -n 1 "$out/stderr.log" | cut -c 1-300)" | tee -a "$file" ;;
    esac
    echo "took: $((SECONDS - start)) s" >>"$file"
    done_parts+=("$file")
    ! grep '^FAIL ' "$file" >/dev/null || failed=1
}

parts=()
for word; do if [ "$word" = all ]; then parts+=(goldens ceilings bench correct ops sanitize peers start); else parts+=("$word"); fi; done
for word in "${parts[@]}"; do
    case ${word%%:*} in
    goldens | sanitize | ceilings | correct | ops | start | bench | peers) ;;
    *) echo "run.sh: no part ${word%%:*}" >&2; usage ;;
    esac
done
for word in "${parts[@]}"; do
    regex=${word#"${word%%:*}"}
    if [ $((SECONDS - began)) -ge "$seconds" ]; then echo "== ${word%%:*}: not begun, $seconds s were over"; else part "${word%%:*}" "${regex#:}"; fi
done
echo "== $((SECONDS - began)) s in all, commit $commit"
python3 "$root/tests/gpu/evidence.py" table "${done_parts[@]}"
exit $failed
