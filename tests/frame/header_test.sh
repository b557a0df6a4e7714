# SPDX-License-Identifier: Apache-2.0
# keel.h compiles alone, as C11 and as C++, with every warning on.
set -eu
for language in "cc -std=c11 -x c" "c++ -std=c++17 -x c++"; do
    echo '#include "keel.h"' |
        $language -I "$KEEL_SOURCE_DIR/include" -Wall -Wextra -Wshadow -Wconversion -pedantic -Werror -fsyntax-only -
done
