# SPDX-License-Identifier: Apache-2.0
# The device text stays in the common subset of C11 and C++17 and needs no system header: every header compiles both ways
# with no include path but src/. The primitives that a backend supplies are declared, not defined (device_primitives.h).
# So does every ops/X/X.h, and alone: role bodies of any backend include it.
set -eu
cd "$KEEL_SOURCE_DIR"
compile() { # HEADER PRELUDE
    local language
    for language in "cc -std=c11 -x c" "c++ -std=c++17 -x c++ -nostdinc++"; do
        printf '%s\n#include "%s"\n' "$2" "${1#src/}" |
            $language -pedantic-errors -nostdinc -ffreestanding -I src -I . -I tests/frame -fsyntax-only - ||
            { echo "$1: not in the common subset: $language"; exit 1; }
    done
}
for header in src/device/*.h; do compile "$header" '#include "device_primitives.h"'; done
for header in ops/*/*.h; do compile "$header" ''; done
