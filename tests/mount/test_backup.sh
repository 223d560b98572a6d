#!/bin/bash
# blinkfs backup while files change, restore, incrementals; the log archive and a
# moment of the past; everything that is refused.
. "$(dirname "$0")/lib.sh"
command -v jq >/dev/null || skip 'jq is missing'

restored=$work/restored
other=$work/other
mkdir "$other" "$work/archive"

stat_of() { jq -r "$1" "$mnt/.blinkfs/stats"; }

# The restored volume is whole, and has what is in directory $1.
compare() {
	"$fsck" -n -f --data "$restored" >"$work/fsck.log" 2>&1 || {
		cat "$work/fsck.log"
		fail 'the restored volume is damaged'
	}
	"$blinkfs" -f "$restored" "$other" >"$work/other.log" 2>&1 &
	local pid=$!
	eventually mounted "$other"
	diff -r --no-dereference "$1" "$other" >"$work/diff" || {
		head -20 "$work/diff"
		fail 'the restored volume differs'
	}
	unmount "$other"
	wait "$pid"
}

fill() {
	local i
	mkdir -p "$mnt/$1"
	for i in $(seq 60); do
		head -c $((i * 997)) /dev/urandom >"$mnt/$1/file$i"
		ln -s "file$i" "$mnt/$1/link$i"
	done
	head -c 5M /dev/urandom >"$mnt/$1/large"
}

volume 96M
serve -o "log_archive=$work/archive,log_archive_data"
same "$(stat_of .archive.paused)" false
fill a
cp -a "$mnt" "$work/first"
"$blinkfs" backup -q "$mnt" "$work/full"
same "$(stat -c %a "$work/full")" 600
[ ! -e "$work/full.partial" ] || fail 'the partial file is still there'
same "$(stat_of .backup.state)" ended

# What is not backed up yet: an incremental while something writes.
rm -r "$mnt/a/file1"* "$mnt/a/link2"*
fill b
mv "$mnt/a/large" "$mnt/b/moved"
dd if=/dev/urandom of="$mnt/b/moved" bs=4096 seek=100 count=3 conv=notrunc status=none
cp -a "$mnt" "$work/second"
(
	mkdir "$mnt/busy" "$work/busy"
	while [ ! -e "$work/enough" ]; do
		head -c 100000 /dev/urandom >"$mnt/busy/x"
		mv "$mnt/busy/x" "$mnt/busy/y"
	done
) &
writer=$!
eventually [ -e "$mnt/busy/y" ]
"$blinkfs" backup --base "$work/full" "$mnt" "$work/inc1" >"$work/out"
grep -q 'state at LSN [0-9]*$' "$work/out" || fail 'backup did not say its LSN'
touch "$work/enough"
wait "$writer"
rm -r "$mnt/busy"
"$blinkfs" backup -q --base "$work/inc1" "$mnt" "$work/inc2"
lsn=$(sed 's/.* //' "$work/out")
# The base is the last backup, so only what is new is in it.
[ "$(stat -c %s "$work/inc2")" -lt 1000000 ] || fail 'the incremental backup is too large'
"$blinkfs" backup -q --since "$lsn" "$mnt" "$work/inc2b"
"$blinkfs" restore --check "$work/full" "$work/inc1" "$work/inc2" | grep -q incremental ||
	fail '--check does not describe'

# Restored, mounted, compared.
"$blinkfs" restore -q "$work/full" "$restored"
compare "$work/first"
"$blinkfs" restore -q -f "$work/full" "$work/inc1" "$work/inc2" "$restored"
compare "$work/second"
"$blinkfs" restore -q -f "$work/full" "$work/inc1" "$work/inc2b" "$restored"
compare "$work/second"
[ "$(du -m "$restored" | cut -f1)" -lt 60 ] || fail 'the restored image is not sparse'

# A moment of the past from the archive: before the mistake.
sync_lsn() {
	"$blinkfs" sync "$mnt"
	stat_of .log.durable_lsn
}
fill c
cp -a "$mnt" "$work/third"
moment=$(sync_lsn)
rm -r "$mnt/a" "$mnt/c"
fill d
cp -a "$mnt" "$work/fourth"
sync_lsn >/dev/null
kill -9 "$server"
wait "$server" 2>/dev/null || true
unmount "$mnt" || umount -l "$mnt"
serve -o "log_archive=$work/archive,log_archive_data"
fill e
cp -a "$mnt" "$work/fifth"
same "$(stat_of .counters.archive_gaps)" 0
unserve
"$blinkfs" restore -q -f --log "$work/archive" --until "$moment" "$work/full" "$restored"
compare "$work/third"
"$blinkfs" restore -q -f --log "$work/archive" "$work/full" "$work/inc1" "$restored"
compare "$work/fifth"

# What does not fit is refused, and nothing is left behind.
refused() {
	local pattern=$1
	shift
	fails 1 "$pattern" "$@"
	[ ! -e "$work/new" ] && [ ! -e "$work/new.partial" ] || fail 'something was left behind'
}
refused 'exists; replace' "$blinkfs" restore "$work/full" "$restored"
refused 'a full one has to come first' "$blinkfs" restore "$work/inc1" "$work/new"
refused 'its base is' "$blinkfs" restore "$work/full" "$work/inc2" "$work/new"
refused 'can only come first' "$blinkfs" restore "$work/full" "$work/full" "$work/new"
refused 'not a blinkfs backup' "$blinkfs" restore "$image" "$work/new"
refused 'before the wanted' "$blinkfs" restore --log "$work/archive" --until 99999999999 \
	"$work/full" "$work/new"
refused 'lies before the newest' "$blinkfs" restore --log "$work/archive" --until 5 \
	"$work/full" "$work/new"
cp "$work/full" "$work/bad"
printf X | dd of="$work/bad" bs=1 seek=$(($(stat -c %s "$work/bad") / 2)) conv=notrunc status=none
refused 'damaged at byte' "$blinkfs" restore "$work/bad" "$work/new"
refused 'damaged at byte' "$blinkfs" restore --check "$work/bad"
head -c 100000 "$work/full" >"$work/bad"
refused 'damaged at byte.*ends too early' "$blinkfs" restore "$work/bad" "$work/new"
# The unfinished file of somebody else, who is still at it.
"$mkfs" -q -s 16M "$work/taken.partial"
"$blinkfs" -f "$work/taken.partial" "$other" >"$work/other.log" 2>&1 &
taken=$!
eventually mounted "$other"
echo theirs >"$other/file"
fails 1 'taken.partial: mounted on' "$blinkfs" restore "$work/full" "$work/taken"
[ ! -e "$work/taken" ] || fail 'restored over what is in use'
same "$(cat "$other/file")" theirs
unmount "$other"
wait "$taken"
"$fsck" -n -f --data "$work/taken.partial" || fail 'a refused restore has damaged it'
"$blinkfs" restore -q "$work/full" "$work/taken" || fail 'an unfinished file is in the way'
[ ! -e "$work/taken.partial" ] || fail 'the partial file is still there'
fails 1 'not in a mounted blinkfs' "$blinkfs" backup "$work" "$work/new"
fails 2 usage "$blinkfs" backup "$mnt"
fails 2 usage "$blinkfs" restore "$work/full"
fails 2 'one of them' "$blinkfs" backup --since 5 --base "$work/full" "$mnt" "$work/new"

# The restored volume has a life of its own: backups of the old one are no base for it.
image=$restored
serve
refused 'make a full backup' "$blinkfs" backup --base "$work/inc1" "$mnt" "$work/new"
fails 1 'future' "$blinkfs" backup --since 99999999999 "$mnt" "$work/new"
refused 'lies in the volume' "$blinkfs" backup "$mnt" "$mnt/backup"
ls -A "$mnt" | grep -q backup && fail 'a file was left in the volume'

# An interrupted backup keeps nothing.
"$blinkfs" backup -q --rate 100K "$mnt" "$work/slow" &
slow=$!
eventually [ -s "$work/slow.partial" ]
fails 1 'another backup' "$blinkfs" backup "$mnt" "$work/new"
rm -r "$mnt/b"
kill -9 "$slow"
wait "$slow" 2>/dev/null || true
idle() { [ "$(stat_of .backup.state)" = ended ]; }
eventually idle
rm "$work/slow.partial"
free() {
	"$blinkfs" sync "$mnt"
	[ "$(stat_of .space_blocks.deferred)" = 0 ]
}
eventually free
"$blinkfs" backup -q --rate 100K "$mnt" "$work/slow" 2>"$work/err" &
slow=$!
eventually [ -s "$work/slow.partial" ]
kill -TERM "$slow"
wait "$slow" && fail 'an interrupted backup ended well'
[ ! -e "$work/slow.partial" ] || fail 'its file was left behind'
unserve
fsck_clean
