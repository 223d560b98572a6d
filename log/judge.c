/*
 * What stands at fixed places of a log in use, as it is on the medium: for scrubbing.
 *
 * Both checkpoint blocks are of this mount's epoch, since log_start() and a move write
 * both; the one that was written last says what was written last.
 */
#include "log/log_internal.h"

#include <stdlib.h>

#define NO_CHECKPOINT "no checkpoint of this log"

static const char *judge_header(const struct log *log, const uint8_t *block)
{
	struct log_shape shape = log->shape;
	struct disk_log_header disk;
	int err;

	memcpy(&disk, block + (shape.header_slot ? LOG_HEADER_1 : 0), sizeof(disk));
	err = log_header_parse(&disk, log->uuid, log->shape.capacity + LOG_RECORDS_START, &shape);
	return err ? error_text(err) : NULL;
}

static const char *judge_checkpoint(const struct log *log, unsigned slot, const uint8_t *block)
{
	struct disk_checkpoint disk;
	struct checkpoint checkpoint;

	memcpy(&disk, block, sizeof(disk));
	if (!log_checkpoint_parse(&disk, log->uuid, &log->shape, &checkpoint) ||
	    checkpoint.generation != log->epoch)
		return NO_CHECKPOINT;
	if (slot == log->checkpoint_slot && checkpoint.sequence != log->checkpoint_sequence)
		return "a checkpoint that was written is not there";
	return NULL;
}

void log_judge_places(struct log *log, struct device *way, struct log_judgement *out)
{
	static const uint64_t at[LOG_PLACES] = {0, LOG_CHECKPOINT_0, LOG_CHECKPOINT_1};
	uint8_t *block = aligned_alloc(LOG_BLOCK_MAX, LOG_BLOCK_MAX);

	*out = (struct log_judgement){0};
	check(log->started);
	for (unsigned i = 0; block && i < LOG_PLACES; i++) {
		int err;

		out->offset[i] = log->shape.offset + at[i];
		err = dev_read(way ? way : log->dev, block, LOG_BLOCK_MAX, out->offset[i]);
		if (err)
			out->why[i] = error_text(err);
		else
			out->why[i] = i == 0 ? judge_header(log, block)
					     : judge_checkpoint(log, i - 1, block);
	}
	free(block);
}
