#!/bin/sh
# Latches of atomics against pthread_rwlock_t, and allocators against each other.
#
#	BUILD=build bench/latch.sh
#
# Builds one program of each kind, in folders of their own below $BUILD/latch, and
# runs them in turns (A B A B ...), so that whatever else the machine does meets
# all of them.  Prints medians; every measurement is in $BUILD/bench/latch.json.
# An allocator that is not installed is left out.
#
# ROUNDS  5
# MS      of each measurement (200)
BUILD=${BUILD:-build}
ROUNDS=${ROUNDS:-5}
MS=${MS:-200}
dir=/dev/shm
[ -w "$dir" ] || dir=$BUILD/bench

have()
{
	echo 'int main(void) { return 0; }' | ${CC:-gcc} -x c - -o /dev/null "-l$1" 2>/dev/null
}

# build LATCH ALLOC
build()
{
	make --no-print-directory "LATCH=$1" "ALLOC=$2" "BUILD=$BUILD/latch/$1-$2" \
		CFLAGS="-DALLOC_NAME='\"$2\"'" "$BUILD/latch/$1-$2/bench/latch_bench" >/dev/null || exit 1
	programs="$programs $BUILD/latch/$1-$2/bench/latch_bench"
}

programs=
build atomic system
build pthread system
latches=$programs
programs=" $BUILD/latch/atomic-system/bench/latch_bench"
for alloc in jemalloc mimalloc; do
	if have $alloc; then build atomic $alloc; else echo "$alloc: not installed, left out"; fi
done
engines="$programs $BUILD/latch/pthread-system/bench/latch_bench"

mkdir -p "$BUILD/bench"
lines=$(mktemp) || exit 1
trap 'rm -f "$lines"' EXIT
round=0
while [ $round -lt "$ROUNDS" ]; do
	round=$((round + 1))
	for program in $latches; do "$program" latch --ms "$MS" >>"$lines" || exit 1; done
	for program in $engines; do
		"$program" engine "$dir" --ms $((MS * 5)) >>"$lines" || exit 1
	done
done
{
	echo '['
	sed '$!s/$/,/' "$lines"
	echo ']'
} >"$BUILD/bench/latch.json"

# table PATTERN TITLE: medians of the lines that match, a row for each load and number
# of threads, a column for each kind: thousands a second, and processor time of one.
table()
{
	echo "$2"
	grep "$1" "$lines" | sed 's/[{}",]//g' | awk '
	{
		kind = $2 "/" $4; row = sprintf("%-14s %3d", $6, $8)
		if (!(row in rows)) { rows[row] = ++count; name[count] = row }
		if (!(kind in kinds)) { kinds[kind] = ++width; title[width] = kind }
		n = ++seen[row, kind]; rate[row, kind, n] = $10; cpu[row, kind, n] = $12
	}
	function median(values, row, kind,    n, i, j, t) {
		n = seen[row, kind]
		for (i = 1; i <= n; i++) sorted[i] = values[row, kind, i]
		for (i = 2; i <= n; i++)
			for (j = i; j > 1 && sorted[j] < sorted[j - 1]; j--) {
				t = sorted[j]; sorted[j] = sorted[j - 1]; sorted[j - 1] = t
			}
		return sorted[int((n + 1) / 2)]
	}
	END {
		printf "%-18s", "load       threads"
		for (k = 1; k <= width; k++) printf " %20s", title[k]
		print ""
		for (r = 1; r <= count; r++) {
			printf "%-18s", name[r]
			for (k = 1; k <= width; k++)
				printf " %10.1f %6.0f ns", median(rate, name[r], title[k]) / 1000,
					median(cpu, name[r], title[k])
			print ""
		}
	}'
}
table '"waits"' 'Latches: thousands a second, processor time of one'
table '"engine-create"' 'Files created: thousands a second, processor time of one'
