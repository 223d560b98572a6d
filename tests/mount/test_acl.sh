#!/bin/bash
# POSIX ACLs: set and shown by setfacl and getfacl, enforced by the kernel, inherited,
# and kept in step with the mode.
. "$(dirname "$0")/lib.sh"
command -v setfacl >/dev/null || skip 'no setfacl here (package acl)'
[ "$(id -u)" -eq 0 ] || skip 'only root can become somebody else'
user=nobody
as_user() { setpriv --reuid="$user" --regid=nogroup --clear-groups "$@"; }
acl() { getfacl -cpE "$@" | grep -v '^$' | tr '\n' ' ' | sed 's/ $//'; }
mode() { stat -c %a "$1"; }
denied() { fails 1 'Permission denied' as_user "$@"; }

volume
serve -o allow_other
chmod 755 "$mnt"
cd "$mnt"

# An access ACL: the mode follows it, the kernel enforces it, chmod changes its mask.
umask 022
echo secret >file
chmod 600 file
denied cat file
setfacl -m "u:$user:r" file
same "$(as_user cat file)" secret
same "$(mode file)" 640
same "$(acl file)" "user::rw- user:$user:r-- group::--- mask::r-- other::---"
denied tee -a file
setfacl -m "u:$user:rw" file
as_user sh -c 'echo x >>file'
chmod 600 file
same "$(acl file)" "user::rw- user:$user:rw- group::--- mask::--- other::---"
denied cat file
chmod 664 file
same "$(as_user tail -n 1 file)" x
same "$(acl file)" "user::rw- user:$user:rw- group::--- mask::rw- other::r--"
setfacl -b file
same "$(acl file)" 'user::rw- group::--- other::r--'
same "$(mode file)" 604
same "$(getfattr -m - file)" ''
# What only says what the mode says is not kept.
setfacl -m u::rwx,g::r,o::- file
same "$(mode file)" 740
same "$(getfattr -m - file)" ''
setfacl --remove-default file
fails 1 'Only directories can have default ACLs' setfacl -d -m u:1:r file
# An ACL whose setter is not of the group takes setgid away; root's does not.
echo x >sgid
chown "$user:daemon" sgid
chmod 2750 sgid
setfacl -m u:1:r sgid
same "$(mode sgid)" 2750
as_user setfacl -m u:2:r sgid
same "$(mode sgid)" 750

# Inheritance: the default ACL decides, not the umask.
mkdir dir plain
setfacl -d -m "u:$user:rwx,g::rx,o::-" dir
same "$(mode dir)" 755
default="default:user::rwx default:user:$user:rwx default:group::r-x default:mask::rwx \
default:other::---"
same "$(acl dir)" "user::rwx group::r-x other::r-x $default"
umask 077
mkdir dir/sub plain/sub
touch dir/file plain/file
same "$(mode dir/sub)" 770
same "$(acl dir/sub)" "user::rwx user:$user:rwx group::r-x mask::rwx other::--- $default"
same "$(mode dir/file)" 660
same "$(acl dir/file)" "user::rw- user:$user:rwx group::r-x mask::rw- other::---"
same "$(mode plain/sub)" 700
same "$(mode plain/file)" 600
mkfifo dir/fifo plain/fifo
same "$(mode dir/fifo)" 660
same "$(mode plain/fifo)" 600
ln -s target dir/link
same "$(stat -c %a dir/link)" 777
same "$(getfattr -h -m - dir/link)" ''
mkdir -m 700 dir/narrow
same "$(mode dir/narrow)" 700
umask 022
as_user sh -c 'echo mine >dir/file'
setfacl -m "u:$user:x" dir
fails 2 'Permission denied' as_user ls dir
as_user cat dir/file >/dev/null
# A default ACL without named entries has no mask: all of the new mode.
setfacl -k dir
setfacl -d -m u::rwx,g::r,o::r dir
umask 077
touch dir/minimal
mkdir dir/both
same "$(mode dir/minimal)" 644
same "$(getfattr -m - dir/minimal)" ''
same "$(mode dir/both)" 744
same "$(acl dir/both)" "user::rwx group::r-- other::r-- \
default:user::rwx default:group::r-- default:other::r--"
setfacl -k dir
touch dir/none
same "$(mode dir/none)" 600
umask 022

# cp -p and tar keep them, a crash too.
setfacl -m "u:$user:r" file
cp -p file copy
same "$(acl copy)" "$(acl file)"
mv copy dir/moved
same "$(acl dir/moved)" "$(acl file)"
before=$(getfacl -R . 2>/dev/null)
sync dir
cd /
kill -9 "$server"
server_ended 137 2>/dev/null
serve -o allow_other
same "$(cd "$mnt" && getfacl -R . 2>/dev/null)" "$before"

# Nobody's list has more entries than fit.
entries=$(seq 1000 1200 | sed 's/.*/u:&:r/' | paste -sd,)
setfacl -m "$entries" "$mnt/file"
same "$(getfacl -cp "$mnt/file" | grep -c ^user:)" 203
entries=$(seq 1000 1498 | sed 's/.*/u:&:r/' | paste -sd,)
fails 1 'Argument list too long' setfacl -m "$entries" "$mnt/file"
# The control files can be looked at by those who may.
as_user cat "$mnt/.blinkfs/stats" >/dev/null || fail 'stats'
unserve
fsck_clean
