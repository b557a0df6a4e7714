#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Who may include whom (CONVENTIONS): core ← graph, plan, load, trace ← exec ← tools; device stands alone.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# folder: allowed prefixes of "…" includes. "own" is a file lying beside the including one.
allowed() {
    case $1 in
    src/core/*) echo keel.h core/ ;;
    src/device/*) echo device/ ;;
    src/graph/*) echo keel.h core/ graph/ device/body.h ;;
    src/draw/*) echo keel.h core/ graph/ draw/ ;;
    src/plan/*) echo keel.h core/ graph/ device/ plan/ ;;
    src/body/*) echo core/ device/ body/ ;;
    src/load/*) echo keel.h core/ graph/ load/ ;;
    src/trace/*) echo keel.h core/ device/ trace/ ;;
    src/exec/*) echo keel.h core/ graph/ draw/ plan/ load/ trace/ device/ exec/ ;;
    ops/*/*_test.c) echo any ;;
    ops/*/*.h | ops/*/*.cuh) echo device/ own ;;
    ops/*/*) echo keel.h core/ graph/ plan/ body/ device/body.h device/rows.h device/emit.h own ;;
    models/*) echo keel.h core/ graph/ ;;
    tools/*) echo keel.h own ;;
    *) echo "" ;;
    esac
}

may_include() { # FILE INCLUDED
    local file=$1 included=$2 prefix
    case $included in *..*) return 1 ;; esac
    for prefix in $(allowed "$file"); do
        case $prefix in
        any) return 0 ;;
        own) case $included in */*) ;; *) [ ! -e "$(dirname "$file")/$included" ] || return 0 ;; esac ;;
        */) case $included in "$prefix"*) return 0 ;; esac ;;
        *) [ "$included" != "$prefix" ] || return 0 ;;
        esac
    done
    return 1
}

while IFS=: read -r file line text; do
    included=$(sed -E 's/^[ \t]*#[ \t]*include[ \t]*["<]([^">]*)[">].*/\1/' <<<"$text")
    case $text in
    *\<*)
        case $file in
        src/device/* | ops/*.h | ops/*.cuh) finding "$file:$line: <$included>: device text includes no system header" ;;
        tools/*)
            case $included in expat.h | zlib.h | pcre2.h | utf8proc.h | openssl/*)
                finding "$file:$line: <$included>: tools use keel.h, jansson and the C library only" ;;
            esac ;;
        esac ;;
    *)
        may_include "$file" "$included" ||
            finding "$file:$line: \"$included\": this folder may include $(allowed "$file")" ;;
    esac
done < <(sources src ops models tools | xargs -r grep -HnE '^[ \t]*#[ \t]*include')

# The device text names no op.
if [ -f ops/ops.def ] && [ -d src/device ]; then
    names=$(sed -nE 's/^[ \t]*OP\(([a-z0-9_]+)\).*/\1/p' ops/ops.def | paste -sd'|')
    for file in $(sources src/device); do
        findings_from < <([ -z "$names" ] || code_lines "$file" | grep -E "\\b($names)\\b" | sed 's/$/   <- names an op/')
    done
fi
check_end check_includes
