# SPDX-License-Identifier: Apache-2.0
# The source checks can fail: each offence below, alone in a small tree that is otherwise clean, turns its check red with
# the file's name in the message.
set -eu
scripts=$KEEL_SOURCE_DIR/scripts
rm -rf tree
tree() {
    rm -rf tree
    mkdir -p tree/include tree/src/core tree/src/device tree/src/body tree/src/graph tree/src/plan tree/src/load tree/ops/add tree/ops/mul \
        tree/models tree/tools
    printf '/* A thing. */\nint keel_thing(void);\n' > tree/include/keel.h
    printf '#include "core/a.h"\nint a(void) { return 1; } /* printf( in a comment, abort() too */\n' > tree/src/core/a.c
    printf 'int a(void);\n' > tree/src/core/a.h
    printf 'typedef int adder; /* add */\n' > tree/src/device/body.h
    printf 'OP(add)\nOP(mul)\n' > tree/ops/ops.def
    for op in add mul; do
        printf '#include "%s.h"\nconst op_desc keel_op_%s = {0};\n' $op $op > tree/ops/$op/$op.c
        touch tree/ops/$op/$op.h tree/ops/$op/${op}_test.c
    done
    printf 'const model_desc keel_model_m = {0};\n' > tree/models/m.c
    printf '#include "keel.h"\n#include <stdio.h>\nint main(void) { return puts("no malloc(1) here") < 0; }\n' > tree/tools/keel.c
}
check() { KEEL_SOURCE_DIR=$PWD/tree bash "$scripts/check_$1.sh" > output 2>&1; }

tree
for name in includes calls length marks header ops ptx; do
    check $name || { echo "check_$name is red on the clean tree:"; cat output; exit 1; }
done

# offence CHECK FILE TEXT: appends TEXT to FILE
red=0
offence() {
    tree
    printf '%b\n' "$3" >> "tree/$2"
    if check "$1"; then echo "check_$1 let pass in $2: $3"; red=1; fi
    grep -q "$2" output || { echo "check_$1 does not name $2: $(cat output)"; red=1; }
}
offence includes src/core/a.c '#include "graph/graph.h"'
offence includes src/graph/g.c '#include "plan/plan.h"'
offence includes src/graph/g.c '#include "device/worker.h"'
offence includes src/plan/p.c '#include "load/gguf.h"'
offence includes src/load/l.c '#include "exec/exec.h"'
offence includes src/device/body.h '#include <stdint.h>'
offence includes src/device/body.h '#include "core/a.h"'
offence includes src/device/body.h 'int add(int);'
offence includes ops/add/add.c '#include "../mul/mul.h"'
offence includes ops/add/add.c '#include "mul/mul.h"'
offence includes ops/add/add.c '#include "exec/exec.h"'
offence includes ops/add/add.h '#include "graph/op.h"'
offence includes ops/add/add.h '#include <math.h>'
offence includes ops/add/add.cuh '#include <cuda_runtime.h>'
offence includes ops/add/add.cuh '#include "graph/op.h"'
offence includes src/device/cuda_body.cuh '#include <cuda_bf16.h>'
offence includes src/device/cuda_body.cuh '#include "exec/cuda_text.h"'
offence includes src/device/cuda_body.cuh 'int add(int);'
offence includes src/body/b.c '#include "plan/plan.h"'
offence includes tools/keel.c '#include "core/a.h"'
offence includes tools/keel.c '#include <zlib.h>'
offence calls src/core/a.c 'void b(void) { exit(1); }'
offence calls src/core/a.c 'void b(void) { abort (); }'
offence calls ops/add/add.c 'void b(void) { printf("x"); }'
offence calls models/m.c 'void b(void) { fprintf(stderr, "x"); }'
offence calls src/load/l.c 'void b(void) { getenv("X"); }'
offence calls src/load/l.c 'void *b(void) { return malloc(1); }'
offence calls src/load/l.c 'void b(char *p) { sprintf(p, "x"); }'
offence calls tools/keel.c 'void b(char *p) { strcpy(p, "x"); }'
offence length src/core/a.c "int b(void) {\n$(yes '    a();' | head -60 | paste -sd'@' | sed 's/@/\\n/g')\n}"
offence length src/core/a.c "int b(int x,\n      int y) {\n$(yes '    a();' | head -60 | paste -sd'@' | sed 's/@/\\n/g')\n}"
offence length src/core/a.h "$(yes 'int b(void);' | head -800 | paste -sd'@' | sed 's/@/\\n/g')"
offence marks src/core/a.c '/* TODO: more */'
offence marks tools/keel.c 'const char *b = "not implemented";'
offence header include/keel.h '\nint keel_other(void);'
offence header include/keel.h '\n/* A comment too far above. */\n\nstruct keel_s {\n    int x;\n};'
offence ops ops/ops.def 'OP(gone)'
offence ops models/n.c 'int other;'
offence ptx ops/add/add.cuh 'KP_FN void f(void) { asm volatile("bar.sync 0;"); }'
offence ptx ops/add/add.cuh 'KP_FN int f(void) { return threadIdx.x; }'
offence ptx ops/add/add.cuh 'KP_FN void f(void) { __syncwarp(); }'
offence ptx ops/add/add.cuh 'KP_FN float f(float v) { return rsqrtf(v); }'
offence ptx src/device/cuda_ptx.cuh 'KP_FN int kx_other(void) { return 0; }'
offence ptx src/device/cuda_body.cuh '__shared__ int x;'
offence ptx src/device/cuda_body.cuh 'KP_FN int f(int *p) { return atomicAdd(p, 1); }'
tree && mkdir tree/ops/orphan
! check ops || { echo "check_ops let pass a folder without a line"; red=1; }
tree && rm tree/ops/mul/mul_test.c
! check ops || { echo "check_ops let pass an op without a test"; red=1; }

# clang-format of another version skips.
tree
printf 'int  badly( void ){return 1;}\n' >> tree/src/core/a.c
cp "$KEEL_SOURCE_DIR/.clang-format" tree/
status=0
check format || status=$?
[ $status -eq 1 ] || [ $status -eq 77 ] || { echo "check_format: exit $status on a badly laid-out file"; red=1; }
exit $red
