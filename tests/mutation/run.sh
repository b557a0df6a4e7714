#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The whole mutation suite. usage: run.sh BUILD_DIR [MUTANTS_A_KIND [SEED]]
# Prints the tables and keeps them in docs/mutation-table.txt; exit status 1 when a harmful mutant was accepted or a sound
# plan refused.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$1 per_kind=${2:-330} seed=${3:-1000}
table=$root/docs/mutation-table.txt
cmake --build "$build" --target test_mutation_mutation test_mutation_toy
{
    echo "tests/mutation/run.sh BUILD $per_kind $seed"
    echo "commit $(git -C "$root" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)$(git -C "$root" diff --quiet HEAD -- src ops tests/mutation 2>/dev/null || echo ' with changes')"
} >"$table"
status=0
run() { # TITLE PROGRAM ARGUMENTS...
    local title=$1 program=$2
    shift 2
    printf '\n%s\n\n' "$title" | tee -a "$table"
    "$build/tests/test_mutation_$program" --per-kind "$per_kind" --seed "$seed" --table "$table" "$@" || status=1
}
run "Plans of real ops, one to five workers, one rank and two" mutation
run "Plans of toy graphs" toy
run "Plans of real ops, two mutations each (the first of the kind named)" mutation --depth 2
run "Plans of toy graphs, two mutations each" toy --depth 2
exit $status
