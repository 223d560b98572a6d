#!/bin/bash
# File operations through a mount, and that all of it is there after a remount.
. "$(dirname "$0")/lib.sh"

volume 256M
serve
cd "$mnt"

# Names
echo one >a
same "$(cat a)" one
ln a b
same "$(stat -c %h a)" 2
mv b c
[ ! -e b ] || fail 'b is still there'
ln -s a link
same "$(readlink link)" a
same "$(cat link)" one
mkdir -p d/e/f
fails 1 'not empty' rmdir d
mv d/e/f d/g
rmdir d/e d/g d
mkfifo fifo
same "$(stat -c %F fifo)" fifo
touch "$(printf 'x%.0s' $(seq 255))"
fails 1 'too long' touch "$(printf 'x%.0s' $(seq 256))"
touch "$(printf 'caf\351')"
[ -e "$(printf 'caf\351')" ] || fail 'a name that is no UTF-8'
fails 1 'No such file' cat missing
mkdir target && echo kept >target/file
mkdir source
fails 1 'not empty' mv -T source target
same "$(cat target/file)" kept

# Contents
echo foo >f
echo bar >>f
same "$(cat f)" $'foo\nbar'
echo short >f # truncates through SETATTR: OPEN is not implemented
same "$(cat f)" short
head -c 5000000 /dev/urandom >"$work/random"
cp "$work/random" big
cmp "$work/random" big
dd if="$work/random" of=big bs=1000 seek=7 count=2000 conv=notrunc status=none
dd if="$work/random" of="$work/random2" bs=1000 count=2000 status=none
cmp -n 2000000 "$work/random2" <(tail -c +7001 big)
truncate -s 100 big
same "$(stat -c %s big)" 100
cmp -n 100 "$work/random" big
truncate -s 3G sparse
same "$(stat -c %s sparse)" 3221225472
[ "$(stat -c %b sparse)" -lt 100 ] || fail 'a hole takes blocks'
echo tail >>sparse
same "$(tail -c 5 sparse)" tail
same "$(head -c 100 sparse | tr -d '\0' | wc -c)" 0
truncate -s 9223372036854775807 sparse
fails 1 'too large|Invalid|EFBIG' dd if=/dev/zero of=sparse bs=1 count=2 \
	seek=9223372036854775806 conv=notrunc iflag=fullblock

# A file without a name goes on
exec 7<>unlinked
echo hidden >&7
rm unlinked
same "$(cat /proc/self/fd/7 2>/dev/null)" hidden
chmod 600 /proc/self/fd/7
exec 7>&-

# Attributes
touch -d '1969-07-20 20:17:40.123456789 UTC' old
same "$(stat -c %y old | cut -c 1-29)" "$(TZ=$(date +%Z) date -d '1969-07-20 20:17:40.123456789 UTC' '+%F %T.%N')"
touch -d '2500-01-01 00:00:00 UTC' future
same "$(stat -c %Y future)" 16725225600
exec 7>late # the times are set before the kernel has written the contents back
echo contents >&7
touch -d '2001-02-03 04:05:06 UTC' late
exec 7>&-
head -c 100000 /dev/urandom >"$work/dated"
touch -d '2002-02-03 04:05:06 UTC' "$work/dated"
cp -p "$work/dated" dated
chmod 4751 a
same "$(stat -c %a a)" 4751
if command -v setfattr >/dev/null; then
	setfattr -n user.one -v value a
	same "$(getfattr -n user.one --only-values a)" value
	setfattr -x user.one a
	fails 1 'No such attribute' getfattr -n user.one a
	fails 1 'Invalid argument' setfattr -n system.posix_acl_access -v 0x0200000001000600 a
fi

# Many names
mkdir many
(cd many && seq 3000 | xargs touch)
same "$(find many | wc -l)" 3001
same "$(ls many | sort -u | wc -l)" 3000
(cd many && seq 1 2 3000 | xargs rm)
same "$(ls many | wc -l)" 1500

sync
cd /
same "$(stat -c %Y "$mnt/late")" 981173106
same "$(stat -c %Y "$mnt/dated")" 1012709106
find "$mnt" -printf '%P %m %n %s %T@ %l\n' | sort >"$work/before"
(cd "$mnt" && find . -type f -size -10M -print0 | sort -z | xargs -0 sha256sum) >"$work/sums"
unserve
fsck_clean
serve
same "$(stat -c %Y "$mnt/late")" 981173106
same "$(stat -c %Y "$mnt/dated")" 1012709106
find "$mnt" -printf '%P %m %n %s %T@ %l\n' | sort >"$work/after"
cmp "$work/before" "$work/after"
(cd "$mnt" && sha256sum --quiet -c "$work/sums")

# All of it can be removed, and the space comes back.
find "$mnt" -mindepth 1 -delete
same "$(ls -A "$mnt" | wc -l)" 0
space_is_back() { [ "$(df --output=used "$mnt" | tail -n 1)" -lt 2000 ]; }
eventually space_is_back
unserve
fsck_clean
