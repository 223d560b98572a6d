#!/bin/bash
# Each thing that may be wrong: one line that says it, and an exit code.
. "$(dirname "$0")/lib.sh"

volume
fails 1 'which volume' "$blinkfs"
fails 1 'expected a volume and a directory' "$blinkfs" "$image"
fails 1 'expected a volume and a directory' "$blinkfs" "$image" "$mnt" more
fails 1 'expected a volume|which volume' "$blinkfs" frobnicate
fails 1 "unknown option 'nonsense'" "$blinkfs" -o ro,nonsense "$image" "$mnt"
fails 1 "bad value in option 'writeback=perhaps'" "$blinkfs" -o writeback=perhaps "$image" "$mnt"
fails 1 "bad value in option 'max_threads=0'" "$blinkfs" -o max_threads=0 "$image" "$mnt"
fails 1 "bad value in option 'cache_size=-1'" "$blinkfs" -o cache_size=-1 "$image" "$mnt"
fails 1 "bad value in option 'commit_interval=x'" "$blinkfs" -o commit_interval=x "$image" "$mnt"
fails 1 'invalid option' "$blinkfs" -x
fails 0 '^usage: ' "$blinkfs" -h
fails 0 '^blinkfs [0-9]' "$blinkfs" -V

fails 1 'missing: No such file' "$blinkfs" "$work/missing" "$mnt"
fails 1 'mount directory does not exist' "$blinkfs" "$image" "$work/nowhere"
fails 1 'mount point is not a directory' "$blinkfs" "$image" "$image"
fails 1 'neither a regular file nor a block device' "$blinkfs" /dev/null "$mnt"
fails 1 'neither a regular file nor a block device' "$blinkfs" "$work" "$mnt"

: >"$work/empty"
fails 1 'not a blinkfs volume' "$blinkfs" "$work/empty" "$mnt"
head -c 1M /dev/urandom >"$work/noise"
fails 1 'not a blinkfs volume' "$blinkfs" "$work/noise" "$mnt"
cp "$image" "$work/short"
truncate -s 8M "$work/short"
fails 1 'smaller than the volume' "$blinkfs" "$work/short" "$mnt"

# A wrong first superblock: the copy serves.
cp --sparse=always "$image" "$work/copied"
dd if=/dev/zero of="$work/copied" bs=4096 count=1 conv=notrunc status=none
"$blinkfs" -f "$work/copied" "$mnt" 2>"$log" &
server=$!
eventually live
grep -q 'its copy is used' "$log" || fail 'no word about the copy'
unserve

# Both superblocks gone
cp --sparse=always "$image" "$work/torn"
dd if=/dev/urandom of="$work/torn" bs=4096 count=1 seek=16383 conv=notrunc status=none
printf 'garbage' | dd of="$work/torn" bs=1 seek=200 conv=notrunc status=none
fails 3 'run fsck' "$blinkfs" "$work/torn" "$mnt"
fails 3 'run fsck' "$blinkfs" -f "$work/torn" "$mnt"

# Mounted twice
serve
fails 1 "already mounted on $mnt" "$blinkfs" "$image" "$mnt"
mkdir "$work/other"
fails 1 "already mounted on $mnt" "$blinkfs" "$image" "$work/other"
ln -s "$image" "$work/alias"
fails 1 "already mounted on $mnt" "$blinkfs" "$work/alias" "$work/other"
ln "$image" "$work/hardlink"
fails 1 'in use' "$blinkfs" "$work/hardlink" "$work/other" & # each waits its 10 s
first=$!
fails 1 'in use' "$mkfs" -f "$image" &
second=$!
if [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null; then
	mkdir "$work/elsewhere"
	fails 1 'in use' unshare -m sh -c "umount '$mnt' && '$blinkfs' '$image' '$work/elsewhere'"
fi
wait $first
wait $second
unserve
fsck_clean
