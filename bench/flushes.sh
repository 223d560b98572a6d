#!/bin/sh
# Flushes of the disk's cache for each durable small file (create, write 4 KiB,
# fsync, close; one thread), counted by the disk: blinkfs, ext4 and XFS, each on a
# loop device of its own.
#
#	BUILD=build bench/flushes.sh
#
# Results: $BUILD/bench/flushes.json.  Needs root.
#
# FILES      500
# IMAGE_MIB  512
BUILD=${BUILD:-build}
FILES=${FILES:-500}
IMAGE_MIB=${IMAGE_MIB:-512}

here=$(dirname "$0")
# shellcheck source=bench/lib.sh
. "$here/lib.sh"

if [ "$(id -u)" != 0 ]; then
	echo 'bench-flushes: skipped: it needs root (loop devices)'
	exit 0
fi
export PATH="$PATH:/usr/sbin:/sbin"

# Flush requests that the device has completed: see Documentation/block/stat.rst.
flushes()
{
	tr -s ' ' '\n' <"/sys/block/$(basename "$loop_device")/stat" | grep . | sed -n 16p
}

fs_up()
{
	image_make "$work/image" "$IMAGE_MIB"
	loop_device=$(losetup --find --show --direct-io=on "$work/image") || die 'no loop device'
	case $1 in
	blinkfs)
		"$BUILD/mkfs.blinkfs" -q -f "$loop_device" || die 'mkfs.blinkfs failed'
		server_start "$BUILD/blinkfs" -f "$loop_device" "$mount_dir"
		;;
	*)
		"mkfs.$1" -q "$loop_device" 2>>"$work/server.log" || die "mkfs.$1 failed"
		mount -t "$1" "$loop_device" "$mount_dir" || die "could not mount $1"
		;;
	esac
}

count()
{
	before=$(flushes)
	"$BUILD/bench/meta" "$mount_dir" --op durable --threads 1 --files "$FILES" >/dev/null ||
		die "$1: the load failed"
	echo "$before $(flushes) $FILES" | awk '{ printf "%.2f", ($2 - $1) / $3 }'
}

work_begin
json=
for system in blinkfs ext4 xfs; do
	if ! command -v "mkfs.$system" >/dev/null && [ ! -x "$BUILD/mkfs.$system" ]; then
		echo "bench-flushes: $system left out: no mkfs.$system"
		continue
	fi
	fs_up $system
	each=$(count $system)
	fs_down
	echo "$system: $each flushes per durable file"
	json="$json${json:+, }\"$system\": $each"
done
echo "{\"flushes_per_durable_file\": {$json}}" >"$BUILD/bench/flushes.json"
