/*
 * How a group of the log becomes durable: one small interface, one file a way.
 *
 *	mode     a group's bytes                  becomes durable by
 *	pwrite   written to the device            a flush of the device
 *	direct   written past the kernel's cache  a flush of the device
 *	dsync    written past it, with O_DSYNC    the write; data by a flush beside it
 *	mapped   are where they belong already    persisting the cache lines, and a flush
 *	                                          of the device for data; or, where pages
 *	                                          are written back, one flush for both
 *
 * INV-LOG-4: a commit returns when the group is durable *and* everything whose
 * write had returned before it began, as the data that the group refers to had.
 * So what becomes durable_lsn afterwards is min(log, data), and was fixed before
 * either flush.
 *
 * External log: data is on a device of its own, and gets a flush of its own, which
 * begins before the group is written and is waited for when the group is durable.
 * A commit that has no new data behind it does without.
 *
 * What all of them share, and write.c relies on: one commit at a time, each
 * begins where the one before ended, at a block boundary.
 */
#ifndef BLINKFS_LOG_MEDIUM_H
#define BLINKFS_LOG_MEDIUM_H

#include "log/log.h"

struct log_medium;

struct log_medium_ops {
	/*
	 * The pieces of one group, in order; their bytes lie in log->buffer.  An
	 * error is final.  Between what is written and what makes it durable:
	 * os_point("log:written").  What is on medium->data is not its business.
	 */
	int (*commit)(struct log_medium *medium, struct dev_request *pieces, size_t count);
};

struct log_medium {
	const struct log_medium_ops *ops;
	enum log_mode mode;
	struct device *dev;  /* of the log; not owned */
	struct device *data; /* of all data, when that is another; else NULL; not owned */
	struct device *lane; /* direct, dsync: the way to the log */
	struct dev_map map;  /* mapped: the records, all of the lap */
	uint32_t block;      /* what the medium writes as a whole: groups are padded to it */
};

struct log_shape;
/* shape: of the log's header. */
int log_medium_open(struct log_medium *medium, struct device *dev, struct device *data,
		    const struct log_shape *shape, enum log_mode wanted) must_check;
/*
 * Has the medium's operations make the group durable, and the data beside them when
 * it is elsewhere.
 */
int log_medium_commit(struct log_medium *medium, struct dev_request *pieces,
		      size_t count) must_check;
void log_medium_close(struct log_medium *medium);

extern const struct log_medium_ops log_medium_flushed; /* pwrite, direct */
extern const struct log_medium_ops log_medium_dsync;
extern const struct log_medium_ops log_medium_mapped;

#endif
