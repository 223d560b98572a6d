#!/bin/bash
# Runs tests that were built with --coverage, then says which lines of the engine, the
# log and fsck they have run.
#
#   tests/coverage.sh BUILD PROGRAM...
#
# BUILD/report/coverage.txt   a line a file, with the lines that were not run
# BUILD/report/coverage.json  the same for programs
# BUILD/report/uncovered.txt  each place that was not run: file, function, lines, of which
#                             kind (see README.md), what stands there
#
# What is killed (kill -9, abort()) has counted nothing.  COV_MIN (default 90) percent are
# wanted of each of the three.
set -u
build=$(realpath -m "$1")
shift
cd "$(dirname "$0")/.." || exit 1
command -v gcovr >/dev/null || {
	echo 'gcovr is missing: apt-get install gcovr'
	exit 1
}
find "$build" -name '*.gcda' -delete
# Tests compare what programs say; a counter that another user cannot write is no news.
export GCOV_ERROR_FILE=/dev/null
failed=0
BUILD=$build tests/run.sh "$@" || failed=1

mkdir -p "$build/report"
gcovr --root . --object-directory "$build/obj" --gcov-ignore-parse-errors --print-summary \
	--filter '(engine|log|fsck)/' --json-summary-pretty \
	--json-summary "$build/report/coverage.json" --json "$build/report/lines.json" --txt "$build/report/coverage.txt" \
	"$build/obj" >"$build/report/summary" || exit 1

jq -r '.files[] | [.file, ([.lines[] | select(.count == 0 and (."gcovr/noncode" | not)) |
	.line_number] | join(" "))] |
	select(.[1] != "") | @tsv' "$build/report/lines.json" |
	while IFS=$'\t' read -r file lines; do
		awk -v file="$file" -v lines="$lines" -f tests/uncovered.awk "$file"
	done >"$build/report/uncovered.txt"
cut -f 2 "$build/report/uncovered.txt" | sort | uniq -c | sort -rn >"$build/report/kinds.txt"

jq -r '.files[] | [.filename, .line_total, .line_covered] | @tsv' "$build/report/coverage.json" |
	awk -v min="${COV_MIN:-90}" '
	{
		part = $1
		sub(/\/.*/, "", part)
		total[part] += $2
		run[part] += $3
		printf "%6.1f %%  %5d of %5d  %s\n", $2 ? 100 * $3 / $2 : 100, $3, $2, $1
	}
	END {
		for (part in total) {
			share = 100 * run[part] / total[part]
			printf "%6.1f %%  %5d of %5d  %s: all\n", share, run[part], total[part], part
			if (share < min)
				bad = 1
		}
		exit bad
	}' | tee "$build/report/table.txt"
short=${PIPESTATUS[1]}
echo 'places that were not run, by kind (report/uncovered.txt):'
cat "$build/report/kinds.txt"
[ "$short" -eq 0 ] || echo "less than ${COV_MIN:-90} % of one of them"
[ $((failed + short)) -eq 0 ]
