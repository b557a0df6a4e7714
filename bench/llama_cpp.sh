#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Decode speed of llama.cpp and of `keel bench --synth` on the same geometry, weight type and thread count,
# in turns (A B A B ...), so that both see the same machine. Needs cmake, a C++ compiler and, to write the
# GGUF, Python with `gguf` and `numpy`. Nothing is fetched. See bench/README.md.
set -eu

usage() {
    cat <<'USAGE'
usage: bench/llama_cpp.sh --llama SRC --config CONFIG_JSON [options]
  --llama SRC      llama.cpp source tree (built once into WORK/llama.cpp)
  --config JSON    Hugging Face config.json of the geometry (model_type qwen3)
  --synth NAME     geometry name for keel (default: the config's file name without .json)
  --keel PATH      keel program (default: build/keel; without it only llama.cpp is timed)
  --work DIR       where the build and the GGUF are kept (default: build/bench)
  --python PATH    Python that has gguf and numpy (default: python3)
  --threads N      threads of llama.cpp and workers of keel (default: 2)
  --tokens N       tokens decoded in a run (default: 64)
  --rounds N       A B rounds (default: 4)
USAGE
}

root=$(cd "$(dirname "$0")/.." && pwd)
llama= config= synth= keel=$root/build/keel work=$root/build/bench python=python3 threads=2 tokens=64 rounds=4
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) usage; exit 0 ;;
        --llama | --config | --synth | --keel | --work | --python | --threads | --tokens | --rounds)
            [ $# -ge 2 ] || { echo "llama_cpp.sh: $1 needs a value" >&2; exit 2; }
            eval "${1#--}=\$2"
            shift 2 ;;
        *) echo "llama_cpp.sh: unknown option $1" >&2; usage >&2; exit 2 ;;
    esac
done
[ -n "$llama" ] && [ -n "$config" ] || { usage >&2; exit 2; }
[ -n "$synth" ] || synth=$(basename "$config" .json)

bench=$work/llama.cpp/bin/llama-bench
gguf=$work/$synth-bf16.gguf
mkdir -p "$work"
if [ ! -x "$bench" ]; then
    cmake -S "$llama" -B "$work/llama.cpp" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF \
        -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF >"$work/cmake.log" 2>&1 ||
        { echo "llama_cpp.sh: cmake failed, see $work/cmake.log" >&2; exit 1; }
    cmake --build "$work/llama.cpp" --target llama-bench -j "$threads" >"$work/build.log" 2>&1 ||
        { echo "llama_cpp.sh: the build failed, see $work/build.log" >&2; exit 1; }
fi
if [ ! -f "$gguf" ]; then
    "$python" "$root/bench/synth_gguf.py" "$config" "$gguf.part"
    mv "$gguf.part" "$gguf"
fi

# One line a round: tokens/s of each repetition, in the order they ran.
run_llama() {
    "$bench" -m "$gguf" -t "$threads" -p 0 -n "$tokens" -r 3 -o json 2>/dev/null |
        tr -d '\n' | sed 's/.*"samples_ts": *\[ *\([^]]*[0-9]\) *\].*/\1/'
}

round=1
while [ "$round" -le "$rounds" ]; do
    echo "round $round  A llama.cpp tokens/s: $(run_llama)"
    if [ -x "$keel" ]; then
        echo "round $round  B keel:"
        "$keel" bench --synth "$synth" --device cpu --workers "$threads" --runs 3
    fi
    round=$((round + 1))
done
