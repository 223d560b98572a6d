#!/bin/bash
# As a daemon: the mount is live when the command returns; the exit code tells.
. "$(dirname "$0")/lib.sh"

volume
"$blinkfs" "$image" "$mnt"
mounted "$mnt" || fail 'not mounted when the command returned'
same "$(servers | wc -l)" 1
pid=$(servers)
same "$(readlink "/proc/$pid/cwd")" /
same "$(readlink "/proc/$pid/fd/2")" /dev/null
same "$(awk -v mnt="$mnt" '$2 == mnt { print $1, $3 }' /proc/mounts)" "$image fuse.blinkfs"
echo data >"$mnt/file"

# Relative paths mean what they meant to the caller.
unmount "$mnt"
gone() { [ -z "$(servers)" ]; }
eventually gone
cd "$work"
"$blinkfs" volume mnt
same "$(cat mnt/file)" data
cd /
unmount "$mnt"

# Mounting at once again waits for the server that is still closing.
"$blinkfs" "$image" "$mnt"
same "$(cat "$mnt/file")" data
unmount "$mnt"
eventually gone
fsck_clean

# Failures reach the caller.
head -c 1000000 /dev/zero >"$work/zeros"
fails 1 'not a blinkfs volume' "$blinkfs" "$work/zeros" "$mnt"
same "$(servers | wc -l)" 0
