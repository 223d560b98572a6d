/*
 * The circular redo log: LSNs and bytes, never pages.
 *
 * Format: engine/format.h, section "log" (after MariaDB's MDEV-14425).
 *
 *	 checkpoint        marked        durable       copied     next
 *	     |--- needed for ---|--- durable --|-- in buffer --|-- being --|
 *	     |    recovery      | data checked |   or written  |  copied   |
 *	     |                  | on recovery  |               |           |
 *
 *	checkpoint_lsn  everything below is in place; its space is free again
 *	marked_lsn      a durable mark says that all below was durable, data included
 *	durable_lsn     log and data below are durable (INV-LOG-4: this one variable
 *	                decides acknowledgement, marks and checkpoints)
 *	copied_lsn      all below is in the log buffer (INV-LOG-3)
 *	next_lsn        the next append starts here
 *
 * Invariants, each stated where it is kept:
 *	INV-LOG-1  space is reserved, in bytes, before any latch; marks, padding
 *	           and checkpoints live from a headroom of their own
 *	INV-LOG-2  log space is reused only when the checkpoint block that frees
 *	           it is durable
 *	INV-LOG-3  nothing at or above copied_lsn is written or acknowledged
 *	INV-LOG-4  one durable_lsn, sampled before the flush
 *	INV-LOG-5  each group starts at a block boundary with a mark; a stop of the
 *	           scan below what a later mark calls durable is damage, not the end
 *	INV-LOG-6  after recovery both checkpoint blocks carry a new epoch before the
 *	           first append, so nothing behind the cut can be read again
 *
 * Locks: log_append() and below take RANK_LOG only, for a few instructions, and
 * compute nothing under it.  log_reserve(), log_flush() and log_mark() may wait
 * and check that the caller holds nothing that forbids it.
 *
 * Errors: a failed write or flush is final.  The log turns dead: every waiter
 * and every later call gets -BE_LOGDEAD; nothing is retried.
 */
#ifndef BLINKFS_LOG_LOG_H
#define BLINKFS_LOG_LOG_H

#include "engine/base/check.h"
#include "engine/base/stats.h"
#include "engine/dev/device.h"

#include <stdint.h>

typedef uint64_t lsn_t;

struct log;

/*
 * How the log gets to its medium.  All promise the same; which is fastest, the
 * medium decides (medium.h).
 */
enum log_mode {
	LOG_MODE_AUTO,   /* mapped where the medium is byte-addressable, else pwrite */
	LOG_MODE_PWRITE, /* pwrite + fdatasync */
	LOG_MODE_DIRECT, /* O_DIRECT + fdatasync */
	LOG_MODE_DSYNC,  /* O_DIRECT | O_DSYNC; data is flushed beside it, when there is any */
	LOG_MODE_MAPPED, /* the log buffer is the log: what is appended survives the process */
	LOG_MODE_COUNT
};
const char *log_mode_name(enum log_mode mode);
/* False: no such mode. */
bool log_mode_parse(const char *name, enum log_mode *mode);

/* ------------------------------------------------------------------ format */

/*
 * Writes an empty log for mkfs: zeros everything (pre-written, so that later
 * writes only overwrite), header, both checkpoints with `generation`.  Its
 * block size is that of the device.  Does not flush.
 */
int log_format(struct device *dev, uint64_t offset, uint64_t size_bytes, const uint8_t uuid[16],
	       uint64_t generation) must_check;
/* The same of a log that has a UUID of its own. */
int log_format_external(struct device *dev, uint64_t size_bytes, const uint8_t uuid[16],
			const uint8_t volume[16], uint64_t generation) must_check;
/* Zeros, for what is to become part of a log. */
int log_prewrite(struct device *dev, uint64_t offset, uint64_t bytes) must_check;

/* What the header of a log says. */
struct log_identity {
	uint8_t uuid[16], volume[16];
	uint64_t size_bytes;
};
/* -BE_NOVOLUME: no log there; -BE_VERSION; -BE_DAMAGE; or an I/O error. */
int log_identify(struct device *dev, uint64_t offset, struct log_identity *out) must_check;

/*
 * Of a log that nobody has open: another tally in its checkpoint blocks, those of them
 * that are good; each is flushed.
 */
int log_write_tally(struct device *dev, uint64_t offset, const uint8_t uuid[16],
		    uint64_t tally) must_check;

/* ---------------------------------------------------------- open and scan */

struct log_place {
	struct device *dev;   /* where the log is; not owned */
	struct device *data;  /* where all else is, when that is another; NULL: on dev */
	uint64_t offset;      /* of its header on the device */
	uint64_t size_bytes;
	uint8_t uuid[16];
	struct stats *stats;  /* may be NULL */
};

/* A decoded checkpoint. */
struct checkpoint {
	lsn_t lsn;
	lsn_t marked_lsn;
	uint64_t generation;
	uint64_t sequence;
	uint64_t tally; /* as of lsn (INV-LOG-12); 0: not known */
	bool mapped; /* the log behind it was written in mapped mode */
};

/*
 * Reads and verifies header and checkpoints.  The newer valid checkpoint whose
 * generation is log_gen or mount_gen is taken (higher generation, then higher
 * sequence).  INV-SB-3: any other generation or UUID is refused.
 *	-BE_NOVOLUME  no log here, or of another volume
 *	-BE_VERSION   newer format
 *	-BE_OLDLOG    its generations are none of these
 *	-BE_DAMAGE    no usable checkpoint
 */
int log_open(struct log **out, const struct log_place *place, uint64_t log_gen,
	     uint64_t mount_gen) must_check;
void log_close(struct log *log); /* stops nothing: flush first; NULL is allowed */
const struct checkpoint *log_found_checkpoint(const struct log *log);

/* One mini-transaction found by the scan. */
struct log_mtr {
	lsn_t start, end;
	const uint8_t *records; /* contiguous, without trailer; until log_close(), log_start() */
	size_t records_bytes;
	lsn_t marks; /* a mark: all below was durable, data included; 0 = no mark */
};

/*
 * What the scan found.  The visitor is called for each valid mtr in LSN order
 * (marks and padding included); it returns 0, or a negative code that ends the
 * scan with that code, or 1: "cut here, before this mtr".
 */
typedef int (*log_visitor)(void *arg, const struct log_mtr *mtr);
struct log_scan_result {
	lsn_t end;         /* the cut: end of the last mtr taken */
	lsn_t marked_lsn;  /* newest mark met, or the checkpoint's */
	bool damaged;      /* INV-LOG-5: a mark of this epoch calls more durable than `end` */
	lsn_t damage_mark; /* up to here all had been durable */
};
/* May be called more than once. */
int log_scan(struct log *log, log_visitor visit, void *arg,
	     struct log_scan_result *result) must_check;

/*
 * Splits an mtr into records:
 *	struct log_cursor c = {records, bytes};
 *	while (log_next_record(&c, &r) > 0)
 */
struct log_cursor {
	const uint8_t *next;
	size_t left;
};
struct log_rec {
	uint8_t type;
	const uint8_t *body;
	size_t len;
};
/* 1: a record; 0: no more; -BE_FORMAT. */
int log_next_record(struct log_cursor *cursor, struct log_rec *record) must_check;

/* varint of format.h: the bytes written (at most 10); the bytes read, 0 when malformed. */
size_t varint_put(uint8_t *p, uint64_t value);
size_t varint_get_long(const uint8_t *p, size_t left, uint64_t *value);
static inline size_t varint_get(const uint8_t *p, size_t left, uint64_t *value)
{
	if (left > 0 && p[0] < 0x80) { /* most of them */
		*value = p[0];
		return 1;
	}
	return varint_get_long(p, left, value);
}

/* ------------------------------------------------------------- appending */

struct log_options {
	/* 0 = a default; holds all that is appended and not yet durable.  Not in mapped mode. */
	uint64_t buffer_bytes;
	enum log_mode mode;         /* AUTO never fails for its own sake; others: -EOPNOTSUPP */
	bool scrub; /* log_scrub() is called, and both checkpoint blocks follow at a stand-still */
	uint64_t tally; /* as of log_start()'s LSN; 0: not known, and none is kept */
	void (*on_dead)(void *arg, int error); /* called once, by the thread that met the error */
	void *on_dead_arg;
};

/*
 * INV-LOG-6: opens the log for appending at `lsn` rounded up to a block (of the
 * log's or the medium's size, whichever is larger): writes
 * both checkpoint blocks with that LSN and `generation`, one after the other,
 * each flushed.  All pages up to lsn must be durably in place.
 */
int log_start(struct log *log, lsn_t lsn, uint64_t generation,
	      const struct log_options *options) must_check;

/*
 * INV-LOG-1: reserves room for mtrs of `bytes` in all.  Waits (for the
 * checkpoint to free log space, the flusher being asked through
 * log_set_space_callback) and so must be called with nothing latched.
 * The unused rest is given back by log_unreserve().
 */
int log_reserve(struct log *log, uint64_t bytes) must_check;
void log_unreserve(struct log *log, uint64_t bytes);
/* Largest reservation that can ever be granted. */
uint64_t log_reserve_max(const struct log *log);
/* Called (nothing latched) when somebody waits for log space below `lsn` to be freed. */
void log_set_space_callback(struct log *log, void (*want)(void *arg, lsn_t lsn), void *arg);

/*
 * Appends one mtr: `records` with room for MTR_TRAILER_BYTES behind them, which
 * this call fills in.  The CRC is computed before the lock; the bytes are
 * copied outside it.  bytes + trailer are taken from the caller's reservation.
 * The start LSN stays registered as "reserved but not yet listed" (INV-LOG-2)
 * until log_listed(ticket): the caller first stamps pages and enters the flush
 * list.  Cannot fail: a dead log accepts and drops.
 */
struct log_ticket {
	lsn_t start, end;
	unsigned slot;
};
void log_append(struct log *log, uint8_t *records, size_t bytes, struct log_ticket *ticket);
void log_listed(struct log *log, const struct log_ticket *ticket);

/*
 * The same in steps, for a caller who holds a latch that others want, and wants to
 * let go of it as soon as its page has its LSN: the flusher writes no page before
 * the records are copied and durable (INV-WAL-1).  Zeroed first.
 *
 *	log_append_sum()    CRC of records[0, bytes) as far as they are not in it yet:
 *	                    what is there before that latch is taken, then the rest
 *	log_append_place()  the LSNs
 *	log_append_copy()   the bytes; soon after, and nothing is waited for in between
 */
struct log_append {
	size_t summed;
	uint32_t crc;
	int64_t tally;          /* by how much this mtr changes it; the caller's */
	uint64_t wake;          /* who waits for space and is to be woken */
	lsn_t mark, mark_says;  /* mapped, first of its group: the mark to write */
};
void log_append_sum(struct log *log, struct log_append *append, const uint8_t *records,
		    size_t bytes);
void log_append_place(struct log *log, struct log_append *append, struct log_ticket *ticket);
void log_append_copy(struct log *log, const struct log_append *append, uint8_t *records,
		     const struct log_ticket *ticket);

/* Lowest start LSN of appends that are not yet listed; next_lsn when there are none (INV-LOG-2). */
lsn_t log_unlisted_lsn(struct log *log);

/* ---------------------------------------------------------- durability */

/*
 * Returns when durable_lsn >= lsn.  Group commit: one flusher at a time; those
 * who appended before it began are served by it, the others form the next
 * group.  A group is padded to the block size and is written once.
 */
int log_flush(struct log *log, lsn_t lsn) must_check;
/* As log_flush(), then makes sure that a durable mark covers lsn (a closing mark when needed). */
int log_mark(struct log *log, lsn_t lsn) must_check;

enum log_mode log_mode(const struct log *log);       /* in use; never AUTO */
uint32_t log_block_bytes(const struct log *log);     /* what each group is padded to */
lsn_t log_next_lsn(struct log *log);
lsn_t log_durable_lsn(struct log *log);
lsn_t log_marked_lsn(struct log *log);
lsn_t log_checkpoint_lsn(struct log *log);
uint64_t log_capacity(const struct log *log);
uint64_t log_buffer_bytes(const struct log *log);
bool log_dead(struct log *log);
/*
 * The volume can write no more, for a reason of its own: the log turns dead as
 * after a failed write of its own, so that nobody waits for space that no
 * checkpoint will free.  Nothing latched.
 */
void log_fail(struct log *log, int error);

/* ------------------------------------------------- another size or place */

/*
 * Stops granting reservations and returns when none is held any more: no
 * mini-transaction is under way, and none begins.  Flushes, marks and checkpoints
 * go on.  Not twice at a time.
 */
int log_freeze(struct log *log) must_check;
void log_thaw(struct log *log);

/*
 * INV-LOG-8: a log that is frozen and empty (all durable, marked, in place and
 * checkpointed) gets another size, another place, or both, and a new generation.
 *
 *	log_move_prepare()  header and both checkpoint blocks are durable where it
 *	                    will be; where it is, the old size stays valid as well
 *	the caller          says so in the superblock, durably: that is the switch
 *	log_move_install()  cannot fail; then log_thaw()
 *
 * `to` names the new place.  At the same offset as before it is the same log with
 * another size: it has a header in each of two places, and the superblock's size
 * tells which one counts; its two checkpoint blocks are right for both sizes.
 * Whatever bytes lie in the new place are told by the generation.
 * -EBUSY: not empty, or held by a backup.  -EOPNOTSUPP: not possible in this mode.
 * After any other error the log is dead.
 */
struct log_move;
/* Where the log will begin after a move that is made now, while it is frozen and empty. */
lsn_t log_move_lsn(struct log *log);
int log_move_prepare(struct log *log, const struct log_place *to, uint64_t generation,
		     struct log_move **out) must_check;
void log_move_install(struct log *log, struct log_move *move);

/* ------------------------------------------------------------ scrubbing */

/*
 * Overwrites with zeros what both checkpoint blocks have passed, a bounded batch
 * a call: 1 = there is more to do; 0 = nothing is left; or an error, which has
 * failed the log.  One caller at a time, the one of log_checkpoint().
 */
int log_scrub(struct log *log) must_check;

/*
 * Writes a checkpoint block for `lsn` (<= durable, all below in place) and
 * flushes; then frees the log space below it.  A no-op when nothing advanced
 * and the newest mark is already recorded.  One caller at a time.
 */
int log_checkpoint(struct log *log, lsn_t lsn) must_check;

/* ----------------------------------------------------------------- a tally */

/*
 * INV-LOG-12, a sum over all mtrs that ever were: each adds what its log_append.tally
 * says (blocks taken less blocks given back), and a checkpoint block has the sum of those
 * that begin below its LSN.  So whoever scans the log adds what he meets, and knows the
 * sum as of the cut without having read anything else.  A checkpoint therefore lies only
 * where the sum is known exactly (tally.c); that is at most a small share of the log
 * lower than what was asked for.
 */
/* As low as this or higher a checkpoint can be; not above next_lsn. */
lsn_t log_tally_ceil(struct log *log, lsn_t lsn);
/* The sum over all that has its LSN; 0: none is kept. */
uint64_t log_tally(struct log *log);

/* --------------------------------------------------------------- holding */

/*
 * Keeps log space from being reused beyond what recovery needs (hold.c): the
 * checkpoint stays at or below every hold.  Who holds must move on, or those who
 * append wait.
 */
enum log_holder { LOG_HOLD_ARCHIVE, LOG_HOLD_BACKUP, LOG_HOLDERS };

/* Everything at or above the result (an mtr boundary) can be read until it moves on. */
lsn_t log_hold(struct log *log, enum log_holder who);
/* Forward, to an mtr boundary.  True: a checkpoint was kept back, ask for it again. */
bool log_hold_move(struct log *log, enum log_holder who, lsn_t lsn);
bool log_release(struct log *log, enum log_holder who); /* the same; nothing held is allowed */
/* Has anything ever been held?  Then a checkpoint may lie lower than what was asked for. */
bool log_was_held(struct log *log);
/* Called, nothing latched, when a hold keeps a checkpoint back.  Must not wait. */
void log_set_hold_callback(struct log *log, void (*late)(void *arg), void *arg);

/*
 * The bytes of [from, to): durable ones that are held, or, before log_start(), those
 * that the scan has found.  No latch of the log is taken.
 */
int log_read(struct log *log, lsn_t from, lsn_t to, void *buf) must_check;
/*
 * The mtr at `bytes`, which have the LSN start and were written in this epoch.
 * False: none is here, or not all of it.  Wants neither a log nor its size.
 */
bool log_parse(uint64_t epoch, lsn_t start, const uint8_t *bytes, size_t left,
	       struct log_mtr *mtr) must_check;
uint64_t log_epoch(const struct log *log);
/*
 * Scrubbing: what stands on the medium at the log's fixed places, read through `way`, or
 * the log's own device when that is NULL.  No checkpoint and no move is under way: the
 * caller has the flusher's turn.
 */
#define LOG_PLACES 3u /* header, both checkpoint blocks */
struct log_judgement {
	const char *why[LOG_PLACES]; /* NULL: as it has to be */
	uint64_t offset[LOG_PLACES]; /* on the log's device */
};
void log_judge_places(struct log *log, struct device *way, struct log_judgement *out);

/* No mtr is longer. */
#define LOG_MTR_BYTES_MAX (16u << 20)

#endif
