# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the acceptance scripts share; they source it from the project's root.
root=$PWD keel=$PWD/build/keel
export KEEL_TEST_MODELS=${KEEL_TEST_MODELS:-$root/../shared/models}
models=$KEEL_TEST_MODELS
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 not_run=0

pass() { echo "PASS $1: $2"; }
fail() { echo "FAIL $1: $2"; failed=$((failed + 1)); }
skip() { echo "NOT RUN: $2 ($1)"; not_run=$((not_run + 1)); }
golden() { python3 tests/cli/golden.py "$keel" "$@"; }
