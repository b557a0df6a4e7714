#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs each libFuzzer program of a KEEL_FUZZ build for some seconds. usage: fuzz.sh BUILD_DIR SECONDS
# New inputs go to BUILD_DIR/corpus/NAME, what crashes to BUILD_DIR/findings/NAME-…: copy a finding into
# tests/fuzz/corpus/NAME once it is fixed.
set -euo pipefail
build=$1 seconds=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "$build/findings"
failed=()
for source in "$root"/tests/fuzz/fuzz_*.c; do
    name=$(basename "$source" .c)
    name=${name#fuzz_}
    mkdir -p "$build/corpus/$name"
    dict=()
    [ ! -f "$root/tests/fuzz/$name.dict" ] || dict=("-dict=$root/tests/fuzz/$name.dict")
    echo "fuzz: $name, $seconds s"
    "$build/tests/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 "${dict[@]}" \
        -artifact_prefix="$build/findings/$name-" "$build/corpus/$name" "$root/tests/fuzz/corpus/$name" \
        2>"$build/findings/$name.log" || failed+=("$name")
    grep -E '^(stat::number_of_executed_units|SUMMARY|==.*ERROR)' "$build/findings/$name.log" || true
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "fuzz: red: ${failed[*]}; inputs and logs in $build/findings" >&2
    exit 1
fi
