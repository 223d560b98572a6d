#!/bin/bash
# A full volume: ENOSPC and nothing else, no hang; what frees space works all the
# same; afterwards everything is back to where it was (CASES 13, 14, 16).
. "$(dirname "$0")/lib.sh"
fill=$BUILD/tests/mount/fill_tool
[ -x "$fill" ] || skip 'tests/mount/fill_tool is not built'

used() { df --output=used "$mnt" | tail -n 1 | tr -d ' '; }
inodes() { df --output=iused "$mnt" | tail -n 1 | tr -d ' '; }
available() { df --output=avail "$mnt" | tail -n 1 | tr -d ' '; }
# Directories' own pages are freed lazily: some of them may stay.
is_back() { [ "$(used)" -le $((empty + ${1:-300})) ] && [ "$(inodes)" -eq "$inodes_empty" ]; }

# Succeeds, or says that there is no space; within a minute, and nothing else.
may_be_full() {
	local output
	output=$(timeout 60 "$@" 2>&1) || grep -q 'No space left' <<<"$output" ||
		fail "'$*' failed, but not for space: $output"
}
must() { timeout 60 "$@" || fail "'$*' failed"; }

# What frees space, or needs none, on a volume without any.
exercise_full() {
	may_be_full mkdir "$mnt/extra"
	may_be_full sh -c "echo x >'$mnt/extra.txt'"
	may_be_full setfattr -n user.x -v "$(head -c 2000 /dev/zero | tr '\0' x)" "$mnt/kept/1"
	must mv "$mnt/kept/1" "$mnt/kept/renamed"
	must mv "$mnt/kept/2" "$mnt/kept/3"
	must ln -f "$mnt/kept/4" "$mnt/kept/5"
	must chmod 600 "$mnt/kept/6"
	must truncate -s 5000 "$mnt/kept/7"
	must truncate -s 0 "$mnt/kept/8"
	must rm "$mnt/kept/9"
	must sync "$mnt/kept"
	same "$(stat -c %s "$mnt/kept/7")" 5000
	must ls -lR "$mnt" >/dev/null
	rm -rf "$mnt/extra" "$mnt/extra.txt"
}

one_big_file() {
	local written
	written=$(must "$fill" big "$mnt/big")
	[ "$written" -ge $((megabytes * 7 / 10)) ] || fail "only $written MiB fit"
	[ "$(available)" -le 1024 ] || fail "ENOSPC, but $(available) KiB are available"
	must "$fill" again "$mnt/big" >/dev/null
	must "$fill" check "$mnt/big"
	exercise_full
	must truncate -s 10000001 "$mnt/big"
	must "$fill" check "$mnt/big"
	must rm "$mnt/big"
}

# size, and how many must fit at least
many_files() {
	local count
	count=$(must "$fill" many "$mnt/many" "$1")
	[ "$count" -ge "$2" ] || fail "only $count files of $1 bytes fit"
	exercise_full
	must "$fill" check "$mnt/many"
	must rm -rf "$mnt/many"
}

# Contents within the inodes: pages of the indexes take what is left.
only_inodes() {
	head -c $((megabytes * 3 / 4))M /dev/zero >"$mnt/ballast"
	many_files 100 5000
	must rm "$mnt/ballast"
}

# What two blocks here and two there leave free serves as many small files again.
half_removed() {
	local first again
	first=$(must "$fill" many "$mnt/many" 5000)
	(cd "$mnt/many" && find . -name '*[13579]' -delete)
	again=$(must "$fill" many "$mnt/again" 5000)
	[ "$again" -ge $((first * 45 / 100)) ] || fail "$first files, half removed, then only $again"
	must "$fill" check "$mnt/many"
	must "$fill" check "$mnt/again"
	must rm -rf "$mnt/many" "$mnt/again"
}

several_at_once() {
	local i jobs=()
	for i in 1 2 3; do
		timeout 100 "$fill" big "$mnt/big.$i" >/dev/null &
		jobs+=($!)
		timeout 100 "$fill" many "$mnt/many.$i" $((i * 3000)) >/dev/null &
		jobs+=($!)
	done
	for i in "${jobs[@]}"; do wait "$i" || fail 'one of several fillers failed'; done
	must "$fill" check "$mnt/big.1"
	must "$fill" check "$mnt/many.3"
	must rm -rf "$mnt"/big.? "$mnt"/many.?
}

# The server dies while several fill the volume; what they have left can be removed.
killed_while_full() {
	local i jobs=()
	for i in 1 2 3; do
		"$fill" big "$mnt/big.$i" >/dev/null 2>&1 &
		jobs+=($!)
		"$fill" many "$mnt/many.$i" $((i * 3000)) >/dev/null 2>&1 &
		jobs+=($!)
	done
	sleep "$1"
	kill -9 "$server"
	server_ended 137 2>/dev/null
	wait "${jobs[@]}" || true
	"$fsck" -n -f --data "$image" || fail 'fsck complains after a kill'
	serve -o "$options"
	must "$fill" check "$mnt/big.1"
	for i in 1 2 3; do [ ! -e "$mnt/many.$i" ] || must "$fill" check "$mnt/many.$i"; done
	must rm -rf "$mnt"/big.? "$mnt"/many.?
}

# FUSE 7.35: since then a write into the kernel's cache can still be told of a full volume.
cache_asks() { printf '5.16\n%s\n' "$(uname -r)" | sort -CV; }

# A writer who never calls fsync hears of a full volume from write(), not only from close();
# the file can be read, and written again as soon as there is room.
endless_cached_writer() {
	local output kib
	output=$(timeout 100 dd if=/dev/zero of="$mnt/big" bs=1M count=4000 2>&1) &&
		fail '4 GB fit into the cache of a small volume'
	grep -q "error writing .*No space left" <<<"$output" || fail "dd said: $output"
	kib=$(available)
	output=$(timeout 60 dd if=/dev/zero of="$mnt/big" bs=1M count=100 conv=notrunc \
		oflag=append 2>&1) && fail 'appending to a file of a full volume succeeded'
	grep -q "error writing .*No space left" <<<"$output" || fail "dd said, appending: $output"
	must tail -c 100 "$mnt/big" >/dev/null
	must cat "$mnt/big" >/dev/null
	must sh -c "echo small >'$mnt/small'"
	must sync "$mnt/small"
	rm "$mnt/small"
	must truncate -s 10M "$mnt/big"
	sync "$mnt/big" 2>/dev/null || true # takes the error that nobody has asked for yet
	must dd if=/dev/zero of="$mnt/big" bs=1M count=5 conv=notrunc,fsync oflag=append \
		status=none
	same "$(stat -c %s "$mnt/big")" $((15 << 20))
	[ "$(available)" -gt "$kib" ] || fail 'truncation gave nothing back'
	must rm "$mnt/big"
}

# The kernel frees the inodes of removed files while their write-back fails.
removed_while_failing() {
	local i jobs=()
	must "$fill" big "$mnt/ballast" >/dev/null
	for i in 1 2; do
		timeout 60 sh -c 'for n in $(seq 40); do
			dd if=/dev/zero of="$0" bs=1M count=8 status=none; rm "$0"
		done' "$mnt/removed.$i" 2>/dev/null &
		jobs+=($!)
	done
	for i in "${jobs[@]}"; do wait "$i" || fail 'writing and removing hangs'; done
	must rm "$mnt/ballast"
}

make_kept() {
	rm -rf "$mnt/kept"
	mkdir "$mnt/kept"
	for i in $(seq 9); do head -c 20000 /dev/urandom >"$mnt/kept/$i"; done
	sync "$mnt/kept"
}

megabytes=64
for variant in '16K writeback=on' '4K writeback=off'; do
	read -r page options <<<"$variant"
	volume ${megabytes}M -p "$page"
	serve -o "$options"
	empty=$(used) inodes_empty=$(inodes)
	make_kept
	only_inodes
	rm -rf "$mnt/kept"
	eventually is_back 1500
	for round in 1 2; do
		make_kept
		one_big_file
		rm -rf "$mnt/kept"
		eventually is_back 1500

		make_kept
		many_files 5000 2000
		rm -rf "$mnt/kept"
		eventually is_back 1500
	done
	if [ "$options" = writeback=off ] || cache_asks; then
		endless_cached_writer
		eventually is_back 1500
	fi
	removed_while_failing
	eventually is_back 1500
	half_removed
	eventually is_back 1500

	make_kept
	several_at_once
	rm -rf "$mnt/kept"
	eventually is_back 1500

	killed_while_full 0.4
	killed_while_full 1.2
	eventually is_back 1500
	echo 'still writable' >"$mnt/file"
	same "$(cat "$mnt/file")" 'still writable'
	unserve
	"$fsck" -n -f --data "$image" || fail 'fsck complains'
	# What is in use after all of it was freed is what a new mount finds.
	serve
	[ "$(used)" -le $((empty + 1500)) ] || fail "$(used) KiB are in use after a new mount"
	unserve
done
