/*
 * Rename.
 *
 * Locks: the rename lock when a directory gets another parent, so that the tree
 * above stands still while its ancestors are walked; then both parents, what
 * moves and what it replaces, in order of their numbers (INV-LOCK-1).
 *
 *	INV-RENAME-1  a directory never becomes its own descendant: its new parent's
 *	              ancestors are read up to the root under the rename lock; in an
 *	              exchange, those of both parents
 *	INV-RENAME-2  replacing changes the target's entry in place (INV-NAME-2), an
 *	              exchange both entries, a whiteout the old one
 *	INV-RENAME-3  a whiteout comes with the mini-transaction that takes its name
 *	              from what moves: that name is never seen to be free
 *
 * One mini-transaction: the old entry goes, the new one is put, up to four
 * records change, and a replaced inode without names becomes an orphan exactly
 * as by unlink.  An exchange changes the two entries and the same four records; a
 * whiteout is one record more, of an inode that nobody knows yet, so it needs no
 * lock.
 * A crash leaves the state before or after it.
 */
#include "fs/core_internal.h"
#include "fs/name.h"

#include <dirent.h>

struct rename_args {
	uint64_t old_parent, new_parent;
	const char *old_name, *new_name;
	size_t old_len, new_len;
	unsigned flags;
	const struct core_cred *whiteout; /* whose whiteout takes the old name; NULL: none does */
};

/* What the operation found out, under its locks unless noted. */
struct rename_plan {
	struct name_entry old, new;
	bool directory;          /* what moves is one */
	bool other_directory;    /* exchange: what comes back is one */
	bool orphans;            /* what it replaces loses its last name */
	uint64_t purge_key;
	uint64_t whiteout;       /* its inode, or 0 */
};

static bool changes_parent(const struct rename_args *args)
{
	return args->old_parent != args->new_parent;
}

static bool exchanges(const struct rename_args *args)
{
	return args->flags & CORE_RENAME_EXCHANGE;
}

static int find_both(struct core *core, const struct rename_args *args, struct rename_plan *plan)
{
	int rc;

	rc = name_find(core->volume, args->old_parent, args->old_name, args->old_len, &plan->old);
	if (rc)
		return rc;
	if (!plan->old.found)
		return -ENOENT;
	plan->directory = plan->old.type == DT_DIR;
	rc = name_find(core->volume, args->new_parent, args->new_name, args->new_len, &plan->new);
	if (rc || !exchanges(args))
		return rc;
	plan->other_directory = plan->new.found && plan->new.type == DT_DIR;
	return plan->new.found ? 0 : -ENOENT;
}

/*
 * INV-RENAME-1.  Nobody else changes a directory's parent meanwhile.  A cycle of
 * parents can only come from the medium; Brent's method finds it.
 */
static int check_ancestors(struct core *core, uint64_t moved, uint64_t parent)
{
	uint64_t landmark = 0, steps = 0, next_landmark = 1;
	struct record record;

	for (uint64_t at = parent; at != moved; at = record.parent) {
		int rc;

		if (at == INO_ROOT)
			return 0;
		if (at == landmark)
			return corrupt_at(core->volume, 0, "directory", "its parents form a cycle");
		if (++steps == next_landmark) {
			landmark = at;
			next_landmark *= 2;
		}
		rc = record_read(core->volume, at, &record, NULL);
		if (rc)
			return rc;
		if (!S_ISDIR(record.mode))
			return corrupt_at(core->volume, 0, "directory", "its parent is none");
	}
	return -EINVAL;
}

static int judge_parents(struct core *core, const struct rename_args *args,
			 const struct rename_plan *plan)
{
	struct record parent;
	int rc = record_read(core->volume, args->new_parent, &parent, NULL);

	if (rc)
		return rc;
	if (!S_ISDIR(parent.mode))
		return -ENOTDIR;
	if (parent.nlink == 0)
		return -ENOENT;
	if (!plan->directory || !changes_parent(args))
		return 0;
	if (!plan->new.found && parent.nlink >= LINKS_MAX)
		return -EMLINK;
	return check_ancestors(core, plan->old.child, args->new_parent);
}

/* The directory that gets one in exchange for something else. */
static int judge_links(struct core *core, uint64_t parent, bool gets, bool gives)
{
	struct record record;
	int rc;

	if (!gets || gives)
		return 0;
	rc = record_read(core->volume, parent, &record, NULL);
	return rc == 0 && record.nlink >= LINKS_MAX ? -EMLINK : rc;
}

/* Both parents are directories, and have a name, or they would be empty. */
static int judge_exchange(struct core *core, const struct rename_args *args,
			  const struct rename_plan *plan)
{
	int rc = 0;

	if (!changes_parent(args))
		return 0;
	if (plan->directory)
		rc = check_ancestors(core, plan->old.child, args->new_parent);
	if (rc == 0 && plan->other_directory)
		rc = check_ancestors(core, plan->new.child, args->old_parent);
	if (rc == 0)
		rc = judge_links(core, args->new_parent, plan->directory, plan->other_directory);
	if (rc == 0)
		rc = judge_links(core, args->old_parent, plan->other_directory, plan->directory);
	return rc;
}

/* What is replaced. */
static int judge_target(struct core *core, struct rename_plan *plan)
{
	struct record target;
	int rc = record_read(core->volume, plan->new.child, &target, NULL);

	if (rc)
		return rc;
	if (plan->directory && !S_ISDIR(target.mode))
		return -ENOTDIR;
	if (!plan->directory && S_ISDIR(target.mode))
		return -EISDIR;
	if (plan->directory) {
		rc = directory_is_empty(core, plan->new.child);
		if (rc)
			return rc;
	}
	plan->orphans = plan->directory || target.nlink <= 1;
	return plan->orphans ? orphan_key(core, &target, &plan->purge_key) : 0;
}

/* INV-FLAG-1: what a name is taken from, and what it names, in their order of being had. */
static int judge_flags(struct core *core, const struct rename_args *args,
		       const struct rename_plan *plan)
{
	/* A directory that only gains a name may be append-only. */
	const struct {
		uint64_t ino;
		bool gains;
	} touched[] = {
		{args->old_parent, false},
		{args->new_parent, !plan->new.found},
		{plan->old.child, false},
		{plan->new.found ? plan->new.child : 0, false},
	};

	for (unsigned i = 0; i < array_count(touched); i++) {
		struct record record;
		int rc;

		if (touched[i].ino == 0)
			continue;
		rc = record_read(core->volume, touched[i].ino, &record, NULL);
		if (rc)
			return rc;
		if (touched[i].gains ? record_is_immutable(&record) : record_is_frozen(&record))
			return -EPERM;
	}
	return 0;
}

/* Four records are written, each once: a damaged tree could make two of them one. */
static int judge_distinct(struct core *core, const struct rename_args *args,
			  const struct rename_plan *plan)
{
	const uint64_t children[] = {plan->old.child, plan->new.found ? plan->new.child : 0};

	for (unsigned i = 0; i < array_count(children); i++)
		if (children[i] == args->old_parent || children[i] == args->new_parent)
			return corrupt_at(core->volume, 0, "directory entry",
					  "names its own directory");
	return 0;
}

/* 1: there is nothing to do. */
static int judge(struct core *core, const struct rename_args *args, struct rename_plan *plan)
{
	int rc;

	if (plan->new.found && (args->flags & CORE_RENAME_NOREPLACE))
		return -EEXIST;
	if (plan->new.found && plan->new.child == plan->old.child)
		return 1; /* two names of one inode: both stay */
	if (plan->new.full)
		return -BE_NAMES;
	rc = judge_flags(core, args, plan);
	if (rc)
		return rc;
	rc = exchanges(args) ? judge_exchange(core, args, plan) : judge_parents(core, args, plan);
	if (rc == 0 && plan->new.found && !exchanges(args))
		rc = judge_target(core, plan);
	return rc ? rc : judge_distinct(core, args, plan);
}

/* The records that change, read in the latched leaves. */
struct rename_records {
	struct record old_parent, new_parent, moved, target;
};

static int get_records(struct core *core, struct mtr *m, const struct rename_args *args,
		       const struct rename_plan *plan, struct rename_records *r)
{
	int rc;

	rc = name_recheck(core->volume, m, &plan->old);
	if (rc == 0)
		rc = name_recheck(core->volume, m, &plan->new);
	if (rc == 0)
		rc = record_get(core->volume, m, args->old_parent, &r->old_parent);
	if (rc == 0 && changes_parent(args))
		rc = record_get(core->volume, m, args->new_parent, &r->new_parent);
	if (rc == 0)
		rc = record_get(core->volume, m, plan->old.child, &r->moved);
	if (rc == 0 && plan->new.found)
		rc = record_get(core->volume, m, plan->new.child, &r->target);
	return rc;
}

/* INV-RENAME-3: the old name's entry, the parent having lost the one that moves. */
static void stage_whiteout(struct mtr *m, const struct rename_args *args,
			   const struct rename_plan *plan, struct record *parent,
			   struct timespec now)
{
	struct record record;

	record_begin(args->whiteout, S_IFCHR, parent, now, &record);
	record_gains_name(parent, false, now);
	record_put(m, plan->whiteout, &record);
	name_put(m, &plan->old, plan->whiteout, record.mode, args->old_name, args->old_len);
}

static void stage(struct mtr *m, const struct rename_args *args, const struct rename_plan *plan,
		  struct rename_records *r, struct timespec now)
{
	struct record *to = changes_parent(args) ? &r->new_parent : &r->old_parent;

	record_loses_name(&r->old_parent, plan->directory, now);
	if (plan->new.found)
		record_loses_name(to, plan->directory, now);
	record_gains_name(to, plan->directory, now);
	if (plan->whiteout)
		stage_whiteout(m, args, plan, &r->old_parent, now);
	else
		name_delete(m, &plan->old);
	record_put(m, args->old_parent, &r->old_parent);
	if (changes_parent(args))
		record_put(m, args->new_parent, &r->new_parent);

	if (plan->directory)
		r->moved.parent = args->new_parent;
	record_changed(&r->moved, now);
	record_put(m, plan->old.child, &r->moved);

	if (plan->new.found) {
		record_changed(&r->target, now);
		if (plan->orphans)
			orphan_stage(m, plan->new.child, &r->target, plan->purge_key);
		else
			r->target.nlink--;
		record_put(m, plan->new.child, &r->target);
	}
	name_put(m, &plan->new, plan->old.child, r->moved.mode, args->new_name, args->new_len);
}

static void stage_exchange(struct mtr *m, const struct rename_args *args,
			   const struct rename_plan *plan, struct rename_records *r,
			   struct timespec now)
{
	struct record *to = changes_parent(args) ? &r->new_parent : &r->old_parent;

	record_loses_name(&r->old_parent, plan->directory, now);
	record_loses_name(to, plan->other_directory, now);
	record_gains_name(&r->old_parent, plan->other_directory, now);
	record_gains_name(to, plan->directory, now);
	record_put(m, args->old_parent, &r->old_parent);
	if (changes_parent(args))
		record_put(m, args->new_parent, &r->new_parent);

	if (plan->directory)
		r->moved.parent = args->new_parent;
	if (plan->other_directory)
		r->target.parent = args->old_parent;
	record_changed(&r->moved, now);
	record_changed(&r->target, now);
	record_put(m, plan->old.child, &r->moved);
	record_put(m, plan->new.child, &r->target);
	name_put(m, &plan->old, plan->new.child, r->target.mode, args->old_name, args->old_len);
	name_put(m, &plan->new, plan->old.child, r->moved.mode, args->new_name, args->new_len);
}

static int commit_rename(struct core *core, const struct rename_args *args,
			 const struct rename_plan *plan)
{
	struct timespec now = os_realtime();
	struct rename_records records;
	struct mtr *m;
	int rc;

	rc = mtr_begin(core->volume, plan->whiteout ? 0 : MTR_PRIVILEGED, &m);
	if (rc)
		return rc;
	name_want(m, &plan->old);
	name_want(m, &plan->new);
	record_want(m, args->old_parent);
	record_want(m, args->new_parent);
	record_want(m, plan->old.child);
	if (plan->new.found)
		record_want(m, plan->new.child);
	if (plan->orphans)
		purge_want(m, plan->purge_key);
	if (plan->whiteout)
		record_want(m, plan->whiteout);
	do {
		rc = mtr_latch(m);
		if (rc == 0)
			rc = get_records(core, m, args, plan, &records);
		if (rc)
			break;
		if (exchanges(args))
			stage_exchange(m, args, plan, &records, now);
		else
			stage(m, args, plan, &records, now);
		os_point("core:rename_commit");
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	return rc;
}

/* `seen` is what the locks were chosen by. */
static int rename_locked(struct core *core, const struct rename_args *args,
			 const struct rename_plan *seen, const struct lock_set *locks)
{
	struct rename_plan plan = {.purge_key = 0};
	int rc = find_both(core, args, &plan);

	if (rc)
		return rc;
	if (plan.old.child != seen->old.child || plan.new.child != seen->new.child)
		return -BE_AGAIN;
	rc = judge(core, args, &plan);
	if (rc)
		return rc == 1 ? 0 : rc;
	if (args->whiteout) {
		rc = ino_take(core, &plan.whiteout);
		if (rc)
			return rc;
	}
	if (plan.new.found)
		core_links_change(locks, plan.new.child);
	rc = commit_rename(core, args, &plan);
	if (rc == 0 && plan.orphans)
		core_orphaned(locks, plan.new.child);
	if (rc == 0 && plan.whiteout)
		census_created(&core->census);
	return rc;
}

static int judge_directories(struct core *core, const struct rename_args *args)
{
	const uint64_t parents[] = {args->old_parent, args->new_parent};

	for (unsigned i = 0; i < array_count(parents); i++) {
		struct record record;
		int rc = record_read(core->volume, parents[i], &record, NULL);

		if (rc)
			return rc;
		if (!S_ISDIR(record.mode))
			return -ENOTDIR;
	}
	return 0;
}

static int rename_once(struct core *core, void *arg)
{
	const struct rename_args *args = arg;
	struct rename_plan seen = {.purge_key = 0};
	struct lock_set locks;
	uint64_t inos[LOCKED_INODES_MAX];
	bool moves_tree;
	int rc;

	rc = judge_directories(core, args);
	if (rc == 0)
		rc = find_both(core, args, &seen);
	if (rc)
		return rc;
	os_point("core:found_name");
	inos[0] = args->old_parent;
	inos[1] = args->new_parent;
	inos[2] = seen.old.child;
	inos[3] = seen.new.child;
	moves_tree = (seen.directory || seen.other_directory) && changes_parent(args);
	if (moves_tree)
		latch_x(&core->rename_lock);
	rc = lock_inodes(core, inos, array_count(inos), &locks);
	if (rc)
		goto out;
	rc = rename_locked(core, args, &seen, &locks);
	unlock_inodes(core, &locks);
out:
	if (moves_tree)
		unlatch_x(&core->rename_lock);
	return rc;
}

static int judge_name(const char *name, size_t len)
{
	int rc = name_check(name, len);

	if (rc)
		return rc;
	return name_is_dot(name, len) || name_is_dot_dot(name, len) ? -EBUSY : 0;
}

static int rename_entry(struct core *core, view_t view, struct rename_args *args)
{
	int rc;

	if (args->flags != 0 && args->flags != CORE_RENAME_NOREPLACE &&
	    args->flags != CORE_RENAME_EXCHANGE)
		return -EINVAL;
	rc = judge_name(args->old_name, args->old_len);
	if (rc == 0)
		rc = judge_name(args->new_name, args->new_len);
	if (rc)
		return rc;
	stat_add(&core->volume->stats, STAT_core_renames, 1);
	purge_pace(core->volume);
	return core_change(core, view, rename_once, args);
}

int core_rename(struct core *core, view_t view, uint64_t old_parent, const char *old_name,
		size_t old_len, uint64_t new_parent, const char *new_name, size_t new_len,
		unsigned flags)
{
	struct rename_args args = {
		.old_parent = old_parent,
		.new_parent = new_parent,
		.old_name = old_name,
		.new_name = new_name,
		.old_len = old_len,
		.new_len = new_len,
		.flags = flags,
	};

	return rename_entry(core, view, &args);
}

int core_rename_whiteout(struct core *core, view_t view, const struct core_cred *cred,
			 uint64_t old_parent, const char *old_name, size_t old_len,
			 uint64_t new_parent, const char *new_name, size_t new_len,
			 unsigned flags)
{
	struct rename_args args = {
		.old_parent = old_parent,
		.new_parent = new_parent,
		.old_name = old_name,
		.new_name = new_name,
		.old_len = old_len,
		.new_len = new_len,
		.flags = flags,
		.whiteout = cred,
	};

	if (exchanges(&args))
		return -EINVAL;
	return rename_entry(core, view, &args);
}
