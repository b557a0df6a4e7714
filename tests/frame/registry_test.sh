# SPDX-License-Identifier: Apache-2.0
# scripts/gen_registry.sh: order, comments, sorting, and what it refuses.
set -eu
generate() { "$KEEL_SOURCE_DIR/scripts/gen_registry.sh" "$@"; }
entries() { sed -nE 's/^    &keel_(op|model)_([a-z0-9_]+),$/\2/p' "$1" | paste -sd' '; }
expect() { [ "$2" = "$3" ] || { echo "$1: got '$2', expected '$3'"; exit 1; }; }

cat > ops.def <<'END'
/* One line an op.
 * OP(not_this_one) stands in a comment. */
OP(zeta) // the first
  OP(alpha)   /* the second */

/* OP(nor_this) */ OP(mid_2)
END
generate op ops.c ops.def
expect "order of ops.def" "$(entries ops.c)" "zeta alpha mid_2"
expect "externs" "$(grep -c '^extern const op_desc keel_op_' ops.c)" 3

generate model models.c models/qwen3.c models/deepseek_v3.c models/llama.c
expect "models sorted" "$(entries models.c)" "deepseek_v3 llama qwen3"
generate model none.c
expect "no model" "$(entries none.c)" ""

# The count is that of the entries, also of an empty registry.
mkdir -p graph
for kind in op model; do
    printf 'typedef struct { int x; } %s_desc;\nextern const %s_desc *const %s_registry[];\nextern const unsigned %s_registry_count;\n' \
        $kind $kind $kind $kind > graph/$kind.h
done
cat > main.c <<'END'
#include "graph/op.h"
const op_desc keel_op_zeta = {1}, keel_op_alpha = {2}, keel_op_mid_2 = {3};
#include "graph/model.h"
int main(void) { return !(op_registry_count == 3 && op_registry[2]->x == 3 && model_registry_count == 0); }
END
cc -std=c11 -pedantic -Wall -Wextra -Werror -I . -o main main.c ops.c none.c
./main

for bad in 'OP(twice)
OP(twice)' 'OP(Upper)' 'OP(a) OP(b)' 'OP(a, b)' 'op(a)' 'OP(a);'; do
    echo "$bad" > bad.def
    rm -f bad.c
    ! generate op bad.c bad.def 2> message || { echo "accepted: $bad"; exit 1; }
    grep -q '^bad.def:[12]: expected OP(name)' message || { echo "no position for '$bad': $(cat message)"; exit 1; }
    [ ! -e bad.c ] || { echo "wrote a file for: $bad"; exit 1; }
done
