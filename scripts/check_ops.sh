#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ops/ops.def and the folders under ops/ say the same, and each op is whole: X.h, X.c, X_test.c and its descriptor.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
[ -d ops ] || exit 0
names=$(sed -nE 's/^[ \t]*OP\(([a-z0-9_]+)\).*/\1/p' ops/ops.def 2>/dev/null || true)
for name in $names; do
    [ -d "ops/$name" ] || { finding "ops/ops.def: $name: no folder ops/$name"; continue; }
    for file in "$name.h" "$name.c" "${name}_test.c"; do
        [ -f "ops/$name/$file" ] || finding "ops/$name: $file is missing"
    done
    grep -qsE "^const op_desc keel_op_$name\\b" "ops/$name/$name.c" ||
        finding "ops/$name/$name.c: does not define keel_op_$name"
done
for folder in ops/*/; do
    [ -d "$folder" ] || continue
    name=$(basename "$folder")
    grep -qx "$name" <<<"$names" || finding "$folder: not in ops/ops.def"
done
for file in models/*.c; do
    [ -f "$file" ] || continue
    name=$(basename "$file" .c)
    grep -qE "^const model_desc keel_model_$name\\b" "$file" || finding "$file: does not define keel_model_$name"
done
check_end check_ops
