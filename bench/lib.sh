# What the mount benchmarks share: filesystems that come up and go away again.
# Sourced by mount.sh and fio.sh, after BUILD is known.
#
# One filesystem is up at a time, on $mount_dir.  Everything lies in $work, a
# temporary directory inside the build folder (so on the same disk), and is
# gone when the shell ends, however it ends.
# shellcheck shell=sh

work=
mount_dir=
server_pid=
loop_device=

die()
{
	echo "$0: $*" >&2
	exit 1
}

is_mounted()
{
	mountpoint -q "$mount_dir" 2>/dev/null
}

work_begin()
{
	mkdir -p "$BUILD/bench" || exit 1
	work=$(mktemp -d "$(realpath "$BUILD/bench")/work.XXXXXX") || exit 1
	mount_dir=$work/mnt
	mkdir "$mount_dir" || exit 1
	trap work_end EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
}

work_end()
{
	trap - EXIT INT TERM HUP
	fs_down quietly
	[ -z "$work" ] || rm -rf --one-file-system "$work"
}

# image PATH MIB: written, not only allocated, so that no filesystem pays for
# the first use of its blocks.
image_make()
{
	dd if=/dev/zero of="$1" bs=1M count="$2" conv=fsync status=none
}

# Starts a FUSE server in the foreground of a background job and waits for its mount.
server_start()
{
	"$@" >>"$work/server.log" 2>&1 &
	server_pid=$!
	tries=0
	until is_mounted; do
		tries=$((tries + 1))
		if [ $tries -gt 1000 ] || ! kill -0 "$server_pid" 2>/dev/null; then
			cat "$work/server.log" >&2
			die "could not mount: $*"
		fi
		sleep 0.01
	done
}

fs_up_blinkfs()
{
	"$BUILD/mkfs.blinkfs" -q -f "$work/blinkfs.img" || die 'mkfs.blinkfs failed'
	server_start "$BUILD/blinkfs" -f ${BLINKFS_OPTIONS:+-o "$BLINKFS_OPTIONS"} \
		"$work/blinkfs.img" "$mount_dir"
}

# The loop device goes past the page cache of the disk's own filesystem, as
# blinkfs does.  Once mounted it is detached: the kernel does that for good at
# unmount, and nothing is left to forget.
fs_up_ext4()
{
	mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$work/ext4.img" \
		2>>"$work/server.log" || die 'mkfs.ext4 failed'
	loop_device=$(losetup --find --show --direct-io=on "$work/ext4.img") || die 'no loop device'
	mount -t ext4 "$loop_device" "$mount_dir" || die 'could not mount ext4'
	losetup --detach "$loop_device" && loop_device=
}

fs_up_xfs()
{
	mkfs.xfs -q -f -K "$work/xfs.img" 2>>"$work/server.log" || die 'mkfs.xfs failed'
	loop_device=$(losetup --find --show --direct-io=on "$work/xfs.img") || die 'no loop device'
	mount -t xfs "$loop_device" "$mount_dir" || die 'could not mount xfs'
	losetup --detach "$loop_device" && loop_device=
}

fs_up_floor()
{
	server_start "$BUILD/bench/floor" -f ${FLOOR_THREADS:+-t "$FLOOR_THREADS"} "$mount_dir"
}

# The server may need seconds to close its volume, but not for ever.
server_end()
{
	tries=0
	while kill -0 "$server_pid" 2>/dev/null; do
		tries=$((tries + 1))
		if [ $tries -gt 3000 ]; then
			echo "$0: the server does not end; killed" >&2
			kill -KILL "$server_pid"
		fi
		sleep 0.01
	done
	wait "$server_pid"
}

fs_unmount()
{
	if [ "$(id -u)" = 0 ]; then
		umount "$mount_dir" || { umount -l "$mount_dir"; return 1; }
	else
		fusermount3 -u "$mount_dir" || { fusermount3 -uz "$mount_dir"; return 1; }
	fi
}

# Unmounts and waits until it is all done.  quietly: as much of it as there is.
fs_down()
{
	status=0
	if is_mounted; then
		fs_unmount || status=1
	fi
	if [ -n "$server_pid" ]; then
		[ "${1:-}" = quietly ] && kill "$server_pid" 2>/dev/null
		server_end || status=1
		server_pid=
	fi
	[ -z "$loop_device" ] || losetup --detach "$loop_device"
	loop_device=
	[ "${1:-}" = quietly ] || [ $status = 0 ] || die 'unmounting failed'
}

# CPU time of the server so far, in microseconds (to 10 ms).  The kernel's own
# threads are nobody's: of ext4 nothing is counted here.
server_cpu_us()
{
	[ -n "$server_pid" ] || { echo 0; return; }
	sed 's/.*) //' "/proc/$server_pid/stat" | {
		read -r _ _ _ _ _ _ _ _ _ _ _ user_ticks system_ticks _
		echo $(((user_ticks + system_ticks) * 10000))
	}
}
