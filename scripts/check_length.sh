#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Limits of length (CONVENTIONS): a file 800 lines, a host function 60, a role body 150 (all of ops/ and src/device, where
# the two cannot be told apart by their text).
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
file_limit=800

# path:function, and why it may be longer: a dispatch switch or a table, nothing else
exceptions=$(cat <<'END' | awk '{ print $1 }'
END
)

for file in $(sources include src ops models tools tests bench) $(find scripts tools tests bench -name '*.sh' -o -name '*.py' 2>/dev/null); do
    lines=$(wc -l <"$file")
    [ "$lines" -le $file_limit ] || finding "$file:$lines: $lines lines, more than $file_limit: make it two files"
done

# With clang-format's layout a function opens in a line that begins at column 0 or continues such a line, ends in ") {",
# and closes with "}" at column 0.
for file in $(sources src ops models tools | grep -v '_test\.c$'); do
    limit=60
    case $file in ops/* | src/device/*) limit=150 ;; esac
    while IFS=: read -r line name length; do
        grep -qxF "$file:$name" <<<"$exceptions" ||
            finding "$file:$line: $name: $length lines, more than $limit: split it"
    done < <(awk -f "$scripts/code_only.awk" "$file" | awk -v limit=$limit '
        !inside && /^[A-Za-z_]/ { head = $0; start = NR }
        !inside && /^[ \t]/ { head = head $0 }
        !inside && /\)[ \t]*\{[ \t]*$/ && head ~ /\(/ { inside = 1 }
        inside && /^\}/ {
            inside = 0
            name = head; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
            if (NR - start + 1 > limit) print start ":" name ":" NR - start + 1
        }')
done
check_end check_length
