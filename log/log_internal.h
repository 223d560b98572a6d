/*
 * What the parts of the log share.  Users include log.h only.
 *
 *	format.c      bytes: header, checkpoint, mtr trailer, mark, padding, varint
 *	open.c        open, start (INV-LOG-6), close
 *	scan.c        reading the live part (INV-LOG-5)
 *	ahead.c       the same, ahead of the scan
 *	append.c      reservation (INV-LOG-1), append, slots (INV-LOG-2, INV-LOG-3)
 *	write.c       group commit (INV-LOG-3, INV-LOG-4, INV-LOG-5)
 *	gather.c      whether a group waits for more to come
 *	medium*.c     how a group becomes durable, by mode (INV-LOG-4)
 *	checkpoint.c  checkpoint blocks (INV-LOG-2)
 *	move.c        another size or place (INV-LOG-8)
 *	scrub.c       zeros behind the checkpoint (INV-LOG-9)
 *	judge.c       what stands at fixed places, for scrubbing
 *	hold.c        archive and backup: what else keeps log space (INV-LOG-2)
 *
 * README.md has the picture, the invariants with their reasons, and what a
 * recovery does after a crash at each step.
 */
#ifndef BLINKFS_LOG_INTERNAL_H
#define BLINKFS_LOG_INTERNAL_H

#include "engine/base/error.h"
#include "engine/base/latch.h"
#include "engine/base/limits.h"
#include "engine/format.h"
#include "log/log.h"
#include "log/medium.h"

#define LSN_NONE UINT64_MAX
#define LSN_MAX (UINT64_C(1) << 62) /* above it a medium talks nonsense: sums cannot overflow */
#define LOG_BLOCK_MIN 64u
#define LOG_BLOCK_MAX 4096u

#define LOG_BUFFER_BYTES_DEFAULT (8u << 20) /* tens of milliseconds of the fastest appenders */
/*
 * Also the longest mtr (it fits a reservation, which fits the buffer) and, but
 * for mapped mode, the longest group (not durable, so in the buffer): the scan
 * relies on both.
 */
#define LOG_BUFFER_BYTES_MAX LOG_MTR_BYTES_MAX

#define LOG_SLOTS (2u * THREADS_MAX)   /* a thread has at most two unlisted appends */
#define LOG_SPACE_QUEUES 16u           /* of waiters for space, so that a wake-up wakes few; < 64 */
#define LOG_COPY_SPINS 64u             /* a memcpy on another core is done by then */
#define LOG_SCAN_CHUNK_BYTES (1u << 20)

/*
 * Headroom (INV-LOG-1).  What an append can cost beyond its own bytes is, at
 * worst, a group of its own and a closing mark after it:
 *
 *	leading mark         MARK_MTR_BYTES
 *	padding              the gap to the block boundary, and one block more when
 *	                     it cannot hold an mtr: at most MTR_PAD_BYTES_MIN - 1 + block
 *	closing group        mark and padding: one block
 *
 * The number of appends to come is bounded by what is reserved: a reservation
 * of B bytes serves up to 1 + B / LOG_MTR_SHARE_BYTES mtrs.  LOG_HEADROOM_GROUPS
 * more are kept free for the open group, the group in flight with its closing
 * mark, and a margin.
 */
#define LOG_GROUP_OVERHEAD(block)                                                      \
	((uint64_t)MARK_MTR_BYTES + (MTR_PAD_BYTES_MIN - 1 + (block)) + (block))
#define LOG_MTR_SHARE_BYTES 2048u
#define LOG_HEADROOM_GROUPS 8u
#define LOG_CAPACITY_MIN(block) (4 * LOG_HEADROOM_GROUPS * LOG_GROUP_OVERHEAD(block))
static_assert(LOG_CAPACITY_MIN(LOG_BLOCK_MAX) <= LOG_BYTES_MIN - LOG_RECORDS_START,
	      "the smallest log suits every block size");

/* Where the bytes are. */
struct log_shape {
	uint64_t offset;   /* of the log on the device */
	uint64_t capacity; /* a multiple of block */
	uint32_t header_block; /* the header's; what log_medium_open() made of it is `block` */
	uint8_t volume[16];
	unsigned header_slot; /* which of its two places the header has */
	lsn_t first_lsn;   /* a multiple of LOG_BLOCK_MAX */
	uint32_t block;    /* from log_start() on: at least the medium's */
};

/*
 * An append between its LSN and log_listed().  Taken without a lock; the words
 * are set under the latch and cleared without it.  Whoever reads next_lsn
 * under the latch and the slots afterwards sees every append below it that
 * has not finished.
 */
struct log_slot {
	_Alignas(64) _Atomic uint32_t taken;
	_Atomic uint64_t uncopied; /* first LSN to be put in the buffer; LSN_NONE: it is */
	_Atomic uint64_t unlisted; /* start LSN until log_listed(), then LSN_NONE */
};

/* Waits in log_reserve(), on its stack.  [lock: latch] */
struct log_waiter {
	uint64_t bytes;
	unsigned queue;
	bool granted; /* no longer in the list */
	struct log_waiter *next;
};

/* A group of mtrs that is written and flushed as one. */
struct log_group {
	lsn_t start;       /* of its mark: a block boundary */
	lsn_t content_end; /* end of its last mtr; padding follows */
	lsn_t end;         /* a block boundary, start of the next group */
	lsn_t marks;       /* its mark says that all below was durable */
	uint64_t callers;  /* of log_flush() that it serves */
	uint64_t number;
	bool closing;      /* holds its mark only */
};

/* A thread that reads ahead of the scan; see ahead.c. */
struct log_ahead {
	struct os_thread thread;
	bool running;
	lsn_t limit;           /* constant while it runs */
	_Atomic uint64_t loaded, wanted;
	_Atomic bool stop;
	_Atomic int error;
	struct waitq reader_queue, scan_queue;
};

/* See gather.c. */
struct log_gather {
	uint64_t callers;     /* of log_flush() that the open group will serve */
	uint64_t expected;    /* so many, if those come back whom the last flight served; or 0 */
	uint64_t until_ns;    /* no waiting for them after that */
	uint64_t waits_for;   /* the leader sleeps until there are so many; 0: it does not */
	uint64_t had;         /* callers when it began to */
	unsigned rest_groups; /* it was in vain: not again for so many groups */
};

/* See tally.c. */
struct log_tally_cut {
	lsn_t lsn;      /* an mtr boundary */
	lsn_t first;    /* start of the first mtr at or behind it that changes the sum; LSN_NONE */
	uint64_t value; /* over all mtrs that begin below `first` */
};

struct log_tally {
	struct log_tally_cut *cut; /* a ring; NULL: no tally is kept */
	unsigned begin, count;     /* count >= 1 */
	uint64_t value;            /* over all that has an LSN */
	uint64_t step;             /* bytes of the log from one cut to the next */
	bool known;
};

struct log {
	/* constant after log_open() */
	struct device *data; /* NULL: on dev */
	struct stats *stats;
	uint8_t uuid[16];
	struct checkpoint found;

	/*
	 * [log_move_install() writes them, under the latch and while the log is frozen;
	 * who has a reservation, leads a group or checkpoints reads them]
	 */
	struct device *dev;
	struct log_shape shape;

	/* the live part in memory, between log_open() and log_start(); one caller */
	uint8_t *image;     /* byte with LSN l is image[l - image_start] */
	lsn_t image_start;  /* block boundary at or below the checkpoint */
	lsn_t image_loaded; /* read up to here */
	lsn_t image_limit;  /* nothing live lies at or above */
	struct log_ahead ahead;

	/* likewise, after log_start() */
	uint64_t epoch;     /* generation of this mount */
	struct log_medium medium;
	bool mapped;        /* the buffer is the log itself */
	uint8_t *buffer;    /* ring: log_buffer_at() */
	uint64_t buffer_bytes; /* mapped: the capacity */
	/* the same for everybody else: never together */
	_Atomic uint64_t capacity_now, buffer_now, reserve_max;
	_Atomic uint32_t block_now;
	_Atomic uint32_t mode_now;

	/* constant after log_start() */
	bool started;
	uint64_t buffer_wanted;
	bool scrub;
	struct log_slot *slots;
	void (*on_dead)(void *arg, int error);
	void *on_dead_arg;

	struct latch latch; /* RANK_LOG */
	/* [lock: latch to write; read anywhere] */
	_Atomic uint64_t next_lsn;
	_Atomic uint64_t durable_lsn;
	_Atomic uint64_t marked_lsn;
	_Atomic uint64_t checkpoint_lsn;
	_Atomic bool dead;
	/* [lock: latch] reservation */
	uint64_t reserved;      /* bytes promised and not yet appended */
	uint64_t holders;       /* reservations with bytes left */
	struct log_waiter *space_first, *space_last; /* in turn */
	unsigned space_waiting; /* number of them */
	unsigned space_turns;   /* so many have ever waited */
	void (*want_space)(void *arg, lsn_t lsn);
	void *want_space_arg;
	bool frozen;            /* nothing is granted */
	lsn_t scrubbing;        /* no LSN at or above is granted: zeros are written; LSN_NONE */
	/* [lock: latch] groups */
	lsn_t group_start;      /* of the open group; next_lsn when it is empty */
	lsn_t group_marks;      /* mapped: what its mark says, once it is open */
	uint64_t group_number;  /* of the open group */
	lsn_t flight_end;       /* of the group in flight */
	lsn_t flight_marks;     /* what its mark says */
	bool in_flight;         /* one group at a time is written */
	struct log_gather gather;
	bool leader_waits;      /* the leader of the next group is chosen */

	struct waitq space_queue[LOG_SPACE_QUEUES];
	struct waitq frozen_queue;  /* log_freeze(), for what is reserved */
	struct waitq done_queue[2]; /* by parity of the group's number */
	struct waitq leader_queue;
	struct waitq copied_queue;
	_Atomic lsn_t copies_wanted; /* the leader waits on copied_queue for all below; or 0 */
	_Atomic uint32_t slots_used; /* slots at or above were never taken */

	/* [one caller: log_start(), then log_checkpoint()] */
	_Atomic bool checkpointing;
	unsigned checkpoint_slot;   /* written last */
	uint64_t checkpoint_sequence;
	lsn_t checkpoint_marked;    /* marked_lsn in it */
	lsn_t checkpoint_older;     /* lsn in the other block */
	lsn_t scrubbed;             /* the free part is zeros below, old bytes above */
	bool scrub_unflushed;

	struct log_tally tally;     /* [lock: latch] */

	/* hold.c; LSN_NONE = not held [lock: latch to write] */
	_Atomic uint64_t hold[LOG_HOLDERS];
	_Atomic bool was_held;
	bool hold_kept_back;        /* a checkpoint, since a hold last moved [lock: latch] */
	lsn_t checkpoint_next;      /* being written, or written [lock: latch] */
	void (*hold_late)(void *arg); /* [lock: latch] */
	void *hold_late_arg;          /* [lock: latch] */
};

static inline void log_stat(struct log *log, enum stat_id stat, uint64_t n)
{
	if (log->stats)
		stat_add(log->stats, stat, n);
}

/* Where in the buffer the byte with this LSN is. */
static inline uint64_t log_buffer_at(const struct log *log, lsn_t lsn)
{
	return (lsn - log->shape.first_lsn) % log->buffer_bytes;
}

static inline lsn_t lsn_round_up(lsn_t lsn, uint32_t block)
{
	return (lsn + block - 1) / block * block;
}

/* ---------------------------------------------------------------- format.c */

uint64_t log_offset(const struct log_shape *shape, lsn_t lsn); /* on the device */
/* Contiguous bytes from lsn to the end of the lap. */
uint64_t log_lap_left(const struct log_shape *shape, lsn_t lsn);
uint8_t log_sequence_byte(const struct log_shape *shape, lsn_t lsn);

uint32_t log_records_crc(uint64_t epoch, const void *records, size_t bytes);
/* Fills in the trailer behind records; sequence is the LSN of the sequence byte. */
void log_seal(const struct log_shape *shape, uint32_t crc, lsn_t sequence, uint8_t *trailer);

/* The mtr of a mark at `own`: MARK_MTR_BYTES. */
void log_mark_make(const struct log_shape *shape, uint64_t epoch, lsn_t own, lsn_t durable,
		   uint8_t *mtr);
/*
 * 1: the records are a mark that belongs at `own`, 0: no mark at all,
 * -BE_FORMAT: a mark of another place or epoch.
 */
int log_mark_parse(const struct log_shape *shape, uint64_t epoch, lsn_t own, const uint8_t *records,
		   size_t bytes, lsn_t *durable) must_check;
/* The padding mtr of exactly `bytes`, which is log_pad_bytes() or any size >= MTR_PAD_BYTES_MIN. */
void log_pad_make(const struct log_shape *shape, uint64_t epoch, lsn_t start, uint8_t *mtr,
		  size_t bytes);
/* Bytes of padding that an mtr end wants: 0, or at least MTR_PAD_BYTES_MIN. */
size_t log_pad_bytes(const struct log_shape *shape, lsn_t end);

/* As log_format(), with another block than the device's. */
int log_format_blocks(struct device *dev, uint64_t offset, uint64_t size_bytes,
		      const uint8_t uuid[16], uint64_t generation, uint32_t block) must_check;
/* shape->offset and header_slot say where. */
int log_header_write(struct device *dev, const struct log_shape *shape,
		     const uint8_t uuid[16]) must_check;
/* The header that is right for this size, at shape->offset, in either place. */
int log_header_read(struct device *dev, const uint8_t uuid[16], uint64_t size_bytes,
		    struct log_shape *shape) must_check;
int log_header_parse(const struct disk_log_header *disk, const uint8_t uuid[16],
		     uint64_t size_bytes, struct log_shape *shape) must_check;
void log_checkpoint_make(struct disk_checkpoint *disk, const uint8_t uuid[16],
			 const struct checkpoint *checkpoint);
/* False: not a checkpoint of this log. */
bool log_checkpoint_parse(const struct disk_checkpoint *disk, const uint8_t uuid[16],
			  const struct log_shape *shape, struct checkpoint *checkpoint);

/* ---------------------------------------------------------------- append.c */

/* Lowest start LSN below `next` of appends not yet copied, or `next`. */
lsn_t log_copied_lsn(struct log *log, lsn_t next);
/*
 * Opens the group, if it is empty, by leaving room for its mark.  Latch held.
 * True: it was, and in mapped mode the caller writes the mark.
 */
bool log_group_open_locked(struct log *log);
unsigned log_slot_take(struct log *log);
void log_slot_give(struct log *log, unsigned slot);
/* The bytes held back by slot->uncopied are in the buffer. */
void log_slot_copied(struct log *log, struct log_slot *slot);
uint64_t log_reserve_limit(const struct log_shape *shape, uint64_t buffer_bytes);
/* What is reserved, and `bytes` more, will lie below. */
lsn_t log_promised_end_locked(const struct log *log, uint64_t bytes);
void log_buffer_put(struct log *log, lsn_t lsn, const void *bytes, size_t len);
void log_mark_put(struct log *log, lsn_t own, lsn_t durable);
/*
 * Grants what there is room for to those who wait, in turn.  Latch held; called after
 * every change that may have made room.  The result is for log_space_wake() after it:
 * who was granted something, and who is the first now.
 */
uint64_t log_space_grant_locked(struct log *log);
void log_space_wake(struct log *log, uint64_t wake);

/* ----------------------------------------------------------------- ahead.c */

int log_image_read(struct log *log, lsn_t from, lsn_t to) must_check;
/* Is somebody reading ahead, up to `limit` in the end?  Starts the thread when it is time. */
bool log_ahead_start(struct log *log, lsn_t limit);
/* As soon as everything below `end` is there; image_loaded follows. */
int log_ahead_need(struct log *log, lsn_t end) must_check;
void log_ahead_stop(struct log *log);

/* ----------------------------------------------------------------- write.c */

/* ---------------------------------------------------------------- gather.c */

/* A group with so many callers is durable after a flight of that length. */
void log_gather_landed_locked(struct log *log, uint64_t callers, uint64_t flight_ns);
/* One more caller for the open group.  True: wake the leader, who waits for it. */
bool log_gather_arrived_locked(struct log *log);
/* How long the leader shall wait on leader_queue before it closes the open group, or 0. */
uint64_t log_gather_pause_locked(struct log *log);
/* The open group is closed: its callers. */
uint64_t log_gather_closed_locked(struct log *log);

/* ----------------------------------------------------------------- open.c */

/* Buffer, limits and what log_capacity() and its kin tell, for shape and medium. */
uint64_t log_buffer_size(const struct log_shape *shape, uint64_t wanted);
void log_publish(struct log *log);

/* ------------------------------------------------------------ checkpoint.c */

/* Writes the checkpoint block that was not written last, and flushes. */
int log_checkpoint_write(struct log *log, lsn_t lsn, lsn_t marked, uint64_t tally) must_check;

/* ----------------------------------------------------------------- tally.c */

/* From here on, with this sum (0: none is kept).  Nobody appends yet. */
int log_tally_start(struct log *log, lsn_t lsn, uint64_t value) must_check;
/* The log has moved.  Latch held. */
void log_tally_move_locked(struct log *log, lsn_t lsn);
/* An mtr that starts there changes the sum.  Latch held. */
void log_tally_note_locked(struct log *log, lsn_t start, int64_t change);
/* The highest LSN up to this where the sum is known; *value: what it is there. */
lsn_t log_tally_floor(struct log *log, lsn_t lsn, uint64_t *value);
/* No checkpoint will be lower.  Latch held. */
void log_tally_drop_locked(struct log *log, lsn_t checkpoint);

/* ------------------------------------------------------------------ hold.c */

void log_holds_init(struct log *log);
/* As far as the holds allow a checkpoint at `lsn`; no hold begins below the result afterwards. */
lsn_t log_checkpoint_allowed(struct log *log, lsn_t lsn);
/* The log has moved (INV-LOG-11).  Latch held. */
void log_holds_move_locked(struct log *log, lsn_t lsn);

#endif
