#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every declaration of the public header stands under a comment: units, ownership, who frees. A comment serves the lines
# directly below it, up to the next blank line.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
findings_from < <(awk -v path=include/keel.h '
    /^[ \t]*$/ { commented = 0; next }
    /^[ \t]*\/\*/ { in_comment = 1 }
    in_comment { if (/\*\//) { in_comment = 0; commented = 1 } next }
    /^#|\\$/ || macro { macro = /\\$/; next }
    /^extern "C"/ || /^}$/ { next }
    /^[A-Za-z_]/ && !depth && !open && !commented { print path ":" NR ": no comment above: " $0 }
    { code = $0; gsub(/\/\*.*\*\//, "", code)
      depth += gsub(/\{/, "{", code) - gsub(/\}/, "}", code)
      open = depth == 0 && code !~ /[;}][ \t]*$/ }' include/keel.h)
check_end check_header
