/*
 * The n-th I/O, or the n-th allocation, fails: for every n until a run has no
 * failure left.
 *
 *	fault_core [first [step]]
 *
 * A failure must come back as an error, never as a crash, and leave a volume
 * that is sound after a restart and, when only memory was short, at once.
 */
#include "engine/base/error.h"
#include "engine/base/message.h"
#include "tests/lib/acl_example.h"
#include "tests/lib/core_rig.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define VOLUME_BYTES (6u << 20)

/* --- allocations --------------------------------------------------------- */

static _Thread_local int64_t allocations_left = -1; /* < 0: no failure is due */
static _Atomic unsigned allocations_failed;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OWN_MALLOC 0
#endif
#endif
#ifndef OWN_MALLOC
#define OWN_MALLOC 1
#endif

#if OWN_MALLOC
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static bool fails_now(void)
{
	if (allocations_left < 0 || allocations_left-- > 0)
		return false;
	atomic_fetch_add(&allocations_failed, 1);
	errno = ENOMEM;
	return true;
}

void *malloc(size_t size)
{
	return fails_now() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	return fails_now() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *p, size_t size)
{
	return fails_now() ? NULL : __libc_realloc(p, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
	return fails_now() ? NULL : __libc_memalign(alignment, size);
}
#endif

/* --- what is run --------------------------------------------------------- */

static struct rig rig;
static uint8_t buf[200000], out[200000];

struct scene {
	uint64_t dir, file, other;
	uint64_t held[2];
};

static int make(uint64_t parent, const char *name, uint32_t mode, uint64_t *ino)
{
	struct core_attr attr;
	int rc = core_create(rig.core, VIEW_BASE, &rig_cred, parent, name, strlen(name), mode, 0,
			     &attr);

	if (rc == 0) {
		*ino = attr.ino;
		core_forget(rig.core, attr.ino, 1);
	}
	return rc;
}

static int ignore(void *arg, const struct core_dirent *d)
{
	(void)arg;
	if (d->attr && d->cookie > 2)
		core_forget(rig.core, d->ino, 1);
	return 0;
}

static int run_names(struct scene *s)
{
	char name[200];
	uint64_t ino;
	int rc;

	rc = make(INO_ROOT, "dir", S_IFDIR | 0755, &s->dir);
	for (unsigned i = 0; rc == 0 && i < 40; i++) {
		snprintf(name, sizeof(name), "%0150u", i); /* long: leaves split */
		rc = make(s->dir, name, S_IFREG | 0644, &ino);
	}
	if (rc == 0)
		rc = core_readdir(rig.core, VIEW_BASE, s->dir, 0, true, ignore, NULL);
	if (rc == 0)
		rc = rig_link(&rig, ino, INO_ROOT, "linked");
	if (rc == 0)
		rc = rig_rename(&rig, INO_ROOT, "linked", s->dir, "moved");
	snprintf(name, sizeof(name), "%0150u", 7u);
	if (rc == 0)
		rc = rig_rename(&rig, s->dir, "moved", s->dir, name);
	for (unsigned i = 10; rc == 0 && i < 40; i++) {
		snprintf(name, sizeof(name), "%0150u", i);
		rc = rig_unlink(&rig, s->dir, name);
	}
	return rc;
}

static int run_allocation(struct scene *s)
{
	struct core *core = rig.core;
	int rc = core_fallocate(core, VIEW_BASE, s->file, 0, 30000, 100000);

	if (rc == 0)
		rc = rig_write(&rig, s->file, 36000, buf, 50000);
	if (rc == 0)
		rc = core_fallocate(core, VIEW_BASE, s->file, CORE_PUNCH_HOLE | CORE_KEEP_SIZE,
				    39000, 20000);
	if (rc == 0)
		rc = core_fallocate(core, VIEW_BASE, s->file, CORE_ZERO_RANGE, 1000, 140000);
	return rc;
}

static int run_contents(struct scene *s)
{
	size_t done;
	int rc = make(s->dir, "file", S_IFREG | 0644, &s->file);

	if (rc == 0)
		rc = rig_write(&rig, s->file, 10, buf, 300);
	if (rc == 0)
		rc = rig_write(&rig, s->file, 5000, buf, 150001);
	if (rc == 0)
		rc = rig_write(&rig, s->file, 30000, buf, 5000);
	if (rc == 0)
		rc = core_read(rig.core, VIEW_BASE, s->file, 0, out, sizeof(out), &done);
	if (rc == 0)
		rc = rig_truncate(&rig, s->file, 40001);
	if (rc == 0)
		rc = run_allocation(s);
	if (rc == 0)
		rc = rig_truncate(&rig, s->file, 8192);
	if (rc == 0)
		rc = core_setxattr(rig.core, VIEW_BASE, s->file, "user.big", buf, 9000, 0);
	if (rc == 0)
		rc = core_getxattr(rig.core, VIEW_BASE, s->file, "user.big", out, sizeof(out),
				   &done);
	if (rc == 0)
		rc = core_removexattr(rig.core, VIEW_BASE, s->file, "user.big");
	if (rc == 0)
		rc = rig_truncate(&rig, s->file, 0);
	return rc;
}

/* ACLs and flags: each in the mini-transaction of what it goes with. */
static int run_attributes(struct scene *s)
{
	static const uint8_t list[] = ACL_EXAMPLE(7);
	struct core_attr attr = {.mode = 0640};
	uint64_t dir, sub, tmp;
	int rc = make(s->dir, "acls", S_IFDIR | 0755, &dir);

	if (rc == 0)
		rc = core_setxattr(rig.core, VIEW_BASE, dir, ACL_DEFAULT_NAME, list, sizeof(list),
				   0);
	if (rc == 0)
		rc = make(dir, "sub", S_IFDIR | 0777, &sub);
	if (rc == 0)
		rc = core_setattr(rig.core, VIEW_BASE, sub, CORE_SET_MODE, &attr);
	if (rc == 0)
		rc = core_tmpfile(rig.core, VIEW_BASE, &rig_cred, sub, 0666, &attr);
	if (rc)
		return rc;
	tmp = attr.ino;
	rc = core_accessed(rig.core, VIEW_BASE, tmp, CORE_ATIME_STRICT);
	if (rc == 0)
		rc = core_set_flags(rig.core, VIEW_BASE, sub, CORE_FLAG_IMMUTABLE);
	if (rc == 0)
		rc = core_set_flags(rig.core, VIEW_BASE, sub, 0);
	core_forget(rig.core, tmp, 1);
	return rc;
}

/* Sharing, and letting go of what is shared. */
static int run_copies(struct scene *s)
{
	uint64_t from, done;
	int rc = make(s->dir, "from", S_IFREG | 0644, &from);

	if (rc == 0)
		rc = rig_write(&rig, from, 0, buf, 100001);
	if (rc == 0)
		rc = core_copy(rig.core, VIEW_BASE, from, 0, s->file, 0, 100001, &done);
	if (rc == 0)
		rc = core_copy(rig.core, VIEW_BASE, from, 100, s->file, 300000, 20000, &done);
	if (rc == 0)
		rc = rig_write(&rig, from, 30000, buf, 5000);
	if (rc == 0)
		rc = rig_unlink(&rig, s->dir, "from");
	if (rc == 0)
		rc = rig_truncate(&rig, s->file, 40001);
	return rc;
}

static int run_scene(void)
{
	struct scene s = {0};
	struct statvfs figures;
	int rc = run_names(&s);

	if (rc == 0)
		rc = run_contents(&s);
	if (rc == 0)
		rc = run_copies(&s);
	if (rc == 0)
		rc = run_attributes(&s);
	if (rc == 0)
		rc = core_fsync(rig.core, VIEW_BASE, s.dir, false);
	if (rc == 0)
		rc = core_statfs(rig.core, VIEW_BASE, &figures);
	return rc;
}

/* --- checking ------------------------------------------------------------ */

static noreturn void fail(const char *kind, uint64_t n, const char *what)
{
	fprintf(stderr, "fault_core: %s %" PRIu64 ": %s\n", kind, n, what);
	abort();
}

/* true: there was no n-th. */
static bool fail_io(uint64_t n, bool sticky)
{
	uint64_t faults;
	int rc;

	rig_open(&rig, VOLUME_BYTES, 4096, false);
	dev_memory_fail(rig.dev, FAULT_READ | FAULT_WRITE | FAULT_FLUSH, n, -EIO, sticky);
	rc = run_scene();
	faults = dev_memory_fault_count(rig.dev);
	dev_memory_fail(rig.dev, 0, 0, 0, false);
	if (faults == 0 && rc)
		fail("I/O", n, "fails without a fault");
	if (rc && rc != -EIO)
		fail("I/O", n, error_text(rc));
	rig_reopen(&rig, true);
	if (rig_problems(&rig))
		fail("I/O", n, "volume_check");
	rig_close(&rig);
	return faults == 0;
}

static bool fail_allocation(uint64_t n)
{
	unsigned before = atomic_load(&allocations_failed);
	bool failed;
	int rc;

	rig_open(&rig, VOLUME_BYTES, 4096, false);
	allocations_left = (int64_t)n;
	rc = run_scene();
	allocations_left = -1;
	failed = atomic_load(&allocations_failed) != before;
	if (!failed && rc)
		fail("allocation", n, "fails without a fault");
	if (rc && rc != -ENOMEM)
		fail("allocation", n, error_text(rc));
	if (rig_problems(&rig))
		fail("allocation", n, "volume_check");
	rig_reopen(&rig, false);
	rig_close(&rig);
	return !failed;
}

int main(int argc, char **argv)
{
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 0;
	uint64_t step = argc > 2 ? strtoull(argv[2], NULL, 0) : 1, n;

	message_quiet(LOG_EMERG);
	rig_fill(buf, sizeof(buf), 1);
	for (n = first; !fail_io(n, false); n += step)
		;
	printf("%" PRIu64 " single I/O faults\n", n);
	for (n = first; !fail_io(n, true); n += step)
		;
	printf("%" PRIu64 " lasting I/O faults\n", n);
	for (n = first; OWN_MALLOC && !fail_allocation(n); n += step)
		;
	printf("%" PRIu64 " allocation faults\n", n);
	return 0;
}
