#!/bin/bash
# Runs the fuzzers that were built for libFuzzer, each for some minutes, as many at once
# as there are processors; says what each has tried and found.
#
#   tests/fuzz.sh BUILD MINUTES NAME...
#
# BUILD/fuzz/corpus/NAME   inputs that reached something new; kept for the next run
# BUILD/fuzz/found         inputs that ended a program; tests/fuzz/corpus/NAME is where one
#                          belongs when it is fixed: make test runs those
set -u
build=$(realpath -m "$1") minutes=$2
shift 2
[ "$minutes" -ge 1 ] || {
	echo 'MINUTES: at least 1'
	exit 2
}
cd "$(dirname "$0")/.." || exit 1
# A fuzzer that is ended leaves its files there.
export TMPDIR=$build/fuzz/tmp
rm -rf "$TMPDIR"
mkdir -p "$TMPDIR" || exit 1
trap 'rm -rf "$TMPDIR"' EXIT
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}

one() {
	local name=$1 corpus=$build/fuzz/corpus/$1 kept=tests/fuzz/corpus/$1 log
	log=$build/fuzz/$name.log
	mkdir -p "$corpus" "$build/fuzz/seeds/$name" "$build/fuzz/found"
	"$build/tests/fuzz/$name" --seeds "$build/fuzz/seeds/$name" 100 || return 1
	[ -d "$kept" ] || kept=
	# shellcheck disable=SC2086
	timeout $((minutes * 60 + 120)) "$build/fuzz/tests/fuzz/$name" -max_total_time=$((minutes * 60)) -timeout=60 \
		-rss_limit_mb=3000 -print_final_stats=1 -len_control=0 -max_len=16384 \
		-artifact_prefix="$build/fuzz/found/$name-" \
		"$corpus" "$build/fuzz/seeds/$name" $kept >"$log" 2>&1
	local code=$?
	printf '%-12s %s inputs, %s, exit code %s\n' "$name" \
		"$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
		"$(grep -oE 'cov: [0-9]+ ft: [0-9]+' "$log" | tail -n 1)" "$code"
	[ $code -eq 0 ] || {
		grep -E 'check failed|ERROR|SUMMARY|Test unit written' "$log" | head -n 8
		return 1
	}
}

running=0 bad=0
for name in "$@"; do
	one "$name" &
	running=$((running + 1))
	if [ $running -ge "$(nproc)" ]; then
		wait -n || bad=1
		running=$((running - 1))
	fi
done
while [ $running -gt 0 ]; do
	wait -n || bad=1
	running=$((running - 1))
done
exit $bad
