#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One folder to carry to a machine with a GPU: the program, its third-party libraries linked in.
# usage: gpu_bundle.sh BUILT_KEEL OUT_DIR
set -euo pipefail
limit_bytes=$((15 * 1024 * 1024))
rm -rf "$2"
mkdir -p "$2"
strip -o "$2/keel" "$1"
bytes=$(du -sb "$2" | cut -f1)
ldd "$2/keel"
echo "gpu-bundle: $2/keel, $bytes bytes, needs glibc $(objdump -T "$2/keel" | grep -o 'GLIBC_[0-9.]*' | sort -Vu |
    tail -n 1 | cut -d_ -f2) or newer"
if ldd "$2/keel" | grep -E 'jansson|expat|libz\.|pcre2|utf8proc|crypto'; then
    echo "gpu-bundle: the libraries above should have been linked in" >&2
    exit 1
fi
if [ "$bytes" -gt $limit_bytes ]; then
    echo "gpu-bundle: more than $limit_bytes bytes" >&2
    exit 1
fi
