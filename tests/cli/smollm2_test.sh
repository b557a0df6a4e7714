# timeout: 400
# SPDX-License-Identifier: Apache-2.0
# The demo model, where `make demo` has fetched it: converted to f32, its tokens and its tokenizer's ids equal the reference's.
. "$KEEL_SOURCE_DIR/tests/cli/lib.sh" || exit 1

gguf=$(ls "$KEEL_SOURCE_DIR"/models-cache/*.gguf 2>/dev/null | head -n 1 || true)
[ -n "$gguf" ] || { echo "left out: no models-cache/*.gguf; make demo fetches it"; exit 77; }
! ldd "$KEEL" 2>/dev/null | grep -q libtsan || { echo "left out: minutes under ThreadSanitizer"; exit 77; }
rm -rf smollm2
"$KEEL" convert --from-gguf "$gguf" smollm2 --dtype f32 >/dev/null || wrong "conversion"
python3 "$cli/golden.py" "$KEEL" smollm2 "$golden/smollm2_golden.json" || wrong "tokens"
KEEL_SMOLLM2_DIR=$PWD/smollm2 "$(dirname "$KEEL")/tests/test_load_tokenizer" >ids.log 2>&1 || wrong "tokenizer ids: $(tail -n 3 ids.log)"
grep -q '^smollm2-gguf: [0-9]* strings' ids.log || wrong "the corpus was not compared"
rm -rf smollm2
finish
