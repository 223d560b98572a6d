/*
 * Block I/O behind one small interface.
 *
 * A device is an array of bytes that can be read, written and flushed.  A
 * write is durable only after a flush that began after the write had returned;
 * until then a power cut may keep any 512-byte sector of it or none.
 * All calls are synchronous for the caller and may be made by many threads.
 * Offsets and lengths are bytes; no alignment is demanded by the interface.
 *
 * Errors: a negative errno.  A short transfer is an error (-EIO).
 */
#ifndef BLINKFS_DEV_DEVICE_H
#define BLINKFS_DEV_DEVICE_H

#include "engine/base/check.h"
#include "engine/base/stats.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device;
struct dev_flush;
struct dev_map;

/* One element of a batch. */
struct dev_request {
	void *buf;       /* source of a write, target of a read */
	size_t len;
	uint64_t offset;
	bool is_write;
	bool past_cache; /* a hint: the kernel's cache of the medium has no use for the bytes */
	int result;      /* out: 0 or a negative errno, of this element */
};

struct device_ops {
	int (*read)(struct device *dev, void *buf, size_t len, uint64_t offset);
	int (*write)(struct device *dev, const void *buf, size_t len, uint64_t offset);
	/* Performs the elements in any order, at once where possible; waits for all.
	 * Sets each result, returns the first error.  NULL: one by one. */
	int (*batch)(struct device *dev, struct dev_request *requests, size_t count);
	int (*flush)(struct device *dev);
	void (*close)(struct device *dev);
	/* The rest may be NULL: not supported. */
	void (*flush_begin)(struct device *dev, struct dev_flush *flush);
	int (*flush_end)(struct dev_flush *flush);
	int (*resize)(struct device *dev, uint64_t size_bytes);
	int (*measure)(struct device *dev, uint64_t *size_bytes);
	int (*discard)(struct device *dev, uint64_t offset, uint64_t len);
	int (*open_lane)(struct device *dev, unsigned flags, uint64_t offset, uint64_t len,
			 struct device **out);
	int (*write_beside_flush)(struct device *lane, struct dev_request *requests, size_t count);
	int (*map)(struct device *dev, struct dev_map *map);
	void (*persist)(struct device *dev, const struct dev_map *map, const void *at, size_t len);
	void (*unmap)(struct device *dev, struct dev_map *map);
};

struct device {
	const struct device_ops *ops;
	_Atomic uint64_t size_bytes; /* changed by dev_resize() and dev_measure() only */
	bool read_only;
	bool byte_addressable;   /* its bytes can be mapped and made durable without a flush */
	uint32_t block_bytes;    /* what the medium writes as a whole; 0 = unknown */
	uint32_t align;          /* of buffers, offsets and lengths; 0 and 1 = any */
	struct device *base;     /* of a lane: the device that it is a lane of */
	struct stats *stats;     /* where I/O is counted; may be NULL */
	_Atomic uint64_t written; /* writes that have ended */
	_Atomic uint64_t flushed; /* of these, the first so many are durable */
	char path[256];          /* for messages */
};

int dev_read(struct device *dev, void *buf, size_t len, uint64_t offset) must_check;
int dev_write(struct device *dev, const void *buf, size_t len, uint64_t offset) must_check;
/* Returns the first error of any element, after all have ended. */
int dev_batch(struct device *dev, struct dev_request *requests, size_t count) must_check;
int dev_flush(struct device *dev) must_check;
/* The same promise; does nothing when every write that had returned is durable already. */
int dev_flush_written(struct device *dev) must_check;
/* Makes durable what had ended when dev->written was read as `written`; nothing to do, if it is. */
int dev_flush_up_to(struct device *dev, uint64_t written) must_check;
/*
 * A flush beside other things that the caller does meanwhile, such as writing to
 * another device: what had ended before _begin() is durable when _end() returns
 * 0.  Nothing is done when all of it is durable already.  One at a time for each
 * device; a _begin() is always followed by its _end().
 */
struct dev_flush {
	struct device *dev;
	uint64_t written;
	bool needed;
	void *ring; /* what file.c has under way */
	bool ended; /* record.c: with this result */
	int result;
};
void dev_flush_begin(struct device *dev, struct dev_flush *flush);
int dev_flush_end(struct dev_flush *flush) must_check;
/*
 * The size of a regular file changes; nobody uses what is cut off, or added, meanwhile.
 * -EOPNOTSUPP where it cannot (a block device), unless it is so already.
 */
int dev_resize(struct device *dev, uint64_t size_bytes) must_check;
/* Somebody else may have made it larger: its size as it is now.  It never becomes smaller. */
int dev_measure(struct device *dev) must_check;
/*
 * The medium need not keep these bytes.  What is read there is unspecified (what was
 * there, zeros, or anything else) until they are written again; a power cut treats it
 * as a write.  It needs no flush: one that is lost has lost nothing.  Nobody else reads
 * or writes there until it returns.  -EOPNOTSUPP where the medium cannot.
 */
int dev_discard(struct device *dev, uint64_t offset, uint64_t len) must_check;
void dev_close(struct device *dev); /* NULL is allowed */

/* --- lanes: another way to a region of the same medium -------------------- */

enum dev_lane_flags {
	LANE_DIRECT = 1, /* past the kernel's cache */
	LANE_DSYNC = 2,  /* a write is durable when it returns; what else was written is not */
	LANE_READ = 4,   /* only reads; no part of the lock moves */
};

/*
 * Writes through a lane go to the same bytes; transfers must be multiples of
 * lane->align.  Flushing a lane flushes its device.  Close lanes first.
 * INV-REC-2 holds for lanes: the lock of the region moves to the lane's own
 * description, and nobody gets in between.
 * -EOPNOTSUPP where there is no such way.
 */
int dev_open_lane(struct device **out, struct device *dev, unsigned flags, uint64_t offset,
		  uint64_t len) must_check;
/*
 * For a lane with LANE_DSYNC: writes, and at the same time makes durable what had
 * been written to its device before the call, when there is any.  On return 0 both
 * are durable; after a crash in between either, in part, may be.
 */
int dev_write_beside_flush(struct device *lane, struct dev_request *requests,
			   size_t count) must_check;

/* --- mappings: a region of the medium as memory --------------------------- */

/*
 * What is stored there survives the death of the process at once.  It is
 * durable after dev_persist() where the map is byte-addressable, else after
 * dev_flush(); until then a power cut may keep any 64-byte line of it, as it
 * is or was at any time since.
 */
struct dev_map {
	uint8_t *at;      /* the byte at `offset` */
	uint64_t offset;
	uint64_t len;
	bool byte_addressable;
	void *mapping;    /* whole pages around it */
	size_t mapping_len;
};

/* offset and len: multiples of DEV_MAP_LINE.  -EOPNOTSUPP where the medium cannot be mapped. */
int dev_map(struct device *dev, uint64_t offset, uint64_t len, struct dev_map *map) must_check;
/* The bytes at [at, at + len) of a byte-addressable map are durable on return. */
void dev_persist(struct device *dev, const struct dev_map *map, const void *at, size_t len);
void dev_unmap(struct device *dev, struct dev_map *map);

#define DEV_MAP_LINE 64u

/* --- file.c: a regular file or block device ----------------------------- */

enum dev_open_flags {
	DEV_READ_ONLY = 1,
	DEV_NO_LOCK = 2,     /* neither lock nor O_EXCL: to look at a mounted volume */
	DEV_SHARED_LOCK = 4, /* read lock: several readers, no writer */
};

/*
 * Opens and locks: an OFD lock over the whole file on the very description
 * that does the I/O (INV-REC-2: requests in flight of a dead predecessor pin
 * its description, and so its lock); block devices are opened O_EXCL as well.
 * Waits up to wait_ns for the lock: -BE_BUSY when somebody still holds it.
 * Batches go through io_uring where the kernel allows it, else pread/pwrite.
 */
int dev_open_file(struct device **out, const char *path, unsigned flags,
		  uint64_t wait_ns) must_check;

/* --- overlay.c: writes stay in memory -------------------------------------- */

/* Takes ownership of base on success; base is never written or flushed. */
int dev_open_overlay(struct device **out, struct device *base) must_check;
/* Closes the overlay alone; base is the caller's again. */
void dev_overlay_release(struct device *dev);

/* --- record.c: a device in memory that remembers its history, for tests --- */

/*
 * A sparse device in memory (zeros initially).  When recording, it logs each
 * write and flush; dev_record_state() then builds the device as a power cut
 * could have left it.
 */
int dev_open_memory(struct device **out, uint64_t size_bytes) must_check;
void dev_record_start(struct device *dev);  /* the present contents become the base */
void dev_record_stop(struct device *dev);
size_t dev_record_count(const struct device *dev);          /* events so far */
bool dev_record_is_flush(const struct device *dev, size_t event);
/* Contents at a cut just before `event`: everything of all earlier events. */
int dev_record_cut(struct device *dev, size_t event, struct device **out) must_check;

enum dev_cut_mode {
	CUT_PREFIX,      /* each write since the last flush up to the cut arrived */
	CUT_DROP_ALL,    /* none of the writes since the last flush arrived */
	CUT_DROP_ONE,    /* all but the one chosen by `seed` */
	CUT_KEEP_ONE,    /* only the one chosen by `seed` */
	CUT_SUBSET,      /* a random subset, from `seed` */
	CUT_TORN,        /* a random subset of the 512-byte sectors of each, from `seed` */
	CUT_TORN_ONE,    /* one chosen by `seed` arrived in part, all others as a whole */
};
/*
 * A state that a cut just before `event` may leave: writes before the last
 * *completed* flush are all there; those after it according to mode.
 * A write is "before" a flush when it had returned before the flush began.
 * *varies is false when the mode gives nothing that CUT_PREFIX does not give;
 * the state is built all the same.  (For CUT_PREFIX itself it is true.)
 */
int dev_record_state(struct device *dev, size_t event, enum dev_cut_mode mode, uint64_t seed,
		     struct device **out, bool *varies) must_check;
/*
 * A map of a memory device is recorded by its lines: each one that has changed
 * becomes a write of its own when the device looks: at a dev_persist(), a
 * dev_flush() unless the map is byte-addressable, dev_unmap(), and here.
 */
void dev_record_look(struct device *dev);
/*
 * Two devices that lose their power together: both start recording, and the
 * events of one that happened before event `event` of the other can be told.
 */
void dev_record_start_pair(struct device *dev, struct device *other);
size_t dev_record_before(struct device *dev, const struct device *other, size_t event);
/*
 * Number of writes that a cut just before `event` may lose: seeds below it try each _ONE.
 * Of the write that CUT_TORN_ONE tears, a random subset of the sectors arrived; with
 * this number added to the seed k times, its first k sectors.
 */
size_t dev_record_undecided(struct device *dev, size_t event);
/*
 * Calls `differs` for each 4 KiB block, in order, in which two memory devices of one
 * size may differ: all but those that they share.  NULL stands for zeros.
 */
void dev_memory_compare(struct device *dev, struct device *other,
			void (*differs)(void *arg, uint64_t block, const void *here,
					const void *there),
			void *arg);

/* Fault injection on a memory device: the n-th coming I/O (0 = next) of the kinds in mask fails. */
enum dev_fault_kind { FAULT_READ = 1, FAULT_WRITE = 2, FAULT_FLUSH = 4, FAULT_DISCARD = 8 };
void dev_memory_fail(struct device *dev, unsigned mask, uint64_t after, int error, bool sticky);
uint64_t dev_memory_fault_count(struct device *dev); /* failures injected so far */
/* From now on it is byte-addressable, with blocks of one line. */
void dev_memory_be_pmem(struct device *dev);

#endif
