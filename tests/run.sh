#!/bin/bash
# Runs test programs and scripts, as many at once as there are processors: a line
# for each as it ends, the end of the output of each that fails, and at last
# "N passed, N failed".
#
#   BUILD=build tests/run.sh PROGRAM...
#
# TEST_TIMEOUT  seconds that one program may take (default 300)
# TEST_JOBS     how many run at once (default: processors)
#
# Whole outputs are kept in $BUILD/test-logs; files that a program leaves in TMPDIR
# are removed.  Exit code 0: none failed.
set -u

BUILD=$(realpath -m "${BUILD:-build}")
export BUILD
logs=$BUILD/test-logs

# A failure must be seen: sanitizers end the program, with an exit code of their own.
export ASAN_OPTIONS=${ASAN_OPTIONS:-exitcode=99:detect_leaks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-exitcode=99:halt_on_error=1:second_deadlock_stack=1}

# Runs one program; its verdict is a line in the file $2, what is to be seen goes to stdout.
run_one() {
	local program=$1 verdicts=$2 name log start code tenths took prefix=()
	name=${program#"$BUILD"/}
	log=$logs/$(echo "$name" | tr / _).log
	# TSan's memory map does not suit every kernel's address randomisation.
	if [ -n "${TSAN:-}" ] && setarch -R true 2>/dev/null; then
		prefix=(setarch -R)
	fi
	case $program in
	*.sh) prefix+=(bash) ;;
	# Criterion's socket, which a program that is killed leaves, has its process in its name.
	"$BUILD"/tests/unit/*) prefix+=(bash -c 'echo $$ >"$0" && exec "$@"' "$TMPDIR/$name.pid") ;;
	esac
	start=${EPOCHREALTIME/[.,]/}
	timeout --kill-after=10 "${TEST_TIMEOUT:-300}" "${prefix[@]}" "$program" \
		>"$log" 2>&1 </dev/null
	code=$?
	tenths=$(((${EPOCHREALTIME/[.,]/} - start) / 100000))
	took=$((tenths / 10)).$((tenths % 10))
	[ ! -e "$TMPDIR/$name.pid" ] || rm -f "/tmp/criterion_$(<"$TMPDIR/$name.pid").sock"
	case $code in
	0)
		echo passed >>"$verdicts"
		printf 'ok    %s (%s s)\n' "$name" "$took"
		# What was tried is the point of these.
		case $name in tests/crash/*) tail -n 1 "$log" | sed 's/^/      /' ;; esac
		;;
	77)
		echo skipped >>"$verdicts"
		printf 'skip  %s: %s\n' "$name" "$(tail -n 1 "$log")"
		;;
	*)
		echo failed >>"$verdicts"
		printf 'FAIL  %s (exit code %s, %s s)\n' "$name" "$code" "$took"
		tail -n 40 "$log" | sed 's/^/      | /'
		;;
	esac
}

if [ "${1:-}" = --one ]; then # by xargs below; one write, so that lines stay together
	output=$(run_one "$3" "$2")
	printf '%s\n' "$output"
	exit 0
fi

mkdir -p "$logs"
TMPDIR=$(mktemp -d)
export TMPDIR
trap 'rm -rf --one-file-system "$TMPDIR"' EXIT
verdicts=$TMPDIR/verdicts
touch "$verdicts"
mkdir -p "$TMPDIR/tests/unit"
[ $# -eq 0 ] || printf '%s\0' "$@" |
	xargs -0 -n 1 -P "${TEST_JOBS:-$(nproc)}" bash "$0" --one "$verdicts"

count() { grep -cx "$1" "$verdicts"; }
passed=$(count passed) failed=$(count failed) skipped=$(count skipped)
failed=$((failed + $# - passed - failed - skipped)) # without a verdict
[ "$skipped" -eq 0 ] || echo "$skipped skipped"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
