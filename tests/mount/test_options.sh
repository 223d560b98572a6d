#!/bin/bash
# Mount options do what they say.
. "$(dirname "$0")/lib.sh"

options_of() { awk -v mnt="$mnt" '$2 == mnt { print $4 }' /proc/mounts; }

# All that may stand in an fstab line
volume
serve -o nofail,_netdev,noauto,user,x-systemd.automount,x-gvfs-show,defaults,noatime,rw
case $(options_of) in *noatime*) ;; *) fail "noatime is not shown: $(options_of)" ;; esac
echo hello >"$mnt/file"
sync
unserve

# Read-only: not a byte changes, even after a crash
serve
echo more >"$mnt/crash"
sync "$mnt/crash"
kill -9 "$server"
server_ended 137 2>/dev/null
sum=$(sha256sum <"$image")
serve -o ro
same "$(cat "$mnt/file")" hello
same "$(cat "$mnt/crash")" more
fails 1 'Read-only' touch "$mnt/new"
fails 1 'Read-only' rm "$mnt/file"
unserve
same "$(sha256sum <"$image")" "$sum"

# Several read-only mounts, no writer beside them
mkdir "$work/second"
serve -o ro
"$blinkfs" -o ro "$image" "$work/second"
same "$(cat "$work/second/file")" hello
fails 1 'already mounted|in use' "$blinkfs" "$image" "$work/second"
unmount "$work/second"
unserve

serve -o writeback=off,cache_size=32M,commit_interval=1,max_threads=2
dd if=/dev/urandom of="$work/data" bs=1M count=8 status=none
cp "$work/data" "$mnt/data"
cmp "$work/data" "$mnt/data"
sum=$(sha256sum <"$work/data")
unserve
# As many requests at once as allowed, and no more; one is enough for everything.
workers() { cat "/proc/$server/task"/*/comm | grep -c blinkfs-worker; }
sync_files() {
	local i j jobs=()
	for i in $(seq "$1"); do
		(for j in $(seq 30); do echo "$j" >"$mnt/sync.$i" && sync "$mnt/sync.$i"; done) &
		jobs+=($!)
	done
	wait "${jobs[@]}"
	for i in $(seq "$1"); do same "$(cat "$mnt/sync.$i")" 30; done
}
for threads in 1 8; do
	serve -o "max_threads=$threads"
	sync_files 24
	[ "$(workers)" -le "$threads" ] || fail "$(workers) workers"
	[ "$threads" -eq 1 ] || [ "$(workers)" -gt 4 ] || fail "only $(workers) workers"
	unserve
done
serve -o max_threads=128
same "$(sha256sum <"$mnt/data")" "$sum"
unserve

# Access times: reads that reach the server
atime() { stat -c %X "$mnt/$1"; }
age() { # a file with old atime and older mtime, its contents out of the kernel's cache
	echo text >"$mnt/$1"
	touch -m -d '2001-01-01' "$mnt/$1"
	touch -a -d "$2" "$mnt/$1"
}
serve
for name in none strict relative recent; do age $name '2002-01-01'; done
touch -a -d '2000-01-01' "$mnt/relative"
unserve
serve -o noatime
before=$(atime none)
cat "$mnt/none" >/dev/null
same "$(atime none)" "$before"
unserve
serve -o strictatime
cat "$mnt/strict" >/dev/null
[ "$(atime strict)" -gt 1500000000 ] || fail 'strictatime: not updated'
unserve
serve -o relatime
cat "$mnt/relative" >/dev/null
[ "$(atime relative)" -gt 1500000000 ] || fail 'relatime: older than mtime, not updated'
unserve
# The default; kept in memory, but not lost by unmounting; then there is nothing to update.
serve
cat "$mnt/recent" >/dev/null
seen=$(stat -c %x "$mnt/recent")
[ "$(atime recent)" -gt 1500000000 ] || fail 'by default: older than ctime, not updated'
unserve
serve -o relatime,lazytime
same "$(stat -c %x "$mnt/recent")" "$seen"
cat "$mnt/recent" >/dev/null
same "$(stat -c %x "$mnt/recent")" "$seen"
unserve
# Those of directories
serve
mkdir "$mnt/dir"
touch -a -d '2001-01-01' "$mnt/dir"
unserve
serve -o nodiratime,strictatime
ls "$mnt/dir"
[ "$(atime dir)" -lt 1500000000 ] || fail 'nodiratime: updated'
cat "$mnt/strict" >/dev/null
unserve
serve -o nodiratime,diratime
ls "$mnt/dir"
[ "$(atime dir)" -gt 1500000000 ] || fail 'diratime: not updated'
unserve
fsck_clean

# Every word that the manual names, and libfuse's opinion of them
serve -o dev,nodev,suid,nosuid,exec,noexec,sync,async,dirsync,atime,noatime,relatime,strictatime
unserve
serve -o ro,rw,diratime,nodiratime,lazytime,discard,nodiscard,default_permissions,defaults,auto
unserve
serve -o noauto,nofail,_netdev,user,users,nouser,owner,group,comment=x,x-y
unserve

if [ "$(id -u)" -eq 0 ]; then
	serve -o nosuid,nodev,noexec
	case $(options_of) in
	*nosuid,nodev,noexec*) ;;
	*) fail "nosuid,nodev,noexec are not shown: $(options_of)" ;;
	esac
	unserve
	serve
	case $(options_of) in *nosuid* | *nodev*) fail "unwanted: $(options_of)" ;; esac
	"$blinkfs" -o remount,ro,user_id=0,group_id=0,default_permissions,relatime "$image" "$mnt"
	fails 1 'Read-only' touch "$mnt/x"
	"$blinkfs" -o remount,rw "$image" "$mnt"
	touch "$mnt/x"
	unserve
	# What was done before is durable then.
	serve -o commit_interval=3600
	mkdir "$mnt/remounted"
	"$blinkfs" -o remount,ro "$image" "$mnt"
	kill -9 "$server"
	server_ended 137 2>/dev/null
	serve
	[ -d "$mnt/remounted" ] || fail 'not durable after remount,ro'
	unserve
	# By mount(8) from a line of fstab.
	program=$(realpath "$blinkfs") # not in mount's PATH, which it chooses itself
	echo "$program#$image $mnt fuse nofail,_netdev,x-systemd.automount,relatime 0 0" \
		>"$work/fstab"
	if command -v mount.fuse3 >/dev/null; then
		mount -T "$work/fstab" "$mnt"
		[ -e "$mnt/x" ] || fail 'fstab: not mounted'
		unmount "$mnt"
		no_server() { [ -z "$(servers)" ]; }
		eventually no_server
	fi
fi
