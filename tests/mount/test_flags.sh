#!/bin/bash
# Flags of inodes: chattr and lsattr, what immutable and append-only forbid.
. "$(dirname "$0")/lib.sh"
command -v chattr >/dev/null || skip 'no chattr here (package e2fsprogs)'
[ "$(id -u)" -eq 0 ] || skip 'only root may set these flags'
flags() { lsattr -d "$1" | cut -d' ' -f1 | tr -d -; }
# Whatever the code, it says why.
denied() {
	local output
	if output=$("$@" 2>&1); then fail "allowed: $*"; fi
	grep -q 'not permitted' <<<"$output" || fail "'$*' said: $output"
}
into() { # FILE TEXT: in place, without truncating
	printf %s "$2" | dd of="$1" conv=notrunc oflag="${3:-nonblock}" status=none
}

# A failed write-back is told once to each who can hear of it (sticky_tool.c).
volume
serve
"$BUILD/tests/mount/sticky_tool" "$mnt/file" || fail 'errors of write-back'
unserve
serve
same "$(cat "$mnt/file")" kept
unserve

# The first flags of a volume, where each open is looked at from the start.
volume
serve -o check_open
echo text >"$mnt/file"
echo text >"$mnt/log"
chattr +i "$mnt/file"
chattr +a "$mnt/log"
denied bash -c "exec 9<>$mnt/file"
denied bash -c "exec 9<>$mnt/log"
echo more >>"$mnt/log"
same "$(cat "$mnt/log")" $'text\nmore'
chattr -ia "$mnt/file" "$mnt/log"
unserve
fsck_clean

volume
serve -o allow_other
chmod 755 "$mnt"
cd "$mnt"
echo text >file
mkdir dir
touch dir/inside
same "$(flags file)" ''
chattr +dA file
same "$(flags file)" dA
chattr -d file
same "$(flags file)" A
chown nobody file
denied setpriv --reuid=nobody --regid=nogroup --clear-groups chattr +i file
chown root file
fails 1 'not supported' chattr +c file

# A file that was open before is refused as well (as by ext4).
touch open
exec 9>>open
echo before >&9
chattr +i open
if echo after >&9; then fail 'a descriptor writes into an immutable file'; fi 2>/dev/null
exec 9>&-
chattr -i open
same "$(cat open)" before
rm open

# What was written before the flag came is kept, though the kernel still holds it.
exec 9>held
head -c 300000 /dev/urandom >"$work/data"
cat "$work/data" >&9
chattr +i held
exec 9>&-
# Opens are not looked at in the mount that sets the first flag, but each write is.
chattr +i file
denied into file x
tail -c 1 file >/dev/null
wc -c file >/dev/null
stat file >/dev/null
denied into file x
same "$(cat file)" text
chattr -i file
into file text
cd /
unserve
serve
cd "$mnt"
cmp held "$work/data"

# From now on OPEN is looked at.
chattr +i file
chattr +a dir/inside
for tool in 'into file x' 'truncate -s 0 file' 'rm -f file' 'mv file other' 'ln file link' \
	'chmod 600 file' 'chown nobody file' 'touch file' 'touch -d yesterday file' \
	'setfattr -n user.a -v b file' 'fallocate -l 10 file' 'cp held file' \
	'into dir/inside x' 'truncate -s 0 dir/inside' 'rm -f dir/inside' 'mv dir/inside x' \
	'mv file dir/inside' 'ln dir/inside link' 'chmod 600 dir/inside' \
	'touch -d yesterday dir/inside'; do
	denied $tool
done
same "$(cat file)" text
same "$(flags file)" iA
echo one >>dir/inside
echo two >>dir/inside
touch dir/inside
same "$(cat dir/inside)" $'one\ntwo'
# A descriptor that may only append cannot be made one that overwrites: at the latest
# what comes out of the cache is refused.
exec 8<>other
chattr +a other
printf abc >&8
exec 8>&-
cd /
unserve
serve
cd "$mnt"
same "$(cat other)" abc

# Directories
chattr +i dir
denied touch dir/new
denied mkdir dir/sub
denied mv held dir/
denied chmod 700 dir
chattr -i dir
chattr +a dir
touch dir/new
mkdir dir/sub
denied rm -f dir/new
denied mv dir/new x
denied rmdir dir/sub
denied mv -T dir/sub dir/sub2
chattr -a dir
# Inherited as by ext4
chattr +dA dir
mkdir dir/sub/a dir/b
touch dir/f
same "$(flags dir/f)" dA
same "$(flags dir/b)" dA
same "$(flags dir/sub/a)" ''

# Freed again, after kill -9 as well
sync .
cd /
kill -9 "$server"
server_ended 137 2>/dev/null
serve
cd "$mnt"
same "$(flags file)" iA
denied into file x
chattr -i file held
chattr -a other dir/inside
into file TEXT
same "$(cat file)" TEXT
rm -r file held other dir
cd /
unserve
fsck_clean

# On a read-only mount they can be seen and not set.
serve
touch "$mnt/seen"
chattr +i "$mnt/seen"
unserve
serve -o ro
same "$(flags "$mnt/seen")" i
fails 1 'Read-only' chattr -i "$mnt/seen"
unserve
