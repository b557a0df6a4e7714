# SPDX-License-Identifier: Apache-2.0
# The device text stays in the common subset of C11 and C++17 and needs no system header: every header compiles both ways
# with no include path but src/. The primitives that a backend supplies are declared, not defined (device_primitives.h).
set -eu
cd "$KEEL_SOURCE_DIR"
for header in src/device/*.h; do
    for language in "cc -std=c11 -x c" "c++ -std=c++17 -x c++ -nostdinc++"; do
        printf '#include "device_primitives.h"\n#include "%s"\n' "${header#src/}" |
            $language -pedantic-errors -nostdinc -ffreestanding -I src -I tests/frame -fsyntax-only - ||
            { echo "$header: not in the common subset: $language"; exit 1; }
    done
done
