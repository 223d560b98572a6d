#!/bin/bash
# blinkfs grow through a mount: image files, files that others have extended, a block
# device where one can be had; refused in words; killed; backups, the log archive; a log
# of its own.
. "$(dirname "$0")/lib.sh"
command -v jq >/dev/null || skip 'jq is missing'

figure() { jq -r "$1" "$mnt/.blinkfs/stats"; }
blocks() { stat -f -c %b "$mnt"; }
die() {
	kill -9 "$server"
	server_ended 137 2>/dev/null
}
fill() { # $1 MiB
	head -c "$1M" /dev/urandom >"$mnt/fill"
	sync "$mnt/fill"
}

volume 32M -l 2M
serve
echo contents >"$mnt/file"
mkdir "$mnt/d"
fails 2 'usage: blinkfs grow' "$blinkfs" grow
fails 2 'usage: blinkfs grow' "$blinkfs" grow "$mnt" 1G 2G
fails 2 'not a size: more' "$blinkfs" grow "$mnt" more
fails 1 'not in a mounted blinkfs volume' "$blinkfs" grow "$work"
fails 1 'cannot become smaller; it has 32 MiB' "$blinkfs" grow "$mnt" 31M
fails 1 'too large: no volume' "$blinkfs" grow "$mnt" 5E
"$blinkfs" grow "$mnt" | grep -q 'nothing to do: the volume has 32 MiB, as its device'
"$blinkfs" grow "$mnt" 32M | grep -q 'nothing to do'
same "$(stat -c %s "$image")" $((32 * 1048576))

# Full, then larger: the same file goes on.
before=$(blocks)
fails 1 'No space left' dd if=/dev/zero of="$mnt/full" bs=1M oflag=direct
"$blinkfs" grow "$mnt/d" 96M | grep -q 'has now 96 MiB'
same "$(stat -c %s "$image")" $((96 * 1048576))
[ "$(blocks)" -eq $((before + 64 * 256)) ] || fail "df shows $before, then $(blocks) blocks"
same "$(figure .volume.block_count)" $((96 * 256))
same "$(figure .counters.volume_grows)" 1
fill 50
sum=$(md5sum <"$mnt/fill")
die
serve
same "$(md5sum <"$mnt/fill")" "$sum"
same "$(figure .volume.block_count)" $((96 * 256))
# Somebody else has extended the file; over several groups, under load.
truncate -s 3G "$image"
(
	for i in $(seq 300); do
		echo "contents $i" >"$mnt/d/$i"
		[ $((i % 3)) -ne 0 ] || rm "$mnt/d/$i"
	done
) &
load=$!
"$blinkfs" grow "$mnt" | grep -q 'has now 3 GiB'
wait "$load"
rm "$mnt/full"
"$blinkfs" log-resize "$mnt" 128M
fill 200
unserve
fsck_clean
"$fsck" -n -f --data "$image" >"$work/fsck.log" || fail "$(cat "$work/fsck.log")"

# Killed while it is under way: one size or the other.
for i in 1 2 3 4 5 6; do
	serve
	"$blinkfs" grow "$mnt" $((3 + i))G >/dev/null 2>&1 &
	command=$!
	[ $((i % 2)) -eq 0 ] || sleep "0.0$i"
	die
	wait "$command" || true
	fsck_clean
done
serve
same "$(cat "$mnt/file")" contents
unserve
serve -o ro
fails 1 'mounted read-only' "$blinkfs" grow "$mnt" 20G
unserve

# A backup before, an incremental after, the log archive in between.
volume 32M -l 2M
mkdir "$work/archive"
serve -o "log_archive=$work/archive,log_archive_data"
echo one >"$mnt/file"
"$blinkfs" backup -q "$mnt" "$work/full.bak"
"$blinkfs" grow "$mnt" 900M >/dev/null
fill 40
echo two >"$mnt/file"
"$blinkfs" sync "$mnt"
"$blinkfs" backup -q --base "$work/full.bak" "$mnt" "$work/incremental.bak"
sum=$(md5sum <"$mnt/fill")
unserve
cp --sparse=always "$image" "$work/original"
for how in "$work/full.bak $work/incremental.bak" "--log $work/archive $work/full.bak"; do
	# shellcheck disable=SC2086
	"$blinkfs" restore -q -f $how "$image"
	serve
	same "$(md5sum <"$mnt/fill")" "$sum"
	same "$(cat "$mnt/file")" two
	same "$(figure .volume.block_count)" $((900 * 256))
	unserve
	fsck_clean
done

# A block device that has become larger.
if loop=$(losetup --show -f "$image" 2>/dev/null); then
	file=$image
	image=$loop
	serve
	fails 1 'its device has only 900 MiB' "$blinkfs" grow "$mnt" 1G
	truncate -s 1200M "$file"
	losetup -c "$loop"
	"$blinkfs" grow "$mnt" 1G | grep -q 'has now 1 GiB'
	"$blinkfs" grow "$mnt" | grep -q 'has now 1.1 GiB'
	fill 30
	unserve
	fsck_clean
	losetup -d "$loop"
	image=$file
fi

# A log in a file of its own stays as it is.
"$mkfs" -q -f -s 32M -l 2M -j "$work/jlog" "$image"
serve
echo contents >"$mnt/file"
"$blinkfs" grow "$mnt" 1G >/dev/null
same "$(stat -c %s "$work/jlog")" $((2 * 1048576))
fill 100
die
serve
same "$(cat "$mnt/file")" contents
unserve
fsck_clean
