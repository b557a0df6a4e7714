#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One folder to carry to a machine with a GPU: the program, the one that tests/gpu drives, and the ops' tests, their third-party
# libraries linked in. Of cmocka Debian has no archive: its library lies beside the tests, which look for it there.
# usage: gpu_bundle.sh BUILT_KEEL BUILT_SESSIONS BUILT_OPS OUT_DIR
set -euo pipefail
limit_bytes=$((20 * 1024 * 1024))
rm -rf "$4"
mkdir -p "$4"
strip -o "$4/keel" "$1"
strip -o "$4/keel-sessions" "$2"
strip -o "$4/keel-ops" "$3"
cp -L "$(ldd "$3" | awk '$1 ~ /^libcmocka/ { print $3 }')" "$4/"
bytes=$(du -sb "$4" | cut -f1)
ldd "$4/keel"
echo "gpu-bundle: $4/keel, $bytes bytes, needs glibc $(objdump -T "$4/keel" | grep -o 'GLIBC_[0-9.]*' | sort -Vu |
    tail -n 1 | cut -d_ -f2) or newer"
if ldd "$4/keel" "$4/keel-sessions" "$4/keel-ops" | grep -E 'jansson|expat|libz\.|pcre2|utf8proc|crypto'; then
    echo "gpu-bundle: the libraries above should have been linked in" >&2
    exit 1
fi
if [ "$(ldd "$4/keel-ops" | awk '$1 ~ /^libcmocka/ { print $3 }')" != "$(realpath "$4")/libcmocka.so.0" ]; then
    echo "gpu-bundle: keel-ops does not find cmocka beside itself" >&2
    exit 1
fi
if [ "$bytes" -gt $limit_bytes ]; then
    echo "gpu-bundle: more than $limit_bytes bytes" >&2
    exit 1
fi
