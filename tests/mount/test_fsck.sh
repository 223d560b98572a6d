#!/bin/bash
# fsck.blinkfs and blinkfs dump as programs: exit codes, volumes that are mounted.
. "$(dirname "$0")/lib.sh"

# usage
fails 16 'one volume is needed' "$fsck"
fails 16 'one volume is needed' "$fsck" a b
fails 16 'unknown option' "$fsck" -z "$image"
fails 16 'excludes' "$fsck" -n -y "$image"
fails 16 'excludes' "$fsck" -p -y "$image"
fails 16 'file descriptor' "$fsck" -C x "$image"
fails 16 'excludes' "$fsck" --json -C 0 "$image"
fails 0 'Usage: fsck.blinkfs' "$fsck" --help
fails 0 '^fsck.blinkfs [0-9]' "$fsck" -V

# operational errors
fails 8 'No such file' "$fsck" "$work/nothing"
head -c 100000 /dev/zero >"$work/zeros"
fails 8 'not a blinkfs volume' "$fsck" -y "$work/zeros"

# a healthy volume
volume 64M
fails 0 ': clean$' "$fsck" "$image"
fails 0 ': 0 files, 1 directories, [0-9]+/[0-9]+ blocks$' "$fsck" -f "$image"

# mounted: refused, unless it only looks; dump looks always
serve
mkdir "$mnt/dir"
echo hello >"$mnt/dir/file"
head -c 1000000 /dev/urandom >"$mnt/big"
sync -f "$mnt/big"
fails 8 'in use' "$fsck" -y "$image"
fails 8 'in use' "$fsck" "$image"
"$fsck" -n "$image" >"$work/out" 2>&1 || true
grep -q 'may be wrong' "$work/out" || fail 'no warning about the mount'
fails 0 'page_size' "$blinkfs" dump super "$image"
fails 0 '"file"' "$blinkfs" dump -r index dirents "$image"
unserve

fails 0 ': 2 files, 2 directories, ' "$fsck" -f -n --data "$image"
fails 0 '"big"' "$blinkfs" dump index dirents "$image"
fails 0 'mode 040755' "$blinkfs" dump inode 1 "$image"
fails 1 'no such key' "$blinkfs" dump inode 999999 "$image"
fails 2 'Usage' "$blinkfs" dump nonsense "$image"

# damaged contents: named, left, flagged; no mount writes to it before it is right again
block=$("$blinkfs" dump index lob "$image" | sed -n 's/.*at block \([0-9]*\).*/\1/p' | head -1)
dd if="$image" of="$work/saved" bs=4096 skip="$block" count=1 status=none
printf damage | dd of="$image" bs=4096 seek="$block" conv=notrunc status=none
fails 0 ': clean$' "$fsck" "$image"
fails 4 '^\[801\] .*: /big, inode [0-9]+, offset 0: block' "$fsck" -f -n --data "$image"
fails 4 '^\[801\]' "$fsck" -y -f --data "$image"
fails 3 'run fsck' "$blinkfs" "$image" "$mnt"
dd if="$work/saved" of="$image" bs=4096 seek="$block" conv=notrunc status=none
fails 4 '^\[3\] .*damaged' "$fsck" -n --data "$image"
fails 1 '^\[3\] .*damaged' "$fsck" -p --data "$image"
fails 0 ': clean$' "$fsck" "$image"

# a broken superblock comes back from its copy
printf broken | dd of="$image" bs=1 seek=200 conv=notrunc status=none
fails 4 '^\[1\] ' "$fsck" -n "$image"
fails 1 '^\[1\] ' "$fsck" -a "$image"
fails 0 ': clean$' "$fsck" "$image"

# a report for programs, and progress for fsck(8)
printf broken | dd of="$image" bs=1 seek=200 conv=notrunc status=none
fails 4 '"number": 1, "name": "SB_PRIMARY", "severity": "wrong", "repairable": true' \
	"$fsck" -n --json "$image"
"$fsck" -n --json "$image" >"$work/json" || true
if command -v python3 >/dev/null; then
	python3 -m json.tool "$work/json" >/dev/null || fail 'no JSON'
fi
# the same, word for word, by any number of threads and with any memory
for how in '--threads 1' '--threads 4' '--threads 3 --memory 1'; do
	# shellcheck disable=SC2086
	"$fsck" -n -f --data $how --json "$image" >"$work/json2" || true
	[ -e "$work/json1" ] || cp "$work/json2" "$work/json1"
	cmp "$work/json1" "$work/json2"
done
fails 16 'threads wants a number' "$fsck" --threads 0 "$image"
fails 16 'memory wants a size' "$fsck" --memory much "$image"
fails 1 '"exit": 1' "$fsck" -y --json "$image"
fails 0 '^1 0 11 .*' "$fsck" -f -C 2 "$image"
fails 0 'walk 1, 3 of 11: inodes' "$fsck" -f -C 0 "$image"

# without a terminal nothing is asked and nothing repaired
printf broken | dd of="$image" bs=1 seek=200 conv=notrunc status=none
fails 4 'no terminal to ask on' "$fsck" "$image"
fails 4 '^\[1\] ' "$fsck" "$image"
fails 1 '^\[1\] ' "$fsck" -y "$image"

# on a terminal each kind of problem is a question: no, nothing, yes, all
if command -v script >/dev/null; then
	answers() { # CODE PATTERN ANSWER...: of fsck -f
		local want=$1 pattern=$2
		shift 2
		printf '%s\n' "$@" >"$work/answers"
		fails "$want" "$pattern" \
			script -qec "'$fsck' -f '$image'" /dev/null <"$work/answers"
	}
	break_two() {
		printf broken | dd of="$image" bs=1 seek=200 conv=notrunc status=none
		printf broken | dd of="$image" bs=1 seek=$(((log_start + 1) * 4096 + 30)) \
			conv=notrunc status=none
	}
	log_start=$("$blinkfs" dump super "$image" | awk '$1 == "log_start" { print $2 }')
	break_two
	answers 4 'Repair \[1\] the superblock .* \(1\)\? \[y/N, a = all\]' n
	answers 4 'Repair \[1\]' ''
	fails 4 'Repair \[1\]' script -qec "'$fsck' -f '$image'" /dev/null </dev/null
	# an interrupt is no answer: no other question, nothing written
	mkfifo "$work/nobody"
	exec 3<>"$work/nobody"
	script -qefc "bash -c 'echo \$\$ >$work/pid; exec $fsck -f $image'" "$work/asked" \
		<&3 >/dev/null 2>&1 &
	asking=$! code=0
	eventually grep -q 'Repair' "$work/asked"
	kill -TERM "$(cat "$work/pid")"
	wait "$asking" || code=$?
	exec 3>&-
	same "$code" 32
	same "$(grep -c 'Repair' "$work/asked")" 1
	grep -q 'interrupted' "$work/asked" || fail "$(cat "$work/asked")"
	fails 4 '^\[13\] ' "$fsck" -n "$image"
	answers 5 'Repair \[13\] one of the log' y n
	fails 4 '^\[13\] ' "$fsck" -f -n "$image"
	"$fsck" -f -n "$image" | grep -q '^.1. ' && fail 'what was approved was not done'
	answers 1 'Repair \[13\] one of the log' Y
	fails 0 ': clean$' "$fsck" "$image"
	break_two
	answers 1 'Repair \[1\]' a
	fails 0 ': 2 files, 2 directories, ' "$fsck" -f "$image"
fi

# progress and questions, said and numbered; -v says more
fails 0 '^1 0 11 .*' "$fsck" -f -v -C 2 "$image"
fails 16 'file descriptor' "$fsck" -C 5x "$image"
fails 16 'threads wants a number' "$fsck" --threads 65 "$image"
fails 16 'memory wants a size' "$fsck" --memory 0 "$image"
fails 16 'unknown option' "$fsck" --memory

# killed in the middle: the log is replayed in memory by -n, for good without
serve
touch "$mnt/after"
sync "$mnt/after"
kill -9 "$server"
wait "$server" || true
umount -l "$mnt" 2>/dev/null || fusermount3 -u -z "$mnt"
fails 0 ': 3 files, 2 directories, ' "$fsck" -n "$image"
fails 0 ': 3 files, 2 directories, ' "$fsck" -p "$image"
fails 0 ': clean$' "$fsck" "$image"

# all names are lost: what they named is in lost+found, under its number
serve
head -c 300000 /dev/urandom >"$mnt/dir/saved"
cp "$mnt/dir/saved" "$work/copy"
number=$(stat -c %i "$mnt/dir/saved")
unserve
root=$("$blinkfs" dump super "$image" | awk '$1 == "root" && $2 == "dirents" { print $3 }')
printf broken | dd of="$image" bs=1 seek=$((root * 4096 + 300)) conv=notrunc status=none
fails 4 '^\[102\] ' "$fsck" -f -n "$image"
fails 4 'run fsck.blinkfs without -p' "$fsck" -f -p "$image"
fails 3 'run fsck' "$blinkfs" "$image" "$mnt"
fails 1 '^index dirents: rebuilt' "$fsck" -y "$image"
fails 0 ' files, ' "$fsck" -f -n --data "$image"
serve
[ "$(stat -c %a "$mnt/lost+found")" = 700 ] || fail 'lost+found is open to all'
if [ "$(id -u)" -eq 0 ]; then # whose it is
	cmp "$work/copy" "$mnt/lost+found/#$number" || fail 'not what it was'
	mv "$mnt/lost+found/#$number" "$mnt/saved"
fi
unserve
fsck_clean
