#!/bin/bash
# Programs that ask much of a filesystem: tar and diff, a compiler, git, SQLite.
# A part whose program is missing is left out.
. "$(dirname "$0")/lib.sh"

have() { command -v "$1" >/dev/null || { echo "no $1: left out"; return 1; }; }
limited() { timeout 100 "$@" || fail "'$*' failed"; }

unpack() {
	local source=/usr/include
	[ -d "$source/linux" ] || source=$PWD
	limited tar cf "$work/tree.tar" -C "$source" .
	mkdir "$mnt/tree"
	limited tar xf "$work/tree.tar" -C "$mnt/tree"
	limited diff -r --no-dereference "$source" "$mnt/tree"
	limited tar cf "$work/again.tar" -C "$mnt/tree" .
	same "$(tar tf "$work/again.tar" | sort | sha256sum)" \
		"$(tar tf "$work/tree.tar" | sort | sha256sum)"
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
[ ! -e "$mnt/repository" ] || limited git -C "$mnt/repository" fsck --full --strict
for journal in wal delete; do
	[ -e "$mnt/$journal.db" ] || continue
	same "$(sqlite3 "$mnt/$journal.db" 'pragma integrity_check')" ok
	same "$(sqlite3 "$mnt/$journal.db" .dump | sha256sum)" "$(cat "$work/$journal.sum")"
done
rm -rf "${mnt:?}"/*
unserve
"$fsck" -n -f --data "$image" || fail 'fsck complains in the end'
