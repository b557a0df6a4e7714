# SPDX-License-Identifier: Apache-2.0
# Evidence files are read as they are meant: the newest row of each name, bars and goals, what was not run, what is no evidence.
set -u
command -v git >/dev/null || { echo "no git here"; exit 77; }
evidence=$KEEL_SOURCE_DIR/tests/gpu/evidence.py
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
wrong=0
git init -q . && git config user.name n && git config user.email e && mkdir perf src && echo 1 >src/a && git add src && git commit -qm one || exit 1
commit=$(git rev-parse HEAD)

# file NAME PART DATE COMMAND ROW...
file() {
    printf '%s\n' "evidence: $2" "commit: $commit" "date: $3" "machine: A GPU; 1 CPU core" "command: $4" "" "${@:5}" "  a note" "end: some" "took: 1 s" >"perf/$1"
    git add "perf/$1"
}
# says PATTERN STATUS ARGUMENTS...
says() {
    local text status
    text=$(python3 "$evidence" judge perf "${@:3}" 2>&1)
    status=$?
    [ $status -eq "$2" ] && grep -qE -- "$1" <<<"$text" || { echo "judge ${*:3}: exit $status, $text; expected $2, $1"; wrong=1; }
}
says '^NOT-RUN no committed evidence' 2 bench '^bench/x$'
file b1.txt bench 2026-01-01T00:00:00Z "run.sh bench" "PASS bench/x share=91.5 goal=95" "FAIL bench/y share=70 | too slow" "NOT-RUN bench/z | no time" "PASS bench/w share=50"
says '^PASS bench/x share=91\.5 .*; goal share>=95 not reached \(b1\.txt, commit '"${commit:0:12}"'\)$' 0 bench '^bench/x$' 'share>=90' --goal 'share>=95'
says 'goal share>=91 reached' 0 bench '^bench/x$' --goal 'share>=91'
says '^FAIL 1 of 1 rows: bench/y share=70 too slow' 1 bench '^bench/y$'
says '^FAIL 1 of 1 rows: bench/w share=50' 1 bench '^bench/w$' 'share>=60' # a row that passed then, by a higher bar now
says '^FAIL' 1 bench '^bench/w$' 'other>=60'                              # a figure that is not there
says '^NOT-RUN 0 of 1 rows .*: bench/z no time' 2 bench '^bench/z$'
says '^NOT-RUN 2 of 3 rows' 2 bench '^bench/[wx]$' --rows 3
# newer: one row better, one that was not run again, one new
file b2.txt bench 2026-01-02T00:00:00Z "run.sh bench:y" "PASS bench/y share=93" "NOT-RUN bench/x | no time" "PASS bench/v share=1"
says '^PASS bench/y share=93 .*\(b2\.txt' 0 bench '^bench/y$' 'share>=90'
says '^PASS bench/x share=91\.5 .*\(b1\.txt' 0 bench '^bench/x$'
says '^PASS 2 rows .*\(b1\.txt, .*; b2\.txt, ' 0 bench '^bench/[xy]$' --rows 2
# no evidence: another part, a try on the CPU or in little, a file that is not committed
file c.txt correct 2026-01-03T00:00:00Z "run.sh correct" "PASS depth/x"
file d.txt bench 2026-01-04T00:00:00Z "run.sh --device cpu --tiny bench" "FAIL bench/x share=1"
printf 'evidence: bench\nmachine: A GPU\ndate: 2027\ncommand: x\n\nFAIL bench/x\n' >perf/e.txt
says '^PASS bench/x' 0 bench '^bench/x$'
# what runs there changed since
echo 2 >src/a && git commit -qam two
says 'src, ops or models changed since' 0 bench '^bench/x$'
python3 "$evidence" table perf/b1.txt 2>&1 | grep -q 'FAIL *bench/y share=70' || { echo "no table"; wrong=1; }
exit $wrong
