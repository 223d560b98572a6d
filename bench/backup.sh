#!/bin/sh
# What a backup costs those who use the volume meanwhile, and what the log archive
# does: metadata operations alone, beside backups that follow each other without
# end, and with the log archived (file data, too), in turns.
#
#	BUILD=build bench/backup.sh
#
# Results: $BUILD/bench/backup.json: operations per second in each round, the
# medians, and their ratios to "alone"; the throughput of a quiet full backup.
#
# ROUNDS     3
# FILES      20000 created in a round
# DURABLE    500 files created, written and synced in a round
# DATA_MIB   512 of file data for the backup to copy
BUILD=${BUILD:-build}
ROUNDS=${ROUNDS:-3}
FILES=${FILES:-20000}
DURABLE=${DURABLE:-500}
DATA_MIB=${DATA_MIB:-512}

here=$(dirname "$0")
# shellcheck source=bench/lib.sh
. "$here/lib.sh"

rate()
{
	"$BUILD/bench/meta" "$mount_dir/$1" --op "$2" --threads 4 --files "$3" |
		sed -n 's/.*"rate": *\([0-9.]*\).*/\1/p'
}

# Backups one after the other, until the file $work/stop is there.
back_up()
{
	while [ ! -e "$work/stop" ]; do
		"$BUILD/blinkfs" backup -q -f "$mount_dir" "$work/backup" || return
		echo >>"$work/count"
	done
}

# name create durable, one line
measure()
{
	mkdir -p "$mount_dir/$1"
	rm -f "$work/stop"
	backups=
	if [ "$2" = backup ]; then
		back_up &
		backups=$!
	fi
	create=$(rate "$1" create "$FILES")
	durable=$(rate "$1" durable "$DURABLE")
	touch "$work/stop"
	[ -z "$backups" ] || wait "$backups"
	"$BUILD/bench/meta" "$mount_dir/$1" --op unlink --threads 4 --files "$FILES" >/dev/null
	[ -n "$create" ] && [ -n "$durable" ] || die "no result for $2"
	echo "$2 $create $durable" >>"$work/rates"
}

fill()
{
	dd if=/dev/urandom of="$mount_dir/data" bs=1M count="$DATA_MIB" status=none ||
		die 'no room for the data'
	sync -f "$mount_dir"
}

# kind column: the rates of all rounds, or their median
rates_of()
{
	awk -v kind="$1" -v column="$2" '$1 == kind { print $column }' "$work/rates" | sort -g
}
median_of()
{
	rates_of "$1" "$2" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

report()
{
	column=2
	for op in create durable; do
		alone=$(median_of alone $column)
		for kind in alone backup archive; do
			median=$(median_of $kind $column)
			printf '{"op": "%s", "beside": "%s", "rates": [%s], "median": %s, "ratio": %s},\n' \
				$op $kind "$(rates_of $kind $column | paste -sd, -)" "$median" \
				"$(awk -v a="$alone" -v b="$median" 'BEGIN { printf "%.3f", b / a }')"
		done
		column=3
	done
}

work_begin
if [ "$(id -u)" != 0 ] && ! command -v fusermount3 >/dev/null || [ ! -c /dev/fuse ]; then
	die 'no FUSE here'
fi
image_make "$work/blinkfs.img" $((DATA_MIB * 2 + 1024)) || die 'no room for the volume'
mkdir "$work/archive"
round=0
while [ $round -lt "$ROUNDS" ]; do
	round=$((round + 1))
	fs_up_blinkfs
	fill
	start=$(date +%s%N)
	"$BUILD/blinkfs" backup -q -f "$mount_dir" "$work/backup" || die 'backup failed'
	echo "quiet $((DATA_MIB * 1000000000000 / ($(date +%s%N) - start)))" >>"$work/quiet"
	measure "alone$round" alone
	measure "backup$round" backup
	fs_down
	server_start "$BUILD/blinkfs" -f -o "log_archive=$work/archive,log_archive_data" \
		"$work/blinkfs.img" "$mount_dir"
	measure "archive$round" archive
	fs_down
	rm -f "$work"/archive/*
done
{
	printf '{"operations": [\n'
	report | sed '$ s/,$//'
	printf '],\n"backups_beside": %s,\n"quiet_mib_per_second": [%s]}\n' \
		"$(wc -l <"$work/count")" \
		"$(awk '{ printf "%s%.1f", (NR > 1 ? ", " : ""), $2 / 1000 }' "$work/quiet")"
} >"$work/result"
cp "$work/result" "$BUILD/bench/backup.json"
cat "$BUILD/bench/backup.json"
