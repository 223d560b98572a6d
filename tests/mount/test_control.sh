#!/bin/bash
# The control directory: hidden, there, read-only; its statistics are JSON.
. "$(dirname "$0")/lib.sh"
command -v jq >/dev/null || skip 'jq is missing'

volume
serve
ls -A "$mnt" | grep -q blinkfs && fail 'the control directory is listed'
same "$(ls "$mnt/.blinkfs" | xargs)" 'control stats tunables'
same "$(stat -c '%F %a' "$mnt/.blinkfs")" 'directory 555'
jq -e . "$mnt/.blinkfs/stats" >/dev/null
same "$(jq -r .volume.page_size "$mnt/.blinkfs/stats")" 16384
for part in counters latch_waits pool space_blocks log; do
	jq -e ".$part | length > 0" "$mnt/.blinkfs/stats" >/dev/null || fail "no $part"
done

# Each opening sees the present; one opening sees one state.
count() { jq .counters.core_creates "$mnt/.blinkfs/stats"; }
before=$(count)
exec 8<"$mnt/.blinkfs/stats"
touch "$mnt/a" "$mnt/b" "$mnt/c"
same "$(count)" $((before + 3))
same "$(jq .counters.core_creates <&8)" "$before"
exec 8<&-
for i in $(seq 1000); do echo "$i" >"$mnt/$((i % 10))"; done
for i in $(seq 300); do cat "$mnt/.blinkfs/stats" >/dev/null; done

# Switches are read and set through files, or by options when mounting.
tunables=$mnt/.blinkfs/tunables
same "$(ls "$tunables" | xargs)" \
	'data_direct lob_batch lob_shared_index lob_two_phase purge_no_load purge_prefetch'
for name in $(ls "$tunables"); do
	same "$(cat "$tunables/$name")" on
	echo off >"$tunables/$name"
	same "$(cat "$tunables/$name")" off
done
head -c 300000 /dev/urandom >"$mnt/classic"
cp "$mnt/classic" "$work/classic"
sync "$mnt/classic"
jq -e '.counters.lob_classic_writes > 0' "$mnt/.blinkfs/stats" >/dev/null
rm "$mnt/classic"
for name in $(ls "$tunables"); do echo on >"$tunables/$name"; done
same "$(cat "$tunables"/* | sort -u)" on
same "$(stat -c '%F %a' "$tunables/lob_batch")" 'regular file 644'
fails 1 'error|Invalid' dd if=/dev/zero of="$tunables/lob_batch" bs=5 count=1 conv=fsync status=none
same "$(cat "$tunables/lob_batch")" on
fails 2 'not permitted|not supported|Permission' sh -c "echo on >'$tunables/new'"
fails 1 'not permitted|not supported|Permission denied' chmod 777 "$tunables/lob_batch"
fails 1 'not permitted|not supported|Permission denied' rm -f "$tunables/lob_batch"
# What takes commands belongs to whoever mounted; as a file it is empty, and stays so.
same "$(stat -c '%F %a %u' "$mnt/.blinkfs/control")" "regular empty file 600 $(id -u)"
same "$(cat "$mnt/.blinkfs/control")" ''
fails 1 'not supported|not permitted|Permission denied' \
	bash -c "echo x >>'$mnt/.blinkfs/control'; sync '$mnt/.blinkfs/control'"
fails 1 'Operation not permitted|Permission denied' rm "$mnt/.blinkfs/control"

# Nothing can be put there or taken away.
fails 1 'File exists' mkdir "$mnt/.blinkfs"
fails 1 'exists' ln -s x "$mnt/.blinkfs" -T
fails 1 'not permitted|not supported|Permission denied' touch "$mnt/.blinkfs/new"
fails 2 'not permitted|not supported|Permission' sh -c "echo x >'$mnt/.blinkfs/stats'"
fails 1 'not permitted|not supported|not empty' rmdir "$mnt/.blinkfs"
fails 1 'not permitted' mv "$mnt/.blinkfs" "$mnt/else"
fails 1 'not permitted|cannot overwrite|exists' mv -T "$mnt/a" "$mnt/.blinkfs"
fails 1 'not permitted|not supported|Permission denied' rm -f "$mnt/.blinkfs/stats"
fails 1 'not permitted|not supported|Permission denied' chmod 777 "$mnt/.blinkfs"
fails 1 'cross-device|not supported|not permitted' ln "$mnt/.blinkfs/stats" "$mnt/hard"
mkdir "$mnt/sub"
mkdir "$mnt/sub/.blinkfs" # only the root has one
unserve
fsck_clean
serve -o lob_batch=off,purge_prefetch=off,lob_batch=on
same "$(cat "$tunables/lob_batch" "$tunables/purge_prefetch" | xargs)" 'on off'
unserve
fails 1 "bad value in option 'lob_batch=maybe'" "$blinkfs" -o lob_batch=maybe "$image" "$mnt"
