# SPDX-License-Identifier: Apache-2.0
# Files that are not what they seem: links, pipes, a plan of another model.
. "$KEEL_SOURCE_DIR/tests/cli/lib.sh" || exit 1

# a plan made for another shape of the same architecture
sed 's/"hidden_size": 64/"hidden_size": 4096/; s/"intermediate_size": 128/"intermediate_size": 8192/' "$golden/tiny-qwen3/config.json" >big.json
expect 0 plan --synth big.json -o big.plan
refused 2 'was not made for this model' run "$golden/tiny-qwen3" --plan big.plan --tokens 1,2 --max-new-tokens 4
sed 's/"rope_theta": 10000[.0]*/"rope_theta": 500.0/' "$golden/tiny-qwen3/config.json" >theta.json
cmp -s theta.json "$golden/tiny-qwen3/config.json" && wrong "rope_theta was not changed"
expect 0 plan --synth theta.json -o theta.plan
refused 2 'was not made for this model' run "$golden/tiny-qwen3" --plan theta.plan --tokens 1,2 --max-new-tokens 4
expect 0 plan "$golden/tiny-qwen3" -o own.plan
expect 0 run "$golden/tiny-qwen3" --plan own.plan --tokens 1,2 --max-new-tokens 4

# an output behind a link: the file is written, the link stays
echo old >target.json
ln -sf target.json link.json
expect 0 run "$golden/tiny-qwen3" --tokens 1,2 --max-new-tokens 2 --save-tokens link.json
[ -L link.json ] || wrong "the link was replaced"
grep -q token_ids target.json || wrong "the file behind the link was not written"
ln -sf /dev/null null.json
refused 2 'null.json' run "$golden/tiny-qwen3" --tokens 1,2 --max-new-tokens 2 --save-tokens null.json
[ -L null.json ] && [ -c /dev/null ] || wrong "a device behind a link was touched"

# a pipe in place of a file does not block
cp -r "$golden/tiny-qwen3" piped
rm piped/config.json
mkfifo piped/config.json
refused 2 'config.json' run piped --tokens 1
rm -rf piped
finish
