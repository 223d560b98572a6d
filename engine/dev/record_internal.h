/*
 * What the parts of the memory device share.  Users include device.h only.
 *
 *	record.c       the device, its recording, states after a power cut
 *	record_way.c   lanes and maps
 */
#ifndef BLINKFS_DEV_RECORD_INTERNAL_H
#define BLINKFS_DEV_RECORD_INTERNAL_H

#include "engine/base/latch.h"
#include "engine/dev/device.h"
#include "engine/dev/sparse.h"

#define NEVER UINT64_MAX

enum event_kind {
	EVENT_WRITE,
	EVENT_FLUSH,   /* completed */
	EVENT_SETTLED, /* single writes have become durable: a write to a lane, dev_persist() */
};

struct event {
	enum event_kind kind;
	uint64_t order;       /* among the events of this device and its pair */
	bool is_line;         /* a line of the map, not yet on its way by itself */
	uint64_t offset;      /* of a write */
	size_t len;
	uint64_t ended;       /* clock when the write returned; NEVER: not yet, or lost */
	size_t settled_at;    /* of a write: durable for cuts from here on, without a flush */
	struct sparse after;  /* contents after this event */
	uint64_t horizon;     /* from here on, writes that ended before it are durable */
	size_t settled;       /* from here on, earlier events are all durable */
};

struct memory_device {
	struct device dev;
	struct latch latch;
	struct sparse contents;  /* [lock: latch] */

	bool recording;          /* [lock: latch], as all of the following */
	uint32_t recording_id;   /* so that a call which began in another recording is known */
	uint64_t clock;
	struct sparse base;      /* contents before event 0 */
	struct event *events;
	size_t event_count;
	size_t event_room;

	struct dev_map *map;     /* at most one at a time */
	uint8_t *lines_seen;     /* the map as of the last look */
	uint64_t beside_calls;
	_Atomic uint64_t order;  /* the next event's */
	_Atomic uint64_t *pair_order; /* the other's, when it counts for both; else NULL */

	_Atomic unsigned fault_mask; /* set under the latch, looked at without */
	uint64_t fault_after;
	int fault_error;
	bool fault_sticky;
	uint64_t fault_count;
};

struct memory_device *memory_device(const struct device *dev);

/* A write by a way of its own: `settles` when it is durable on return. */
int memory_write_way(struct memory_device *mem, const void *buf, size_t len, uint64_t offset,
		     bool settles) must_check;
int memory_read(struct device *dev, void *buf, size_t len, uint64_t offset) must_check;
int memory_flush(struct device *dev) must_check;

/* Latch held X. */
int record_write_locked(struct memory_device *mem, const void *buf, size_t len,
			uint64_t offset) must_check;
/* The lines in [offset, offset + len) are durable from here on. */
int record_settle_lines_locked(struct memory_device *mem, uint64_t offset, uint64_t len) must_check;

/* ------------------------------------------------------------ record_way.c */

int memory_open_lane(struct device *dev, unsigned flags, uint64_t offset, uint64_t len,
		     struct device **out) must_check;
int memory_map(struct device *dev, struct dev_map *map) must_check;
void memory_persist(struct device *dev, const struct dev_map *map, const void *at, size_t len);
void memory_unmap(struct device *dev, struct dev_map *map);
/* Latch held X: records the lines that have changed since the last look. */
int map_look_locked(struct memory_device *mem) must_check;
/* Latch held X: the lines recorded so far are on their way, for the next flush to make durable. */
void map_release_locked(struct memory_device *mem);

#endif
