#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One folder to carry to a machine with a GPU: the program, and the one that tests/gpu drives, their third-party libraries linked in.
# usage: gpu_bundle.sh BUILT_KEEL BUILT_SESSIONS OUT_DIR
set -euo pipefail
limit_bytes=$((15 * 1024 * 1024))
rm -rf "$3"
mkdir -p "$3"
strip -o "$3/keel" "$1"
strip -o "$3/keel-sessions" "$2"
bytes=$(du -sb "$3" | cut -f1)
ldd "$3/keel"
echo "gpu-bundle: $3/keel, $bytes bytes, needs glibc $(objdump -T "$3/keel" | grep -o 'GLIBC_[0-9.]*' | sort -Vu |
    tail -n 1 | cut -d_ -f2) or newer"
if ldd "$3/keel" "$3/keel-sessions" | grep -E 'jansson|expat|libz\.|pcre2|utf8proc|crypto'; then
    echo "gpu-bundle: the libraries above should have been linked in" >&2
    exit 1
fi
if [ "$bytes" -gt $limit_bytes ]; then
    echo "gpu-bundle: more than $limit_bytes bytes" >&2
    exit 1
fi
