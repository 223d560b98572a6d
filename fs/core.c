/*
 * The core's frame: open and close, retries, locks on inodes, purge's claims,
 * and what concerns the whole volume.
 */
#include "fs/core_internal.h"

#include <inttypes.h>
#include <stdlib.h>

/* Rough bytes of metadata that one more file takes: record and name in half-full pages. */
#define INODE_BYTES_ESTIMATE 512u

/* --- purge's view of us -------------------------------------------------- */

static void orphan_idle(void *arg)
{
	struct core *core = arg;

	if (core->volume->purge && !core->volume->options.read_only)
		purge_kick(core->volume->purge);
}

/* A looked-up inode may only be worked on for its dead range, so while it has a name. */
static bool may_claim(struct core *core, struct inode *inode)
{
	struct record record;

	if (inode_lookups(&core->table, inode) == 0)
		return true;
	return record_read(core->volume, inode->ino, &record, NULL) == 0 && record.nlink > 0;
}

static bool claim(void *arg, uint64_t ino)
{
	struct core *core = arg;
	struct inode *inode;

	if (!census_claim(&core->census, ino))
		return false;
	if (inode_pin(&core->table, ino, &inode))
		goto refused;
	if (!latch_try_x(&inode->lock))
		goto busy;
	if (!may_claim(core, inode)) /* INV-INODE-3 */
		goto in_use;
	os_point("core:claimed");
	return true;
in_use:
	unlatch_x(&inode->lock);
busy:
	inode_unpin(&core->table, inode);
refused:
	census_release(&core->census, ino, false);
	return false;
}

static void release(void *arg, uint64_t ino, bool gone)
{
	struct core *core = arg;
	struct inode *inode;

	/* The claim's pin keeps the entry, so this only finds it. */
	check(inode_pin(&core->table, ino, &inode) == 0);
	if (gone)
		atomic_store(&inode->orphan, false);
	unlatch_x(&inode->lock);
	inode_unpin(&core->table, inode);
	inode_unpin(&core->table, inode);
	census_release(&core->census, ino, gone);
}

/* --- open and close ------------------------------------------------------ */

int core_open(struct core **out, struct volume *volume)
{
	struct core *core = calloc(1, sizeof(*core));
	uint64_t below = UINT64_MAX;
	int rc;

	if (!core)
		return -ENOMEM;
	core->volume = volume;
	latch_init(&core->rename_lock, RANK_RENAME, 0);
	if (!volume->options.read_only) {
		rc = id_take(volume, COUNTER_INO, &below);
		if (rc)
			goto fail;
	}
	census_init(&core->census, below);
	rc = inode_table_init(&core->table, orphan_idle, core);
	if (rc)
		goto fail;
	if (volume->purge)
		purge_set_hooks(volume->purge, &(struct purge_hooks){
			.claim = claim,
			.release = release,
			.arg = core,
		});
	*out = core;
	return 0;
fail:
	free(core);
	return error_errno(rc);
}

void core_close(struct core *core)
{
	if (!core)
		return;
	if (!core->volume->options.read_only && !atomic_load(&core->volume->failed))
		atime_write_all(core);
	if (core->volume->purge)
		purge_set_hooks(core->volume->purge, NULL);
	orphan_idle(core);
	inode_table_destroy(&core->table);
	free(core);
}

struct volume *core_volume(struct core *core)
{
	return core->volume;
}

/* --- retries ------------------------------------------------------------- */

int core_view(view_t view)
{
	return view == VIEW_BASE ? 0 : -EOPNOTSUPP;
}

static int may_change(struct core *core, view_t view)
{
	int rc = core_view(view);

	if (rc)
		return rc;
	if (core->volume->options.read_only)
		return -EROFS;
	return atomic_load(&core->volume->failed) ? -EIO : 0;
}

bool core_drained(struct core *core)
{
	latch_check_none_from(RANK_RENAME);
	if (space_drain(core->volume->space) == 0)
		return true;
	return census_wait(&core->census) && space_drain(core->volume->space) == 0;
}

int core_change(struct core *core, view_t view, core_once once, void *args)
{
	unsigned restarts = 0, rounds = 0;
	int rc = may_change(core, view);

	if (rc)
		return rc;
	for (;;) {
		rc = once(core, args);
		if (rc == -BE_AGAIN && restarts++ < RESTARTS_MAX)
			continue;
		if (rc == -ENOSPC && rounds++ < DRAIN_ROUNDS_MAX && core_drained(core))
			continue;
		break;
	}
	if (rc == -BE_AGAIN)
		message(LOG_WARNING, "an operation was overtaken %u times and gives up", restarts);
	if (rc == -ENOSPC && space_is_unreadable(core->volume->space))
		rc = -EIO;
	return error_errno(rc);
}

/* --- look-up counts ------------------------------------------------------ */

int core_attach(struct core *core, uint64_t ino, struct record *record)
{
	struct inode *inode;
	int rc;

	rc = inode_pin(&core->table, ino, &inode);
	if (rc)
		return rc;
	inode_looked_up(&core->table, inode);
	os_point("core:looked_up");
	rc = record_read(core->volume, ino, record, NULL);
	if (rc == 0 && record->nlink == 0)
		rc = -ENOENT;
	if (rc)
		inode_forget(&core->table, ino, 1);
	inode_unpin(&core->table, inode);
	return rc;
}

static struct inode *locked_x(const struct lock_set *set, uint64_t ino)
{
	unsigned i = 0;

	while (i < set->count && set->inode[i]->ino != ino)
		i++;
	check(i < set->count && latch_held_x(&set->inode[i]->lock));
	return set->inode[i];
}

void core_links_change(const struct lock_set *set, uint64_t ino)
{
	atomic_store(&locked_x(set, ino)->links_changed, os_mono_ns());
}

void core_orphaned(const struct lock_set *set, uint64_t ino)
{
	atomic_store(&locked_x(set, ino)->orphan, true);
}

void core_attr_fill(struct core *core, const struct record *record, uint64_t ino,
		    struct core_attr *attr)
{
	record_attr(record, ino, attr);
	inode_kept_atime(&core->table, ino, &attr->atime);
	attr->links_settled = S_ISDIR(record->mode) || inode_links_settled(&core->table, ino);
}

void core_inode_counts(struct core *core, uint64_t *inodes, uint64_t *lookups)
{
	*inodes = inode_table_count(&core->table);
	*lookups = inode_table_lookups(&core->table);
}

void core_limit_inodes(struct core *core, uint64_t limit, void (*over)(void *arg), void *arg)
{
	inode_table_set_limit(&core->table, limit, over, arg);
}

uint64_t core_inode_excess(struct core *core)
{
	return inode_table_excess(&core->table);
}

unsigned core_idle_inodes(struct core *core, uint64_t *inos, unsigned max)
{
	return inode_table_idle(&core->table, &core->hand, inos, max);
}

/* --- locks on inodes ----------------------------------------------------- */

static void add_sorted(uint64_t *sorted, unsigned *count, uint64_t ino)
{
	unsigned i = *count;

	for (unsigned k = 0; k < *count; k++)
		if (sorted[k] == ino)
			return;
	while (i > 0 && sorted[i - 1] > ino) {
		sorted[i] = sorted[i - 1];
		i--;
	}
	sorted[i] = ino;
	++*count;
}

int lock_inodes(struct core *core, const uint64_t *inos, unsigned count, struct lock_set *set)
{
	uint64_t sorted[LOCKED_INODES_MAX];
	unsigned wanted = 0;
	int rc;

	check(count <= LOCKED_INODES_MAX);
	for (unsigned i = 0; i < count; i++)
		if (inos[i])
			add_sorted(sorted, &wanted, inos[i]);
	set->count = 0;
	for (unsigned i = 0; i < wanted; i++) {
		rc = lock_inode(core, sorted[i], true, &set->inode[i]);
		if (rc) {
			unlock_inodes(core, set);
			return rc;
		}
		set->count++;
	}
	return 0;
}

void unlock_inodes(struct core *core, struct lock_set *set)
{
	while (set->count > 0)
		unlock_inode(core, set->inode[--set->count], true);
}

int lock_inode(struct core *core, uint64_t ino, bool exclusive, struct inode **out)
{
	int rc = inode_pin(&core->table, ino, out);

	if (rc)
		return rc;
	if (exclusive)
		latch_x(&(*out)->lock);
	else
		latch_s(&(*out)->lock);
	return 0;
}

void unlock_inode(struct core *core, struct inode *inode, bool exclusive)
{
	if (exclusive)
		unlatch_x(&inode->lock);
	else
		unlatch_s(&inode->lock);
	inode_unpin(&core->table, inode);
}

/* --- the whole volume ---------------------------------------------------- */

static uint64_t available(const struct space_counts *space)
{
	uint64_t returning = space_returning(space);

	return returning - (space->kept < returning ? space->kept : returning);
}

uint64_t core_available(struct core *core)
{
	struct space_counts space;

	space_count(core->volume->space, &space);
	return available(&space);
}

int core_statfs(struct core *core, view_t view, struct statvfs *out)
{
	struct volume *volume = core->volume;
	struct space_counts space;
	uint64_t inodes;
	int rc = core_view(view);

	if (rc)
		return rc;
	rc = census_count(&core->census, volume, &inodes);
	if (rc)
		return error_errno(rc);
	purge_catch_up(volume);
	space_count(volume->space, &space);
	*out = (struct statvfs){
		.f_bsize = BLOCK_SIZE,
		.f_frsize = BLOCK_SIZE,
		.f_blocks = space.total,
		.f_bfree = space_returning(&space),
		.f_bavail = available(&space),
		.f_namemax = NAME_BYTES_MAX,
		.f_fsid = le64_get(*(const le64 *)volume->tag),
	};
	out->f_ffree = out->f_bfree * (BLOCK_SIZE / INODE_BYTES_ESTIMATE);
	out->f_favail = out->f_bavail * (BLOCK_SIZE / INODE_BYTES_ESTIMATE);
	out->f_files = inodes + out->f_ffree;
	return 0;
}

int core_fsync(struct core *core, view_t view, uint64_t ino, bool data_only)
{
	struct volume *volume = core->volume;
	int rc = core_view(view);

	/* One log holds all changes in order: what is durable is a prefix of them. */
	if (rc == 0 && !data_only)
		atime_write_kept(core, ino);
	if (rc || volume->options.read_only)
		return rc;
	stat_add(&volume->stats, STAT_core_fsyncs, 1);
	if (atomic_load(&volume->failed))
		return -EIO;
	return error_errno(log_flush(volume->log, log_next_lsn(volume->log)));
}
