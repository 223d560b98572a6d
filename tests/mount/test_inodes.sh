#!/bin/bash
# What the server keeps of inodes follows what the kernel keeps: it is all given back
# when the kernel forgets, and inode_cache bounds it.
. "$(dirname "$0")/lib.sh"
command -v jq >/dev/null || skip 'no jq here'
files=$((20000 * ${TEST_SCALE:-1}))
stat_of() { jq ".inodes.$1" "$mnt/.blinkfs/stats"; }
drop_caches() { echo 2 >/proc/sys/vm/drop_caches; }

make_files() {
	local dir i
	for dir in $(seq 20); do
		mkdir "$mnt/$dir"
		(cd "$mnt/$dir" && seq "$((files / 20))" | xargs touch)
	done
}
walk() { find "$mnt" -type f -size +1M -printf x >/dev/null; } # it has to look at each

volume 256M
serve -o inode_cache=0
floor=$(stat_of in_memory) floor_lookups=$(stat_of lookups)
make_files
[ "$(stat_of in_memory)" -ge "$files" ] || echo 'the kernel has forgotten some already'
walk
ls -lR "$mnt" >/dev/null
if [ -w /proc/sys/vm/drop_caches ]; then
	at_floor() {
		drop_caches
		[ "$(stat_of in_memory)" -le "$floor" ] && [ "$(stat_of lookups)" -le "$floor_lookups" ]
	}
	eventually at_floor
	# What is open stays, and all that leads to it.
	exec 9<"$mnt/7/7"
	walk
	at_open() { drop_caches && [ "$(stat_of in_memory)" -le $((floor + 2)) ]; }
	eventually at_open
	[ "$(stat_of in_memory)" -gt "$floor" ] || fail 'the open file was forgotten'
	exec 9<&-
	eventually at_floor
else
	echo 'the caches cannot be dropped here'
fi
unserve

# A limit holds while everything goes on working; what is open stays usable.
serve -o inode_cache=1000
exec 9<>"$mnt/3/3"
cd "$mnt/5"
walk
if grep -q 'has no effect' "$log"; then
	echo 'this kernel keeps as many inodes as it likes'
else
	bounded() { [ "$(stat_of in_memory)" -le 1100 ]; }
	eventually bounded
	for i in 1 2 3; do walk; done
	eventually bounded
fi
same "$PWD" "$(/bin/pwd)"
touch here
[ -e "$mnt/5/here" ] || fail 'the working directory has gone'
echo text >&9
same "$(cat "$mnt/3/3")" text
same "$(readlink /proc/$$/fd/9)" "$mnt/3/3"
exec 9<&-
same "$(find "$mnt" -type f | wc -l)" $((files / 20 * 20 + 1))
cd /
unserve
fsck_clean
fails 1 'bad value' "$blinkfs" -o inode_cache=10 "$image" "$mnt"
