/*
 * The walk over a quiet volume: what fsck.blinkfs is built on, and what tests
 * call in-process on devices in memory.
 *
 * fsck_walk() reads pages straight from the device and decodes them itself; it
 * shares no code with the engine's trees, mini-transactions or space maps, so
 * a mistake there cannot hide itself here.  It writes nothing.
 *
 * The volume must be quiet, and its log replayed: what the device holds is
 * what is judged.  (volume_open() with read_only replays in memory; the
 * volume's `dev` can then be walked.)  Superblock and log are the business of
 * fsck/session.c, since their states after a power cut are legal.
 *
 * Every kind of problem has a permanent number, see fsck/problem.def.
 */
#ifndef BLINKFS_FSCK_CHECK_H
#define BLINKFS_FSCK_CHECK_H

#include "engine/base/check.h"
#include "engine/base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device;

enum fsck_problem_id {
#define X(name, number, severity, repair, title) FSCK_##name = number,
#include "fsck/problem.def"
#undef X
};

enum fsck_severity {
	SEVERITY_NOTE,  /* nothing is lost or wrong for users */
	SEVERITY_COUNT, /* a count or map that is derived from elsewhere is wrong */
	SEVERITY_WRONG, /* something contradicts something else */
	SEVERITY_HIDES, /* a part could not be walked: what follows from it is not trusted */
};

enum fsck_repair {
	REPAIR_NONE,   /* reported and left */
	REPAIR_SAFE,   /* by -p, -a as well: derived from what is intact, nothing is lost */
	REPAIR_FULL,   /* by -y, or asked: something is dropped, moved or rebuilt */
	REPAIR_REOPEN, /* by the mere replay or rewrite that fsck does anyway */
};

struct fsck_problem {
	unsigned number; /* enum fsck_problem_id */
	enum fsck_severity severity;
	enum fsck_repair repair; /* of this instance: REPAIR_NONE when this one cannot be */
	const char *title;
	const char *detail; /* valid during the call only */
};

typedef void (*fsck_report)(void *arg, const struct fsck_problem *problem);

/* What a repair will do, in the order in which rounds do it; see fsck/repair.h. */
enum fix_phase {
	PHASE_BITMAP,  /* raw: bits are set */
	PHASE_TREE,    /* raw: pages are built anew */
	PHASE_HIDDEN,  /* records that hide something are dropped or rewritten */
	PHASE_COUNTER, /* high-water marks */
	PHASE_REST,
	PHASE_COUNT
};
enum fix_kind {
	/* PHASE_BITMAP */
	FIX_NEW_BITMAP, /* of group id, as enum new_bitmap value says; FIX_SET_BITS follow */
	FIX_SET_BITS,   /* blocks [id, id + value), within one group */
	FIX_TALLY,      /* any round of this phase makes the next mount count */
	/* PHASE_TREE */
	FIX_REBUILD, /* index id, from its leaves */
	FIX_SYSTEM,  /* system page anew; counter id = value */
	FIX_LSN,     /* the log goes on above LSN value */
	/* PHASE_COUNTER */
	FIX_COUNTER, /* counter id is at least value */
	/* PHASE_REST, or HIDDEN by their problem */
	FIX_CLEAR_BITS, /* blocks [id, id + value), within one group */
	FIX_NLINK,      /* inode id: nlink = value */
	FIX_ENTRIES,    /* ... entries */
	FIX_XATTRS,     /* ... xattr_count */
	FIX_BLOCKS,     /* ... blocks */
	FIX_MODE,       /* ... the permissions in its mode */
	FIX_PARENT,     /* ... parent */
	FIX_ORPHAN,     /* inode id: nlink 0 and a purge record */
	FIX_UNORPHAN,   /* inode id has names: nlink = value, purge record away */
	FIX_INODE,      /* inode id: its fields are made to fit each other */
	FIX_NO_LOB,     /* inode id: owns no contents */
	FIX_NO_PURGE,   /* inode id: no purge record, no dead range */
	FIX_MAKE_DIR,   /* inode id becomes an empty directory unless it is one */
	FIX_RECONNECT,  /* inode id gets a name in lost+found, nlink = value */
	FIX_ADOPT,      /* content id, up to file block value, becomes a file without a name */
	FIX_PURGE_ALL,  /* purge record id: from the first file block on */
	FIX_DELETE,     /* the record */
	FIX_PUT,        /* the record, with this value */
	FIX_TYPE,       /* directory entry: type = value */
	FIX_RENAME,     /* directory entry or attribute: under the hash of its name */
	FIX_DROP_XATTR, /* the record; its contents id, unless 0, are purged */
	FIX_COPY,       /* extent: gets a copy of its blocks, or goes when they aren't its own */
};
/* What seems to be free may be in use while something is hidden. */
enum new_bitmap {
	BITMAP_FREE,  /* nothing is hidden: the rest is free */
	BITMAP_PAGES, /* a tree is: pages of trees are looked for, the rest is free */
	BITMAP_USED,  /* extents are: the rest is in use */
};
#define FIX_VALUE_BYTES 8u
struct fsck_fix {
	enum fix_kind kind;
	uint16_t number; /* of the problem that it repairs */
	uint8_t index, key_len, value_len;
	uint8_t key[KEY_BYTES_MAX / 2];
	uint8_t bytes[FIX_VALUE_BYTES];
	uint64_t id, value;
};
enum fix_phase fsck_fix_phase(const struct fsck_fix *fix);

struct fsck_options {
	bool data;                    /* read every file block and verify its CRC */
	bool collect_fixes;           /* fill result->fixes */
	uint64_t memory_bytes;        /* of what grows with the volume (table.h); 0: no limit */
	unsigned threads;             /* that read and judge pages; 0, 1: the caller's alone */
	uint64_t lsn_end;             /* no page LSN lies past it; 0 = unknown */
	uint64_t tally;               /* blocks in use as the log has it; 0 = unknown */
	struct device *log_dev;       /* for recovery, when the log is external; stays open */
	bool (*cancelled)(void *arg); /* asked now and then; NULL = never */
	/* Now and then: step `done` of `total`, which do not change within a walk; may be NULL. */
	void (*progress)(void *arg, const char *what, unsigned done, unsigned total);
	void *arg; /* of the two */
};

struct fsck_result {
	uint64_t files, directories, others;
	uint64_t blocks_used, blocks_total; /* within groups */
	uint64_t problems;                  /* notes do not count */
	uint64_t serious;                   /* of these: more than a wrong count */
	uint64_t repairable;                /* of these */
	uint64_t lsn_max;                   /* of the pages that were read */
	bool whole;             /* nothing was hidden: repairs may be derived from this walk */
	struct fsck_fix *fixes; /* owned; fsck_result_free() */
	size_t fix_count;
	bool more_fixes; /* there were more than are listed */
	/* With collect_fixes, one bit a block from groups_start on; owned. */
	uint64_t *claimed;      /* used by anything */
	uint64_t *claimed_data; /* used by files */
};

/*
 * Walks the volume on `dev`.  0: it ran to its end, and result->problems says
 * what it found; negative: it could not (no superblock, no memory,
 * -ECANCELED).  *result is valid in any case.  report may be NULL.
 */
int fsck_walk(struct device *dev, const struct fsck_options *options, fsck_report report, void *arg,
	      struct fsck_result *result) must_check;
void fsck_result_free(struct fsck_result *result);

/*
 * The same for a volume whose log is not replayed, such as the state that a
 * power cut left: recovery happens in memory, `dev` is only read and stays
 * open.  Negative also when recovery refuses the volume; cache_bytes 0 = the
 * default.
 */
int fsck_recover_and_walk(struct device *dev, uint64_t cache_bytes,
			  const struct fsck_options *options, fsck_report report, void *arg,
			  struct fsck_result *result) must_check;

/* The table's row of a number; NULL when there is none. */
struct fsck_problem_kind {
	unsigned number;
	enum fsck_severity severity;
	enum fsck_repair repair;
	const char *name, *title;
};
const struct fsck_problem_kind *fsck_problem_kind(unsigned number);

#endif
