#!/bin/bash
# overlayfs with its upper layer here: whiteouts, copies of what is below, opaque
# directories; what it left is there after kill -9.
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" -eq 0 ] || skip 'only root may mount overlayfs'
grep -qw overlay /proc/filesystems || modprobe overlay 2>/dev/null || skip 'no overlayfs here'

lower=$work/lower
mkdir -p "$lower/dir/deep" "$lower/full"
echo below >"$lower/file"
echo below >"$lower/dir/kept"
echo below >"$lower/full/a"
head -c 300000 /dev/urandom >"$lower/large"

layers() {
	mount -t overlay overlay -o "lowerdir=$lower,upperdir=$mnt/upper,workdir=$mnt/work" "$work/top"
}
is_whiteout() { same "$(stat -c '%F %t:%T %a' "$1")" 'character special file 0:0 0'; }

volume
serve
mkdir "$mnt/upper" "$mnt/work" "$work/top"
layers
top=$work/top
rm "$top/file"
rm -r "$top/full"
mkdir "$top/full"
echo above >"$top/full/b"
mv "$top/dir/kept" "$top/moved"
echo more >>"$top/large"

check_top() {
	[ ! -e "$top/file" ] || fail 'what was removed is there'
	same "$(ls "$top/full")" b
	same "$(cat "$top/moved")" below
	[ ! -e "$top/dir/kept" ] || fail 'what was moved away is there'
	[ -d "$top/dir/deep" ] || fail 'a directory below is missing'
	same "$(tail -c 5 "$top/large")" more
	same "$(head -c 300000 "$top/large" | sha256sum)" "$(sha256sum <"$lower/large")"
}
check_top
is_whiteout "$mnt/upper/file"
is_whiteout "$mnt/upper/dir/kept"
umount "$top"
"$blinkfs" sync "$mnt"
kill -9 "$server"
server_ended 137 2>/dev/null
serve
layers
check_top
echo again >"$top/file"
same "$(cat "$mnt/upper/file")" again
umount "$top"
unserve
fsck_clean
