#!/bin/bash
# Layers, libraries and style that a compiler does not check; then cppcheck.
#
#   engine/base <- engine/dev <- log <- engine <- fs <- fs/server, fsck, mkfs
#
# A file includes only what lies at or below its own layer.
set -u
cd "$(dirname "$0")/.."
bad=0

complain() {
	echo "$1"
	bad=1
}

# files, allowed includes of ours (extended regular expression)
layer() {
	local files=$1 allowed=$2 wrong
	# shellcheck disable=SC2086
	wrong=$(grep -nE '^#include "' $files 2>/dev/null | grep -vE ":#include \"($allowed)" || true)
	[ -z "$wrong" ] || complain "includes what lies above it:
$wrong"
}
sources() {
	local folder
	for folder in "$@"; do find "$folder" -maxdepth 1 -name '*.[ch]'; done
}
base='engine/base/'
dev="$base|engine/dev/"
log="$dev|engine/format.h|log/"
engine="$dev|log/log.h|engine/[a-z0-9_]+\.(h|def)\""
core="$engine|fs/[a-z0-9_]+\.h\""
layer "$(sources engine/base)" "$base"
layer "$(sources engine/dev)" "$dev"
layer "$(sources log)" "$log"
layer "$(sources engine)" "$engine"
layer "$(sources fs)" "$core"
layer "$(sources fs/server)" "$core|fs/server/|fsck/dump.h"
layer "$(sources mkfs)" "$core|mkfs/"
layer "$(sources fsck)" "$core|fsck/"

# header, where it may be included (paths, extended regular expression)
library() {
	local header=$1 where=$2 wrong
	wrong=$(grep -rnE --include='*.[ch]' "^#include <($header)" engine log fs mkfs fsck |
		grep -vE "^($where)" || true)
	[ -z "$wrong" ] || complain "library used outside its place:
$wrong"
}
library 'fuse|linux/fuse|cjson/' 'fs/server/'
library 'blkid|uuid' 'mkfs/'
library 'liburing|libpmem' 'engine/dev/'
library 'isa-l|xxhash' 'engine/base/|fs/|fsck/raw.c'
library 'assert.h' 'engine/base/check.h'

wide=$(find engine log fs mkfs fsck tests bench -name '*.[ch]' -print0 |
	xargs -0 awk '{ line = $0; gsub(/\t/, "        ", line);
		if (length(line) > 100) print FILENAME ":" FNR ": longer than 100 columns" }')
[ -z "$wide" ] || complain "$wide"

long=$(find engine log fs mkfs fsck tests -name '*.[ch]' -print0 | xargs -0 wc -l |
	awk '$2 != "total" && $1 > 800 { print $2 ": " $1 " lines, more than one sitting" }')
[ -z "$long" ] || complain "$long"

# INV-OS-3: the one place that calls os->wait() tells the thread's hook first.
waits=$(grep -rnE --include='*.[ch]' -e '(->|\.)wait\(os' engine log fs mkfs fsck |
	grep -v '^engine/base/os.c' || true)
[ -z "$waits" ] || complain "waits past os_wait():
$waits"

# <linux/fs.h> has a BLOCK_SIZE of its own, which is taken without a word.
blocks=$(grep -rlE --include='*.[ch]' '<linux/fs.h>' engine log fs mkfs fsck tests bench |
	xargs -r grep -nw BLOCK_SIZE /dev/null || true)
[ -z "$blocks" ] || complain "BLOCK_SIZE beside <linux/fs.h>:
$blocks"

words=$(grep -rnE --include='*.[ch]' '\b(TODO|FIXME|XXX)\b' engine log fs mkfs fsck tests || true)
[ -z "$words" ] || complain "$words"

if command -v cppcheck >/dev/null; then
	# Suppressed: what the compilers judge better, with -Wall -Wextra -Werror.
	cppcheck --quiet --std=c11 --enable=warning,portability --inline-suppr --error-exitcode=1 \
		--suppress=missingIncludeSystem --suppress=unknownMacro \
		--suppress=uninitvar --suppress=ctuuninitvar --suppress=missingReturn \
		--suppress=autoVariables -D_GNU_SOURCE \
		-D'BLINKFS_VERSION=""' -D__BYTE_ORDER__=1234 -D__ORDER_LITTLE_ENDIAN__=1234 -I. \
		engine log fs mkfs fsck || bad=1
fi
[ $bad -eq 0 ] && echo 'lint: nothing to complain about'
exit $bad
