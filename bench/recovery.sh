#!/bin/sh
# Recovery: how fast a full log is replayed, against reading the same bytes, and
# how long a mount takes after kill -9 under load.
#
#	BUILD=build bench/recovery.sh
#
# Results: $BUILD/bench/recovery.json.
#
# LOGS          sizes of logs in MiB ("64", and 1024 as well when TEST_SCALE is set:
#               that takes minutes and 12 GiB of disk)
# ROUNDS        3
# LOAD_SECONDS  of creating files before each kill (5)
BUILD=${BUILD:-build}
ROUNDS=${ROUNDS:-3}
LOGS=${LOGS:-64${TEST_SCALE:+ 1024}}
LOAD_SECONDS=${LOAD_SECONDS:-5}

here=$(dirname "$0")
# shellcheck source=bench/lib.sh
. "$here/lib.sh"

now_ms()
{
	echo $(($(date +%s%N) / 1000000))
}

replay()
{
	first=1
	for log in $LOGS; do
		[ $first = 1 ] || printf ',\n'
		first=0
		"$BUILD/bench/recovery_bench" "$work" --log-mib "$log" --rounds "$ROUNDS" ||
			die 'recovery_bench failed'
	done
}

# A counter of the mounted volume.
counter()
{
	sed -n 's/.*"'"$1"'":[[:space:]]*\([0-9]*\).*/\1/p' "$mount_dir/.blinkfs/stats"
}

kill_under_load()
{
	fs_up_blinkfs
	"$BUILD/bench/meta" "$mount_dir" --op create --threads 4 --files 100000000 \
		>/dev/null 2>&1 &
	load=$!
	sleep "$LOAD_SECONDS"
	kill -KILL "$server_pid"
	wait "$server_pid"
	server_pid=
	wait $load
	umount -l "$mount_dir" || die 'the dead mount does not go away'
}

mount_after_kill()
{
	round=0
	while [ $round -lt "$ROUNDS" ]; do
		[ $round = 0 ] || printf ',\n'
		round=$((round + 1))
		kill_under_load 2>>"$work/server.log"
		sync
		start=$(now_ms)
		server_start "$BUILD/blinkfs" -f "$work/blinkfs.img" "$mount_dir"
		printf '{"mount_ms": %s, "transactions": %s, "pages": %s}' $(($(now_ms) - start)) \
			"$(counter recovery_mtrs)" "$(counter recovery_pages)"
		fs_down
	done
}

work_begin
{
	printf '{"replay": [\n'
	replay
	printf '],\n"mount_after_kill": [\n'
	if [ "$(id -u)" = 0 ] && [ -c /dev/fuse ]; then
		image_make "$work/blinkfs.img" 2048 || die 'no room for the volume'
		mount_after_kill
	fi
	printf '\n]}\n'
} >"$work/result"
cp "$work/result" "$BUILD/bench/recovery.json"
cat "$BUILD/bench/recovery.json"
