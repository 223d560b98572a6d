#!/bin/bash
# mkfs.blinkfs: options, refusals, exit codes.
. "$(dirname "$0")/lib.sh"
new=$work/new

fails 1 'which file' "$mkfs"
fails 1 'one file or device at a time' "$mkfs" a b
fails 1 'give its size with -s' "$mkfs" "$new"
fails 1 'not a size' "$mkfs" -s 10Q "$new"
fails 1 'page size must be' "$mkfs" -s 64M -p 5000 "$new"
fails 1 'not a UUID' "$mkfs" -s 64M -U xyz "$new"
fails 1 'longer than 63' "$mkfs" -s 64M -L "$(printf 'x%.0s' $(seq 64))" "$new"
fails 1 'too small' "$mkfs" -s 1M "$new"
fails 1 'a log of this size' "$mkfs" -s 64M -l 64M "$new"
fails 1 'Is a directory' "$mkfs" -s 64M "$work"
fails 0 '^usage: ' "$mkfs" -h
fails 0 '^mkfs.blinkfs [0-9]' "$mkfs" -V
[ ! -e "$new" ] || fail 'a failure left the file behind'
fails 0 'would be a volume of 64 MiB' "$mkfs" -n -s 64M "$new"
[ ! -e "$new" ] || fail '-n made the file'

fails 0 'label disk.*|page size 4 KiB, log 1 MiB' "$mkfs" -s 16M -p 4K -l 1M -L disk \
	-U 0d3ee2a8-2bd3-4dfb-8a1c-0f8a76e5d0aa "$new"
same "$(stat -c %s "$new")" 16777216
fails 1 "holds a blinkfs volume .label 'disk'.; use -f" "$mkfs" "$new"
same "$("$mkfs" -f -q "$new" 2>&1)" ''
fails 0 '32 MiB' "$mkfs" -f -s 32M "$new" # grows
same "$(stat -c %s "$new")" 33554432

# Damaged, but still recognised
printf 'garbage' | dd of="$new" bs=1 seek=100 conv=notrunc status=none
dd if=/dev/zero of="$new" bs=4096 seek=8191 count=1 conv=notrunc status=none
fails 1 'damaged blinkfs volume' "$mkfs" "$new"

# What others have made
if command -v mkfs.ext4 >/dev/null; then
	truncate -s 16M "$work/ext4"
	mkfs.ext4 -q "$work/ext4"
	fails 1 'a filesystem .ext4' "$mkfs" "$work/ext4"
	"$mkfs" -q -f "$work/ext4"
	if command -v blkid >/dev/null; then
		same "$(blkid -p -s TYPE -o value "$work/ext4" || true)" ''
	fi
fi
truncate -s 16M "$work/dos"
printf '\0\0\2\0\203\0\0\0\0\10\0\0\0\20\0\0' | dd of="$work/dos" bs=1 seek=446 conv=notrunc status=none
printf '\125\252' | dd of="$work/dos" bs=1 seek=510 conv=notrunc status=none
fails 1 'a partition table .dos' "$mkfs" "$work/dos"

# Each page size mounts, also on a volume that is as small as can be.
for page in 4K 8K 16K 32K 64K; do
	volume 48M -p "$page"
	serve
	echo "$page" >"$mnt/file"
	unserve
	fsck_clean
done
volume 3M -p 4K
serve
echo small >"$mnt/file"
unserve
fsck_clean
