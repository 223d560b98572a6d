#!/bin/bash
# The redo log in a file of its own: made, found, moved, refused; its server killed
# in every mode; checked and dumped.
. "$(dirname "$0")/lib.sh"
command -v jq >/dev/null || skip 'jq is missing'

jlog=$work/the-log
figure() { jq -r ".log.$1" "$mnt/.blinkfs/stats"; }
die() {
	kill -9 "$server"
	server_ended 137 2>/dev/null
}

# --- making
fails 1 'does not exist; give its size with -s' "$mkfs" -j "$jlog" "$image"
fails 1 'is the volume itself; leave out -j' "$mkfs" -s 64M -j "$image" "$image"
fails 1 'has 2 MiB or more' "$mkfs" -s 64M -l 1M -j "$jlog" "$image"
[ ! -e "$jlog" ] && [ ! -e "$image" ] || fail 'something was left behind'
"$mkfs" -n -s 64M -l 8M -j "$jlog" "$image" | grep -q "log 8 MiB on $jlog" || fail 'dry run'
[ ! -e "$jlog" ] || fail 'made by a dry run'
volume 64M -l 8M -j "$jlog"
same "$(stat -c %s "$jlog")" $((8 << 20))
fails 1 'holds the redo log of blinkfs volume' "$mkfs" -s 64M -l 8M -j "$jlog" "$work/other"
fails 1 'holds the redo log of blinkfs volume' "$mkfs" -s 64M "$jlog"
[ ! -e "$work/other" ] || fail 'a refused volume is there'

# --- found without being told; every mode; kill -9 each time
n=0
for mode in pwrite direct dsync mapped auto; do
	serve -o "log_mode=$mode"
	same "$(figure external)" true
	for i in $(seq $n); do same "$(cat "$mnt/$i")" "durable $i"; done
	n=$((n + 1))
	echo "durable $n" >"$mnt/$n"
	sync "$mnt/$n"
	dd if=/dev/urandom of="$mnt/big" bs=64k count=20 conv=fsync status=none
	sum=$(md5sum <"$mnt/big")
	die
	serve -o ro
	same "$(md5sum <"$mnt/big")" "$sum"
	unserve
done
# shellcheck disable=SC2154 # of lib.sh
"$fsck" -p -f --data "$image" >/dev/null || [ $? -eq 1 ]

# --- in use
serve
fails 1 'in use' timeout 40 "$mkfs" -f -s 32M -j "$jlog" "$work/other"
"$fsck" -n -f "$image" >/dev/null || true
"$blinkfs" dump log "$image" | grep -q '^checkpoint ' || fail 'dump of a mounted volume'
unserve

# --- moved: by the option, then remembered
mv "$jlog" "$work/moved"
fails 1 'cannot open its redo log .*; say where it is with -o log=PATH' "$blinkfs" "$image" "$mnt"
fails 8 'say where it is with -j' "$fsck" -n -f "$image"
fails 2 'say where it is with -j' "$blinkfs" dump log "$image"
"$fsck" -n -f -j "$work/moved" "$image" >/dev/null
"$blinkfs" dump -r -j "$work/moved" index dirents "$image" | grep -q big || fail 'dump -r -j'
cd "$work"
serve -o log=moved
cd /
unserve
serve
same "$(cat "$mnt/1")" 'durable 1'
unserve
same "$("$blinkfs" dump super "$image" | awk '$1 == "log_path" { print $2 }')" "$work/moved"

# --- not the right one
cp "$work/moved" "$work/old"
serve
echo later >"$mnt/later"
unserve
fails 1 'older copy' "$blinkfs" -o log="$work/old" "$image" "$mnt"
fails 1 'no redo log at all' "$blinkfs" -o log="$mkfs" "$image" "$mnt"
fails 1 'neither a regular file nor a block device' "$blinkfs" -o log=/dev/null "$image" "$mnt"
"$mkfs" -q -s 64M -l 8M -j "$work/log2" "$work/volume2"
fails 1 'but that of volume' "$blinkfs" -o log="$work/log2" "$image" "$mnt"
head -c 3M "$work/moved" >"$work/short"
fails 1 'cut short' "$blinkfs" -o log="$work/short" "$image" "$mnt"
volume3=$work/volume3
"$mkfs" -q -s 64M "$volume3"
fails 1 'has its redo log inside; leave out -o log=PATH' \
	"$blinkfs" -o log="$work/log2" "$volume3" "$mnt"
fails 1 "bad value in option 'log='" "$blinkfs" -o log= "$image" "$mnt"
serve
same "$(cat "$mnt/later")" later
unserve
fsck_clean

# --- data on a disk, the log in memory: mapped without being told, each append is there
if [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ] && [ -w /dev/shm ]; then
	shm=$(mktemp -d /dev/shm/blinkfs-test.XXXXXX)
	trap 'code=$?; set +e; rm -rf "$shm"; (exit $code); teardown' EXIT
	volume 64M -l 8M -j "$shm/log"
	serve
	same "$(figure mode)" mapped
	same "$(figure block_bytes)" 64
	for i in $(seq 100); do : >"$mnt/f$i"; done
	die
	serve
	same "$(ls "$mnt" | wc -l)" 100
	"$blinkfs" log-resize "$mnt" 4M
	: >"$mnt/f101"
	die
	serve -o log_mode=pwrite
	same "$(ls "$mnt" | wc -l)" 101
	unserve
	fsck_clean
fi

# --- restored: the log gets a place again, and is not taken for the saved volume's
rm -f "$image" "$jlog" "$work/bak" "$work/new" "$work/newlog"
volume 64M -l 8M -j "$jlog"
serve
echo kept >"$mnt/kept"
"$blinkfs" backup -q "$mnt" "$work/bak"
unserve
fails 1 'redo log is on a device of its own; say where .* -j LOG' \
	"$blinkfs" restore "$work/bak" "$work/new"
fails 1 'exists; replace it with -f' "$blinkfs" restore -j "$jlog" "$work/bak" "$work/new"
[ ! -e "$work/new" ] && [ ! -e "$work/new.partial" ] || fail 'something was left behind'
"$blinkfs" restore -j "$work/newlog" "$work/bak" "$work/new" | grep -q "redo log is $work/newlog" ||
	fail 'restore does not say where the log is'
same "$(stat -c %s "$work/newlog")" $((8 << 20))
"$fsck" -n -f --data "$work/new" >/dev/null
fails 1 'a former redo log of' "$blinkfs" -o "log=$jlog" "$work/new" "$mnt"
image=$work/new
serve
same "$(cat "$mnt/kept")" kept
same "$(figure external)" true
unserve
"$mkfs" -q -s 64M "$work/inside"
image=$work/inside
serve
"$blinkfs" backup -q "$mnt" "$work/bak2"
unserve
fails 1 'has its redo log inside; leave out -j' \
	"$blinkfs" restore -j "$work/newlog2" "$work/bak2" "$work/new2"
[ ! -e "$work/newlog2" ] && [ ! -e "$work/new2" ] || fail 'something was left behind'
