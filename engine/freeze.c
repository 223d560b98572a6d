/* Freezing a volume: freeze.h. */
#include "engine/freeze.h"

#include "engine/archive.h"
#include "engine/base/message.h"
#include "engine/flush.h"
#include "engine/purge.h"
#include "engine/space.h"
#include "engine/volume.h"

#include <errno.h>
#include <stdio.h>

static void restart(struct volume *volume)
{
	int rc;

	space_trim_forbid(volume->space, false);
	rc = space_start(volume->space);
	if (rc == 0)
		rc = purge_start(volume->purge);
	if (rc)
		message(LOG_WARNING, "%s: a background thread could not be started again: %s",
			volume->dev->path, error_text(rc));
}

static bool is_still(struct volume *volume)
{
	lsn_t next = log_next_lsn(volume->log);

	return log_durable_lsn(volume->log) == next && log_checkpoint_lsn(volume->log) == next;
}

/* All that was granted is finished; put in place. */
static int settle(struct volume *volume)
{
	int rc = log_freeze(volume->log);

	if (rc)
		return rc;
	os_point("freeze:frozen");
	rc = flush_everything(volume->flusher);
	if (rc == 0 && volume->archive && !is_still(volume)) {
		archive_catch_up(volume->archive); /* it holds the checkpoint back */
		rc = flush_everything(volume->flusher);
	}
	if (rc == 0 && !is_still(volume))
		rc = -EBUSY;
	if (rc == 0 && volume->options.log_scrub)
		rc = flusher_scrub_all(volume->flusher);
	if (rc)
		log_thaw(volume->log);
	return rc;
}

int volume_freeze(struct volume *volume, char why[FREEZE_TEXT_BYTES])
{
	int rc;

	latch_check_may_wait();
	why[0] = '\0';
	if (volume->options.read_only)
		return -EROFS;
	if (atomic_load(&volume->failed))
		return -EIO;
	rc = log_resize_exclude(volume, why);
	if (rc)
		return rc;
	purge_stop(volume->purge);
	space_stop(volume->space);
	space_trim_forbid(volume->space, true); /* INV-FREEZE-1 */
	rc = settle(volume);
	if (rc) {
		restart(volume);
		log_resize_allow(volume);
		if (rc == -EBUSY)
			snprintf(why, FREEZE_TEXT_BYTES,
				 "the log archive has not caught up; try again later");
		return error_errno(rc);
	}
	check(!atomic_exchange(&volume->frozen, true));
	return 0;
}

void volume_thaw(struct volume *volume)
{
	check(atomic_exchange(&volume->frozen, false));
	log_thaw(volume->log);
	restart(volume);
	log_resize_allow(volume);
}
