#!/bin/bash
# blinkfs scrub, through a mount: a whole volume under load, one bit flipped in each kind
# of thing that is on the medium, cancelling, what is said and counted.
. "$(dirname "$0")/lib.sh"
command -v jq >/dev/null || skip 'jq is missing'
flip=$BUILD/tests/mount/flip_tool
[ -x "$flip" ] || skip 'tests/mount/flip_tool is not built'

stat_of() { jq -r "$1" "$mnt/.blinkfs/stats"; }
# block, byte in it
is() { [ "$(stat_of "$1")" = "$2" ]; }
flip() { "$flip" "$image" $(($1 * 4096 + $2)) 3; }

volume 256M -l 4M
serve
fails 2 'usage: blinkfs scrub' "$blinkfs" scrub
fails 2 'usage: blinkfs scrub' "$blinkfs" scrub status --rate 5 "$mnt"
fails 2 'not a number of MiB' "$blinkfs" scrub --rate fast "$mnt"
fails 1 'not in a mounted blinkfs volume' "$blinkfs" scrub "$work"
same "$("$blinkfs" scrub status "$mnt")" "$mnt: not scrubbed since it was mounted"

mkdir -p "$mnt/dir/sub"
seq 400000 >"$work/numbers"
head -c 2097152 "$work/numbers" >"$mnt/dir/sub/file"
cp --reflink=always "$mnt/dir/sub/file" "$mnt/dir/clone" 2>/dev/null || true
for i in $(seq 300); do echo "contents $i" >"$mnt/dir/$i"; done
printf 'v%.0s' $(seq 8000) >"$work/value"
setfattr -n user.large -v "$(cat "$work/value")" "$mnt/dir/1" 2>/dev/null || true
"$blinkfs" sync "$mnt"

# Under load, without a false alarm; from any directory.
(
	for i in $(seq 300); do
		head -c $((i * 37 % 90000)) /dev/urandom >"$mnt/dir/load$((i % 20))"
		[ $((i % 5)) -ne 0 ] || rm -f "$mnt/dir/load$((i % 20))"
	done
) &
load=$!
for round in 1 2 3; do
	"$blinkfs" scrub --rate 0 "$mnt/dir" >"$work/out" || fail "scrub: $(cat "$work/out")"
	grep -q ': 0 damaged$' "$work/out" || fail "$(cat "$work/out")"
done
wait "$load"
same "$(stat_of .counters.scrub_runs)" 3
same "$(stat_of '.counters.scrub_bad_pages + .counters.scrub_bad_blocks')" 0
[ "$(stat_of .scrub.blocks)" -ge 512 ] || fail 'contents were not read'
"$blinkfs" scrub -q "$mnt" >"$work/out"
[ ! -s "$work/out" ] || fail "-q says $(cat "$work/out")"

# Slowly, cancelled by an interrupt, and by the command; one at a time.
"$blinkfs" scrub start --rate 1 "$mnt"
fails 1 'being scrubbed already' "$blinkfs" scrub "$mnt"
"$blinkfs" scrub status "$mnt" | grep -q 'is being scrubbed: ' || fail 'status of a running one'
"$blinkfs" scrub cancel "$mnt"
eventually is .scrub.state ended
fails 1 'was cancelled' "$blinkfs" scrub status "$mnt"
code=0
(trap - INT; exec "$blinkfs" scrub --rate 1 "$mnt") >"$work/out" 2>&1 &
command=$!
eventually is .scrub.state running
kill -TERM "$command"
wait "$command" || code=$?
same "$code" 1
grep -q 'was cancelled' "$work/out" || fail "$(cat "$work/out")"

# Unmounting does not wait for it.
"$blinkfs" scrub start --rate 1 "$mnt"
unserve
fsck_clean

# One bit of a file's contents: named by path and offset, and nothing but that.
number=$(dd if="$work/numbers" bs=4096 skip=37 count=1 status=none | sed -n 3p)
at=$(grep -obUa "^$number\$" "$image" | sed -n '1s/:.*//p')
flip $((at / 4096)) 1000
serve
code=0
"$blinkfs" scrub "$mnt" >"$work/out" || code=$?
same "$code" 4
grep -q "^/dir/\(sub/file\|clone\), inode [0-9]*, offset $((37 * 4096)): block [0-9]*: checksum" \
	"$work/out" || fail "$(cat "$work/out")"
grep -q ': 1 damaged$' "$work/out" || fail "$(cat "$work/out")"
fails 4 "offset $((37 * 4096))" "$blinkfs" scrub status "$mnt"
same "$(stat_of .counters.scrub_bad_blocks)" 1
grep -q "scrub: /dir/.*offset $((37 * 4096))" "$log" || fail 'the log does not name the block'
rm "$mnt/dir/sub/file" "$mnt/dir/clone" 2>/dev/null || true
unserve
fsck_clean

# One bit of metadata, of each kind, below a mounted volume: found, though the cache knows
# better, and the volume wants fsck.
super() { "$blinkfs" dump super "$image" | awk -v f="$1" '$1 == f { print $2 }'; }
groups=$(super groups_start)
for what in superblock copy header checkpoint0 checkpoint1 bitmap system dirents inodes; do
	serve
	ls -lR "$mnt" >/dev/null 2>&1 || true # lost+found is not for all
	"$blinkfs" scrub --rate 0 -q "$mnt" # writes back all that is to be written
	log_start=$(super log_start)
	case $what in
	superblock) flip 0 200 && text='superblock at block 0: ' ;;
	copy) flip 65535 200 && text='superblock at block 65535: ' ;;
	header) flip "$log_start" 20 && text="redo log, block $log_start: " ;;
	checkpoint0) flip $((log_start + 1)) 30 && text="redo log, block $((log_start + 1)): " ;;
	checkpoint1) flip $((log_start + 2)) 30 && text="redo log, block $((log_start + 2)): " ;;
	bitmap) flip "$groups" 300 && text="page $groups (bitmap): " ;;
	system) flip $((groups + 4)) 100 && text="page $((groups + 4)) (system page): " ;;
	dirents) flip $((groups + 8)) 100 && text="index dirents, page $((groups + 8)) (level " ;;
	inodes) flip $((groups + 12)) 100 && text="index inodes, page $((groups + 12)) (level " ;;
	esac
	code=0
	"$blinkfs" scrub --rate 0 "$mnt" >"$work/out" || code=$?
	[ "$code" -eq 4 ] || fail "$what: $code: $(cat "$work/out")"
	grep -qF "$text" "$work/out" || fail "$what: $(cat "$work/out")"
	grep -q ': 1 damaged$' "$work/out" || fail "$what: $(cat "$work/out")"
	grep -q 'run fsck.blinkfs$' "$work/out" || fail "$what: $(cat "$work/out")"
	same "$(stat_of .counters.scrub_bad_pages)" 1
	unserve
	fails 3 'damage was found' "$blinkfs" "$image" "$mnt"
	code=0
	"$fsck" -y "$image" >"$work/out" 2>&1 || code=$?
	[ "$code" -le 1 ] || fail "$what: fsck: $(cat "$work/out")"
	fsck_clean
done

serve -o ro
fails 1 'mounted read-only' "$blinkfs" scrub "$mnt"
unserve
