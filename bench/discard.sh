#!/bin/sh
# What -o discard costs those who create and remove files: the same load with and
# without it, in turns, on a file as the image.
#
#	BUILD=build bench/discard.sh
#
# A round writes FILES files of 4 KiB, each synced, and removes them, TURNS times on one
# mount, so that the discards of one turn fall into the next ones.
# Results: $BUILD/bench/discard.json.
#
# ROUNDS     5
# TURNS      4
# FILES      1000
# IMAGE_MIB  1024
BUILD=${BUILD:-build}
ROUNDS=${ROUNDS:-5}
TURNS=${TURNS:-4}
FILES=${FILES:-1000}
IMAGE_MIB=${IMAGE_MIB:-1024}

here=$(dirname "$0")
# shellcheck source=bench/lib.sh
. "$here/lib.sh"

# The rate of all turns together, files a second.
load()
{
	turn=0
	while [ $turn -lt "$TURNS" ]; do
		"$BUILD/bench/meta" "$mount_dir" --op durable --threads 4 --files "$FILES" ||
			die 'the load failed'
		turn=$((turn + 1))
	done | sed 's/.*"rate": *\([0-9.]*\).*/\1/' |
		awk '{ time += 1 / $1; n++ } END { printf "%.1f", n / time }'
}

told()
{
	grep -o '"dev_discard_bytes":[[:space:]]*[0-9]*' "$mount_dir/.blinkfs/stats" |
		grep -o '[0-9]*$'
}

measure()
{
	BLINKFS_OPTIONS=$1 fs_up_blinkfs
	load
	echo " $(told)"
	fs_down
}

work_begin
image_make "$work/blinkfs.img" "$IMAGE_MIB"
round=0
while [ $round -lt "$ROUNDS" ]; do
	without=$(measure '') || exit 1
	with=$(measure discard) || exit 1
	echo "without $without  with $with" >&2
	echo "$without $with"
	round=$((round + 1))
done >"$work/rounds"
awk '{ print $3 / $1, $1, $3, $4 }' "$work/rounds" | sort -n |
	awk '{ ratio[NR] = $1; off[NR] = $2; on[NR] = $3; bytes += $4 }
	END { m = int((NR + 1) / 2)
	printf "{\"discard_over_none\": %.3f, \"lowest\": %.3f, \"highest\": %.3f, ", ratio[m], ratio[1], ratio[NR]
	printf "\"discarded_mib_a_round\": %.1f}\n", bytes / NR / 1048576 }' |
	tee "$BUILD/bench/discard.json"
