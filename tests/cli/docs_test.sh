# timeout: 120
# SPDX-License-Identifier: Apache-2.0
# Every command of docs/cli.md runs as written; what it claims of its options is in the help.
. "$KEEL_SOURCE_DIR/tests/cli/lib.sh" || exit 1
document=$KEEL_SOURCE_DIR/docs/cli.md
mkdir bin tests
ln -s "$KEEL" bin/keel
ln -s "$golden" tests/golden
ln -s "$KEEL_SOURCE_DIR/.gitignore" .gitignore
python3 "$cli/make_gguf.py" tests/golden/tiny-qwen3 tiny.gguf

commands=0
while IFS= read -r line; do
    commands=$((commands + 1))
    PATH=$work/bin:$PATH bash -c "$line" >out 2>err </dev/null || { wrong "$line: exit status $?"; show_output; }
done < <(sed -nE 's/^    (keel .*)/\1/p' "$document")
[ $commands -ge 10 ] || wrong "$document has $commands commands"

for verb in run "graph show" "graph export" "graph import" "graph diff" "graph ops" plan "plan show" convert bench; do
    read -ra words <<<"$verb"
    "$KEEL" "${words[@]}" --help
done >help
for option in $(grep -oE -- '`--[a-z-]+' "$document" | tr -d '`' | sort -u); do
    grep -q -- "$option " help || [ "$option" = -- ] || [ "$option" = --option ] || wrong "$document: $option is no option"
done
finish
