#!/bin/bash
# Switches mechanisms off, one at a time, in a copy of the tree, and sees that the test
# which each patch names fails.
#
#   BUILD=build tests/mutants/run.sh [NAME...]
#
# A patch begins with two lines:
#
#   Mechanism: what is switched off
#   Fails: tests/KIND/PROGRAM [ARGUMENT...]
#
# Exit code 0: with each mechanism its test passes, without it fails.
set -u
cd "$(dirname "$0")/../.." || exit 2

BUILD=$(realpath -m "${BUILD:-build}")/mutants
CC=${CC:-gcc}
tree=$BUILD/tree
mkdir -p "$tree"
# What differs is copied and so becomes new to make: what an interrupted run left behind, too.
find Makefile engine log fs mkfs fsck tests bench -type f | while read -r file; do
	cmp -s "$file" "$tree/$file" || install -D "$file" "$tree/$file" || exit 2
done || exit 2

header() { sed -n "s/^$2: //p" "tests/mutants/$1.patch"; }

# The test of a mutant; 0 passed, 1 failed, 2 it cannot be built.
try() {
	local program arguments
	read -r program arguments <<<"$1"
	make -C "$tree" CC="$CC" BUILD="$BUILD/build" "$BUILD/build/$program" \
		>"$BUILD/make.log" 2>&1 || return 2
	# In a shell of its own, which keeps its remark about an abort to itself.
	# shellcheck disable=SC2086
	(timeout --kill-after=10 "${TEST_TIMEOUT:-300}" "$BUILD/build/$program" $arguments) \
		>"$BUILD/test.log" 2>&1 || return 1
}

if [ $# -eq 0 ]; then
	mapfile -t names < <(basename -s .patch tests/mutants/*.patch)
else
	names=("$@")
fi
passed=0 failed=0
declare -A whole
for name in "${names[@]}"; do
	test=$(header "$name" Fails)
	what=$(header "$name" Mechanism)
	[ -n "${whole[$test]:-}" ] || { try "$test" && whole[$test]=passed || whole[$test]=failed; }
	verdict='the test fails with the mechanism as well'
	if [ "${whole[$test]}" = passed ]; then
		if patch -d "$tree" -p1 -s --no-backup-if-mismatch <"tests/mutants/$name.patch"; then
			try "$test"
			case $? in
			0) verdict="$test does not notice" ;;
			1) verdict='' ;;
			*) verdict="does not build: $(tail -n 3 "$BUILD/make.log")" ;;
			esac
			patch -d "$tree" -p1 -s -R --no-backup-if-mismatch <"tests/mutants/$name.patch"
		else
			verdict='the patch does not apply'
		fi
	fi
	if [ -z "$verdict" ]; then
		passed=$((passed + 1))
		echo "ok    $name: $what"
		grep -m 1 . "$BUILD/test.log" | sed 's/^/      | /'
	else
		failed=$((failed + 1))
		echo "FAIL  $name: $what"
		echo "      | $verdict"
	fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
