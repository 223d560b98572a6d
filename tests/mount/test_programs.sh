#!/bin/bash
# Programs that ask much of a filesystem: tar and diff, rsync, a compiler, git, SQLite.
# A part whose program is missing is left out.
. "$(dirname "$0")/lib.sh"

have() { command -v "$1" >/dev/null || { echo "no $1: left out"; return 1; }; }
limited() { timeout 100 "$@" || fail "'$*' failed"; }

unpack() {
	local source=/usr/include
	[ -d "$source/linux" ] || source=$PWD
	limited tar "--owner=:$(id -u)" "--group=:$(id -g)" -cf "$work/tree.tar" -C "$source" .
	mkdir "$mnt/tree"
	limited tar xf "$work/tree.tar" -C "$mnt/tree"
	limited diff -r --no-dereference "$source" "$mnt/tree"
	limited tar cf "$work/again.tar" -C "$mnt/tree" .
	same "$(tar tf "$work/again.tar" | sort | sha256sum)" \
		"$(tar tf "$work/tree.tar" | sort | sha256sum)"
}

# Everything that an inode can have, in DIR.
treasure() {
	local i name
	mkdir "$1"
	cd "$1"
	for i in 0 1 511 2048 2049 4096 70000 300001; do
		mkdir -p "d$((i % 3))/s"
		head -c "$i" /dev/urandom >"d$((i % 3))/s/f$i"
		touch -d "@$((i * 12345 - 99999999)).$((123456789 + i))" "d$((i % 3))/s/f$i"
	done
	chmod 4755 d0/s/f0
	chmod 2711 d1/s/f1
	chmod 000 d1/s/f511
	chmod 400 d1/s/f4096
	ln d1/s/f70000 hard
	ln d1/s/f70000 d2/hard
	for name in 'sp ace' $'new\nline' $'\xff\xfe' -rf '*' "q'\"" 'back\' ' ' "$(printf '%0255d' 0)"; do
		echo "$name" >"./$name"
	done
	truncate -s 100M sparse
	echo middle | dd of=sparse bs=1M seek=50 conv=notrunc status=none
	ln -s d1/s/f1 link
	ln -s "/nowhere/$(printf '%03000d' 0)" long
	ln -s . loop
	mkfifo fifo
	mkdir empty
	mkdir -m 1777 sticky
	setfattr -n user.short -v value d2/s/f2048
	setfattr -n user.empty d2/s/f2048
	setfattr -n user.large -v "$(printf '%03000d' 0)" sticky
	setfacl -m "u:12345:rwx,g:54321:r-x" d0/s/f2049
	setfacl -m "u:12345:--x,d:u:12345:rw-,d:g::r-x,d:m::rwx" empty
	if [ "$(id -u)" -eq 0 ]; then
		mknod block b 7 300
		mknod char c 4000 1000000
		setfattr -n trusted.mine -v yes hard
		chown -h 12345:54321 link d2/s/f2048
		chmod 6755 d2/s/f2048
	fi
	touch -h -d '@1234567890.987654321' link fifo empty
	cd /
}

# FROM TO: no difference in anything; the other way round no name too many
identical() {
	same "$(limited rsync -aHAXn --delete --itemize-changes --checksum "$1/" "$2/")" ''
	same "$(limited rsync -aHAXn --delete --itemize-changes --checksum "$2/" "$1/")" ''
}

# The sending side opens what nobody may read.
readable() { [ "$(id -u)" -eq 0 ] || chmod -R u+r "$1"; }

copies() {
	local tar=(tar --xattrs '--xattrs-include=*' --acls --sparse --warning=no-timestamp)
	treasure "$work/treasure"
	readable "$work/treasure"
	limited rsync -aHAXS "$work/treasure/" "$mnt/treasure/"
	identical "$work/treasure" "$mnt/treasure"
	limited rsync -aHAXS "$mnt/treasure/" "$work/back/"
	identical "$work/treasure" "$work/back"
	cp -a "$mnt/treasure" "$mnt/copy"
	identical "$work/treasure" "$mnt/copy"
	rm -rf "$work/back" "$mnt/copy"
	limited "${tar[@]}" -C "$mnt/treasure" -cf "$work/treasure.tar" .
	mkdir "$mnt/copy" "$work/back"
	limited "${tar[@]}" -C "$mnt/copy" -xpf "$work/treasure.tar"
	identical "$work/treasure" "$mnt/copy"
	# At once, of what was just written
	limited "${tar[@]}" -C "$mnt/copy" -cf "$work/treasure.tar" .
	limited "${tar[@]}" -C "$work/back" -xpf "$work/treasure.tar"
	identical "$work/treasure" "$work/back"
	[ "$(du -k "$mnt/copy/sparse" | cut -f1)" -lt 1000 ] || fail 'the holes are gone'
}

compile() {
	local i
	mkdir "$mnt/build"
	for i in $(seq 12); do
		cat >"$mnt/build/part$i.c" <<-END
			#include <stdio.h>
			#include <stdlib.h>
			int part$i(int n) { printf("part %d\n", n); return n == $i ? 0 : 1; }
		END
		echo "int part$i(int);" >>"$mnt/build/parts.h"
	done
	{
		echo '#include "parts.h"'
		echo 'int main(void) { int bad = 0;'
		for i in $(seq 12); do echo "bad |= part$i($i);"; done
		echo 'return bad; }'
	} >"$mnt/build/main.c"
	# Several compilers at once, precompiled archive, linked and run from the mount.
	(cd "$mnt/build" && find . -name '*.c' | xargs -P 4 -n 1 timeout 100 gcc -g -c)
	(cd "$mnt/build" && ar rcs libparts.a part*.o && gcc -o program main.o libparts.a)
	same "$(cd "$mnt/build" && ./program | wc -l)" 12
}

versions() {
	export HOME=$work GIT_CONFIG_NOSYSTEM=1
	git config --global user.name nobody
	git config --global user.email nobody@localhost
	git config --global --add safe.directory '*'
	git config --global core.fsync all
	mkdir "$mnt/repository"
	cd "$mnt/repository"
	limited git init -q -b main .
	for i in $(seq 60); do
		mkdir -p "d$((i % 7))"
		head -c $((i * 331)) /dev/urandom | base64 >"d$((i % 7))/f$i"
	done
	limited git add .
	limited git commit -q -m one
	git mv d1 moved
	echo more >>d2/f2
	limited git commit -q -a -m two
	limited git checkout -q -b other HEAD^
	echo other >>d3/f3
	limited git commit -q -a -m three
	limited git merge -q -m merged main
	limited git gc -q
	limited git fsck --full --strict
	same "$(git status --porcelain)" ''
	limited git clone -q "$mnt/repository" "$mnt/clone"
	cd /
	limited diff -r --exclude=.git "$mnt/repository" "$mnt/clone"
}

# writer, number
transaction() {
	cat <<-END
		.timeout 60000
		pragma synchronous = full;
		begin immediate;
		insert into t(writer, text)
			select $1, hex(randomblob(100)) from (select 1 from sqlite_master, sqlite_master);
		update t set text = 'x' || text where id % 5 = $2 % 5;
		delete from t where id % 40 = $2;
		commit;
	END
}

# Two writers beside a reader.
database() {
	local journal=$1 file=$mnt/$1.db job jobs=()
	sqlite3 "$file" "pragma journal_mode = $journal;
		create table t(id integer primary key, writer, text);
		create index i on t(text);" >/dev/null
	for job in 1 2; do
		for n in $(seq 25); do
			transaction "$job" "$n" | sqlite3 "$file" || exit 1
		done >"$work/sqlite.$job" 2>&1 &
		jobs+=($!)
	done
	for job in $(seq 10); do
		same "$(printf '%s\n' '.timeout 60000' 'pragma integrity_check;' | sqlite3 "$file")" ok
	done
	for job in "${jobs[@]}"; do
		wait "$job" || fail "SQLite with journal_mode=$journal: $(cat "$work"/sqlite.?)"
	done
	same "$(cat "$work"/sqlite.?)" ''
	[ "$(sqlite3 "$file" 'select count(distinct writer) from t')" -eq 2 ] ||
		fail 'rows are missing'
	same "$(sqlite3 "$file" 'pragma integrity_check')" ok
	sqlite3 "$file" .dump | sha256sum >"$work/$journal.sum"
}

volume 1G
serve
have tar && have diff && unpack
if have rsync && have setfacl && have setfattr; then
	touch "$work/probe"
	if setfattr -n user.a -v b "$work/probe" && setfacl -m u:1:r "$work/probe"; then
		copies
	else
		echo "no attributes or lists in ${work%/*}: rsync and tar of them left out"
	fi
fi
have gcc && have ar && compile
have git && versions
if have sqlite3; then
	database wal
	database delete
fi
cd /
unserve
"$fsck" -n -f --data "$image" || fail 'fsck complains'

# The same after a mount.
serve
[ ! -e "$mnt/tree" ] || limited tar df "$work/tree.tar" -C "$mnt/tree"
[ ! -e "$mnt/copy" ] || identical "$work/treasure" "$mnt/copy"
[ ! -e "$mnt/repository" ] || limited git -C "$mnt/repository" fsck --full --strict
for journal in wal delete; do
	[ -e "$mnt/$journal.db" ] || continue
	same "$(sqlite3 "$mnt/$journal.db" 'pragma integrity_check')" ok
	same "$(sqlite3 "$mnt/$journal.db" .dump | sha256sum)" "$(cat "$work/$journal.sum")"
done
rm -rf "${mnt:?}"/*
unserve
"$fsck" -n -f --data "$image" || fail 'fsck complains in the end'
