/*
 * Opening and closing a volume: the order of its parts.
 *
 * Generations (INV-SB-3).  Each mount has one; it is the epoch of the log.
 *
 *	on disk: mount_gen = g, log_gen = l, checkpoint of generation l or g
 *	1. superblock: mount_gen = g + 1, log_gen = the checkpoint's; durable
 *	   before anything else is written
 *	2. recovery; both checkpoint blocks with generation g + 1
 *	3. superblock: log_gen = g + 1
 *
 * crash after 1: the log to replay is still named.  Between the two checkpoint
 * blocks or after: log_open() takes generation g + 1 = mount_gen.  After 3: as a
 * mount that has just begun.
 */
#include "engine/volume.h"

#include "engine/archive.h"
#include "engine/base/message.h"
#include "engine/flush.h"
#include "engine/lob_internal.h"
#include "engine/log_resize.h"
#include "engine/mtr.h"
#include "engine/pool.h"
#include "engine/purge.h"
#include "engine/recovery.h"
#include "engine/space.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* ------------------------------------------------------------- superblock */

/*
 * INV-SB-3: log_reached says how far the log is durable, so that an older copy of
 * it is refused; it never says more than that.
 */
static int write_superblock_locked(struct volume *volume)
{
	lsn_t durable = volume->log ? log_durable_lsn(volume->log) : 0;
	int rc;

	if (volume->sb_half_written)
		return -EIO;
	if (durable > le64_get(volume->sb.log_reached))
		volume->sb.log_reached = le64_make(durable);
	rc = superblock_write(volume->dev, &volume->sb);
	volume->sb_half_written = rc != 0; /* INV-SB-1: which of the two counts is not known */
	return rc;
}

static int write_superblock(struct volume *volume)
{
	int rc;

	latch_x(&volume->sb_latch);
	rc = write_superblock_locked(volume);
	unlatch_x(&volume->sb_latch);
	return rc;
}

/* INV-SB-4: in one go, so that who looks under the latch sees nothing that is not durable. */
int volume_change_superblock(struct volume *volume,
			     void (*change)(struct disk_superblock *sb, void *arg), void *arg)
{
	int rc;

	latch_x(&volume->sb_latch);
	change(&volume->sb, arg);
	os_point("superblock:changed");
	rc = write_superblock_locked(volume);
	unlatch_x(&volume->sb_latch);
	if (rc)
		volume_fail(volume, "the superblock cannot be written", rc);
	return rc;
}

static void set_state(struct volume *volume, uint32_t set, uint32_t clear)
{
	uint32_t state = le32_get(volume->sb.state);

	volume->sb.state = le32_make((state & ~clear) | set);
}

/* The log has proved to be the right one: where it is becomes the hint. */
static void note_log_path(struct volume *volume)
{
	const char *path = volume->options.log_path;
	struct disk_superblock *sb = &volume->sb;

	if (!volume->geo.log_external || !path || strlen(path) >= sizeof(sb->log_path))
		return;
	memset(sb->log_path, 0, sizeof(sb->log_path));
	memcpy(sb->log_path, path, strlen(path));
}

/* Step 1. */
static int begin_generation(struct volume *volume)
{
	uint64_t replay = log_found_checkpoint(volume->log)->generation;
	int rc;

	volume->sb.mount_gen = le64_make(le64_get(volume->sb.mount_gen) + 1);
	volume->sb.log_gen = le64_make(replay);
	note_log_path(volume);
	set_state(volume, 0, SB_CLEAN);
	rc = superblock_forget_larger(volume->dev, &volume->sb);
	return rc ? rc : write_superblock(volume);
}

/* Step 3. */
static int adopt_generation(struct volume *volume)
{
	volume->sb.log_gen = volume->sb.mount_gen;
	return write_superblock(volume);
}

/* ---------------------------------------------------------------- opening */

static int read_superblock(struct volume *volume)
{
	struct device *dev = volume->dev;
	bool used_copy = false;
	int rc = superblock_read(dev, &volume->sb, &used_copy);

	if (rc == 0)
		rc = geometry_decode(&volume->sb, &volume->geo);
	if (rc) {
		message(LOG_ERR, "%s: %s", dev->path, error_text(rc));
		return rc;
	}
	if (used_copy)
		message(LOG_WARNING, "%s: the first superblock is damaged; its copy is used",
			dev->path);
	if ((le32_get(volume->sb.state) & SB_DAMAGED) && !volume->options.read_only &&
	    !volume->options.ignore_damage) {
		message(LOG_ERR,
			"%s: damage was found earlier; run fsck.blinkfs, or mount with -o ro",
			dev->path);
		return -BE_DAMAGE;
	}
	memcpy(volume->tag, volume->sb.uuid, sizeof(volume->tag));
	return 0;
}

/* The superblock is good: where an internal log should be there is something else. */
static int explain_log(struct volume *volume, int rc)
{
	bool external = volume->geo.log_external;

	if (!external && (rc == -BE_NOVOLUME || rc == -BE_OLDLOG))
		rc = -BE_DAMAGE;
	message(LOG_ERR, "%s: cannot use the redo log%s%s: %s", volume->dev->path,
		external ? " " : "", external ? volume->log_dev->path : "", error_text(rc));
	return rc;
}

static int open_log(struct volume *volume)
{
	const struct geometry *geo = &volume->geo;
	struct log_place place = {
		.dev = volume->log_dev,
		.data = geo->log_external ? volume->dev : NULL,
		.offset = geo->log_start * BLOCK_SIZE,
		.size_bytes = geo->log_bytes,
		.stats = &volume->stats,
	};
	int rc;

	memcpy(place.uuid, volume->sb.log_uuid, sizeof(place.uuid));
	rc = log_open(&volume->log, &place, le64_get(volume->sb.log_gen),
		      le64_get(volume->sb.mount_gen));
	return rc ? explain_log(volume, rc) : 0;
}

/* Each device is an overlay when the volume is read-only; an external log has one of its own. */
static int open_devices(struct volume *volume)
{
	struct device *log_dev = volume->options.log_dev;
	int rc = 0;

	if (volume->geo.log_external && !log_dev) {
		message(LOG_ERR, "%s: its redo log is on another device, which was not given",
			volume->dev->path);
		return -BE_NOLOG;
	}
	volume->base_log_dev = volume->geo.log_external ? log_dev : NULL;
	if (volume->options.read_only)
		rc = dev_open_overlay(&volume->dev, volume->base_dev);
	volume->log_dev = volume->dev;
	if (rc == 0 && volume->base_log_dev) {
		volume->log_dev = volume->base_log_dev;
		if (volume->options.read_only)
			rc = dev_open_overlay(&volume->log_dev, volume->base_log_dev);
	}
	volume->dev->stats = volume->log_dev->stats = &volume->stats;
	return rc;
}

/* The devices that were given to volume_open() stay open. */
static void release_devices(struct volume *volume)
{
	volume->base_dev->stats = NULL;
	if (volume->base_log_dev)
		volume->base_log_dev->stats = NULL;
	if (volume->base_log_dev && volume->log_dev != volume->base_log_dev &&
	    volume->log_dev != volume->dev)
		dev_overlay_release(volume->log_dev);
	if (volume->dev != volume->base_dev)
		dev_overlay_release(volume->dev);
}

static void init_trees(struct volume *volume)
{
	for (unsigned i = 0; i < INDEX_COUNT; i++) {
		struct tree *tree = &volume->index[i];

		tree->volume = volume;
		tree->id = (uint8_t)i;
		tree->root = le64_get(volume->sb.root[i]);
		latch_init(&tree->index_latch, RANK_INDEX, 2 * i);
		latch_init(&tree->sx_latch, RANK_INDEX, 2 * i + 1);
	}
}

static int load_counters(struct volume *volume)
{
	const struct disk_system_page *page;
	struct frame *frame;
	int rc = pool_take_tickets(volume->pool, 1);

	if (rc)
		return rc;
	rc = pool_get(volume->pool, volume->geo.system_page, PAGE_SYSTEM, 0, &frame);
	if (rc == 0) {
		page = (const void *)frame->data;
		for (unsigned i = 0; i < COUNTER_COUNT; i++)
			id_init(volume, (enum counter)i, le64_get(page->counter[i]));
		pool_put(frame);
	}
	pool_give_tickets(volume->pool, 1);
	return rc;
}

/* Step 7 of recovery: splits that a crash left between their two mtrs. */
static int complete_splits(struct volume *volume)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < volume->incomplete_count; i++) {
		struct incomplete_split *split = &volume->incomplete[i];

		rc = tree_complete_split(&volume->index[split->index], &split->low, split->level,
					 MTR_PRIVILEGED);
		stat_add(&volume->stats, STAT_recovery_splits_completed, 1);
	}
	/* Without space it stays incomplete, which is legal: the next writer tries again. */
	return rc == -ENOSPC ? 0 : rc;
}

static void held_back(void *arg)
{
	waitq_wake_all(&((struct volume *)arg)->hold_queue);
}

static int open_archive(struct volume *volume)
{
	const struct volume_options *options = &volume->options;

	if (options->archive_dir == NULL || options->read_only)
		return 0;
	return archive_open(&volume->archive, volume, options->archive_dir,
			    options->archive_data);
}

static int recover(struct volume *volume)
{
	int rc = begin_generation(volume);

	if (rc == 0)
		rc = recovery_run(volume, le64_get(volume->sb.mount_gen), &volume->recovered_lsn);
	if (rc == 0)
		rc = adopt_generation(volume);
	return rc;
}

static int open_parts(struct volume *volume)
{
	uint64_t cache = volume->options.cache_bytes ? volume->options.cache_bytes
						     : CACHE_BYTES_DEFAULT;
	int rc = open_log(volume);

	if (rc == 0)
		rc = open_archive(volume);
	if (rc == 0)
		rc = pool_open(&volume->pool, volume, cache);
	if (rc == 0)
		rc = flusher_open(&volume->flusher, volume);
	if (rc == 0)
		rc = recover(volume);
	if (rc)
		return rc;
	log_set_space_callback(volume->log, flusher_want_space, volume->flusher);
	log_set_hold_callback(volume->log, held_back, volume);
	init_trees(volume);
	rc = load_counters(volume);
	if (rc == 0)
		rc = lob_shares_open(volume);
	if (rc == 0)
		rc = space_open(&volume->space, volume);
	if (rc == 0 && volume->archive) {
		archive_begin(volume->archive);
		if (!volume->options.no_background)
			rc = archive_start(volume->archive);
	}
	if (rc == 0)
		rc = log_resize_settle(volume);
	if (rc == 0)
		rc = purge_open(&volume->purge, volume);
	if (rc == 0 && !volume->options.no_background)
		rc = flusher_start(volume->flusher);
	if (rc == 0 && !volume->options.no_background)
		rc = space_start(volume->space);
	if (rc == 0)
		rc = complete_splits(volume);
	if (rc == 0 && !volume->options.no_background)
		rc = purge_start(volume->purge);
	return rc;
}

static void stop_threads(struct volume *volume)
{
	if (volume->purge)
		purge_stop(volume->purge);
	if (volume->space)
		space_stop(volume->space);
	if (volume->flusher)
		flusher_stop(volume->flusher);
	if (volume->archive)
		archive_stop(volume->archive);
}

/* Frees everything but the device that was given to volume_open(). */
static void free_parts(struct volume *volume)
{
	stop_threads(volume);
	if (volume->purge)
		purge_close(volume->purge);
	if (volume->space)
		space_close(volume->space);
	if (volume->flusher)
		flusher_close(volume->flusher);
	if (volume->pool)
		pool_close(volume->pool);
	archive_close(volume->archive);
	written_free(&volume->written);
	log_close(volume->log);
	free(volume->incomplete);
}

int volume_open(struct volume **out, struct device *dev, const struct volume_options *options)
{
	struct volume *volume = aligned_alloc(64, (sizeof(*volume) + 63) / 64 * 64);
	int rc = 0;

	if (volume == NULL)
		return -ENOMEM;
	memset(volume, 0, sizeof(*volume));
	volume->options = *options;
	volume_set_smo(volume, options->smo);
	volume->base_dev = volume->dev = dev;
	latch_init(&volume->sb_latch, RANK_SUPERBLOCK, 0);
	epochs_init(&volume->epochs);
	tunables_init(&volume->tunables);
	for (unsigned i = 0; i < TUNABLE_COUNT; i++)
		if (options->tunables_off & 1u << i)
			tunable_set(&volume->tunables, (enum tunable)i, false);
	rc = read_superblock(volume);
	if (rc == 0)
		rc = open_devices(volume);
	if (rc == 0)
		rc = open_parts(volume);
	volume->options.log_path = NULL;
	if (rc)
		goto fail;
	*out = volume;
	return 0;
fail:
	free_parts(volume);
	release_devices(volume);
	free(volume);
	return rc;
}

/* ---------------------------------------------------------------- closing */

/* All is archived, then the checkpoint may go there: the next mount finds that they meet. */
static int end_archive(struct volume *volume)
{
	lsn_t durable = log_durable_lsn(volume->log);

	archive_finish(volume->archive);
	return flush_until(volume->flusher, durable);
}

static int write_back(struct volume *volume)
{
	int rc;

	if (atomic_load(&volume->failed))
		return -EIO;
	rc = flush_everything(volume->flusher);
	if (rc == 0 && volume->archive)
		rc = end_archive(volume);
	/* Last: nothing is held any more. */
	if (rc == 0 && volume->options.log_scrub && !volume->options.read_only)
		rc = flusher_scrub_all(volume->flusher);
	if (rc)
		return rc;
	if (atomic_load(&volume->corrupt))
		set_state(volume, SB_DAMAGED, SB_CLEAN);
	else if (!(le32_get(volume->sb.state) & SB_DAMAGED))
		set_state(volume, SB_CLEAN, 0);
	return write_superblock(volume);
}

static void destroy(struct volume *volume)
{
	struct device *dev = volume->dev, *log_dev = volume->log_dev;

	free_parts(volume);
	dev->stats = log_dev->stats = NULL;
	if (log_dev != dev)
		dev_close(log_dev);
	dev_close(dev);
	free(volume);
}

int volume_close(struct volume *volume)
{
	int rc;

	check(!atomic_load(&volume->frozen)); /* INV-FREEZE-2 */
	stop_threads(volume);
	rc = write_back(volume);
	destroy(volume);
	return error_errno(rc);
}

void volume_abandon(struct volume *volume)
{
	atomic_store(&volume->failed, true);
	destroy(volume);
}

int volume_sync(struct volume *volume)
{
	return log_flush(volume->log, log_next_lsn(volume->log));
}

/* --------------------------------------------------------------- failures */

int corrupt_at(struct volume *volume, uint64_t pageno, const char *where, const char *why)
{
	stat_add(&volume->stats, STAT_corruptions, 1);
	message(LOG_ERR, "%s: corruption at block %" PRIu64 " (%s): %s", volume->dev->path, pageno,
		where, why);
	atomic_store(&volume->corrupt, true);
	return -EIO;
}

void volume_fail(struct volume *volume, const char *why, int error)
{
	if (atomic_exchange(&volume->failed, true))
		return;
	message(LOG_CRIT, "%s: %s: %s; the volume is read-only from now on", volume->dev->path, why,
		error_text(error));
	if (volume->log)
		log_fail(volume->log, error);
}

void volume_log_dead(void *volume, int error)
{
	volume_fail(volume, "the redo log cannot be written", error);
}
