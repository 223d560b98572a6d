#!/bin/bash
# A full volume can be read, whatever its files have been through: also those that have
# lost what was written last, and those whose links have changed since.
. "$(dirname "$0")/lib.sh"

volume 64M
serve
head -c 10000 /dev/urandom >"$mnt/file"
sync "$mnt/file"
kept=$(head -c 10000 "$mnt/file" | sha256sum)

# Until not even one block is written.
dd if=/dev/zero of="$mnt/fill" bs=1M status=none 2>/dev/null || true
lost=
for i in $(seq 50); do
	if ! dd if=/dev/zero of="$mnt/file" bs=64k count=4 seek=$((i * 4)) conv=notrunc,fsync \
		status=none 2>/dev/null; then
		lost=yes
		break
	fi
done
[ -n "$lost" ] || fail 'the volume does not become full'

readable() {
	cat "$mnt/file" >/dev/null || fail "cat: $1"
	tail -c 100000 "$mnt/file" >/dev/null || fail "tail: $1"
	same "$(head -c 10000 "$mnt/file" | sha256sum)" "$kept"
}
readable 'as it is'
ln "$mnt/file" "$mnt/other"
readable 'with a second link'
rm "$mnt/other"
readable 'with one link again'
mv "$mnt/file" "$mnt/moved"
ln "$mnt/moved" "$mnt/file"
readable 'under another name'

# Writing goes on when there is room.
rm "$mnt/fill"
written() { echo more >>"$mnt/file" && sync "$mnt/file"; }
eventually written
unserve
fsck_clean
