#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The layout is clang-format 14's (Debian 12); another version lays out differently, so it is not asked.
# --fix rewrites the files instead (make format).
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
version=14
tool=$(command -v clang-format-$version || command -v clang-format || true)
if [ -z "$tool" ] || ! "$tool" --version | grep -qE "version $version\\."; then
    echo "check_format: needs clang-format $version (Debian 12: apt-get install clang-format)" >&2
    exit 77
fi
mapfile -t files < <(sources include src ops models tools tests bench)
[ ${#files[@]} -gt 0 ] || exit 0
if [ "${1:-}" = --fix ]; then
    exec "$tool" -i "${files[@]}"
fi
findings_from < <("$tool" --dry-run -Werror "${files[@]}" 2>&1 | sed -nE 's/^([^ :]+:[0-9]+):[0-9]+: error: .*/\1: layout differs: make format/p' |
    sort -u -t: -k1,1 -k2,2n)
check_end check_format
