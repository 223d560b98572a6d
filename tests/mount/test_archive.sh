#!/bin/bash
# The log archive in a directory that is full, fails, or is not there: the volume
# goes on, the gap is named, and what can be restored is what was archived.
. "$(dirname "$0")/lib.sh"
command -v jq >/dev/null || skip 'jq is missing'
[ "$(id -u)" -eq 0 ] || skip 'needs root, for a small tmpfs'

small=$work/small
mkdir "$small"
mount -t tmpfs -o size=32m tmpfs "$small" 2>/dev/null || skip 'no tmpfs to be had'
let_go() {
	umount -l "$small" 2>/dev/null
	teardown
}
trap let_go EXIT

stat_of() { jq -r "$1" "$mnt/.blinkfs/stats"; }

volume 256M
fails 1 'No such file' "$blinkfs" -f -o "log_archive=$work/nowhere" "$image" "$mnt"
fails 1 'log_archive_data needs' "$blinkfs" -f -o log_archive_data "$image" "$mnt"
fails 1 'log_archive' "$blinkfs" -f -o log_archive= "$image" "$mnt"

serve -o "log_archive=$small,log_archive_data"
head -c 1M /dev/urandom >"$mnt/early"
"$blinkfs" backup -q "$mnt" "$work/full"
head -c 1M /dev/urandom >"$mnt/kept"
cp "$mnt/kept" "$work/kept"
"$blinkfs" sync "$mnt"
moment=$(stat_of .log.durable_lsn)
archived() { [ "$(stat_of .archive.archived_lsn)" -ge "$moment" ]; }
eventually archived

# More than fits: nobody notices but the administrator.
for i in $(seq 8); do
	head -c 8M /dev/urandom >"$mnt/large$i"
	"$blinkfs" sync "$mnt"
done
paused() { [ "$(stat_of .archive.paused)" = true ]; }
eventually paused
grep -q 'archiving is paused' "$log" || fail 'no warning'
[ "$(stat_of .archive.gap_from)" -ge "$moment" ] || fail 'the gap begins too early'
head -c 8M /dev/urandom >"$mnt/more"
rm "$mnt"/large*
"$blinkfs" sync "$mnt"
free() { [ "$(stat_of .space_blocks.deferred)" = 0 ]; }
eventually free

# What was archived before the gap is of use; behind it, the replay stops.
cp -a "$small" "$work/saved"
"$blinkfs" restore -q --log "$work/saved" --until "$moment" "$work/full" "$work/restored"
"$fsck" -n -f --data "$work/restored" >"$work/fsck.log" || fail 'the restored volume is damaged'

# Room again.
rm "$small"/*
resumed() { [ "$(stat_of .archive.paused)" = false ]; }
eventually resumed
grep -q 'archiving goes on' "$log" || fail 'no word that it goes on'
head -c 1M /dev/urandom >"$mnt/late"
"$blinkfs" backup -q "$mnt" "$work/second"
head -c 1M /dev/urandom >"$mnt/later"
cp "$mnt/later" "$work/later"
unserve
fsck_clean
fails 1 'before the wanted' "$blinkfs" restore --log "$small" --until 99999999999 \
	"$work/full" "$work/new"
"$blinkfs" restore -q -f --log "$small" "$work/second" "$work/restored"
image=$work/restored
serve
cmp "$mnt/later" "$work/later"
cmp "$mnt/kept" "$work/kept"
unserve
fsck_clean

# An archive without file data is no way back.
volume 64M
serve -o "log_archive=$work"
"$blinkfs" backup -q "$mnt" "$work/plain"
head -c 1M /dev/urandom >"$mnt/file"
unserve
fails 1 'holds no file data' "$blinkfs" restore --log "$work" "$work/plain" "$work/new"
[ ! -e "$work/new" ] && [ ! -e "$work/new.partial" ] || fail 'something was left behind'

# The log gets other sizes and places under load, with the archive behind it.
mkdir "$work/moving"
volume 96M -l 4M
serve -o "log_archive=$work/moving,log_archive_data"
"$blinkfs" backup -q "$mnt" "$work/before"
(
	for i in $(seq 300); do
		head -c 20000 /dev/urandom >"$mnt/load$i"
		[ $((i % 3)) -ne 0 ] || rm "$mnt/load$((i - 1))"
	done
) &
load=$!
for size in 16M 8M 24M 3M 4M; do "$blinkfs" log-resize "$mnt" "$size"; done
wait "$load"
same "$(stat_of .counters.log_resizes)" 5
same "$(stat_of .archive.paused)" false
mkdir "$work/expected"
cp "$mnt"/load* "$work/expected"
"$blinkfs" sync "$mnt"
moment=$(stat_of .log.durable_lsn)
rm "$mnt"/load*
"$blinkfs" log-resize "$mnt" 12M
kill -9 "$server"
server_ended 137 2>/dev/null
serve -o "log_archive=$work/moving,log_archive_data"
! grep -q 'is missing there' "$log" || fail 'a gap where nothing was lost'
unserve
"$blinkfs" restore -q -f --log "$work/moving" --until "$moment" "$work/before" "$work/restored"
"$blinkfs" restore -q -f --log "$work/moving" "$work/before" "$work/restored2"
"$fsck" -n -f --data "$work/restored2" >"$work/fsck.log" || fail 'the restored volume is damaged'
image=$work/restored
serve
diff -r "$work/expected" "$mnt" || fail 'the moment differs'
unserve
fsck_clean
