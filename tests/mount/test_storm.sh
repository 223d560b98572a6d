#!/bin/bash
# Many threads and processes in one small tree without regard for each other
# (storm_tool.c), on small pools: no errors but those of the names, and after it,
# a kill -9 in the middle, or a kill of clients, a consistent tree and image.
. "$(dirname "$0")/lib.sh"
storm=$BUILD/tests/mount/storm_tool
[ -x "$storm" ] || skip 'tests/mount/storm_tool is not built'

seed=${TEST_SEED:-$(((RANDOM << 15) + RANDOM))}
seconds=$((2 * ${TEST_SCALE:-1}))
[ "$seconds" -le 60 ] || seconds=60
echo "TEST_SEED=$seed"

keep() {
	local kept
	kept=$(mktemp /tmp/blinkfs-storm.XXXXXX)
	cp --sparse=always "$image" "$kept"
	fail "$1; TEST_SEED=$seed; the volume is kept in $kept"
}
fsck_data() { "$fsck" -n -f --data "$image" || keep "fsck complains ($1)"; }

round() {
	local how=$1 options=$2 other
	echo "$how, -o $options"
	serve -o "$options"
	seed=$((seed + 1))
	case $how in
	undisturbed)
		"$storm" run "$mnt" "$seconds" 16 $seed || keep 'an operation failed'
		;;
	killed) # the server
		"$storm" run "$mnt" 20 16 $seed &
		other=$!
		sleep "$seconds"
		kill -9 "$server"
		server_ended 137 2>/dev/null
		wait $other || keep 'an operation failed'
		fsck_data 'after the kill'
		serve -o "$options"
		;;
	clients)
		# Some are killed again and again; in a tree of their own, since Linux hands
		# others an EIO or EINTR for pages that a killed process was reading.
		mkdir -p "$mnt/killed"
		"$storm" run "$mnt" "$seconds" 8 $seed &
		other=$!
		for i in $(seq 8); do
			"$storm" run "$mnt/killed" 20 8 $((seed + i)) >/dev/null 2>&1 &
			sleep 0.2
			kill -9 $!
		done
		wait $other || keep 'an operation failed'
		;;
	esac
	"$storm" check "$mnt" || keep 'an inconsistent tree'
	unserve
	fsck_data "$how"
}

volume $((256 * ${TEST_SCALE:-1}))M -p 4K -l 1M
round undisturbed cache_size=1M
round killed cache_size=2M,commit_interval=1
round clients cache_size=256M
volume $((512 * ${TEST_SCALE:-1}))M -p 64K -l 8M
round killed cache_size=16M,writeback=off
round undisturbed cache_size=16M,max_threads=1
serve
rm -rf "${mnt:?}"/*
space_is_back() { [ "$(df --output=used "$mnt" | tail -n 1)" -le 2500 ]; }
eventually space_is_back
unserve
fsck_data 'in the end'
