/*
 * Looking at a volume as recovery will leave it, without writing to it: the
 * engine opens it read-only, which puts an overlay in memory over the device;
 * everything is written back there, and the overlay is walked while the volume
 * stands still.
 */
#include "fsck/check.h"

#include "engine/flush.h"
#include "engine/volume.h"
#include "fsck/borrow.h"

static int walk_quiet(struct volume *volume, const struct fsck_options *options, fsck_report report,
		      void *arg, struct fsck_result *result)
{
	struct fsck_options exact = *options;
	int rc = flush_everything(volume->flusher); /* splits that recovery completed */

	if (rc)
		return rc;
	exact.lsn_end = log_next_lsn(volume->log);
	return fsck_walk(volume->dev, &exact, report, arg, result);
}

int fsck_recover_and_walk(struct device *dev, uint64_t cache_bytes,
			  const struct fsck_options *options, fsck_report report, void *arg,
			  struct fsck_result *result)
{
	const struct volume_options open_options = {
		.read_only = true,
		.no_background = true,
		.cache_bytes = cache_bytes,
		.ignore_damage = true,
		.log_dev = options->log_dev,
	};
	struct fsck_options walked = *options;
	struct volume *volume;
	int rc;

	*result = (struct fsck_result){0};
	rc = borrow_volume(&volume, dev, &open_options);
	if (rc)
		return rc;
	walked.tally = log_tally(volume->log);
	rc = walk_quiet(volume, &walked, report, arg, result);
	volume_abandon(volume);
	return rc;
}
