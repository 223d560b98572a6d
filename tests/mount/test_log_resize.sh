#!/bin/bash
# blinkfs log-resize and log_scrub=on, through a mount: under load, killed in the
# middle, refused in words; names that are gone from the log.
. "$(dirname "$0")/lib.sh"
command -v jq >/dev/null || skip 'jq is missing'

figure() { jq -r ".log.$1" "$mnt/.blinkfs/stats"; }
die() {
	kill -9 "$server"
	server_ended 137 2>/dev/null
}

volume 96M -l 4M
serve
mkdir -p "$mnt/d/e"
fails 2 'usage: blinkfs log-resize DIR SIZE' "$blinkfs" log-resize "$mnt"
fails 2 'not a size' "$blinkfs" log-resize "$mnt" many
fails 1 'not in a mounted blinkfs volume' "$blinkfs" log-resize "$work" 8M
fails 1 'No such file' "$blinkfs" log-resize "$work/nowhere" 8M
fails 1 'too small: .* at least 2 MiB' "$blinkfs" log-resize "$mnt" 1M
fails 1 'in one piece' "$blinkfs" log-resize "$mnt" 95M
fails 1 'too large' "$blinkfs" log-resize "$mnt" 4G
same "$(figure capacity)" $((4 * 1048576 - 12288))
same "$(stat -c %a "$mnt/.blinkfs/control")" 600

# Under load; from any directory of it.
(
	for i in $(seq 400); do
		echo "contents $i" >"$mnt/d/$i"
		[ $((i % 3)) -ne 0 ] || rm "$mnt/d/$i"
	done
) &
load=$!
for size in 16M 8M 32M 3M 12M; do
	"$blinkfs" log-resize "$mnt/d/e" "$size"
	same "$(figure capacity)" $(($(numfmt --from=iec "$size") - 12288))
done
wait "$load"
same "$(jq .counters.log_resizes "$mnt/.blinkfs/stats")" 5
"$blinkfs" sync "$mnt"
die
serve
same "$(figure capacity)" $((12 * 1048576 - 12288))
for i in 1 2 4 5 398 400; do same "$(cat "$mnt/d/$i")" "contents $i"; done
[ ! -e "$mnt/d/3" ] || fail 'a removed file is back'

# Killed while it is under way: one size or the other.
for i in 1 2 3 4; do
	echo "kept $i" >"$mnt/kept$i"
	sync "$mnt/kept$i"
	"$blinkfs" log-resize "$mnt" $((i % 2 ? 24 : 5))M 2>/dev/null &
	command=$!
	die
	wait "$command" || true
	serve
	case $(figure capacity) in
	$((12 * 1048576 - 12288)) | $((24 * 1048576 - 12288)) | $((5 * 1048576 - 12288))) ;;
	*) fail "log of $(figure capacity) bytes" ;;
	esac
	for k in $(seq $i); do same "$(cat "$mnt/kept$k")" "kept $k"; done
done
unserve
fsck_clean
serve -o ro
fails 1 'mounted read-only' "$blinkfs" log-resize "$mnt" 8M
unserve

# A log in a file of its own becomes longer and shorter with it.
"$mkfs" -q -f -s 64M -l 4M -j "$work/jlog" "$image"
serve
echo contents >"$mnt/file"
for size in 16M 2M 6M; do
	"$blinkfs" log-resize "$mnt" "$size"
	same "$(stat -c %s "$work/jlog")" "$(numfmt --from=iec "$size")"
done
die
serve
same "$(cat "$mnt/file")" contents
unserve
fsck_clean

# What was removed leaves no trace in the log.
traces() { grep -c -a "$1" "$work/jlog" || true; }
scrubbed() { [ "$(traces secret-name)" -eq 0 ]; }
fails 1 "bad value in option 'log_scrub=yes'" "$blinkfs" -o log_scrub=yes "$image" "$mnt"
serve
for i in $(seq 20); do echo "some-secret-text" >"$mnt/secret-name-$i"; done
rm "$mnt"/secret-name-*
"$blinkfs" sync "$mnt"
unserve
[ "$(traces secret-name)" -gt 0 ] || fail 'the log holds no names: nothing to test'
[ "$(traces some-secret-text)" -gt 0 ] || fail 'the log holds no contents: nothing to test'
for mode in pwrite direct dsync mapped; do
	serve -o "log_scrub=on,log_mode=$mode"
	for i in $(seq 20); do echo "some-secret-text" >"$mnt/secret-name-$i"; done
	rm "$mnt"/secret-name-*
	"$blinkfs" sync "$mnt"
	if [ "$mode" = pwrite ]; then
		# While it is mounted, once nothing happens.
		eventually scrubbed
	fi
	unserve
	same "$(traces secret-name)" 0
	same "$(traces some-secret-text)" 0
done
fsck_clean
