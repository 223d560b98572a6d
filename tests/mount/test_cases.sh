#!/bin/bash
# What went wrong in comparable filesystems (cases.c), with and without the
# kernel's writeback cache; and that the volume is whole afterwards.
. "$(dirname "$0")/lib.sh"
cases=$BUILD/tests/mount/cases
[ -x "$cases" ] || skip 'tests/mount/cases is not built'

for writeback in on off; do
	volume 256M
	serve -o "writeback=$writeback"
	"$cases" "$mnt"
	free_before=$(df --output=used "$mnt" | tail -n 1)
	rm -rf "${mnt:?}"/*
	less_used() { [ "$(df --output=used "$mnt" | tail -n 1)" -lt 2000 ]; }
	eventually less_used
	same "$(df --output=iused "$mnt" | tail -n 1 | tr -d " ")" 1
	echo "writeback=$writeback: $free_before KiB were used, and came back"
	unserve
	fsck_clean
done

if command -v sqlite3 >/dev/null; then
	volume 64M
	serve
	sqlite3 "$mnt/db" 'pragma journal_mode=wal; create table t(x); insert into t values(1),(2);' >/dev/null
	same "$(sqlite3 "$mnt/db" 'select sum(x) from t;')" 3
	unserve
fi
