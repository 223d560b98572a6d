#!/bin/bash
# Space that goes back to the image file: blinkfs trim, -o discard.
. "$(dirname "$0")/lib.sh"
command -v jq >/dev/null || skip 'jq is missing'

stat_of() { jq -r "$1" "$mnt/.blinkfs/stats"; }
allocated() { echo $(($(stat -c %b "$image") / 2048)); } # MiB
fill() { # some files, large and small
	local i
	head -c 40M /dev/urandom >"$mnt/large"
	mkdir "$mnt/small"
	for i in $(seq 200); do head -c 20000 /dev/urandom >"$mnt/small/$i"; done
	sync "$mnt/large" "$mnt"
	"$blinkfs" sync "$mnt"
}
is_idle() { [ "$(stat_of .space_blocks.deferred)" -eq 0 ]; }
shrunk() { [ "$(allocated)" -le "$1" ]; }

volume 128M -l 4M
punch=$work/punch
head -c 1M /dev/urandom >"$punch"
fallocate -p -o 0 -l 1M "$punch" 2>/dev/null || skip 'no holes in files here'

serve -o commit_interval=1
fails 2 'usage: blinkfs trim' "$blinkfs" trim
fails 2 'usage: blinkfs trim' "$blinkfs" trim "$mnt" "$mnt"
fails 2 'not a size for --length: many' "$blinkfs" trim -l many "$mnt"
fails 1 'not in a mounted blinkfs volume' "$blinkfs" trim "$work"
"$blinkfs" trim -h | grep -q 'usage: blinkfs trim'
before=$(allocated)
fill
[ "$(allocated)" -ge $((before + 40)) ] || fail 'nothing was written'
kept=$(md5sum <"$mnt/small/7")
rm "$mnt/large"
eventually is_idle
full=$(allocated)
# Without -o discard nobody has told the file.
same "$(stat_of .counters.dev_discards)" 0
same "$(stat_of .discard.background)" false
# A range without anything; runs that are too short; then all of it, from any directory.
"$blinkfs" trim -v -l 1M "$mnt" | grep -q '(0 bytes) trimmed'
"$blinkfs" trim -v -m 1T "$mnt" | grep -q '(0 bytes) trimmed'
shrunk $((full - 1)) && fail 'shrunk by nothing'
"$blinkfs" trim -v -o 64M -l 8M "$mnt/small" | grep -qE 'trimmed'
"$blinkfs" trim -v "$mnt/small" >"$work/said"
grep -qE 'MiB \([0-9]+ bytes\) trimmed' "$work/said" || fail "$(cat "$work/said")"
shrunk $((full - 36)) || fail "$(allocated) MiB of $full are still there"
[ "$(stat_of .counters.dev_discard_bytes)" -gt $((80 * 1048576)) ] || fail 'not counted'
same "$(stat_of .discard.in_flight_blocks)" 0
same "$(md5sum <"$mnt/small/7")" "$kept"
# By others' program, which is told how much: nothing above, all of what is free, by ranges.
if command -v fstrim >/dev/null && [ "$(id -u)" -eq 0 ]; then
	fails 1 'Invalid argument' fstrim -o 1T "$mnt"
	fails 1 'Invalid argument' fstrim -m 1T "$mnt"
	fails 1 'Invalid argument' fstrim -l 1000 "$mnt"
	fails 0 ' 0 B \(0 bytes\) trimmed' fstrim -v -m 127M "$mnt"
	told=$(stat_of .counters.dev_discard_bytes)
	said=$(fstrim -v -o 64M -l 8M "$mnt" | grep -oE '[0-9]+ bytes' | cut -d' ' -f1)
	[ "$said" -gt 0 ] && [ "$said" -le $((8 * 1048576)) ] || fail "$said bytes of 8 MiB"
	same "$(stat_of .counters.dev_discard_bytes)" $((told + said))
	head -c 20M /dev/urandom >"$mnt/large"
	sync "$mnt/large"
	rm "$mnt/large"
	eventually is_idle
	full=$(allocated)
	told=$(stat_of .counters.dev_discard_bytes)
	said=$(fstrim -v "$mnt/small" | grep -oE '[0-9]+ bytes' | cut -d' ' -f1)
	same "$(stat_of .counters.dev_discard_bytes)" $((told + said))
	shrunk $((full - 18)) || fail "$(allocated) MiB of $full are still there"
	same "$(md5sum <"$mnt/small/7")" "$kept"
	"$blinkfs" freeze "$mnt"
	fails 1 'busy' fstrim "$mnt"
	"$blinkfs" thaw "$mnt"
fi
# Under load.
(
	for i in $(seq 60); do
		head -c 300K /dev/urandom >"$mnt/f$((i % 7))"
		[ $((i % 3)) -ne 0 ] || rm "$mnt/f$((i % 7))"
	done
) &
load=$!
while kill -0 "$load" 2>/dev/null; do "$blinkfs" trim "$mnt"; done
wait "$load"
same "$(md5sum <"$mnt/small/7")" "$kept"
kill -9 "$server"
server_ended 137 2>/dev/null
serve
same "$(md5sum <"$mnt/small/7")" "$kept"
unserve
fsck_clean
"$fsck" -n -f --data "$image" >"$work/fsck.log" || fail "$(cat "$work/fsck.log")"

# A block device passes it on.
if loop=$(losetup --show -f "$image" 2>/dev/null); then
	file=$image
	image=$loop
	serve -o discard,commit_interval=1
	fill_before=$(stat -c %b "$file")
	head -c 30M /dev/urandom >"$mnt/on-a-device"
	sync "$mnt/on-a-device"
	[ "$(stat -c %b "$file")" -gt $((fill_before + 20 * 2048)) ] || fail 'nothing was written'
	rm "$mnt/on-a-device"
	image=$file
	eventually shrunk $((fill_before / 2048 + 8))
	"$blinkfs" trim "$mnt"
	unserve
	losetup -d "$loop"
	"$fsck" -n -f --data "$image" >"$work/fsck.log" || fail "$(cat "$work/fsck.log")"
fi
serve -o ro
fails 1 'Read-only file system' "$blinkfs" trim "$mnt"
unserve

# Interrupted, it ends, and nothing is amiss.
serve
for i in 1 2 3 4 5; do
	code=0
	timeout -s INT "0.00$i" "$blinkfs" trim "$mnt" || code=$?
	case $code in 0 | 124 | 130) ;; *) fail "an interrupted trim ended with $code" ;; esac
done
eventually [ "$(stat_of .discard.in_flight_blocks)" -eq 0 ]
"$blinkfs" trim "$mnt"
unserve

# By itself.
volume 128M -l 4M
serve -o discard,commit_interval=1
same "$(stat_of .discard.background)" true
before=$(allocated)
fill
full=$(allocated)
rm -r "$mnt/large" "$mnt/small"
eventually shrunk $((before + 8))
[ "$(stat_of .counters.dev_discard_bytes)" -gt 0 ] || fail 'not counted'
fill
unserve
fsck_clean
"$fsck" -n -f --data "$image" >"$work/fsck.log" || fail "$(cat "$work/fsck.log")"
