#!/bin/bash
# blinkfs sync DIR: whatever was done in the volume is durable afterwards.
. "$(dirname "$0")/lib.sh"
command -v jq >/dev/null || skip 'jq is missing'

log_figure() { jq ".log.$1" "$mnt/.blinkfs/stats"; }
all_is_durable() { [ "$(log_figure durable_lsn)" -ge "$1" ]; }

volume
serve -o commit_interval=3600
mkdir "$mnt/d" "$mnt/d/e"
for i in $(seq 50); do echo "contents $i" >"$mnt/d/$i"; done
exec 8>"$mnt/held"
echo 'still in the cache of the kernel' >&8 # not closed: nothing has made the kernel send it
next=$(log_figure next_lsn)
all_is_durable "$next" && fail 'durable too early'
"$blinkfs" sync "$mnt/d/e"
all_is_durable "$next" || fail 'not durable'
[ "$(log_figure durable_lsn)" = "$(log_figure next_lsn)" ] || fail 'something is left'

# Nothing else to do: no further group.
groups=$(jq .counters.log_groups "$mnt/.blinkfs/stats")
"$blinkfs" sync "$mnt"
same "$(jq .counters.log_groups "$mnt/.blinkfs/stats")" "$groups"

# Any directory of it will do.
touch "$mnt/one more"
next=$(log_figure next_lsn)
"$blinkfs" sync "$mnt/.blinkfs"
all_is_durable "$next" || fail 'not durable by way of the control directory'

# The server dies: all of it is there.
kill -9 "$server"
server_ended 137
exec 8>&- || true
serve # clears the dead mount
same "$(ls "$mnt/d" | wc -l)" 51
same "$(cat "$mnt/d/50")" 'contents 50'
same "$(cat "$mnt/held")" 'still in the cache of the kernel'
unserve

fails 1 'not in a mounted' "$blinkfs" sync "$work"
fails 1 'No such file' "$blinkfs" sync "$work/nowhere"
fails 1 'Not a directory' "$blinkfs" sync "$image"
fails 2 'usage' "$blinkfs" sync
fails 2 'usage' "$blinkfs" sync "$mnt" "$mnt"
"$blinkfs" sync -h | grep -q usage
fsck_clean

# Read-only: nothing to do.
serve -o ro
"$blinkfs" sync "$mnt"
unserve
