#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Calls that CONVENTIONS bans: below tools/ nothing exits, prints or asks the environment, and memory comes from
# core/mem.h, whose allocations a test can make fail. Unbounded string functions are banned everywhere.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

unsafe='strcpy|strcat|sprintf|vsprintf|gets|system|popen|atoi|atol|atof|strtok'
below='_?exit|quick_exit|abort|printf|vprintf|puts|putchar|perror|getenv'
heap='malloc|calloc|realloc|free|strdup|strndup|asprintf|vasprintf|aligned_alloc|posix_memalign'
streams='\b(stdout|stderr)\b'

# path:call, and why it may stand there
exceptions=$(cat <<'END' | awk '{ print $1 }'
src/core/mem.c:malloc          the door to the heap itself
src/core/mem.c:calloc          the door to the heap itself
src/core/mem.c:realloc         the door to the heap itself
src/core/mem.c:aligned_alloc   the door to the heap itself
src/core/mem.c:posix_memalign  the door to the heap itself
src/core/mem.c:free            the door to the heap itself
src/core/error.c:free          keel_free: strings that go to a caller outside
src/load/safetensors_write.c:free  text that jansson allocated
src/load/gguf_config.c:free       text that jansson allocated
END
)

look() { # FILE PATTERN WHY
    local line call
    while IFS= read -r line; do
        call=$(grep -oE "$2" <<<"${line#*:*:}" | head -n 1 | tr -d '( \t')
        grep -qxF "$1:$call" <<<"$exceptions" || finding "${line%%:*}:$(cut -d: -f2 <<<"$line"): $call: $3"
    done < <(code_lines "$1" | grep -E "$2" || true)
}

for file in $(sources src ops models | grep -v '_test\.c$'); do
    look "$file" "(^|[^a-zA-Z0-9_.>])($unsafe)[ \t]*\\(" "banned: no bound or no error"
    look "$file" "(^|[^a-zA-Z0-9_.>])($below)[ \t]*\\(" "banned below tools/: return a keel_status"
    look "$file" "$streams" "banned below tools/: nothing prints"
    look "$file" "(^|[^a-zA-Z0-9_.>])($heap)[ \t]*\\(" "banned: use core/mem.h or an arena"
done
for file in $(sources tools); do
    look "$file" "(^|[^a-zA-Z0-9_.>])($unsafe)[ \t]*\\(" "banned: no bound or no error"
done
check_end check_calls
