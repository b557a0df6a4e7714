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
check_end check_ptx
