#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Inline assembly, CUDA's built-in variables and its intrinsics stand in src/device/cuda_ptx.cuh alone: everything else of
# the device text is plain C++ that tests/emu runs on a CPU.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

builtins='threadIdx|blockIdx|blockDim|gridDim|warpSize|asm'
# names with two underscores in front: __shfl_sync, __syncwarp, __shared__, __expf …
reserved='__[a-z]\w*'
functions='(rsqrt|sqrt|exp|exp2|exp10|log|log2|sin|cos|sincos|fma|fmax|fmin|fabs|pow|tanh|rint|floor|ceil)f?|atomic[A-Z]\w*|clock64|clock'

for file in $(sources src/device ops | grep '\.cuh$'); do
    case $file in src/device/cuda_ptx.cuh) continue ;; esac
    findings_from < <(code_lines "$file" |
        grep -E "\b($builtins)\b|(^|[^A-Za-z0-9_])($reserved)|(^|[^A-Za-z0-9_])($functions)[ \t]*\(" |
        sed 's/$/   <- belongs in src\/device\/cuda_ptx.cuh/' || true)
done
# The emulator has the same functions.
functions() { { cat "$@" 2>/dev/null || true; } | grep -oE '^(KP_FN [A-Za-z0-9_ ]*[ *]|#define )[kK][xX]_[A-Za-z0-9_]+' | grep -oE '[A-Za-z0-9_]+$' | sort -u; }
findings_from < <(comm -23 <(functions src/device/cuda_ptx.cuh) <(functions tests/emu/kx_emu.h) |
    sed 's/$/: in src\/device\/cuda_ptx.cuh, but not in tests\/emu\/kx_emu.h/')
check_end check_ptx
