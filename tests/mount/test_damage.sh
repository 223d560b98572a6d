#!/bin/bash
# What each program says of a volume of a later version, of a damaged log, and
# of a machine without FUSE.
. "$(dirname "$0")/lib.sh"
newer=$BUILD/tests/mount/newer_tool
[ -x "$newer" ] || skip 'tests/mount/newer_tool is not built'

volume
log_start=$("$blinkfs" dump super "$image" | awk '$1 == "log_start" { print $2 }')

cp --sparse=always "$image" "$work/newer"
"$newer" "$work/newer"
fails 1 'does not know' "$blinkfs" "$work/newer" "$mnt"
fails 8 'does not know' "$fsck" -n "$work/newer"
fails 8 'does not know' "$fsck" -y "$work/newer"
fails 1 'newer version' "$mkfs" "$work/newer"

# Header and checkpoints of the log: nobody may go on as if it were empty.
cp --sparse=always "$image" "$work/headless"
head -c 12288 /dev/urandom |
	dd of="$work/headless" bs=4096 seek="$log_start" conv=notrunc status=none
fails 3 'redo log.*run fsck' "$blinkfs" "$work/headless" "$mnt"
fails 4 'log cannot be replayed' "$fsck" -n "$work/headless"
fails 4 'log cannot be replayed' "$fsck" -p "$work/headless"

# Behind the end of the log anything may lie.
cp --sparse=always "$image" "$work/noise"
head -c 100000 /dev/urandom |
	dd of="$work/noise" bs=4096 seek=$((log_start + 3)) conv=notrunc status=none
fails 0 'clean' "$fsck" -n "$work/noise"
kept=$image
image=$work/noise
serve
echo good >"$mnt/file"
unserve
fsck_clean
image=$kept

# One bit of a file's data: EIO for these 4 KiB and no others, named in the log and by fsck.
volume
serve
mkdir -p "$mnt/dir/sub"
seq 200000 >"$work/numbers"
head -c 409600 "$work/numbers" >"$mnt/dir/sub/file"
cp "$mnt/dir/sub/file" "$work/good"
unserve
number=$(dd if="$work/good" bs=4096 skip=37 count=1 status=none | sed -n 3p)
at=$(grep -obUa "^$number\$" "$image" | cut -d: -f1)
"$BUILD/tests/mount/flip_tool" "$image" $((at + 2000)) 5
serve
for block in $(seq 0 99); do
	code=0
	dd if="$mnt/dir/sub/file" bs=4096 skip="$block" count=1 iflag=direct status=none \
		>"$work/block" 2>/dev/null || code=$?
	if [ "$block" -eq 37 ]; then
		same "$code" 1
	else
		cmp "$work/block" <(dd if="$work/good" bs=4096 skip="$block" count=1 status=none)
	fi
done
grep -q "/dir/sub/file, inode [0-9]*, offset $((37 * 4096)): checksum mismatch" "$log" ||
	fail 'the log does not name the block'
grep -q '"core_bad_blocks":[[:space:]]*1,' "$mnt/.blinkfs/stats" || fail 'it is not counted'

# Through the mount's cache, which reads long runs ahead, it is these 4 KiB as well.
unserve
serve
for block in $(seq 0 99); do
	code=0
	dd if="$mnt/dir/sub/file" bs=4096 skip="$block" count=1 status=none >"$work/block" \
		2>/dev/null || code=$?
	if [ "$block" -eq 37 ]; then
		same "$code" 1
	else
		cmp "$work/block" <(dd if="$work/good" bs=4096 skip="$block" count=1 status=none)
	fi
done
unserve
fails 4 "/dir/sub/file.*offset $((37 * 4096))" "$fsck" -n -f --data "$image"

if [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null; then
	fails 1 '/dev/fuse is missing' unshare -m sh -c \
		"mount -t tmpfs none /dev && '$blinkfs' '$image' '$mnt'"
fi
