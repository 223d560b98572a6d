#!/bin/bash
# SIGTERM, SIGINT and SIGHUP unmount, lose nothing and leave no dead mount.
. "$(dirname "$0")/lib.sh"

volume 128M
for signal in TERM INT HUP; do
	serve
	echo "$signal" >"$mnt/$signal" # still in the kernel's cache
	kill -"$signal" "$server"
	server_ended 0
	mounted "$mnt" && fail "still mounted after SIG$signal"
	fsck_clean
done

# In the middle of writes, with a file held open.
serve
for name in TERM INT HUP; do same "$(cat "$mnt/$name")" "$name"; done
(
	exec 9>"$mnt/held"
	echo before >&9
	touch "$work/ready"
	i=0
	while echo "line $i" >&9; do i=$((i + 1)); done 2>/dev/null
) &
writer=$!
eventually test -e "$work/ready"
sleep 0.5
kill -TERM "$server"
server_ended 0
mounted "$mnt" && fail 'still mounted'
kill "$writer" # the kernel still takes what nobody will ever get
wait "$writer" || true
fsck_clean
serve
same "$(head -n 1 "$mnt/held")" before
[ "$(wc -l <"$mnt/held")" -gt 10 ] || fail 'what was written is lost'
tr -d '\0' <"$mnt/held" | cmp - "$mnt/held" || fail 'zeros among the lines'
unserve
