#!/bin/bash
# Both protocols of structure changes through a mount: the same names, the same volume.
. "$(dirname "$0")/lib.sh"
command -v jq >/dev/null || skip 'jq is missing'

look() { jq -r "$1" "$mnt/.blinkfs/stats"; }
fill() { for i in $(seq "$1" "$2"); do : >"$mnt/name-$i-0123456789012345678901234567890123456789"; done; }

volume 32M
fails 1 "bad value in option 'smo=fast'" "$blinkfs" -f -o smo=fast "$image" "$mnt"
serve
same "$(look .index.smo)" blink
fill 1 800
[ "$(look .counters.tree_splits_leaf)" -gt 3 ] || fail 'nothing was split'
same "$(look .counters.tree_index_latch_sx)" 0
same "$(look .counters.tree_index_latch_x)" 0
unserve
fsck_clean

serve -o smo=index-latch
same "$(look .index.smo)" index-latch
fill 801 1600
[ "$(look .counters.tree_splits_leaf)" -gt 3 ] || fail 'nothing was split'
[ "$(look .counters.tree_index_latch_sx)" -ge "$(look .counters.tree_splits_leaf)" ] ||
	fail 'splits without the index latch'
same "$(look .counters.tree_parent_installs)" \
	"$(($(look .counters.tree_splits_leaf) + $(look .counters.tree_splits_internal)))"
unserve
fsck_clean

serve
same "$(ls "$mnt" | wc -l)" 1600
rm "$mnt"/name-*
unserve
fsck_clean
