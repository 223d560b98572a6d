#!/bin/bash
# Copies that share blocks: cp, copy_file_range of any ranges, what they cost, and
# that neither side sees what is done to the other.
. "$(dirname "$0")/lib.sh"
command -v jq >/dev/null || skip 'jq is missing'

free_blocks() { jq '.space_blocks | .free + .deferred + .reserved' "$mnt/.blinkfs/stats"; }
counter() { jq ".counters.$1" "$mnt/.blinkfs/stats"; }

volume 3G
serve
head -c 20000000 /dev/urandom >"$work/data"
cp "$work/data" "$mnt/a"
sync "$mnt/a"

# cp shares by itself; --reflink=never copies, through the same call or not.
before=$(free_blocks)
cp "$mnt/a" "$mnt/b"
[ "$(counter lob_clones)" -gt 0 ] || fail 'cp did not share'
cmp "$work/data" "$mnt/b"
[ $((before - $(free_blocks))) -lt 100 ] || fail 'a clone took space'
same "$(stat -c '%s %b' "$mnt/b")" "$(stat -c '%s %b' "$mnt/a")"
cp --reflink=never "$mnt/a" "$mnt/c"
cmp "$work/data" "$mnt/c"

# Overwriting, cutting and removing either side leaves the other as it was.
dd if=/dev/zero of="$mnt/a" bs=4096 seek=100 count=50 conv=notrunc status=none
cmp "$work/data" "$mnt/b"
cp "$mnt/b" "$mnt/d"
truncate -s 5000001 "$mnt/b"
cmp "$work/data" "$mnt/d"
cmp <(head -c 5000001 "$work/data") "$mnt/b"
rm "$mnt/b"
cmp "$work/data" "$mnt/d"
unserve
fsck_clean
serve
cmp "$work/data" "$mnt/d"
rm "$mnt/a" "$mnt/c" "$mnt/d"

# What is allocated and not written is a hole in the copy, and the source's own.
fallocate -l 8M "$mnt/a"
dd if="$work/data" of="$mnt/a" bs=4096 seek=100 count=50 conv=notrunc,fsync status=none
cp --sparse=never "$mnt/a" "$mnt/b"
cp "$mnt/a" "$work/a"
cmp "$work/a" "$mnt/b"
dd if="$work/data" of="$mnt/a" bs=4096 seek=120 count=100 conv=notrunc,fsync status=none
[ "$(counter lob_write_blocks_in_place)" -ge 120 ] || fail 'allocated blocks were not used'
fallocate -p -o 412345 -l 30000 "$mnt/b"
dd if=/dev/zero of="$work/a" bs=1 seek=412345 count=30000 conv=notrunc status=none
cmp "$work/a" "$mnt/b"
fallocate -z -o 400000 -l 100000 "$mnt/a"
cmp "$work/a" "$mnt/b"
unserve
fsck_clean
serve
cmp "$work/a" "$mnt/b"
rm "$mnt/a" "$mnt/b"

# 1 GiB.
head -c 67108864 /dev/urandom >"$work/data"
for i in $(seq 16); do cat "$work/data"; done >"$mnt/big"
sync "$mnt/big"
before=$(free_blocks)
for i in 1 2 3 4; do cp "$mnt/big" "$mnt/big$i"; done
after=$(free_blocks)
[ $((before - after)) -lt 2500 ] || fail "clones took $((before - after)) blocks" # checksums: 1 MiB each
same "$(stat -c %b "$mnt/big4")" $((1024 * 1024 * 2))
cmp -n 67108864 "$work/data" "$mnt/big3"
rm "$mnt/big" "$mnt/big1" "$mnt/big2" "$mnt/big3"
cmp <(for i in $(seq 16); do cat "$work/data"; done) "$mnt/big4"
unserve
fsck_clean
