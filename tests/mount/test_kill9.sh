#!/bin/bash
# kill -9 of the server under load, again and again on one volume: each time the
# image is whole (fsck.blinkfs --data, which only looks), and after mounting it
# again everything that an fsync had promised is there and nothing is half done
# (kill9_load.c).  Now and then the recovery is killed as well.  In the end all
# is removed and the space is back.
#
#   ROUNDS   kills (6, times TEST_SCALE)
#   SEED     of the first round; each prints its own
# A failure keeps the volume as it was found after the kill.
. "$(dirname "$0")/lib.sh"
load=$BUILD/tests/mount/kill9_load
[ -x "$load" ] || skip 'tests/mount/kill9_load is not built'

rounds=${ROUNDS:-$((6 * ${TEST_SCALE:-1}))}
seed=${SEED:-${TEST_SEED:-$(((RANDOM << 15) + RANDOM))}}

# One of its arguments, in $picked; not in a subshell, which would leave RANDOM as it was.
pick() { picked=${*:RANDOM % $# + 1:1}; }

keep() {
	local kept
	kept=$(mktemp /tmp/blinkfs-kill9.XXXXXX)
	if [ -e "$work/killed" ]; then
		cp --sparse=always "$work/killed" "$kept"
	else
		cp --sparse=always "$image" "$kept"
	fi
	cp "$work/manifest" "$kept.manifest" 2>/dev/null || true
	fail "$1; round $round, SEED=$seed; the volume is kept in $kept"
}

check_data() {
	"$fsck" -n -f --data "$image" >"$work/fsck.log" 2>&1 || {
		local code=$?
		cat "$work/fsck.log"
		keep "fsck.blinkfs -n -f --data ended with $code ($1)"
	}
}

verify() {
	"$load" verify "$mnt" "$1" "$work/manifest" "$work/digests" ||
		keep "round $1 is not what was promised"
}

# The next server is killed while it recovers, or just after.
kill_recovery() {
	local next
	"$blinkfs" -f "$image" "$mnt" 2>>"$work/recovery.log" &
	next=$!
	sleep "$(printf '0.%03d' $((RANDOM % 90)))"
	kill -9 $next
	wait $next 2>/dev/null || true
}

used() { df --output=used "$mnt" | tail -n 1 | tr -d ' '; }

choose() { RANDOM=$((seed * 7919 % 32768)); }

choose
pick 4K 16K 16K 64K && page=$picked
case $page in # a log so small that it wraps, or a larger one; the least cache
4K) pick 1M 8M && least=1M ;;
16K) pick 2M 16M && least=4M ;;
64K) pick 8M 32M && least=16M ;;
esac
logsize=$picked
echo "SEED=$seed, $rounds rounds, pages of $page, a log of $logsize"
volume 512M -p "$page" -l "$logsize"
serve
empty=$(used)
unserve

for round in $(seq "$rounds"); do
	choose
	pick writeback=on writeback=on writeback=off && options=$picked
	pick cache_size=256M cache_size=32M "cache_size=$least" && options+=,$picked
	pick commit_interval=5 commit_interval=1 && options+=,$picked
	pick 2 4 8 && threads=$picked
	ms=$((200 + RANDOM % 1800))
	echo "round $round: SEED=$seed -o $options, $threads threads, killed after $ms ms"
	serve -o "$options"
	[ "$round" -eq 1 ] || verify $((round - 1))
	rm -f "$work/killed"
	"$load" run "$mnt" "$round" "$seed" "$threads" "$server" "$ms" "$work/manifest" ||
		keep 'the load failed'
	server_ended 137 2>/dev/null
	check_data 'after the kill'
	cp --sparse=always "$image" "$work/killed"
	while [ $((RANDOM % 3)) -eq 0 ]; do
		echo 'and its recovery'
		kill_recovery
		check_data 'after a killed recovery'
	done
	seed=$((seed + 1))
done

serve
verify "$rounds"
rm -rf "${mnt:?}"/*
space_is_back() { [ "$(used)" -le $((empty + 600)) ]; }
eventually space_is_back
unserve
fsck_clean
check_data 'in the end'
