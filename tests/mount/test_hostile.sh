#!/bin/bash
# Images that somebody has made to do harm: every checksum is right, one record is not.
# The mount answers with errors, nobody dies, and fsck names and mends it.
. "$(dirname "$0")/lib.sh"
tool=$BUILD/tests/mount/hostile_tool
copy=$BUILD/tests/mount/copy_tool
[ -x "$tool" ] || skip 'tests/mount/hostile_tool is not built'

volume 32M -l 2M
serve
mkdir -p "$mnt/dir/sub" "$mnt/other"
seq 1000 >"$mnt/dir/victim"
echo short >"$mnt/dir/inline"
head -c 300000 /dev/urandom >"$mnt/dir/large"
echo else >"$mnt/bystander"
ln -s ../bystander "$mnt/dir/link"
setfattr -n user.a -v value "$mnt/dir/victim" 2>/dev/null || skip 'setfattr is missing'
dir=$(stat -c %i "$mnt/dir")
sub=$(stat -c %i "$mnt/dir/sub")
victim=$(stat -c %i "$mnt/dir/victim")
inline=$(stat -c %i "$mnt/dir/inline")
large=$(stat -c %i "$mnt/dir/large")
link=$(stat -c %i "$mnt/dir/link")
declare -A name_of=(
	[$sub]=sub [$inline]=inline [$large]=large [$link]=link [...]=...
)
unserve
fsck_clean
good=$work/good
mv "$image" "$good"

# Everything that can be done with it, whatever comes of that; each within its time.
try() { timeout 20 "$@" >>"$work/tried" 2>&1 || [ $? -ne 124 ] || fail "hangs: $*"; }
use_all() { # NAME...: of $mnt/dir, the ones to look at closely
	local f
	try ls -lRa "$mnt"
	try find "$mnt" -size +1 -newer "$mnt/other" -links 1
	for f in "$@"; do
		try stat "$mnt/dir/$f"
		try readlink "$mnt/dir/$f"
		try cat "$mnt/dir/$f"
		try tail -c 5 "$mnt/dir/$f"
		try getfattr -d "$mnt/dir/$f"
		try dd if=/dev/zero of="$mnt/dir/$f" bs=5000 count=2 seek=3 conv=notrunc,fsync
		try "$copy" "$mnt/dir/large" "$mnt/dir/$f"
		try "$copy" "$mnt/dir/$f" "$mnt/dir/victim"
		try "$copy" "$mnt/dir/$f" "$mnt/bystander"
		try fallocate -l 100000 "$mnt/dir/$f"
		try fallocate -p -o 4096 -l 8192 "$mnt/dir/$f"
		try setfattr -n user.b -v other "$mnt/dir/$f"
		try setfattr -x user.a "$mnt/dir/$f"
		try chmod 600 "$mnt/dir/$f"
		try ln "$mnt/dir/$f" "$mnt/other/$f"
		try mv "$mnt/dir/$f" "$mnt/other/moved-$f"
		try mv "$mnt/other/moved-$f" "$mnt/dir/$f"
		try truncate -s 3 "$mnt/dir/$f"
		try touch "$mnt/dir/$f/x"
	done
	try cp -r "$mnt/dir" "$mnt/copied"
	try rm -rf "$mnt/dir" "$mnt/other" "$mnt/copied"
	try "$blinkfs" sync "$mnt"
}
alive() {
	kill -0 "$server" 2>/dev/null || fail "$1: the server died"
	# It still answers, if only that it cannot.
	try stat "$mnt/.blinkfs/stats"
	live || fail "$1: the mount is dead"
}

# hostile NUMBER LOOK VERB ARGUMENT...   NUMBER: what fsck calls it; LOOK: a command in
# $mnt/dir that fails with an error of input, or "" where it need not.
hostile() {
	local number=$1 look=$2 code=0 what
	shift 2
	what="$*"
	cp --sparse=always "$good" "$image"
	"$tool" "$image" "$@" || fail "cannot make: $what"
	"$fsck" -n -f "$image" >"$work/found" 2>&1 || code=$?
	[ "$code" -eq 4 ] || fail "$what: fsck ended with $code: $(cat "$work/found")"
	grep -q "^\[$number\]" "$work/found" || fail "$what: not [$number]: $(cat "$work/found")"
	serve
	if [ -n "$look" ]; then
		fails 1 'Input/output error' bash -c "cd '$mnt/dir' && { $look; } 2>&1 >/dev/null || exit 1"
	fi
	[ "$(cat "$mnt/bystander")" = else ] || fail "$what: the file beside it is lost"
	alive "$what"
	if [ "${TEST_SCALE:-1}" -gt 1 ]; then
		use_all victim inline large link sub ...
	else # what was changed: an inode, or a name
		use_all "${name_of[$2]:-${name_of[$3]:-victim}}"
	fi
	alive "$what"
	unmount "$mnt"
	code=0
	wait "$server" || code=$?
	server=
	[ "$code" -le 3 ] || fail "$what: the server ended with $code: $(cat "$log")"
	grep -qiE 'sanitizer|runtime error' "$log" && fail "$what: $(cat "$log")"
	# What use has made of it can be mended, and is then as good as any.
	code=0
	"$fsck" -y -f "$image" >"$work/mended" 2>&1 || code=$?
	[ "$code" -le 1 ] || fail "$what: fsck -y ended with $code: $(cat "$work/mended")"
	"$fsck" -n -f "$image" >"$work/mended" 2>&1 || fail "$what: not mended: $(cat "$work/mended")"
}

big=0x7fffffffffffffff
all=0xffffffffffffffff

hostile 401 'ls' name "$dir" victim vic/im
hostile 401 'ls' name "$dir" victim '\057etc\057passwd'
hostile 401 'ls' name "$dir" victim 'vic\000im'
hostile 401 'ls' name "$dir" victim "$(printf 'x%.0s' $(seq 300))"
hostile 401 '' entry "$dir" .. 1 4
hostile 401 '' entry "$dir" . "$dir" 4
hostile 402 '' type "$dir" victim 4
hostile 402 '' type "$dir" victim 77
hostile 406 '' entry "$dir" ... $big 8
hostile 407 '' entry "$sub" up "$dir" 4
hostile 408 '' inode "$sub" parent "$sub"
hostile 409 ls inode "$dir" entries $all
hostile 414 "" inode "$victim" nlink 0
hostile 410 '' inode "$victim" nlink 0xffffffff
hostile 203 'stat victim' inode "$victim" mode 0xe1ff
hostile 203 'stat victim' inode "$victim" mode 0xffffffff
hostile 402 '' inode "$victim" mode 0x61ff
hostile 402 '' inode "$victim" mode 0x41ff
hostile 402 '' inode "$victim" mode 0xa1ff
hostile 402 '' inode "$sub" mode 0x81ff
hostile 402 '' inode "$link" mode 0x81ff
hostile 205 'cat large' inode "$large" size $all
hostile 205 'cat large' inode "$large" size 0x8000000000000000
hostile 205 'cat inline' inode "$inline" size 0
hostile 205 'readlink -v link' inode "$link" size $big
hostile 204 '' inode "$large" flags 0xffffff00
hostile 208 'stat victim' inode "$victim" mtime_nsec 0xffffffff
hostile 306 '' inode "$large" lob 1
hostile 211 '' inode "$large" blocks $all
hostile 207 '' inode "$large" dead_end $all
hostile 505 '' inode "$victim" xattr_count 0xffffffff
hostile 303 'cat large' extent "$large" start 0
hostile 303 'cat large' extent "$large" start $all
hostile 303 'cat large' extent "$large" start $big
hostile 301 'cat large' extent "$large" length 0xffffffff
hostile 301 'cat large' extent "$large" length 0
hostile 301 'cat large' extent "$large" flags 0xff
hostile 301 'cat large' extent "$large" codec 9
hostile 501 'getfattr -d victim' xattr "$victim" user.a value_len 0xffffffff
hostile 501 'getfattr -d victim' xattr "$victim" user.a name_len 255
hostile 501 'getfattr -d victim' xattr "$victim" user.a flags 1
