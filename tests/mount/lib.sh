# Sourced by each mount test: a directory of its own, volumes, servers, and a
# teardown that leaves nothing behind, however the test ends.
#
#   volume [SIZE] [mkfs options]   makes $work/volume
#   serve [options]                mounts it on $work/mnt, server in the foreground
#   unserve                        unmounts; the server must end with exit code 0
#   fails CODE PATTERN COMMAND...  must end with CODE and say PATTERN
set -euo pipefail

BUILD=${BUILD:-build}
blinkfs=$BUILD/blinkfs
mkfs=$BUILD/mkfs.blinkfs
fsck=$BUILD/fsck.blinkfs

skip() {
	echo "$1"
	exit 77
}
[ -c /dev/fuse ] || skip 'no /dev/fuse here'
[ -w /dev/fuse ] || skip 'this user may not open /dev/fuse'
[ "$(id -u)" -eq 0 ] || command -v fusermount3 >/dev/null || skip 'no fusermount3 here'

work=$(mktemp -d /tmp/blinkfs-test.XXXXXX)
chmod 755 "$work"
image=$work/volume
mnt=$work/mnt
log=$work/server.log
server=
mkdir "$mnt"

unmount_once() {
	if [ "$(id -u)" -eq 0 ]; then umount "$1"; else fusermount3 -u "$1"; fi
}

# Anybody's df of all mounts keeps this one busy for a moment, and so does read-ahead.
unmount() {
	local i
	for i in $(seq 50); do
		if unmount_once "$1" 2>"$work/unmount.log"; then return 0; fi
		grep -q busy "$work/unmount.log" || break
		sleep 0.1
	done
	cat "$work/unmount.log"
	return 1
}

mounted() {
	grep -q " $1 fuse.blinkfs " /proc/mounts
}

# Servers of this test, in the foreground or not: they have $work in their arguments.
servers() {
	local pid
	for pid in $(pgrep -x blinkfs || true); do
		if tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -q "^$work/"; then
			echo "$pid"
		fi
	done
}

teardown() {
	local code=$? dir pid
	set +e
	if [ $code -ne 0 ] && [ $code -ne 77 ]; then
		echo "failed with code $code; the server said:"
		cat "$log" 2>/dev/null
	fi
	cd /
	grep "^[^ ]* $work/" /proc/mounts | cut -d' ' -f2 | while read -r dir; do
		umount -l "$dir" 2>/dev/null || fusermount3 -u -z "$dir"
	done
	losetup -a 2>/dev/null | grep "($work/" | cut -d: -f1 | xargs -r losetup -d
	for pid in $(servers); do
		timeout 20 tail --pid="$pid" -f /dev/null || kill -9 "$pid"
	done
	rm -rf "$work"
	exit $code
}
trap teardown EXIT

fail() {
	echo "FAILED: $1 (${BASH_SOURCE[1]##*/}:${BASH_LINENO[0]})"
	exit 1
}

# Like `[ A = B ]`, but says what it got.
same() {
	[ "$1" = "$2" ] || {
		echo "FAILED: '$1' is not '$2' (${BASH_SOURCE[1]##*/}:${BASH_LINENO[0]})"
		exit 1
	}
}

fails() {
	local want=$1 pattern=$2 output code=0
	shift 2
	output=$("$@" 2>&1) || code=$?
	if [ "$code" -ne "$want" ]; then
		echo "FAILED: '$*' ended with $code, not $want: $output (line ${BASH_LINENO[0]})"
		exit 1
	fi
	grep -qE "$pattern" <<<"$output" || {
		echo "FAILED: '$*' did not say '$pattern' but: $output (line ${BASH_LINENO[0]})"
		exit 1
	}
}

volume() {
	"$mkfs" -q -f -s "${1:-64M}" "${@:2}" "$image"
}

# Waits up to 20 s for a command to succeed.
eventually() {
	local i
	for i in $(seq 200); do
		if "$@"; then return 0; fi
		sleep 0.1
	done
	echo "FAILED: waited in vain for: $*"
	exit 1
}

# One question, one answer: a dead mount may just now be cleared away.
live() {
	[ "$(stat -f -c %t "$mnt" 2>/dev/null)" = 65735546 ] # FUSE
}

serve() {
	"$blinkfs" -f "$@" "$image" "$mnt" >"$log" 2>&1 &
	server=$!
	local i
	for i in $(seq 200); do
		if live; then return 0; fi
		kill -0 "$server" 2>/dev/null || fail "the server did not start: $(cat "$log")"
		sleep 0.05
	done
	fail 'the mount did not come'
}

server_ended() {
	local code=0
	wait "$server" || code=$?
	server=
	same "$code" "${1:-0}"
}

unserve() {
	unmount "$mnt"
	server_ended 0
}

# A volume that nobody has mounted is clean in fsck's eyes.
fsck_clean() {
	local code=0
	"$fsck" -n "$image" >"$work/fsck.log" 2>&1 || code=$?
	[ "$code" -eq 0 ] || {
		cat "$work/fsck.log"
		fail "fsck.blinkfs -n ended with $code"
	}
}
