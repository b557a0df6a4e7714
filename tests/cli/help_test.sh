# SPDX-License-Identifier: Apache-2.0
# Help of the program and of every verb comes from the tables and tells how to use it.
. "$KEEL_SOURCE_DIR/tests/cli/lib.sh" || exit 1

expect 0 --version
grep -qxE 'keel [0-9]+\.[0-9]+\.[0-9]+' out || wrong "--version: $(cat out)"
expect 0 --help
for verb in run "graph show" "graph export" "graph import" "graph diff" "graph ops" plan "plan show" convert bench; do grep -q "^  $verb " out || wrong "keel --help does not list $verb"; done

mapfile -t verbs < <(sed -nE 's/^  ([a-z]+( [a-z]+)?)  .*/\1/p' out)
[ "${#verbs[@]}" -ge 5 ] || wrong "keel --help lists ${#verbs[@]} verbs"
for verb in "${verbs[@]}"; do
    read -ra words <<<"$verb"
    for flag in --help -h; do
        expect 0 "${words[@]}" $flag
        [ ! -s err ] || wrong "$verb $flag: wrote to stderr"
        head -n 1 out | grep -q "^usage: keel $verb " || wrong "$verb $flag: no usage line"
        grep -qE '^  keel ' out || wrong "$verb $flag: no example"
        grep -qE '^  --json ' out || wrong "$verb $flag: no --json"
        awk -v verb="$verb" 'length > 120 && !/ --synth:|^  llama/ { print verb ": line too wide: " $0; bad = 1 } END { exit bad }' out >&2 ||
            wrong "$verb $flag: lines too wide"
    done
    # --help wins over what is wrong behind it
    expect 0 "${words[@]}" --help --no-such-option
done
finish
