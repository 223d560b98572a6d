#!/bin/bash
# blinkfs freeze and thaw: a device that stands still, reading that goes on beside more
# writers than there are threads, and each way in which a frozen mount can end.
. "$(dirname "$0")/lib.sh"
command -v jq >/dev/null || skip 'jq is missing'

state() { jq -r ".freeze.$1" "$mnt/.blinkfs/stats"; }
holds() { [ "$(state requests_held)" -ge "$1" ]; }
digest() { sha256sum "$image" | cut -d' ' -f1; }
writers=()
# Each goes on until its file `stop` is there, or the mount is gone.
start_writers() {
	local i
	rm -f "$work/stop"
	for i in $(seq "$1"); do
		mkdir -p "$mnt/d/$i"
		(
			n=0
			while [ ! -e "$work/stop" ]; do
				n=$((n + 1))
				echo "$i $n" >>"$mnt/d/$i/file" || exit 0
				mv "$mnt/d/$i/file" "$mnt/d/$i/moved" || exit 0
				mv "$mnt/d/$i/moved" "$mnt/d/$i/file" || exit 0
				rm -f "$mnt/d/$i/extra"
				head -c 20000 /dev/zero >"$mnt/d/$i/extra" || exit 0
			done
		) 2>/dev/null &
		writers+=($!)
	done
}
end_writers() {
	touch "$work/stop"
	wait "${writers[@]}" || fail 'a writer failed'
	writers=()
}

volume 96M -l 8M
serve
mkdir "$mnt/d" "$mnt/quiet"
# The kernel sends one change of a directory, or of a file, at a time.
for i in $(seq 80); do : >"$mnt/d/of.$i"; done
echo kept >"$mnt/kept"
fails 2 'usage: blinkfs freeze DIR' "$blinkfs" freeze
fails 2 'usage' "$blinkfs" thaw --now "$mnt"
fails 1 'not in a mounted blinkfs volume' "$blinkfs" freeze "$work"
cat "$mnt/kept" >/dev/null # its access time is in memory only
fails 1 'cannot be thawed: it is not frozen' "$blinkfs" thaw "$mnt"
same "$(state frozen)" false

# Beside writers, some of whose contents only the kernel has.
start_writers 4
echo 'only in memory' >"$mnt/late"
timeout 60 "$blinkfs" freeze "$mnt/d" || fail 'cannot be frozen beside writers'
same "$(state frozen)" true
eventually holds 4
before=$(digest)
cp --sparse=always "$image" "$work/copy"
# Each of them changes something, and 80 are more than there are threads.
for i in $(seq 80); do
	chmod 600 "$mnt/d/of.$i" &
	writers+=($!)
done
eventually holds 84
same "$(timeout 10 cat "$mnt/kept")" kept
# (Of a directory in which a change waits, Linux holds the lock.)
timeout 10 ls -l "$mnt" "$mnt/quiet" >/dev/null || fail 'reading waits'
timeout 10 stat -f "$mnt" >/dev/null || fail 'statfs waits'
fails 1 'frozen already' timeout 10 "$blinkfs" freeze "$mnt"
timeout 10 sync "$mnt/kept" || fail 'fsync waits'
fails 1 'is frozen' timeout 10 "$blinkfs" trim "$mnt"
fails 1 'the volume is frozen' timeout 10 "$blinkfs" log-resize "$mnt" 12M
fails 1 'the volume is frozen' timeout 10 "$blinkfs" grow "$mnt" 128M
same "$(digest)" "$before"
cmp -s "$image" "$work/copy" || fail 'the device changed while it was copied'
"$fsck" -n -f --data "$work/copy" || fail 'the copy is not in order'
# Who has had enough may go, and what he wanted does not happen.
timeout 60 timeout -s INT 0.2 mkdir "$mnt/given-up" && fail 'mkdir in a frozen volume succeeded'
timeout 60 timeout -s KILL 0.2 mkdir "$mnt/given-up" && fail 'mkdir in a frozen volume succeeded'
[ ! -e "$mnt/given-up" ] || fail 'what was given up has happened'
timeout 60 "$blinkfs" thaw "$mnt" || fail 'cannot be thawed'
end_writers
[ ! -e "$mnt/given-up" ] || fail 'what was given up has happened after the thaw'
same "$(state frozen)" false
same "$(state requests_held)" 0
same "$(stat -c %a "$mnt/d/of.80")" 600
sync "$mnt/kept"
[ "$(digest)" != "$before" ] || fail 'nothing happened after the thaw'

# Frozen and thawed again and again under load.
start_writers 3
for i in $(seq 12); do
	timeout 60 "$blinkfs" freeze "$mnt" || fail 'cannot be frozen again'
	timeout 60 "$blinkfs" thaw "$mnt" || fail 'cannot be thawed again'
done
timeout 60 "$blinkfs" log-resize "$mnt" 6M || fail 'a thawed log cannot be resized'
end_writers
unserve
"$fsck" -n -f --data "$image" || fail 'fsck complains'

# The copy has what was there when it was made.
mv "$work/copy" "$image"
serve
same "$(cat "$mnt/kept")" kept
same "$(cat "$mnt/late")" 'only in memory'
same "$(stat -c %a "$mnt/d/of.1")" 644

# SIGTERM thaws, and does what was held.
timeout 60 "$blinkfs" freeze "$mnt"
mkdir "$mnt/held" &
held=$!
eventually holds 1
kill -TERM "$server"
server_ended 0
wait "$held" || fail 'what was held before SIGTERM was not done'
serve
[ -d "$mnt/held" ] || fail 'what was held before SIGTERM is lost'

# The server dies.
timeout 60 "$blinkfs" freeze "$mnt"
mkdir "$mnt/never" 2>/dev/null &
held=$!
eventually holds 1
kill -9 "$server"
server_ended 137 2>/dev/null
wait "$held" && fail 'mkdir succeeded without a server'
"$fsck" -n -f --data "$image" || fail 'fsck complains after a kill'
serve -o ro
fails 1 'Read-only file system' "$blinkfs" freeze "$mnt"
unserve
