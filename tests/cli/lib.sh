# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the tests of the program share; they source it. KEEL is the program, KEEL_SOURCE_DIR the tree. Each test works in
# an empty folder below the one it is started in.
set -euo pipefail
export LC_ALL=C.UTF-8
unset MAKEFLAGS
: "${KEEL:?KEEL must name the program}" "${KEEL_SOURCE_DIR:?}"
cli=$KEEL_SOURCE_DIR/tests/cli
golden=$KEEL_SOURCE_DIR/tests/golden
command -v python3 >/dev/null || { echo "needs python3" >&2; exit 77; }
work=$(mktemp -d "$PWD/work.XXXXXX")
trap 'chmod -R u+rwx "$work"; rm -rf "$work"' EXIT
cd "$work"
failures=0

wrong() {
    printf 'FAILED: %s\n' "$*" >&2
    failures=$((failures + 1))
}

# keel ARGUMENTS...: runs it; leaves $status, and the files out and err
keel() {
    status=0
    "$KEEL" "$@" >out 2>err </dev/null || status=$?
    own_words err
}

# Drops what AddressSanitizer says about makecontext on its own account.
own_words() { sed -i "/WARNING: ASan doesn't fully support makecontext/d" "$1"; }

show_output() {
    sed 's/^/    stdout: /' out | head -n 20 >&2
    sed 's/^/    stderr: /' err | head -n 20 >&2
}

# expect STATUS ARGUMENTS...: the exit status
expect() {
    local want=$1
    shift
    keel "$@"
    [ "$status" -eq "$want" ] && return
    wrong "keel $*: exit status $status, expected $want"
    show_output
}

# refused STATUS PATTERN ARGUMENTS...: exit status, the extended regular expression on stderr, the verb's name in front,
# and nothing on stdout
refused() {
    local want=$1 pattern=$2
    shift 2
    expect "$want" "$@"
    grep -qE -- "$pattern" err || { wrong "keel $*: stderr does not match $pattern"; show_output; }
    head -n 1 err | grep -qE '^keel( [a-z]+)*: .' || { wrong "keel $*: stderr does not begin with the verb"; show_output; }
    [ ! -s out ] || { wrong "keel $*: wrote to stdout"; show_output; }
}

# holds WHAT FILE PYTHON-EXPRESSION: true of the JSON value v in FILE
holds() {
    python3 -c 'import json, sys
v = json.load(open(sys.argv[1], encoding="utf-8"))
sys.exit(0 if eval(sys.argv[2]) else 1)' "$2" "$3" || { wrong "$1: not true of $2: $3"; head -c 600 "$2" >&2; echo >&2; }
}

absent() {
    local path
    for path; do [ ! -e "$path" ] || wrong "$path should not be there"; done
}

finish() {
    [ "$failures" -eq 0 ] || { echo "$failures failed" >&2; exit 1; }
}
