# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Shared by the checks, which source it: each prints "path:line: what is wrong" and exits 1 when it found something.
# The tree to look at is KEEL_SOURCE_DIR, by default the one the script lies in.
set -euo pipefail
export LC_ALL=C
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "${KEEL_SOURCE_DIR:-$scripts/..}"
findings=0

finding() {
    printf '%s\n' "$*"
    findings=$((findings + 1))
}

# Reads findings, one a line.
findings_from() {
    local line
    while IFS= read -r line; do finding "$line"; done
}

# sources FOLDER... : the C files under those that exist, sorted
sources() {
    local folder
    for folder; do
        [ ! -d "$folder" ] || find "$folder" -type f \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \)
    done | sort
}

# code_lines FILE: "path:line:code" without comments and literals
code_lines() { awk -f "$scripts/code_only.awk" "$1" | awk -v path="$1" '{ print path ":" NR ":" $0 }'; }

check_end() {
    if [ "$findings" -gt 0 ]; then
        echo "$1: $findings found" >&2
        exit 1
    fi
}
