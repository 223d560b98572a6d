#!/bin/bash
# The ways to write the redo log: each by its option, one after the other on one
# volume whose server is killed every time; and what is chosen without being told.
. "$(dirname "$0")/lib.sh"
command -v jq >/dev/null || skip 'jq is missing'

mode() { jq -r .log.mode "$mnt/.blinkfs/stats"; }
die() {
	kill -9 "$server"
	server_ended 137 2>/dev/null
}

volume
fails 1 "bad value in option 'log_mode=fast'" "$blinkfs" -f -o log_mode=fast "$image" "$mnt"
n=0
for mode in pwrite direct dsync mapped pwrite mapped; do
	serve -o "log_mode=$mode"
	same "$(mode)" "$mode"
	eventually grep -q "redo log: mode $mode, blocks of" "$log"
	# All that was fsynced before is there.
	for i in $(seq $n); do same "$(cat "$mnt/$i")" "durable $i"; done
	n=$((n + 1))
	echo "durable $n" >"$mnt/$n"
	sync "$mnt/$n" # fsync
	mkdir "$mnt/$mode.$n"
	if [ "$mode" = mapped ]; then before=$(ls "$mnt"); fi
	die
	[ "$mode" != mapped ] || survived=$before
done

# What was logged into a map has survived the server, fsync or not.
serve
same "$(ls "$mnt")" "$survived"
same "$(mode)" pwrite
jq -e '.log.block_bytes == 512' "$mnt/.blinkfs/stats" >/dev/null
unserve
fsck_clean

# Somebody makes the file of a mapped log shorter: a message instead of a core dump.
"$mkfs" -q -f -s 64M -j "$work/log" "$image"
serve -o log_mode=mapped
touch "$mnt/before"
truncate -s 4K "$work/log"
touch "$mnt/after" 2>/dev/null && fail 'a log without a file took something'
server_ended 3
grep -q 'the mapped redo log cannot be reached' "$log" || fail "it said: $(cat "$log")"

# In memory the log is mapped without being told.
if [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ] && [ -w /dev/shm ]; then
	shm=$(mktemp -d /dev/shm/blinkfs-test.XXXXXX)
	disk_image=$image
	image=$shm/volume
	trap 'code=$?; set +e; rm -rf "$shm"; (exit $code); teardown' EXIT
	volume 32M
	serve
	same "$(mode)" mapped
	jq -e '.log.block_bytes == 64' "$mnt/.blinkfs/stats" >/dev/null
	for i in $(seq 200); do : >"$mnt/f$i"; done
	die
	serve -o log_mode=pwrite
	same "$(ls "$mnt" | wc -l)" 200
	same "$(mode)" pwrite
	unserve
	fsck_clean
	# A log of small blocks, on a disk.
	cp "$image" "$disk_image"
	image=$disk_image
	serve
	same "$(mode)" pwrite
	jq -e '.log.block_bytes == 512' "$mnt/.blinkfs/stats" >/dev/null
	touch "$mnt/on-a-disk"
	unserve
	fsck_clean
fi
