#!/bin/sh
# blinkfs through its mount, beside ext4 on a loop device of the same disk and
# a do-nothing FUSE server ("floor"): see README.md for what is measured.
#
#	BUILD=build ROUNDS=5 bench/mount.sh
#
# The filesystems take turns (A B C A B C ...), each time newly made, so that
# whatever else the machine does meets all of them.  Results: $BUILD/bench/mount.json
# (and mount.raw, one measurement a line), and a table.  Needs root.
#
# ROUNDS          5
# SYSTEMS         "blinkfs ext4 floor"
# FILES           20000 for create, stat, unlink
# DURABLE_FILES   2000 by one thread; twice as many by 16
# STREAM_MIB      512
# IMAGE_MIB       2048
# BLINKFS_OPTIONS mount options of blinkfs
# FLOOR_THREADS   threads of the floor server
BUILD=${BUILD:-build}
ROUNDS=${ROUNDS:-5}
SYSTEMS=${SYSTEMS:-blinkfs ext4 floor}
FILES=${FILES:-20000}
DURABLE_FILES=${DURABLE_FILES:-2000}
STREAM_MIB=${STREAM_MIB:-512}
IMAGE_MIB=${IMAGE_MIB:-2048}

here=$(dirname "$0")
# shellcheck source=bench/lib.sh
. "$here/lib.sh"

if [ "$(id -u)" != 0 ]; then
	echo 'bench-mount: skipped: it needs root (loop mount, dropping caches)'
	exit 0
fi
export PATH="$PATH:/usr/sbin:/sbin"

# measure NAME COMMAND...: one line "ROUND SYSTEM NAME RATE CPU_US {what the command printed}"
measure()
{
	name=$1
	shift
	before=$(server_cpu_us)
	result=$("$@") || die "$system: $name failed"
	after=$(server_cpu_us)
	echo "$round $system $name $((after - before)) $result" >>"$raw"
}

meta()
{
	"$BUILD/bench/meta" "$mount_dir" "$@"
}

measure_all()
{
	for threads in 1 8; do
		for op in create stat unlink; do
			measure "$op$threads" meta --op $op --threads $threads --files "$FILES"
		done
	done
	measure durable1 meta --op durable --threads 1 --files "$DURABLE_FILES"
	measure durable16 meta --op durable --threads 16 --files $((DURABLE_FILES * 2))
	measure seqwrite "$BUILD/bench/stream" "$mount_dir/stream" --op write --mib "$STREAM_MIB"
	measure seqread "$BUILD/bench/stream" "$mount_dir/stream" --op read
}

work_begin
raw=$work/raw
: >"$raw"
for system in $SYSTEMS; do
	case $system in
	floor) ;;
	*) image_make "$work/$system.img" "$IMAGE_MIB" || die 'no room for the images' ;;
	esac
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
cp "$raw" "$BUILD/bench/mount.raw"
"$BUILD/bench/report" --json "$BUILD/bench/mount.json" <"$raw"
