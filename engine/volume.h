/*
 * A volume: everything that belongs to one open blinkfs image hangs off this.
 *
 *	device -> log -> pool -> flusher -> trees, space -> purge
 *
 * volume_open() reads the superblock, recovers, and starts the background
 * threads; volume_close() drains, writes everything back and marks the volume
 * clean.  volume_format() makes a new one.
 */
#ifndef BLINKFS_ENGINE_VOLUME_H
#define BLINKFS_ENGINE_VOLUME_H

#include "engine/base/error.h"
#include "engine/base/stats.h"
#include "engine/dev/device.h"
#include "engine/epoch.h"
#include "engine/format.h"
#include "engine/tree.h"
#include "engine/tunables.h"
#include "engine/written.h"
#include "log/log.h"

struct archive;
struct flusher;
struct pool;
struct purge;
struct space;

/* Block numbers times BLOCK_SIZE stay within loff_t, with room for sums of several. */
#define BLOCK_COUNT_MAX (1ull << 50)

struct volume_options {
	bool read_only;           /* nothing is written: recovery happens in memory */
	uint64_t cache_bytes;     /* 0 = CACHE_BYTES_DEFAULT */
	uint64_t log_buffer_bytes;/* 0 = default */
	enum log_mode log_mode;   /* LOG_MODE_AUTO: as the medium likes it */
	/*
	 * Of a volume whose log is external: where that is (log_device.h); the volume's
	 * on success, as its own device is.  NULL: within the volume.
	 */
	struct device *log_dev;
	const char *log_path;     /* read only while opening: to be remembered as a hint; or NULL */
	bool log_scrub;           /* zeros over what is no longer needed in the log */
	enum smo_mode smo;        /* volume_set_smo() changes it */
	uint64_t commit_interval_ns; /* 0 = COMMIT_INTERVAL_NS; OS_FOREVER = none */
	bool ignore_damage;       /* fsck: open read-write although SB_DAMAGED is set */
	uint32_t tunables_off;    /* bits of enum tunable: switched off from the start */
	bool no_background;       /* tests: no threads; the test calls what they would do */
	const char *archive_dir;  /* NULL = no log archive (archive.h) */
	bool archive_data;        /* file contents as well */
	bool discard;             /* the device is told of what was freed (space_trim.c) */
};

#define ID_SHARDS 64u /* as many threads take numbers without meeting */

struct geometry {
	uint32_t page_size, page_blocks;
	uint32_t group_blocks;
	_Atomic uint32_t group_count; /* these two grow, with readers beside (grow.h) */
	_Atomic uint64_t block_count;
	uint64_t groups_start, system_page;
	uint64_t dw_start;
	uint32_t dw_slots;
	uint64_t log_start, log_bytes;
	bool log_external;          /* then log_start is 0, of the other device */
	uint64_t home_start;        /* up to groups_start: kept for the log, used by it or not */
	struct geometry_run {
		uint64_t start, blocks;
	} other;                    /* blocks in a group that the log is taking or giving up */
};

struct volume {
	struct device *dev;        /* what everything reads and writes; an overlay when read-only */
	struct device *base_dev;   /* as given to volume_open() */
	struct device *log_dev;    /* where the log is: dev, or another (an overlay as well) */
	struct device *base_log_dev; /* external: as given to volume_open(); else NULL */
	struct disk_superblock sb; /* [lock: sb_latch after open] */
	bool sb_half_written;      /* an update failed: no other is begun [lock: sb_latch] */
	struct latch sb_latch;
	struct geometry geo;
	uint8_t tag[8];
	struct volume_options options;
	struct stats stats;
	struct tunables tunables;
	struct epochs epochs;
	struct log *log;
	struct pool *pool;
	struct flusher *flusher;
	struct space *space;
	struct purge *purge;
	_Atomic uint64_t purge_lag_max; /* PURGE_LAG_MAX; less for a test */
	_Atomic int64_t purge_waiting;  /* records in the purge index (INV-PURGE-2) */
	struct archive *archive;   /* NULL: never asked for */
	_Atomic bool backing_up;   /* one backup at a time */
	struct written written;    /* since the last one */
	struct waitq hold_queue;   /* archive and backup, who keep the log from being reused */
	struct tree index[INDEX_COUNT];
	_Atomic uint32_t smo;      /* enum smo_mode; each operation looks once */
	_Atomic bool shares_used;  /* something is, or was, shared (INV-SHARE-1) */
	_Atomic bool failed;       /* sticky: read-only for the rest of this mount */
	_Atomic bool frozen;       /* freeze.h */
	_Atomic unsigned log_use;  /* of enum log_use in log_resize.c: one at a time */
	_Atomic bool corrupt;      /* corruption was met; the superblock will say so */
	lsn_t recovered_lsn;       /* the cut of this mount's recovery */
	struct incomplete_split {  /* met by recovery, completed before open returns */
		unsigned index, level;
		struct key low;
	} *incomplete;
	size_t incomplete_count;
	struct counter_cache {     /* id.c: INV-ID-1 */
		struct latch latch;
		uint64_t limit;        /* the mark [lock: latch] */
		struct id_batch {
			struct latch latch;
			uint64_t next, limit; /* [lock: latch] */
		} batch[ID_SHARDS];
	} ids[COUNTER_COUNT];
};

/* ------------------------------------------------------------ formatting */

struct format_params {
	uint64_t size_bytes;      /* of the volume; at most the device's size */
	uint32_t page_size;       /* 0 = PAGE_SIZE_DEFAULT */
	uint64_t log_bytes;       /* 0 = chosen from the size */
	/* External: formatted as well, before the superblocks.  NULL: within the volume. */
	struct device *log_dev;
	uint8_t log_uuid[16];     /* external: its identity, not that of any other log */
	const char *log_path;     /* external: the hint that the superblock gets */
	uint8_t uuid[16];
	uint8_t hash_seed[16];
	char label[64];
	uint32_t root_mode, root_uid, root_gid; /* mode without S_IFDIR; 0 = 0755 */
	bool dry_run;             /* compute and check the geometry, write nothing */
};
/*
 * Writes a new volume: both superblocks zeroed first and written last, with
 * flushes between.  *geometry (may be NULL) tells what was chosen.
 * -BE_TOOSMALL, -EINVAL (page size, log size) or an I/O error.
 */
int volume_format(struct device *dev, const struct format_params *params,
		  struct geometry *geometry) must_check;

/* The bitmap pages of groups from `first` on, each group free but for that page; not flushed. */
int volume_format_groups(struct device *dev, const struct geometry *geo, const uint8_t uuid[16],
			 uint32_t first) must_check;

/* ------------------------------------------------------------ superblock */

/*
 * Reads and judges both copies (INV-SB-1): -BE_NOVOLUME, -BE_VERSION,
 * -BE_TRUNCATED.  *used_copy may be NULL.
 */
int superblock_read(struct device *dev, struct disk_superblock *out, bool *used_copy) must_check;
/* Is it one that can be used, whatever its CRC?  -BE_NOVOLUME, -BE_VERSION, -BE_FORMAT. */
int superblock_accept(const struct disk_superblock *sb, bool read_only,
		      struct geometry *geo) must_check;
/* INV-SB-1: generation up; in both places, one after the other.  Failed: not to be tried again. */
int superblock_write(struct device *dev, struct disk_superblock *sb) must_check;
/* A copy in the device's last block that belongs to a larger volume, which did not come to be. */
int superblock_forget_larger(struct device *dev, const struct disk_superblock *sb) must_check;
/*
 * Scrubbing: judges both copies as they are on the medium, read through `way`: first that
 * in block 0, then the one at the end.  *why: NULL when it is what `sb` was written as.
 * The caller sees to it that no update is under way.
 */
void superblock_judge_copies(struct device *way, const struct disk_superblock *sb,
			     const char *why[2]);
/* A volume or log of this page size wants at least so many bytes of log. */
uint64_t volume_log_bytes_min(uint32_t page_size);
/* Do these blocks lie within one group, behind its fixed pages? */
bool geometry_is_in_group(const struct geometry *geo, uint64_t start, uint64_t blocks);
/* Everything that the fields must fulfil among themselves; decodes. */
int geometry_decode(const struct disk_superblock *sb, struct geometry *geo) must_check;

/* -------------------------------------------------------- open and close */

/*
 * Takes ownership of dev on success.  Messages about what went wrong go to
 * message().  -BE_DAMAGE: run fsck (a read-only open may still work).
 */
int volume_open(struct volume **out, struct device *dev,
		const struct volume_options *options) must_check;
/* Durable and clean on return 0; frees everything in any case, the device included. */
int volume_close(struct volume *volume) must_check;
/* As if the process had died: nothing more is written.  For tests and after a fatal error. */
void volume_abandon(struct volume *volume);

/*
 * Changes the superblock of an open volume, durably; its log_reached follows by
 * itself.  A failure has failed the volume.
 */
int volume_change_superblock(struct volume *volume,
			     void (*change)(struct disk_superblock *sb, void *arg),
			     void *arg) must_check;
/* How indexes are split and merged from now on; at any time, whatever is going on. */
void volume_set_smo(struct volume *volume, enum smo_mode mode);
enum smo_mode volume_smo(struct volume *volume);

/* Makes all that was done so far durable. */
int volume_sync(struct volume *volume) must_check;

/*
 * The choke point for corruption found on the medium: counts, logs where and
 * why, remembers it in the superblock, returns -EIO.
 */
int corrupt_at(struct volume *volume, uint64_t pageno, const char *where,
	       const char *why) must_check;
/* The volume can no longer write (failed log or flush): -EIO from now on. */
void volume_fail(struct volume *volume, const char *why, int error);

/* The log's on_dead callback: volume_fail(). */
void volume_log_dead(void *volume, int error);

/* The mark of a counter, as read from the system page. */
void id_init(struct volume *volume, enum counter counter, uint64_t mark);
/* A number never used before (INV-ID-1).  May wait; nothing latched. */
int id_take(struct volume *volume, enum counter counter, uint64_t *out) must_check;

/* Verifies everything that the engine promises about a quiet volume. */
struct check_report {
	void (*problem)(void *arg, const char *text);
	void *arg;
	uint64_t problems;
	uint64_t pages, blocks_used;
};
int volume_check(struct volume *volume, struct check_report *report) must_check;

#endif
