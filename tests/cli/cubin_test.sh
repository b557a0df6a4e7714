# timeout: 300
# SPDX-License-Identifier: Apache-2.0
# keel plan --cubin: the device code of whole plans compiles without a GPU: all three kernels are there, nothing spills,
# and a lane's registers leave room for all warps of a block (65,536 registers over 12 warps of 32: 168 a thread).
. "$KEEL_SOURCE_DIR/tests/cli/lib.sh" || exit 1

keel plan --synth tiny-qwen3 --arch sm_90a --cubin tiny.cubin
if grep -q '^keel plan: no run-time compiler: ' err; then
    [ "$status" -eq 2 ] || wrong "without NVRTC: exit status $status"
    grep -q 'LD_LIBRARY_PATH' err || wrong "without NVRTC: the message does not say what to do"
    absent tiny.cubin
    finish
    echo "no NVRTC here"
    exit 77
fi

# whole NAME ARGUMENTS...: compiles the plan; what the compiler says and what is in the file
whole() {
    local name=$1
    shift
    expect 0 plan "$@" --arch sm_90a --cubin "$name.cubin"
    python3 - out "$name.cubin" <<'END' || { wrong "keel plan $*: the device code"; show_output; }
import re, sys
text, code = open(sys.argv[1]).read(), open(sys.argv[2], "rb").read()
functions = re.findall(r"Compiling entry function '(\w+)' for 'sm_90a'(.*?)(?=Compiling entry function|\Z)", text, re.S)
assert {"keel_run", "keel_pack"} <= {name for name, _ in functions}, functions
for name, body in functions:
    assert re.search(r"\b0 bytes spill stores, 0 bytes spill loads", body), name + " spills"
    assert int(re.search(r"Used (\d+) registers", body)[1]) <= 168, name + ": registers"
assert code[:4] == b"\x7fELF" and int.from_bytes(code[18:20], "little") == 190, "no ELF file of CUDA"
assert b"\0keel_run\0" in code and b"\0keel_pack\0" in code, "no keel_run"
END
}
whole tiny --synth tiny-qwen3 --batch 1
whole llama --synth tiny-llama --batch 4
whole qwen3-8b --synth qwen3-8b --batch 1

# refused: nothing is written
expect 1 plan --synth tiny-qwen3 --arch sm_90a --sample --allow-absent --cubin absent.cubin
grep -q 'missing role bodies' err || wrong "a plan that is not complete: $(cat err)"
expect 2 plan --synth tiny-qwen3 --workers 2 --cubin cpu.cubin
grep -q 'no device code; plan with --arch sm_90a' err || wrong "a plan for the CPU: $(cat err)"
expect 2 plan --synth tiny-qwen3 --arch sm_90a --cubin none/x.cubin
absent absent.cubin cpu.cubin none
finish
