#!/bin/bash
# Metadata of more than ten times the page pool, which is as small as it may be,
# and a log that is written many times over (CASES 15): made, listed, read and
# deleted by several processes at once.
. "$(dirname "$0")/lib.sh"
fill=$BUILD/tests/mount/fill_tool
[ -x "$fill" ] || skip 'tests/mount/fill_tool is not built'
command -v jq >/dev/null || skip 'jq is missing'

files=$((2500 * ${TEST_SCALE:-1}))
commits=$((3000 * ${TEST_SCALE:-1}))
jobs=4
used() { df --output=used "$mnt" | tail -n 1 | tr -d ' '; }
stat_of() { jq "$1" "$mnt/.blinkfs/stats"; }

# Runs a command for each job at once, $job standing for its number.
at_once() {
	local job pid pids=()
	for job in $(seq $jobs); do
		(eval "$1") >>"$work/out" 2>&1 &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do
		wait "$pid" || {
			cat "$work/out"
			fail "one of '$1' failed"
		}
	done
}

# The smallest pool that is accepted.
smallest() {
	local size
	for size in 256K 512K 1M 2M 4M 8M; do
		if "$blinkfs" -o "cache_size=$size" "$image" "$mnt" 2>"$work/err"; then
			echo $size
			unmount "$mnt"
			return
		fi
		grep -q 'cache' "$work/err" || fail "refused without a reason: $(cat "$work/err")"
	done
	fail 'no pool is large enough'
}

volume $((256 * ${TEST_SCALE:-1}))M -p 4K -l 512K
pool=$(smallest)
serve -o "cache_size=$pool"
empty=$(used)
pool_kib=$(($(stat_of .pool.frames) * 4))

# Contents of 400 bytes stay within the inode: all that is used is metadata.
at_once '"$fill" many "$mnt/dir.$job" 400 '$files
metadata=$(($(used) - empty))
echo "pool of $pool_kib KiB, metadata of $metadata KiB"
[ "$metadata" -ge $((10 * pool_kib)) ] || fail 'the working set is too small for this test'
unserve

serve -o "cache_size=$pool" # and with nothing in the kernel's caches
at_once '[ "$(ls -f "$mnt/dir.$job" | wc -l)" -eq '$((files + 2))' ]'
at_once '[ "$(find "$mnt/dir.$job" -type f -size -2 | wc -l)" -eq '$files' ]'
at_once '"$fill" check "$mnt/dir.$job"'
# Names move between directories while others are listed.
at_once 'for i in $(seq 1 10 200); do
		mv "$mnt/dir.$job/$i" "$mnt/dir.$((job % jobs + 1))/from.$job.$i" &&
			ls -f "$mnt/dir.$job" >/dev/null || exit 1
	done'
at_once 'find "$mnt/dir.$job" -type f -name "*[02468]" -delete'
same "$(find "$mnt" -type f | wc -l)" $((jobs * files / 2))
at_once 'rm -r "$mnt/dir.$job"'
is_back() { [ "$(used)" -le $((empty + 200)) ]; }
eventually is_back

# Each commit takes a block of the log at least; groups of them share one.
before=$(stat_of .log.next_lsn)
at_once '"$fill" commits "$mnt/log.$job" '$commits
laps=$((($(stat_of .log.next_lsn) - before) / $(stat_of .log.capacity)))
echo "the log was written $laps times over by $((jobs * commits)) commits"
[ "$laps" -ge 3 ] || fail 'too few laps for this test'
same "$(stat_of .log.dead)" false
at_once '"$fill" check "$mnt/log.$job"'
unserve
"$fsck" -n -f --data "$image" || fail 'fsck complains'
