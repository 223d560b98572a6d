/* Shared by the files of the free map: groups, claims, page pool, deferred runs. */
#ifndef BLINKFS_ENGINE_SPACE_INTERNAL_H
#define BLINKFS_ENGINE_SPACE_INTERNAL_H

#include "engine/base/latch.h"
#include "engine/base/stats.h"
#include "engine/space.h"
#include "engine/volume.h"

/* ----------------------------------------------------------------- groups */

/* The free map of one group: busy = bitmap | reserved | freed but not reusable (INV-LOB-5). */
struct group {
	struct latch latch;        /* RANK_SPACE, order = group number + 1 */
	uint32_t number;           /* constant */
	uint64_t *busy;            /* one bit a block [lock: latch] */
	uint32_t scan;             /* where the next search without a hint starts [lock: latch] */
	uint32_t whole_scan;       /* words below have no whole page [lock: latch] */
	_Atomic uint32_t free;     /* zero bits of busy [lock: latch to write] */
	/* No free run is longer, up to RUN_MEASURE_MAX (INV-SPACE-2) [lock: latch to write] */
	_Atomic uint32_t longest;
	/* The same outside whole pieces, up to a page (INV-SPACE-2) [lock: latch to write] */
	_Atomic uint32_t broken;
	_Atomic uint32_t whole;    /* page-shaped pieces that are free [lock: latch to write] */
	uint64_t *held;            /* one bit a piece: in the page reserve [lock: latch] */
	_Atomic uint32_t held_count; /* [lock: latch to write] */
	/* Free blocks that the device was not told of (INV-TRIM-3); NULL: not kept [lock: latch] */
	uint64_t *stale;
	_Atomic uint32_t stale_count; /* [lock: latch to write] */
};

/* No reservation asks for a longer run, so longer ones need not be told apart. */
#define RUN_MEASURE_MAX WRITE_BLOCKS_MAX

/* A run of blocks of one group, as bits. */
struct run {
	uint32_t first, length;
};

/* stale may be NULL. */
void group_init(struct space *space, struct group *group, uint32_t number, uint64_t *busy,
		uint64_t *held, uint64_t *stale);
/* Counts and measures after busy was filled in. */
void group_loaded(struct space *space, struct group *group);
/*
 * Takes `length` consecutive free blocks: at or behind `from`, else from the
 * start of the group.  thrifty: from page-shaped pieces that are partly used
 * already, so that whole ones stay for metadata.
 */
bool group_take(struct space *space, struct group *group, uint32_t from, uint32_t length,
		bool thrifty, uint32_t *first);
/* Takes exactly this run if it is free; thrifty: and outside whole pieces. */
bool group_take_at(struct space *space, struct group *group, uint32_t first, uint32_t length,
		   bool thrifty);
/*
 * Takes the longest runs, longest first: at most `max` of at least `shortest`
 * blocks, `want` blocks in all.
 */
unsigned group_take_longest(struct space *space, struct group *group, uint64_t want,
			    uint32_t shortest, unsigned max, struct run *out);
/* Takes a free page-shaped piece. */
bool group_take_page(struct space *space, struct group *group, uint32_t *first);
/* Puts at most `max` whole pieces into the reserve, which has slots for them; how many. */
uint32_t group_hold(struct space *space, struct group *group, uint32_t max);
/* Takes a piece out of the reserve: busy, and the caller's. */
bool group_unhold(struct space *space, struct group *group, uint32_t *first);
/*
 * Takes the first free run in [*pos, end) of at least `shortest` blocks, at most `max` of
 * it; stale: only blocks that are stale.  *pos moves behind it, or to the end.
 */
bool group_take_next(struct space *space, struct group *group, uint32_t *pos, uint32_t end,
		     uint32_t shortest, uint32_t max, bool stale, struct run *out);
/* Returns how many of these blocks went to the reserve instead of becoming free. */
uint32_t group_give(struct space *space, struct group *group, uint32_t first, uint32_t length);
/* The same for blocks that the device has just been told of. */
uint32_t group_give_discarded(struct space *space, struct group *group, uint32_t first,
			      uint32_t length);
/* Are all blocks of the run busy? */
bool group_busy(struct group *group, uint32_t first, uint32_t length);

/* ---------------------------------------------------------- deferred runs */

struct defer_run {
	uint64_t start;
	uint32_t length;
};

#define DEFER_CHUNK_RUNS 320u /* a chunk is about one page of memory */
#define DEFER_SPARES 8u       /* chunks kept so that a commit rarely allocates */

/*
 * Runs that become free together.  open: takes more runs; sealed: `epoch` was
 * retired after the last of them was unlinked.
 */
struct defer_chunk {
	struct defer_chunk *next;
	lsn_t lsn;               /* highest of its runs */
	uint64_t epoch;          /* 0 = open */
	uint64_t blocks;         /* of its runs */
	uint32_t count;
	struct defer_run run[DEFER_CHUNK_RUNS];
};

/* FIFO of chunks; only the last can be open. */
struct defer_queue {
	struct defer_chunk *first, *last;
	lsn_t newest;            /* highest LSN ever queued */
	lsn_t sealed_at;         /* limit at the last sealing */
};

enum defer_kind {
	DEFER_DATA, /* waits for a durable mark */
	DEFER_PAGE, /* and for the checkpoint (INV-REC-1) */
	DEFER_KINDS
};

struct defer {
	struct latch latch;      /* RANK_LEAF */
	struct defer_queue queue[DEFER_KINDS]; /* [lock: latch] */
	struct defer_chunk *spare;             /* [lock: latch] */
	unsigned spares;                       /* [lock: latch] */
	_Atomic uint64_t blocks;
	_Atomic uint64_t lost;     /* of blocks: no memory to remember them */
	_Atomic uint64_t released; /* blocks that ever became free: what a drain looks at */
	_Atomic uint64_t hold[SPACE_HOLDERS]; /* LSN; SPACE_UNHELD: nothing is kept for it */
	_Atomic bool draining;     /* one drain at a time */
	_Atomic uint64_t failures; /* callers that were told -ENOSPC */
	struct waitq drained;
};

int defer_init(struct space *space) must_check;
uint64_t defer_pinned(struct space *space);
void defer_destroy(struct space *space);
/* What changes when blocks that were not found can be found again. */
struct space_look {
	uint64_t trims;  /* INV-TRIM-4 */
	uint32_t loaded; /* groups */
};
struct space_look space_look(struct space *space);
/*
 * The calling thread is about to hear -ENOSPC: its space_drain() counts what is freed since.
 * before: space_look() before it began to look.
 */
void defer_note_enospc(struct space *space, struct space_look before);
/* What a drain does behind purge: mark, write back, advance.  May wait. */
int space_settle(struct space *space) must_check;

/* -------------------------------------------- page pool and page reserve */

#define PAGES_KEPT_MAX 64u    /* for privileged callers */
#define PAGES_WORK_MAX 64u    /* ready for everybody, above those */
#define PAGES_REFILL_MAX 256u /* pieces found at one wake */

struct page_pool {
	struct latch latch;        /* RANK_LEAF */
	uint64_t pageno[PAGES_KEPT_MAX + PAGES_WORK_MAX]; /* [lock: latch] */
	_Atomic uint32_t count;    /* [lock: latch to write] */
	_Atomic uint32_t kept, work; /* targets; they only grow */
};

/* Whole pieces that data may not have; which ones, the groups know. */
struct page_reserve {
	_Atomic uint64_t target;   /* only grows */
	_Atomic uint64_t held;     /* slots taken: pieces held, or about to be */
};

void pages_init(struct space *space);
/* The targets, after the volume has become larger, too. */
void pages_set_targets(struct space *space);
/* Fills the pool: the kept part, and the working part while the map has plenty. */
void pages_refill(struct space *space);
/* Gives ready pages back to the map while it lacks `blocks` and more than kept ones are ready. */
void pages_break(struct space *space, uint64_t blocks);
/* For a privileged caller: a page of the reserve or the pool; the caller's, busy in the map. */
bool pages_give_up(struct space *space, uint64_t *pageno);
/*
 * A slot for one more piece of the reserve while that lacks some, and the claim of
 * the piece's `blocks` blocks that are not the caller's yet.
 */
bool pages_hold_begin(struct space *space, uint32_t blocks);
/* Pieces that data may not have, those that are only wanted left out. */
uint64_t pages_withheld(struct space *space);

/* A group has been loaded: its share goes to the reserve. */
void pages_group_loaded(struct space *space, struct group *group);
/* A page-shaped piece of the map, claimed. */
bool pages_find(struct space *space, uint64_t *pageno);

/* --------------------------------------------- ready pages of the indexes */

#define READY_MAX 256u

struct ready_list {
	struct latch latch;         /* RANK_LEAF */
	_Atomic uint32_t count;     /* [lock: latch to write] */
	_Atomic uint32_t target;    /* only grows */
	uint64_t pageno[READY_MAX]; /* [lock: latch] */
};

struct ready {
	struct ready_list list[INDEX_COUNT];
	uint32_t target_max;        /* 0: the volume is too small for any; constant */
	unsigned turn;              /* whose it is; the refill's alone */
	_Atomic bool wanted, stop;
	struct waitq wake;
	struct os_thread thread;
	bool running;               /* constant while splits go on */
};

void ready_init(struct space *space);
/* One wake's work.  true: there was more to do. */
bool ready_refill(struct space *space);
/* Back into the map while that lacks `blocks`. */
void ready_break(struct space *space, uint64_t blocks);
uint64_t ready_count(struct space *space);

/* --------------------------------------------------------------- discards */

struct trim {
	_Atomic uint64_t sequence;  /* odd: a step is under way; raised at its begin and end */
	_Atomic uint64_t in_flight; /* blocks that the device is being told of */
	struct waitq turn;          /* a step has ended */
	_Atomic bool forbidden;     /* the volume is frozen; changed in one's turn */
	struct waitq pause;         /* between two steps; woken at the end */
	/* the thread of -o discard */
	_Atomic bool wanted, stop;
	_Atomic bool unsupported;   /* the device said so */
	struct waitq wake;
	struct os_thread thread;
	_Atomic bool running;
};

/* Something became stale. */
void trim_hear(struct space *space);
uint64_t trim_sequence(struct space *space);
/* No step is under way between the two: a long run may be looked for. */
void trim_exclude(struct space *space);
void trim_allow(struct space *space);
/* Waits for the end of a step that is under way. */
void trim_wait(struct space *space);
int trim_start(struct space *space) must_check;
void trim_stop(struct space *space);

/* ------------------------------------------------------------------ whole */

/* Groups by number (space_load.c): NULL until they are loaded; &space->bad: unreadable. */
struct space_table {
	struct space_table *older; /* somebody may still read it */
	struct group *_Atomic group[];
};

struct space {
	struct volume *volume;
	/* One with more room takes its place; the old one stays until the end. */
	struct group *_Atomic *_Atomic table;
	uint32_t table_room;
	struct space_table *tables;
	struct group bad;          /* never used: its address stands for a group that is bad */
	_Atomic uint32_t group_count; /* only grows, after the table has room for them */
	uint32_t group_blocks, words, page_blocks;
	_Atomic uint64_t total;    /* blocks that exist in groups */
	_Atomic int64_t free;      /* free blocks that nobody has claimed (INV-SPACE-1) */
	/* space_load.c; INV-SPACE-5 */
	struct latch load_latch;   /* RANK_SPACE, order 0 */
	/* Free blocks in groups that are not loaded [lock: load_latch to write] */
	_Atomic uint64_t unread;
	_Atomic uint32_t loaded, bad_count; /* groups [lock: load_latch to write] */
	uint64_t written_off;      /* of bad groups, no longer free [lock: load_latch] */
	uint64_t end;              /* of the last group [lock: load_latch] */
	uint32_t probes, probe_step; /* which is tried next [lock: load_latch] */
	_Atomic uint64_t reserved;
	struct page_pool pages;
	struct page_reserve reserve;
	struct ready ready;
	struct defer defer;
	struct trim trim;
	_Atomic uint64_t held_start; /* space_hold_run(); 0: none */
	_Atomic uint64_t near[STAT_SHARDS]; /* where threads of a shard go on without a hint */
};

/* NULL: not loaded. */
static inline struct group *space_group(struct space *space, uint32_t number)
{
	struct group *group = atomic_load(&atomic_load(&space->table)[number]);

	return group == &space->bad ? NULL : group;
}

static inline uint64_t space_first_block(const struct space *space, uint32_t group)
{
	return space->volume->geo.groups_start + (uint64_t)group * space->group_blocks;
}

/* ----------------------------------------------------------- loading groups */

uint32_t space_bits_below(const struct space *space, uint32_t number, uint64_t end);
/* Room for so many groups in the table. */
int space_table_grow(struct space *space, uint32_t group_count) must_check;
void space_table_free(struct space *space);
/* What is free, from the log's tally; and the first `count` groups. */
int space_load_first(struct space *space, uint32_t count) must_check;
/* The volume has grown; groups from `had` on are new. */
void space_load_grown(struct space *space, uint32_t had, uint64_t new_end);
/* 0: it is there; -EIO: it is bad; -ENOMEM.  Reads the device; waits for nothing else. */
int space_load(struct space *space, uint32_t number) must_check;
/* Reads bad groups again.  True: one is there. */
bool space_load_bad(struct space *space);
/* One more group; NULL: none that is not loaded has a free block that can be had. */
struct group *space_load_more(struct space *space);

/* The group of a run, and its first bit; no run crosses groups, each begins with its bitmap. */
struct group *space_group_of(struct space *space, uint64_t start, uint64_t count, uint32_t *bit);
/* INV-SPACE-1: claims `blocks` of the free count; they can then be found somewhere in the map. */
bool space_claim(struct space *space, uint64_t blocks, unsigned flags);
/* Back into the map and the count. */
void space_give(struct space *space, uint64_t start, uint64_t count);

#endif
