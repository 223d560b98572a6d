#!/bin/bash
# An ordinary user makes and mounts a volume through fusermount3; privileges are
# dropped from files that somebody else writes to.
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" -eq 0 ] || skip 'only root can become somebody else'
command -v fusermount3 >/dev/null || skip 'no fusermount3 here'
user=nobody
as_user() { setpriv --reuid="$user" --regid=nogroup --clear-groups "$@"; }
# Of the group "daemon" as well, behind more groups than one usually has.
as_member() { setpriv --reuid="$user" --regid=nogroup --groups="$(seq -s, 5000 5099),daemon" "$@"; }
if ! as_user test -w /dev/fuse; then
	# Without udev only root may open it: a private /dev/fuse for this test alone.
	[ -z "${BLINKFS_TEST_UNSHARED:-}" ] || skip "$user may not open /dev/fuse"
	export BLINKFS_TEST_UNSHARED=1
	unshare -m bash -c "mknod -m 666 '$work/fuse' c 10 229 &&
		mount --bind '$work/fuse' /dev/fuse && exec bash '$0'"
	exit
fi
as_user test -r "$BUILD/blinkfs" || skip "$user cannot reach the programs"

mkdir "$work/home"
chown "$user" "$work/home"
own=$work/home/volume
place=$work/home/mnt
as_user mkdir "$place"
as_user "$mkfs" -q -s 64M "$own"
as_user fusermount3 -V >/dev/null
as_user "$blinkfs" "$own" "$place" 2>"$work/err" || {
	grep -q 'fusermount3.*Operation not permitted' "$work/err" && skip "$user may not mount here"
	cat "$work/err"
	fail 'could not mount'
}
as_user sh -c "echo mine >'$place/file'"
same "$(as_user cat "$place/file")" mine
same "$(as_user stat -c %U "$place")" "$user"
# Not even root gets in without allow_other.
fails 1 'Permission denied' cat "$place/file"
as_user fusermount3 -u "$place"
gone() { [ -z "$(servers)" ]; }
eventually gone

# SIGTERM: the server unmounts through fusermount3.
as_user "$blinkfs" "$own" "$place"
as_user sh -c "echo again >'$place/again'"
kill -TERM "$(servers)"
eventually gone
mounted "$place" && fail 'still mounted'

# A dead mount of the user's is cleared by the user's next one.
as_user "$blinkfs" "$own" "$place"
same "$(as_user cat "$place/again")" again
kill -9 "$(servers)"
eventually gone
as_user "$blinkfs" "$own" "$place" 2>"$work/err"
grep -q 'cleared' "$work/err" || fail 'no word about the dead mount'
same "$(as_user cat "$place/again")" again
as_user fusermount3 -u "$place"
eventually gone

# Somebody else's volume
volume
chmod 600 "$image"
fails 1 'Permission denied' as_user "$blinkfs" "$image" "$place"

# setuid and setgid go when somebody else writes, truncates or changes the owner.
for writeback in on off; do
	volume
	serve -o "allow_other,writeback=$writeback"
	chmod 777 "$mnt"
	for name in write truncate append fallocate punch zero; do
		echo content >"$mnt/$name"
		chmod 6777 "$mnt/$name"
	done
	as_user sh -c "echo x >>'$mnt/append'"
	same "$(stat -c %a "$mnt/append")" 777
	as_user sh -c "printf x | dd of='$mnt/write' conv=notrunc status=none"
	same "$(stat -c %a "$mnt/write")" 777
	as_user truncate -s 1 "$mnt/truncate"
	same "$(stat -c %a "$mnt/truncate")" 777
	as_user fallocate -l 10000 "$mnt/fallocate"
	as_user fallocate -p -o 0 -l 4096 "$mnt/punch"
	as_user fallocate -z -o 0 -l 4096 "$mnt/zero"
	for name in fallocate punch zero; do same "$(stat -c %a "$mnt/$name")" 777; done
	chmod 6777 "$mnt/zero"
	fallocate -z -o 0 -l 4096 "$mnt/zero"
	same "$(stat -c %a "$mnt/zero")" 6777 # root may
	# setgid without group execution stays for who is of the group, and for root.
	for who in outsider member root; do
		left=766
		case $who in
		outsider) as=as_user ;;
		member) as=as_member left=2766 ;;
		root) as= left=6766 ;;
		esac
		for name in write truncate append fallocate punch zero copy; do
			echo content >"$mnt/$name"
			chgrp daemon "$mnt/$name"
			chmod 6766 "$mnt/$name"
		done
		$as dd if=/dev/zero of="$mnt/write" bs=1 count=1 conv=notrunc status=none
		$as truncate -s 1 "$mnt/truncate"
		$as sh -c "echo x >>'$mnt/append'"
		$as fallocate -l 10000 "$mnt/fallocate"
		$as fallocate -p -o 0 -l 4096 "$mnt/punch"
		$as fallocate -z -o 0 -l 4096 "$mnt/zero"
		for name in write truncate append fallocate punch zero; do
			same "$who $name $(stat -c %a "$mnt/$name")" "$who $name $left"
		done
		[ "$who" != root ] || break
		$as "$BUILD/tests/mount/copy_tool" "$mnt/zero" "$mnt/copy"
		same "$who $(stat -c %a "$mnt/copy")" "$who $left"
	done
	echo content >"$mnt/chown"
	chmod 6755 "$mnt/chown"
	chown "$user" "$mnt/chown"
	same "$(stat -c %a "$mnt/chown")" 755
	# The kernel enforces permissions.
	echo secret >"$mnt/secret"
	chmod 600 "$mnt/secret"
	fails 1 'Permission denied' as_user cat "$mnt/secret"
	unserve
done
