# timeout: 300
# SPDX-License-Identifier: Apache-2.0
# keel plan --cubin: the device code of a whole Qwen3-8B plan compiles without a GPU; all kernels are there, nothing
# spills or lies in local memory, a thread's registers leave room for all warps of a block (16,384 a partition, three
# of 11 warps in one: 168 a thread), and each role alone stays below its own cap. Every op's bodies: tests/exec/bodies_test.c.
. "$KEEL_SOURCE_DIR/tests/cli/lib.sh" || exit 1

# refused before anything is compiled: nothing is written
expect 1 plan --synth tiny-qwen3 --arch sm_90a --tp 2 --rank 0 --allow-absent --cubin absent.cubin
grep -q 'missing role bodies' err || wrong "a plan that is not complete: $(cat err)"
expect 2 plan --synth tiny-qwen3 --workers 2 --cubin cpu.cubin
grep -q 'no device code; plan with --arch sm_90a' err || wrong "a plan for the CPU: $(cat err)"
absent absent.cubin cpu.cubin

keel plan --synth qwen3-8b --batch 1 --arch sm_90a --cubin 8b.cubin --json
if grep -q '^keel plan: no run-time compiler: ' err; then
    [ "$status" -eq 2 ] || wrong "without NVRTC: exit status $status"
    grep -q 'LD_LIBRARY_PATH' err || wrong "without NVRTC: the message does not say what to do"
    absent 8b.cubin
    finish
    echo "no NVRTC here"
    exit 77
fi
[ "$status" -eq 0 ] || wrong "qwen3-8b: exit status $status: $(cat err)"
python3 - out 8b.cubin <<'END' || { wrong "the device code of qwen3-8b"; show_output; }
import json, sys
plan, file = json.load(open(sys.argv[1])), open(sys.argv[2], "rb").read()
code = plan["code"]
print("NVRTC", code["nvrtc"], "took", code["seconds"], "s for", len(file), "bytes")
assert code["arch"] == "sm_90a" and code["bytes"] == len(file) and 0 < code["seconds"]
kernels = {k["name"]: k for k in code["kernels"]}
roles = {"keel_role_" + r: 64 if r in ("CONTROLLER", "LOADER") else 255 for r in
         ("CONTROLLER", "LOADER", "LAUNCHER", "CONSUMER", "STORER")}
assert {"keel_run", "keel_pack", "keel_pack_f8", "keel_read", *roles} <= set(kernels), kernels.keys()
most = kernels["keel_run"]["registers_cap"]  # what a launch of all warps leaves a thread
assert 128 <= most <= 255
for name, k in kernels.items():
    print(name, k)
    assert k["spill_bytes"] == 0 and k["stack_bytes"] == 0, name + " keeps something in local memory"
    assert 0 < k["registers"] <= min(most, roles.get(name, most)), name + ": registers"
    if name in roles:
        assert k["registers"] <= k["registers_cap"] <= roles[name], name + ": its own cap"
assert 200 * 1024 < kernels["keel_run"]["smem_bytes"] <= 227 * 1024, "SMEM of a block"
assert file[:4] == b"\x7fELF" and int.from_bytes(file[18:20], "little") == 190, "no ELF file of CUDA"
assert b"\0keel_run\0" in file and b"\0keel_pack\0" in file and b"keel_role" not in file.split(b"#define KD_")[0]
assert plan["tasks"] or plan, "no plan beside it"
END
finish
