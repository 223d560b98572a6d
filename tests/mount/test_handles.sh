#!/bin/bash
# Handles of files (open_by_handle_at) mean the same inode when the kernel has
# forgotten it, after a mount and after a crash; never another one: ESTALE.
. "$(dirname "$0")/lib.sh"
tool=$BUILD/tests/mount/handle_tool
[ -x "$tool" ] || skip "$tool is not built"
[ "$(id -u)" -eq 0 ] || skip 'only root may open by handle'
drop_caches() { sync "$mnt" && echo 2 >/proc/sys/vm/drop_caches 2>/dev/null; }
save() { "$tool" save "$mnt/$1" "$work/handle.${1//\//_}"; }
contents() { "$tool" cat "$mnt" "$work/handle.${1//\//_}"; }
path() { "$tool" path "$mnt" "$work/handle.${1//\//_}"; }
stale() { fails 1 'Stale file handle' "$tool" cat "$mnt" "$work/handle.${1//\//_}"; }
all_are_there() {
	same "$(contents file)" one
	same "$(contents a/b/deep)" two
	same "$(path a/b)" "$mnt/a/b"
}

volume
serve
echo one >"$mnt/file"
mkdir -p "$mnt/a/b"
echo two >"$mnt/a/b/deep"
echo gone >"$mnt/gone"
echo later >"$mnt/later"
for name in file a/b a/b/deep gone later; do save "$name"; done
all_are_there
drop_caches || echo 'the caches cannot be dropped here'
all_are_there
rm "$mnt/gone"
stale gone
echo 'another one' >"$mnt/gone"
stale gone
drop_caches || true
stale gone
mv "$mnt/a/b/deep" "$mnt/moved"
same "$(contents a/b/deep)" two
mv "$mnt/moved" "$mnt/a/b/deep"
unserve
serve
all_are_there
stale gone
rm "$mnt/later"
for i in $(seq 200); do echo "$i" >"$mnt/new.$i"; done
stale later
sync "$mnt/file"
kill -9 "$server"
server_ended 137 2>/dev/null
serve
all_are_there
stale gone
stale later
unserve
serve -o ro
all_are_there
stale gone
unserve
