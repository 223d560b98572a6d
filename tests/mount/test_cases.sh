#!/bin/bash
# Faults that users of comparable filesystems have reported, by name in
# cases_names.c and cases_data.c, random operations on one file (cases_random.c),
# and what takes more than one program:
#
#	what nobody synced is there after commit_interval
#	an unlinked open file, kill -9, mount: its space is back
#	df and df -i follow what is made and deleted
#	a lazy unmount while a file is open
#	fsck of a mounted image, with wrong usage, interrupted
. "$(dirname "$0")/lib.sh"
tools="$BUILD/tests/mount/cases_names $BUILD/tests/mount/cases_data $BUILD/tests/mount/cases_random"
for tool in $tools; do [ -x "$tool" ] || skip "$tool is not built"; done

used() { df --output=used "$mnt" | tail -n 1 | tr -d ' '; }
inodes() { df --output=iused "$mnt" | tail -n 1 | tr -d ' '; }
fsck_data() { "$fsck" -n -f --data "$image" || fail 'fsck complains'; }

# Each case, with both ways of writing; what one leaves is looked at again after a mount.
volume 256M
for writeback in on off; do
	serve -o "writeback=$writeback,noatime" # times are compared, too, after reading
	mkdir "$mnt/$writeback"
	for tool in $tools; do
		for name in $("$tool"); do
			mkdir "$mnt/$writeback/$name"
			timeout $((60 * ${TEST_SCALE:-1})) "$tool" "$name" "$mnt/$writeback/$name" ||
				fail "case $name, writeback=$writeback"
		done
	done
	find "$mnt" -type f -readable -size -100M -print0 | sort -z | xargs -0 sha256sum >"$work/sums"
	unserve
	serve -o noatime
	sha256sum --quiet -c "$work/sums"
	timeout 60 "$BUILD/tests/mount/cases_data" time_stamps "$mnt/$writeback/time_stamps"
	unserve
done
fsck_data

# Counts follow what is made and deleted, exactly (16).
serve
empty=$(used) inodes_empty=$(inodes)
mkdir "$mnt/counted"
for i in $(seq 200); do head -c 40000 /dev/zero >"$mnt/counted/$i"; done
same "$(inodes)" $((inodes_empty + 201))
grown=$(($(used) - empty))
[ $grown -ge 8000 ] && [ $grown -le 8800 ] || fail "200 files of 40 KiB take $grown KiB"
ln "$mnt/counted/1" "$mnt/counted/link"
same "$(inodes)" $((inodes_empty + 201))
rm -r "$mnt/counted"
counts_are_back() { [ "$(used)" -le $((empty + 100)) ] && [ "$(inodes)" -eq "$inodes_empty" ]; }
eventually counts_are_back

# Without any fsync, all that the server got is durable after commit_interval.
unserve
serve -o commit_interval=1
echo 'soon durable' >"$mnt/unsynced"
mv "$mnt/unsynced" "$mnt/renamed"
sleep 2.5
kill -9 "$server"
server_ended 137 2>/dev/null
serve
same "$(cat "$mnt/renamed")" 'soon durable'
rm "$mnt/renamed"

# Opened, unlinked, written to; the server dies; the space is back (9).
empty=$(used)
exec 9>"$mnt/unlinked"
rm "$mnt/unlinked"
head -c 60M /dev/zero >&9
sync "$mnt"
exec 8<"$mnt" # something to sync by
[ "$(used)" -ge $((empty + 60000)) ] || fail 'the unlinked file takes no space'
kill -9 "$server"
server_ended 137 2>/dev/null
exec 9>&- 8<&-
fsck_data
serve
counts_are_back() { [ "$(used)" -le $((empty + 100)) ] && [ "$(inodes)" -eq "$inodes_empty" ]; }
eventually counts_are_back

# Unmounted while a file is open: no for an answer; lazily: the file can be used
# until it is closed, and then all of it is there.
exec 9>"$mnt/held"
echo one >&9
unmount_once "$mnt" 2>/dev/null && fail 'unmounted although a file is open'
if [ "$(id -u)" -eq 0 ]; then umount -l "$mnt"; else fusermount3 -u -z "$mnt"; fi
echo two >&9
kill -0 "$server" || fail 'the server went although a file is open'
exec 9>&-
server_ended 0
fsck_data
serve
same "$(cat "$mnt/held")" $'one\ntwo'

# fsck of a mounted image: only to look (34).
fails 8 'in use' "$fsck" "$image"
"$fsck" -n "$image" >"$work/fsck.log" 2>&1 || [ $? -ne 8 ] || fail 'fsck -n does not look'
unserve
fails 16 'Usage|usage' "$fsck"
fails 16 'Usage|usage' "$fsck" -n -p "$image"
fails 16 'Usage|usage|invalid' "$fsck" --nonsense "$image"

# Interrupted (35): a volume with enough contents to be at it for a while.
serve
for i in $(seq 6); do head -c 24M /dev/urandom >"$mnt/big.$i"; done
unserve
code=0
for wait in 0.02 0.005 0.05; do
	"$fsck" -n -f --data "$image" >/dev/null 2>&1 &
	checker=$!
	sleep $wait
	kill -INT $checker 2>/dev/null || true
	code=0
	wait $checker || code=$?
	[ $code -eq 32 ] && break
	[ $code -eq 0 ] || fail "an interrupted fsck ended with $code"
done
[ $code -eq 32 ] || echo 'fsck was faster than its interruption'
fsck_data
