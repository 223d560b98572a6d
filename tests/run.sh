#!/bin/bash
# Runs test programs and scripts one after the other: a line for each, the end
# of the output of each that fails, and at last "N passed, N failed".
#
#   BUILD=build tests/run.sh PROGRAM...
#
# TEST_TIMEOUT: seconds that one program may take (default 300).
# Whole outputs are kept in $BUILD/test-logs.  Exit code 0: none failed.
set -u

BUILD=$(realpath -m "${BUILD:-build}")
export BUILD
logs=$BUILD/test-logs
mkdir -p "$logs"

# A failure must be seen: sanitizers end the program, with an exit code of their own.
export ASAN_OPTIONS=${ASAN_OPTIONS:-exitcode=99:detect_leaks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-exitcode=99:halt_on_error=1:second_deadlock_stack=1}

# TSan's memory map does not suit every kernel's address randomisation.
prefix=()
if [ -n "${TSAN:-}" ] && setarch -R true 2>/dev/null; then
	prefix=(setarch -R)
fi

passed=0 failed=0 skipped=0
for program in "$@"; do
	name=${program#"$BUILD"/}
	log=$logs/$(echo "$name" | tr / _).log
	case $program in
	*.sh) command=(bash "$program") ;;
	*) command=("$program") ;;
	esac
	start=${EPOCHREALTIME/[.,]/}
	timeout --kill-after=10 "${TEST_TIMEOUT:-300}" "${prefix[@]}" "${command[@]}" \
		>"$log" 2>&1 </dev/null
	code=$?
	tenths=$(((${EPOCHREALTIME/[.,]/} - start) / 100000))
	seconds=$((tenths / 10)).$((tenths % 10))
	case $code in
	0)
		passed=$((passed + 1))
		printf 'ok    %s (%s s)\n' "$name" "$seconds"
		# What was tried is the point of these.
		case $name in tests/crash/*) tail -n 1 "$log" | sed 's/^/      /' ;; esac
		;;
	77)
		skipped=$((skipped + 1))
		printf 'skip  %s: %s\n' "$name" "$(tail -n 1 "$log")"
		;;
	*)
		failed=$((failed + 1))
		printf 'FAIL  %s (exit code %s, %s s)\n' "$name" "$code" "$seconds"
		tail -n 40 "$log" | sed 's/^/      | /'
		;;
	esac
done

[ $skipped -eq 0 ] || echo "$skipped skipped"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
