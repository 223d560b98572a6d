/*
 * Opening a log for reading, turning it into one for appending, closing it.
 *
 *	log_open() -> log_scan() ... -> log_start() -> appending -> log_close()
 *
 * INV-SB-3: only a log with this volume's UUID is opened, and only a checkpoint
 * of the generation to replay or of the mount that was about to follow it.
 *
 * INV-LOG-6: log_start() writes both checkpoint blocks with the new epoch, one
 * after the other, each flushed, before the first append:
 *
 *	crash after             recovery finds
 *	nothing or first write  the old checkpoints, or one of the new epoch whose
 *	                        LSN is the cut: an empty log (every page below it
 *	                        is in place), as after
 *	first flush             the new epoch: it is the higher generation
 *	second flush            the same, whichever block is lost later
 *
 * Bytes behind the cut carry the old epoch in their CRC: even appends that end
 * exactly where an old tail goes on do not bring it back.
 */
#include "log/log_internal.h"

#include <errno.h>
#include <stdlib.h>

/* The block to use, -BE_DAMAGE or -BE_OLDLOG. */
static int checkpoint_choose(const struct checkpoint found[2], const bool valid[2],
			     uint64_t log_gen, uint64_t mount_gen)
{
	int best = valid[0] || valid[1] ? -BE_OLDLOG : -BE_DAMAGE;

	for (int i = 0; i < 2; i++) {
		const struct checkpoint *c = &found[i];

		if (!valid[i] || (c->generation != log_gen && c->generation != mount_gen))
			continue;
		if (best < 0 || c->generation > found[best].generation ||
		    (c->generation == found[best].generation && c->sequence > found[best].sequence))
			best = i;
	}
	/* INV-SB-3: somebody wrote to this log whom the superblock does not know. */
	for (int i = 0; i < 2 && best >= 0; i++)
		if (valid[i] && found[i].generation > found[best].generation)
			return -BE_OLDLOG;
	return best;
}

static int checkpoint_find(struct log *log, uint64_t log_gen, uint64_t mount_gen)
{
	const uint64_t at[2] = {LOG_CHECKPOINT_0, LOG_CHECKPOINT_1};
	struct checkpoint found[2] = {0};
	bool valid[2];
	int best;

	for (int i = 0; i < 2; i++) {
		struct disk_checkpoint disk;
		int err = dev_read(log->dev, &disk, sizeof(disk), log->shape.offset + at[i]);

		if (err)
			return err;
		valid[i] = log_checkpoint_parse(&disk, log->uuid, &log->shape, &found[i]);
	}
	best = checkpoint_choose(found, valid, log_gen, mount_gen);
	if (best < 0)
		return best;
	log->found = found[best];
	log->checkpoint_slot = (unsigned)best;
	log->checkpoint_sequence = found[best].sequence;
	return 0;
}

int log_open(struct log **out, const struct log_place *place, uint64_t log_gen, uint64_t mount_gen)
{
	struct log *log;
	int err = -BE_NOVOLUME;

	*out = NULL;
	log = calloc(1, sizeof(*log));
	if (!log)
		return -ENOMEM;
	log->dev = place->dev;
	log->data = place->data;
	log->stats = place->stats;
	memcpy(log->uuid, place->uuid, sizeof(log->uuid));
	log->shape.offset = place->offset;
	latch_init(&log->latch, RANK_LOG, 0);
	log_holds_init(log);
	if (place->size_bytes < LOG_RECORDS_START || place->offset > place->dev->size_bytes ||
	    place->size_bytes > place->dev->size_bytes - place->offset)
		goto out;
	err = log_header_read(log->dev, log->uuid, place->size_bytes, &log->shape);
	if (err)
		goto out;
	err = checkpoint_find(log, log_gen, mount_gen);
	if (err)
		goto out;
	log->image_start = log->found.lsn / log->shape.block * log->shape.block;
	log->image_loaded = log->image_start;
	log->image_limit = log->found.lsn + log->shape.capacity;
	atomic_store(&log->capacity_now, log->shape.capacity);
	atomic_store(&log->block_now, log->shape.block);
	*out = log;
	log = NULL;
out:
	free(log);
	return err;
}

const struct checkpoint *log_found_checkpoint(const struct log *log)
{
	return &log->found;
}

/* The size asked for, in blocks, within what the log can use and the scan relies on. */
uint64_t log_buffer_size(const struct log_shape *shape, uint64_t wanted)
{
	const uint64_t least = LOG_HEADROOM_GROUPS * LOG_GROUP_OVERHEAD(shape->block);
	uint64_t most = shape->capacity / 2;

	if (most > LOG_BUFFER_BYTES_MAX)
		most = LOG_BUFFER_BYTES_MAX;
	if (!wanted)
		wanted = LOG_BUFFER_BYTES_DEFAULT;
	if (wanted < least)
		wanted = least;
	if (wanted > most)
		wanted = most;
	return wanted / shape->block * shape->block;
}

void log_publish(struct log *log)
{
	atomic_store(&log->capacity_now, log->shape.capacity);
	atomic_store(&log->buffer_now, log->buffer_bytes);
	atomic_store(&log->block_now, log->shape.block);
	atomic_store(&log->mode_now, log->medium.mode);
	atomic_store(&log->reserve_max,
		     log_reserve_limit(&log->shape,
				       log->mapped ? LOG_BUFFER_BYTES_MAX : log->buffer_bytes));
}

static int buffer_allocate(struct log *log, uint64_t wanted)
{
	if (log->mapped) {
		log->buffer_bytes = log->shape.capacity;
		log->buffer = log->medium.map.at;
	} else {
		log->buffer_bytes = log_buffer_size(&log->shape, wanted);
		log->buffer = aligned_alloc(LOG_BLOCK_MAX,
					    lsn_round_up(log->buffer_bytes, LOG_BLOCK_MAX));
	}
	log->slots = aligned_alloc(_Alignof(struct log_slot), LOG_SLOTS * sizeof(*log->slots));
	if (!log->buffer || !log->slots)
		return -ENOMEM;
	log_publish(log);
	for (unsigned i = 0; i < LOG_SLOTS; i++) {
		atomic_init(&log->slots[i].taken, 0);
		atomic_init(&log->slots[i].uncopied, LSN_NONE);
		atomic_init(&log->slots[i].unlisted, LSN_NONE);
	}
	return 0;
}

static void buffer_free(struct log *log)
{
	if (!log->mapped)
		free(log->buffer);
	free(log->slots);
	free(log->tally.cut);
	log_medium_close(&log->medium);
	log->buffer = NULL;
	log->slots = NULL;
	log->tally = (struct log_tally){0};
}

int log_start(struct log *log, lsn_t lsn, uint64_t generation, const struct log_options *options)
{
	static const struct log_options defaults;
	int err;

	check(!log->started);
	check(lsn >= log->found.lsn);
	if (!options)
		options = &defaults;
	/* An epoch that was in use would make old bytes valid again. */
	if (generation <= log->found.generation)
		return -EINVAL;
	err = log_medium_open(&log->medium, log->dev, log->data, &log->shape, options->mode);
	if (err)
		return err;
	log->mapped = log->medium.mode == LOG_MODE_MAPPED;
	log->shape.block = log->medium.block;
	lsn = lsn_round_up(lsn, log->shape.block);
	log->epoch = generation;
	log->buffer_wanted = options->buffer_bytes;
	log->scrub = options->scrub;
	log->scrubbing = LSN_NONE;
	log->on_dead = options->on_dead;
	log->on_dead_arg = options->on_dead_arg;
	err = buffer_allocate(log, options->buffer_bytes);
	if (!err)
		err = log_tally_start(log, lsn, options->tally);
	for (int i = 0; i < 2 && !err; i++)
		err = log_checkpoint_write(log, lsn, lsn, options->tally);
	os_point("log:started");
	if (err) {
		buffer_free(log);
		return err;
	}
	free(log->image);
	log->image = NULL;
	atomic_store(&log->next_lsn, lsn);
	atomic_store(&log->durable_lsn, lsn);
	atomic_store(&log->marked_lsn, lsn);
	atomic_store(&log->checkpoint_lsn, lsn);
	log->group_start = lsn;
	log->flight_end = lsn;
	log->checkpoint_older = lsn;
	log->scrubbed = lsn;
	log->started = true;
	return 0;
}

uint64_t log_epoch(const struct log *log)
{
	return log->started ? log->epoch : log->found.generation;
}

void log_close(struct log *log)
{
	if (!log)
		return;
	check(!log->in_flight || atomic_load(&log->dead));
	free(log->image);
	buffer_free(log);
	free(log);
}
