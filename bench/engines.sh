#!/bin/sh
# The same inserts, look-ups and scans in blinkfs' engine and in other embedded engines.
#
#	BUILD=build bench/engines.sh
#
# Installs the engines' packages where it may (root, apt-get); an engine that is not there
# is left out, and said so.  Results: $BUILD/bench/engines.json.
#
# DATA  where the databases lie while they are measured (/dev/shm: no disk takes part)
# More: head of bench/engines/main.c.
BUILD=${BUILD:-build}
CC=${CC:-gcc}
DATA=${DATA:-/dev/shm}
[ -w "$DATA" ] || DATA=$BUILD/bench

have()
{
	echo "#include <$1>
int main(void) { return 0; }" | "$CC" -x c - -o /dev/null "-l$2" 2>/dev/null
}

# package, header, library, name of the engine
others='liblmdb-dev lmdb.h lmdb LMDB
libdb5.3-dev db.h db BDB
librocksdb-dev rocksdb/c.h rocksdb ROCKSDB
libsqlite3-dev sqlite3.h sqlite3 SQLITE'

missing=$(echo "$others" | while read -r package header library name; do
	have "$header" "$library" || echo "$package"
done)
if [ -n "$missing" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	# shellcheck disable=SC2086
	DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing \
		>"$BUILD/engines.apt" 2>&1 || echo "apt-get failed: see $BUILD/engines.apt"
fi

found=
while read -r package header library name; do
	if have "$header" "$library"; then
		found="$found $name"
	else
		echo "$name is left out: the package $package is not installed"
	fi
done <<END
$others
END
if [ -z "$found" ]; then
	echo 'skipped: no other engine is installed (liblmdb-dev libdb5.3-dev librocksdb-dev libsqlite3-dev)'
	exit 0
fi
mkdir -p "$BUILD/bench"
make --no-print-directory "BUILD=$BUILD" "ENGINES=$found" "$BUILD/bench/engines_bench" || exit 1
exec "$BUILD/bench/engines_bench" "$BUILD/bench" "$DATA"
