#!/bin/sh
# File contents through the mount, beside ext4 and XFS on loop devices of the same
# disk: see README.md for what is measured.
#
#	BUILD=build ROUNDS=3 bench/data.sh
#
# The filesystems take turns, each time newly made.  Results: $BUILD/bench/data.json
# (and data.raw, one measurement a line), and a table.  Needs root and fio.
#
# ROUNDS      3
# SYSTEMS     "blinkfs ext4 xfs"
# STREAM_MIB  1024: what is written, read cold, copied, and read and written at random
# LARGE_MIB   1536: what is removed (10240 wants IMAGE_MIB=12288)
# IMAGE_MIB   4096
# SECONDS_EACH  of each random load (3)
BUILD=${BUILD:-build}
ROUNDS=${ROUNDS:-3}
SYSTEMS=${SYSTEMS:-blinkfs ext4 xfs}
STREAM_MIB=${STREAM_MIB:-1024}
LARGE_MIB=${LARGE_MIB:-1536}
IMAGE_MIB=${IMAGE_MIB:-4096}
SECONDS_EACH=${SECONDS_EACH:-3}

here=$(dirname "$0")
# shellcheck source=bench/lib.sh
. "$here/lib.sh"

if [ "$(id -u)" != 0 ]; then
	echo 'bench-data: skipped: it needs root (loop mount, dropping caches)'
	exit 0
fi
command -v fio >/dev/null && command -v jq >/dev/null || {
	echo 'bench-data: skipped: it needs fio and jq'
	exit 0
}
export PATH="$PATH:/usr/sbin:/sbin"

# result NAME RATE: one measurement.
result()
{
	echo "$round $system $1 0 {\"rate\": $2}" >>"$raw"
}

# stream NAME OP: MiB a second.
stream()
{
	out=$("$BUILD/bench/stream" "$mount_dir/stream" --op "$2" --mib "$STREAM_MIB") ||
		die "$system: $1 failed"
	echo "$round $system $1 0 $out" >>"$raw"
}

# timed NAME COMMAND...: how often a second the command could run.
timed()
{
	name=$1
	shift
	before=$(date +%s%N)
	"$@" || die "$system: $name failed"
	result "$name" "$(echo "$before $(date +%s%N)" | awk '{ printf "%.3f", 1e9 / ($2 - $1) }')"
}

# load ARGUMENTS...: fio's report on what it did to the streamed file.
load()
{
	fio --name=load --filename="$mount_dir/stream" --size="${STREAM_MIB}M" --bs=4k \
		--runtime="$SECONDS_EACH" --time_based --output-format=json "$@" 2>/dev/null |
		sed -n '/^{/,$p'
}

# direct NAME RW DEPTH: operations a second past the page cache.
direct()
{
	result "$1" "$(load --rw="$2" --direct=1 --ioengine=libaio --iodepth="$3" |
		jq '.jobs[0] | .read.iops + .write.iops')"
}

# Writes of 4 KiB, each followed by fdatasync: rate, and the reciprocal of the flushes' times.
write_fsync()
{
	report=$(load --rw=randwrite --ioengine=sync --fdatasync=1)
	result fsync "$(echo "$report" | jq '.jobs[0].write.iops')"
	result fsync_p50 "$(echo "$report" |
		jq '1e9 / .jobs[0].sync.lat_ns.percentile["50.000000"]')"
	result fsync_p99 "$(echo "$report" |
		jq '1e9 / .jobs[0].sync.lat_ns.percentile["99.000000"]')"
}

measure_all()
{
	stream seqwrite write
	stream seqread read
	timed copy cp "$mount_dir/stream" "$mount_dir/copy"
	rm "$mount_dir/copy"
	direct randread1 randread 1
	direct randread16 randread 16
	direct randwrite1 randwrite 1
	direct randwrite16 randwrite 16
	write_fsync
	rm "$mount_dir/stream"
	sync
	used_before=$(used_mib)
	"$BUILD/bench/stream" "$mount_dir/large" --op write --mib "$LARGE_MIB" >/dev/null ||
		die "$system: writing the large file failed"
	timed unlink rm "$mount_dir/large"
	timed given_back await_space
}

used_mib()
{
	df -BM --output=used "$mount_dir" | tail -n 1 | tr -dc 0-9
}

# Until nine tenths of the large file's space are free.
await_space()
{
	tries=0
	until [ "$(used_mib)" -le $((used_before + LARGE_MIB / 10)) ]; do
		tries=$((tries + 1))
		[ $tries -lt 6000 ] || die "$system: the space does not come back"
		sleep 0.01
	done
}

work_begin
raw=$work/raw
: >"$raw"
for system in $SYSTEMS; do
	image_make "$work/$system.img" "$IMAGE_MIB" || die 'no room for the images'
done
round=0
while [ $round -lt "$ROUNDS" ]; do
	round=$((round + 1))
	echo "round $round of $ROUNDS"
	for system in $SYSTEMS; do
		fs_up_"$system"
		measure_all
		fs_down
	done
done
cp "$raw" "$BUILD/bench/data.raw"
"$BUILD/bench/report" --json "$BUILD/bench/data.json" <"$raw"
