# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the tests of the GPU backend under the emulator share (docs/emulator.md); they source it.
. "$KEEL_SOURCE_DIR/tests/cli/lib.sh" || exit 1
emu_folder=$(dirname "$KEEL")/emu
[ -e "$emu_folder/libcuda.so.1" ] || { echo "left out: a build under a sanitizer has no emulator"; exit 77; }
command -v g++ >/dev/null || { echo "left out: the emulator compiles device text with g++"; exit 77; }
export LD_LIBRARY_PATH=$emu_folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export KEEL_EMU_SMS=4 KEEL_EMU_SEED=1 XDG_CACHE_HOME=$work/cache
unset KEEL_EMU_HELD KEEL_EMU_WAIT KEEL_EMU_CXXFLAGS

# forced NAME: prompt.ids and forced.json of the reference's logits of tests/golden/NAME
forced() {
    python3 - "$golden/$1/logits_first.json" <<'END'
import json, sys
v = json.load(open(sys.argv[1]))
open("prompt.ids", "w").write(",".join(map(str, v["prompt_ids"])))
json.dump(v["forced_ids"] + [0], open("forced.json", "w"))
END
}

# near NAME ARGUMENTS...: the logits of teacher-forced steps of tests/golden/NAME are the reference's, as far as
# activations of 8 bits allow: its logits go up to 10
near() {
    local name=$1
    shift
    expect 0 run "$golden/$name" --device cuda --tokens "$(cat prompt.ids)" --teacher-force forced.json \
        --save-logits "$name.st" "$@"
    python3 "$cli/logits.py" "$name.st" "$golden/$name/logits_first.json" 0.3 || wrong "$name $*: logits"
}
