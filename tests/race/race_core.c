/*
 * Threads on one core, for TSan and for what must hold whatever the order:
 *
 *	shuffle    create, rename, link, unlink, write, list in shared directories, with
 *	           ACLs, flags and access times;
 *	           at the end every count fits and every inode can be reached
 *	cycle      mv a b/a against mv b a/b: never a loop or a lost tree
 *	replace    mv new f while others look f up: never ENOENT
 *	listing    entries that stay are seen exactly once while others come and go
 *	contents   a read sees each write wholly or not at all
 *	orphans    open, unlink, use, forget against purge
 *
 *	race_core [seed]
 */
#include "engine/base/error.h"
#include "tests/lib/acl_example.h"
#include "tests/lib/core_rig.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 4u

static struct rig rig;
static _Atomic bool stop;
static unsigned rounds;

static noreturn void fail(const char *what, int64_t got)
{
	fprintf(stderr, "race_core: %s: %" PRId64 "\n", what, got);
	abort();
}

static void expect(bool ok, const char *what, int64_t got)
{
	if (!ok)
		fail(what, got);
}

/* Now and then somebody else gets the processor where it matters. */
static void yield_at(const char *point)
{
	static _Thread_local uint64_t state;

	if (strncmp(point, "core:", 5) && strncmp(point, "purge:", 6))
		return;
	if (state == 0)
		state = (uint64_t)(uintptr_t)&state;
	if (random_next(&state) % 4 == 0)
		sched_yield();
}

struct worker {
	struct os_thread thread;
	unsigned number;
	uint64_t random;
	uint64_t dir[3];
};

static void run(void (*fn)(void *), struct worker *w, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		expect(os_thread_start(&w[i].thread, "race", fn, &w[i]) == 0, "thread", 0);
	for (unsigned i = 0; i < count; i++)
		os_thread_join(&w[i].thread);
}

static int lookup(uint64_t parent, const char *name, struct core_attr *attr)
{
	return core_lookup(rig.core, VIEW_BASE, parent, name, strlen(name), attr);
}

/* --- everything reachable, every count right ----------------------------- */

struct tree_counts {
	uint64_t inodes;     /* directories, and files with one name */
	uint64_t extra;      /* further names */
	unsigned depth;
};

struct level {
	struct tree_counts *counts;
	uint64_t self, parent, entries, subdirs;
};

static void walk(uint64_t ino, uint64_t parent, struct tree_counts *counts);

static int walk_entry(void *arg, const struct core_dirent *d)
{
	struct level *l = arg;

	if (d->cookie == 1)
		expect(d->ino == l->self, "'.'", (int64_t)d->ino);
	if (d->cookie == 2)
		expect(d->ino == l->parent, "'..'", (int64_t)d->ino);
	if (d->cookie <= 2)
		return 0;
	l->entries++;
	if (d->type == S_IFDIR) {
		l->subdirs++;
		walk(d->ino, l->self, l->counts);
	} else {
		struct core_attr attr = rig_attr(&rig, d->ino);

		expect(attr.nlink >= 1, "nlink of a named file", attr.nlink);
		if (attr.nlink == 1)
			l->counts->inodes++;
		else
			l->counts->extra++;
	}
	return 0;
}

static void walk(uint64_t ino, uint64_t parent, struct tree_counts *counts)
{
	struct level l = {.counts = counts, .self = ino, .parent = parent};
	struct core_attr attr = rig_attr(&rig, ino);

	counts->depth++;
	expect(counts->depth < 1000, "depth", counts->depth);
	counts->inodes++;
	expect(core_readdir(rig.core, VIEW_BASE, ino, 0, false, walk_entry, &l) == 0, "readdir", 0);
	expect(attr.nlink == 2 + l.subdirs, "nlink of a directory", attr.nlink);
	expect(attr.size == 32 * l.entries, "size of a directory", (int64_t)attr.size);
	counts->depth--;
}

static void check_tree(void)
{
	struct tree_counts counts = {0};
	struct statvfs s;
	uint64_t inodes;

	expect(rig_problems(&rig) == 0, "volume_check", 0);
	walk(INO_ROOT, INO_ROOT, &counts);
	expect(core_statfs(rig.core, VIEW_BASE, &s) == 0, "statfs", 0);
	inodes = s.f_files - s.f_ffree;
	/* Inodes of several names are counted as one to `extra` ones. */
	expect(inodes >= counts.inodes && inodes <= counts.inodes + counts.extra, "inodes",
	       (int64_t)inodes);
}

/* --- shuffle ------------------------------------------------------------- */

static bool allowed(int rc)
{
	return rc == 0 || rc == -ENOENT || rc == -EEXIST || rc == -EISDIR || rc == -ENOTDIR ||
	       rc == -ENOTEMPTY || rc == -EINVAL || rc == -EPERM;
}

static int count_entry(void *arg, const struct core_dirent *d)
{
	++*(unsigned *)arg;
	if (d->attr && d->cookie > 2)
		core_forget(rig.core, d->ino, 1);
	return 0;
}

/* Lists and modes that follow each other, flags that come and go. */
static int shuffle_attributes(struct worker *w, uint64_t dir, uint64_t ino)
{
	static const uint8_t list[] = ACL_EXAMPLE(6);
	struct core_attr attr = {.mode = 0700 | (random_next(&w->random) & 077)};
	int rc;

	switch (random_next(&w->random) % 4) {
	case 0:
		return core_setxattr(rig.core, VIEW_BASE, ino, ACL_ACCESS_NAME, list, sizeof(list),
				     0);
	case 1:
		return core_setxattr(rig.core, VIEW_BASE, dir, ACL_DEFAULT_NAME, list,
				     sizeof(list), 0);
	case 2:
		return core_setattr(rig.core, VIEW_BASE, ino, CORE_SET_MODE, &attr);
	default:
		rc = core_set_flags(rig.core, VIEW_BASE, ino, CORE_FLAG_APPEND);
		if (rc == 0)
			rc = core_set_flags(rig.core, VIEW_BASE, ino, 0);
		return rc;
	}
}

static int shuffle_file(struct worker *w, uint64_t dir, const char *name)
{
	uint8_t buf[9000];
	struct core_attr attr;
	int rc = lookup(dir, name, &attr);

	if (rc)
		return rc;
	memset(buf, (int)w->number, sizeof(buf));
	switch (random_next(&w->random) % 6) {
	case 0:
		rc = rig_write(&rig, attr.ino, random_next(&w->random) % 30000, buf,
			       1 + random_next(&w->random) % sizeof(buf));
		break;
	case 1:
		rc = rig_truncate(&rig, attr.ino, random_next(&w->random) % 20000);
		break;
	case 2:
		rc = core_setxattr(rig.core, VIEW_BASE, attr.ino, "user.race", buf,
				   random_next(&w->random) % 3000, 0);
		break;
	case 3:
		rc = shuffle_attributes(w, dir, attr.ino);
		break;
	case 4:
		rc = core_fsync(rig.core, VIEW_BASE, attr.ino, false);
		break;
	default: {
		size_t done;

		rc = core_read(rig.core, VIEW_BASE, attr.ino, 0, buf, sizeof(buf), &done);
		if (rc == 0)
			rc = core_accessed(rig.core, VIEW_BASE, attr.ino, CORE_ATIME_STRICT);
	}
	}
	core_forget(rig.core, attr.ino, 1);
	return rc;
}

static int shuffle_step(struct worker *w)
{
	uint64_t dir = w->dir[random_next(&w->random) % 3];
	uint64_t dir2 = w->dir[random_next(&w->random) % 3];
	char name[8], name2[8];
	struct core_attr attr;
	unsigned count = 0;
	int rc;

	snprintf(name, sizeof(name), "n%u", (unsigned)(random_next(&w->random) % 12));
	snprintf(name2, sizeof(name2), "n%u", (unsigned)(random_next(&w->random) % 12));
	switch (random_next(&w->random) % 10) {
	case 0: case 1:
		return rig_file(&rig, dir, name) ? 0 : -EEXIST;
	case 2:
		return rig_dir(&rig, dir, name) ? 0 : -EEXIST;
	case 3:
		return rig_unlink(&rig, dir, name);
	case 4:
		return rig_rmdir(&rig, dir, name);
	case 5:
		return rig_rename(&rig, dir, name, dir2, name2);
	case 6:
		return core_rename(rig.core, VIEW_BASE, dir, name, strlen(name), dir2, name2,
				   strlen(name2), CORE_RENAME_EXCHANGE);
	case 7:
		rc = lookup(dir, name, &attr);
		if (rc)
			return rc;
		rc = rig_link(&rig, attr.ino, dir2, name2);
		core_forget(rig.core, attr.ino, 1);
		return rc;
	case 8:
		return core_readdir(rig.core, VIEW_BASE, dir, 0, true, count_entry, &count);
	default:
		return shuffle_file(w, dir, name);
	}
}

static void shuffle(void *arg)
{
	struct worker *w = arg;

	for (unsigned i = 0; i < rounds * 4; i++) {
		int rc = shuffle_step(w);

		expect(allowed(rc), "shuffle", rc);
	}
}

/* --- cycle --------------------------------------------------------------- */

static void cycle(void *arg)
{
	struct worker *w = arg;
	const char *mine = w->number % 2 ? "a" : "b", *other = w->number % 2 ? "b" : "a";

	for (unsigned i = 0; i < rounds; i++) {
		struct core_attr into;
		int rc = lookup(w->dir[0], other, &into);

		if (rc == 0) {
			rc = rig_rename(&rig, w->dir[0], mine, into.ino, mine);
			expect(rc == 0 || rc == -ENOENT || rc == -EINVAL, "mv into the other", rc);
			if (rc == 0) {
				rc = rig_rename(&rig, into.ino, mine, w->dir[0], mine);
				expect(rc == 0 || rc == -ENOENT, "mv back", rc);
			}
			core_forget(rig.core, into.ino, 1);
		} else {
			expect(rc == -ENOENT, "lookup of the other", rc);
		}
	}
}

/* --- replace ------------------------------------------------------------- */

static void replace(void *arg)
{
	struct worker *w = arg;
	struct core_attr attr;
	char name[16];

	snprintf(name, sizeof(name), "new%u", w->number);
	for (unsigned i = 0; i < rounds; i++) {
		if (w->number < 2) {
			expect(rig_file(&rig, w->dir[0], name) != 0, "create", i);
			expect(rig_rename(&rig, w->dir[0], name, w->dir[0], "f") == 0, "mv over",
			       i);
		} else {
			int rc = lookup(w->dir[0], "f", &attr);

			expect(rc == 0, "lookup of what is replaced", rc);
			expect(attr.nlink == 1, "nlink of it", attr.nlink);
			core_forget(rig.core, attr.ino, 1);
		}
	}
}

/* --- listing ------------------------------------------------------------- */

#define STAYING 300u

struct seen {
	unsigned times[STAYING];
	unsigned batch;
	uint64_t cookie;
};

static int see(void *arg, const struct core_dirent *d)
{
	struct seen *s = arg;
	char name[32];

	if (s->batch-- == 0)
		return 1;
	s->cookie = d->cookie;
	memcpy(name, d->name, d->name_len);
	name[d->name_len] = '\0';
	if (name[0] == 's')
		s->times[atoi(name + 4)]++;
	if (d->attr && d->cookie > 2)
		core_forget(rig.core, d->ino, 1);
	return 0;
}

static void list_all(uint64_t dir, bool plus)
{
	struct seen s = {.cookie = 0};
	uint64_t before;

	do {
		before = s.cookie;
		s.batch = 13;
		expect(core_readdir(rig.core, VIEW_BASE, dir, s.cookie, plus, see, &s) == 0,
		       "readdir", 0);
	} while (s.cookie != before);
	for (unsigned i = 0; i < STAYING; i++)
		expect(s.times[i] == 1, "times that an entry was listed", s.times[i]);
}

static void listing(void *arg)
{
	struct worker *w = arg;
	char name[32];

	if (w->number == 0) {
		for (unsigned i = 0; i < rounds / 20 + 1; i++)
			list_all(w->dir[0], i % 2);
		atomic_store(&stop, true);
		return;
	}
	for (unsigned i = 0; !atomic_load(&stop); i++) {
		snprintf(name, sizeof(name), "come%u.%u", w->number, i % 50);
		if (rig_file(&rig, w->dir[0], name) == 0)
			expect(rig_unlink(&rig, w->dir[0], name) == 0, "unlink", i);
	}
}

/* --- contents ------------------------------------------------------------ */

#define WHOLE_BYTES 40000u

static void contents(void *arg)
{
	struct worker *w = arg;
	uint8_t *buf = malloc(WHOLE_BYTES);

	expect(buf != NULL, "memory", 0);
	for (unsigned i = 0; i < rounds; i++) {
		size_t done;

		if (w->number % 2) {
			memset(buf, (int)(random_next(&w->random) % 255 + 1), WHOLE_BYTES);
			expect(rig_write(&rig, w->dir[0], 500, buf, WHOLE_BYTES) == 0, "write", i);
			continue;
		}
		expect(core_read(rig.core, VIEW_BASE, w->dir[0], 500, buf, WHOLE_BYTES, &done) == 0,
		       "read", i);
		expect(done == WHOLE_BYTES, "bytes read", (int64_t)done);
		for (unsigned b = 1; b < WHOLE_BYTES; b++)
			expect(buf[b] == buf[0], "mixed contents at", b);
	}
	free(buf);
}

/* --- orphans ------------------------------------------------------------- */

static void orphans(void *arg)
{
	struct worker *w = arg;
	char name[16];

	snprintf(name, sizeof(name), "o%u", w->number % 2);
	for (unsigned i = 0; i < rounds; i++) {
		struct core_attr attr;
		uint8_t buf[6000];
		size_t done;
		int rc;

		(void)rig_file(&rig, w->dir[0], name);
		rc = lookup(w->dir[0], name, &attr);
		if (rc) {
			expect(rc == -ENOENT, "lookup", rc);
			continue;
		}
		rc = rig_unlink(&rig, w->dir[0], name);
		expect(rc == 0 || rc == -ENOENT, "unlink", rc);
		/* Looked up, so it lives, whoever took its name. */
		memset(buf, 7, sizeof(buf));
		expect(rig_write(&rig, attr.ino, 100, buf, sizeof(buf)) == 0, "write to it", i);
		if (i % 8 == 0)
			rig_purge(&rig);
		rc = core_read(rig.core, VIEW_BASE, attr.ino, 100, buf, sizeof(buf), &done);
		expect(rc == 0 && done == sizeof(buf), "read of it", (int64_t)done);
		core_forget(rig.core, attr.ino, 1);
	}
}

/* --- main ---------------------------------------------------------------- */

static void prepare(struct worker *w, unsigned count, uint64_t seed, uint64_t dir)
{
	for (unsigned i = 0; i < count; i++)
		w[i] = (struct worker){.number = i, .random = seed + i, .dir = {dir, dir, dir}};
}

static void stage(const char *name)
{
	check_tree();
	printf("%s\n", name);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1, dir;
	struct worker w[THREADS];
	char name[32];

	rounds = 150 * test_scale();
	printf("race_core: seed %" PRIu64 "\n", seed);
	os_linux_set_point_handler(yield_at);
	rig_open(&rig, 64u << 20, 4096, true);

	prepare(w, THREADS, seed, INO_ROOT);
	for (unsigned i = 0; i < THREADS; i++) {
		w[i].dir[1] = i ? w[0].dir[1] : rig_dir(&rig, INO_ROOT, "d1");
		w[i].dir[2] = i ? w[0].dir[2] : rig_dir(&rig, w[0].dir[1], "d2");
	}
	run(shuffle, w, THREADS);
	stage("shuffle");

	dir = rig_dir(&rig, INO_ROOT, "cycle");
	rig_dir(&rig, dir, "a");
	rig_dir(&rig, dir, "b");
	prepare(w, THREADS, seed, dir);
	run(cycle, w, THREADS);
	stage("cycle");

	dir = rig_dir(&rig, INO_ROOT, "replace");
	rig_file(&rig, dir, "f");
	prepare(w, THREADS, seed, dir);
	run(replace, w, THREADS);
	stage("replace");

	dir = rig_dir(&rig, INO_ROOT, "listing");
	for (unsigned i = 0; i < STAYING; i++) {
		snprintf(name, sizeof(name), "stay%u", i);
		expect(rig_file(&rig, dir, name) != 0, "create", i);
	}
	prepare(w, 3, seed, dir);
	run(listing, w, 3);
	stage("listing");

	dir = rig_file(&rig, INO_ROOT, "contents");
	for (unsigned i = 0; i < THREADS; i++) {
		static uint8_t zeros[WHOLE_BYTES];

		expect(rig_write(&rig, dir, 500, zeros, sizeof(zeros)) == 0, "write", 0);
	}
	prepare(w, THREADS, seed, dir);
	run(contents, w, THREADS);
	stage("contents");

	dir = rig_dir(&rig, INO_ROOT, "orphans");
	prepare(w, THREADS, seed, dir);
	run(orphans, w, THREADS);
	stage("orphans");

	rig_reopen(&rig, false);
	check_tree();
	rig_close(&rig);
	return 0;
}
