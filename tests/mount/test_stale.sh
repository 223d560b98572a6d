#!/bin/bash
# kill -9 of the server: nothing acknowledged by fsync is lost, and the next
# mount clears the dead one out of its way.
. "$(dirname "$0")/lib.sh"

volume
serve
echo durable >"$mnt/file"
sync "$mnt/file"
mkdir "$mnt/dir"
sync "$mnt/dir"
kill -9 "$server"
server_ended 137 2>/dev/null
fails 2 'not connected' ls "$mnt"
serve
grep -q 'cleared a mount whose server had died' "$log" || fail 'no word about the dead mount'
same "$(cat "$mnt/file")" durable
[ -d "$mnt/dir" ] || fail 'the directory is lost'

# In the middle of load, several times.
for round in 1 2 3; do
	(
		i=0
		while echo "$i" >"$mnt/load.$round.$i" && sync "$mnt/load.$round.$i"; do
			echo "$i" >"$work/acknowledged.$round"
			i=$((i + 1))
		done
	) 2>/dev/null &
	writer=$!
	eventually test -e "$work/acknowledged.$round"
	sleep 0.5
	kill -9 "$server"
	server_ended 137 2>/dev/null
	wait "$writer" || true
	serve
	for i in $(seq 0 "$(cat "$work/acknowledged.$round")"); do
		same "$(cat "$mnt/load.$round.$i")" "$i"
	done
done
unserve
fsck_clean
