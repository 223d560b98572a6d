#!/bin/sh
# fio's jobs (fio/*.fio) on a mounted directory, buffered and with O_DIRECT.
# What they write they read back and compare; any error ends it.
#
#	bench/fio.sh DIR           in DIR, which must be there
#	BUILD=build bench/fio.sh   on a volume of its own, which is checked afterwards
#
# Leaves nothing in DIR.  fio's own output goes to $BUILD/bench/fio-*.log.
BUILD=${BUILD:-build}
IMAGE_MIB=${IMAGE_MIB:-2048}
JOBS=${JOBS:-sequential random mixed fsync mapped}

here=$(dirname "$0")
# shellcheck source=bench/lib.sh
. "$here/lib.sh"

# Both of fio's verdicts: its exit code, and what it says of each job.
run_job()
{
	job=$1
	direct=$2
	log=$BUILD/bench/fio-$job-$direct.log
	dir=$(mktemp -d "$target/fio.XXXXXX") || die "cannot write to $target"
	start=$(date +%s)
	if ! (cd "$dir" && DIR=$dir DIRECT=$direct fio "$jobs_dir/$job.fio") >"$log" 2>&1 ||
		! grep -q 'err= 0' "$log" || grep -q 'err= *[1-9]' "$log"; then
		cat "$log" >&2
		rm -rf "$dir"
		die "$job (direct=$direct) failed"
	fi
	rm -rf "$dir"
	printf '%-11s direct=%s  ok  %3d s\n' "$job" "$direct" $(($(date +%s) - start))
}

run_jobs()
{
	for job in $JOBS; do
		run_job "$job" 0
		[ "$job" = mapped ] || run_job "$job" 1
	done
}

command -v fio >/dev/null || die 'fio is not installed'
jobs_dir=$(realpath "$here/fio")
mkdir -p "$BUILD/bench"
BUILD=$(realpath "$BUILD")
if [ $# -gt 0 ]; then
	target=$(realpath "$1") || die "$1: not there"
	run_jobs
else
	work_begin
	image_make "$work/blinkfs.img" "$IMAGE_MIB" || die 'no room for the volume'
	fs_up_blinkfs
	target=$mount_dir
	run_jobs
	fs_down
	"$BUILD/fsck.blinkfs" -n -f "$work/blinkfs.img" || die 'the volume is not as it should be'
fi
