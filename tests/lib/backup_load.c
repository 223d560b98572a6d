#include "tests/lib/backup_load.h"

#include "engine/base/crc32c.h"
#include "engine/base/error.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define SLOTS 6u
#define NAMES 600u            /* of empty files, so that leaves of names split and merge */
#define BYTES_MAX (160u << 10)

/* ------------------------------------------------------------- the model */

struct slot {
	bool exists;
	size_t size;
	uint8_t *bytes;
	uint32_t xattr; /* seed of its value; 0 = none */
};

struct dir_model {
	struct slot slot[SLOTS];
	bool name[NAMES];
};

enum kind { PUT, PATCH, CUT, ALLOCATE, PUNCH, UNLINK, MOVE, XATTR, NAMES_ADD, NAMES_DROP, KINDS };

struct op {
	enum kind kind;
	unsigned a, b;
	size_t offset, len;
	uint64_t seed;
};

static void op_make(uint64_t seed, unsigned number, struct op *op)
{
	uint64_t random = seed * 1000003 + number;

	op->seed = random_next(&random) | 1;
	op->kind = (enum kind)(random_next(&random) % KINDS);
	op->a = (unsigned)(random_next(&random) % SLOTS);
	op->b = (unsigned)(random_next(&random) % NAMES);
	op->len = (size_t)(random_next(&random) % 4 ? 9000 : BYTES_MAX);
	op->len = (size_t)(random_next(&random) % op->len) + 1;
	op->offset = (size_t)(random_next(&random) % (BYTES_MAX - op->len + 1));
}

static void model_free(struct dir_model *m)
{
	for (unsigned i = 0; i < SLOTS; i++)
		free(m->slot[i].bytes);
}

static uint8_t *bytes_of(struct slot *slot)
{
	if (slot->bytes == NULL)
		slot->bytes = calloc(1, BYTES_MAX);
	check(slot->bytes != NULL);
	return slot->bytes;
}

static bool keeps_size(const struct op *op)
{
	return op->b % 2;
}

static void model_apply(struct dir_model *m, const struct op *op)
{
	struct slot *a = &m->slot[op->a], *b = &m->slot[op->b % SLOTS], swap;

	switch (op->kind) {
	case PUT:
		if (a->exists)
			break;
		memset(bytes_of(a), 0, BYTES_MAX);
		*a = (struct slot){.exists = true, .bytes = a->bytes};
		break;
	case PATCH:
		if (!a->exists)
			break;
		rig_fill(bytes_of(a) + op->offset, op->len, op->seed);
		if (op->offset + op->len > a->size)
			a->size = op->offset + op->len;
		break;
	case CUT:
		if (!a->exists)
			break;
		if (op->len < a->size)
			memset(bytes_of(a) + op->len, 0, BYTES_MAX - op->len);
		a->size = op->len;
		break;
	case ALLOCATE:
		if (a->exists && !keeps_size(op) && op->offset + op->len > a->size)
			a->size = op->offset + op->len;
		break;
	case PUNCH:
		if (a->exists)
			memset(bytes_of(a) + op->offset, 0, op->len);
		break;
	case UNLINK:
		a->exists = false;
		break;
	case MOVE:
		if (!a->exists || a == b)
			break;
		swap = *b;
		*b = *a;
		*a = swap;
		a->exists = false;
		break;
	case XATTR:
		if (a->exists)
			a->xattr = (uint32_t)op->seed | 1;
		break;
	case NAMES_ADD:
		m->name[op->b] = true;
		break;
	case NAMES_DROP:
		m->name[op->b] = false;
		break;
	case KINDS:
		break;
	}
}

static uint64_t mix(uint64_t digest, uint64_t value)
{
	digest ^= value;
	return random_next(&digest);
}

static uint64_t model_digest(struct dir_model *m)
{
	uint64_t digest = 1;

	for (unsigned i = 0; i < SLOTS; i++) {
		struct slot *slot = &m->slot[i];

		digest = mix(digest, slot->exists);
		if (!slot->exists)
			continue;
		digest = mix(digest, slot->size);
		digest = mix(digest, slot->size ? crc32c(0, bytes_of(slot), slot->size) : 0);
		digest = mix(digest, slot->xattr);
	}
	for (unsigned i = 0; i < NAMES; i++)
		digest = mix(digest, m->name[i]);
	return digest;
}

/* -------------------------------------------------------- the same, for real */

struct worker {
	struct backup_load *load;
	unsigned number;
	uint64_t seed, dir;
	struct os_thread thread;
	struct dir_model model; /* which operations make sense */
	_Atomic unsigned begun, over;
	uint64_t begin_tick[BACKUP_LOAD_OPS_MAX], end_tick[BACKUP_LOAD_OPS_MAX];
	bool failed[BACKUP_LOAD_OPS_MAX]; /* with ENOSPC: nothing was done */
};

struct backup_load {
	struct rig *rig;
	_Atomic bool stop;
	_Atomic uint64_t tick, full;
	struct worker worker[BACKUP_LOAD_THREADS];
};

static noreturn void fail(const char *what, int64_t got)
{
	fprintf(stderr, "backup load: %s: %lld\n", what, (long long)got);
	abort();
}

static void slot_name(char *name, unsigned slot)
{
	snprintf(name, 16, "slot%u", slot);
}

static void small_name(char *name, unsigned number)
{
	snprintf(name, 64, "a name that takes some room in its leaf %u", number);
}

static uint64_t find(struct rig *rig, uint64_t dir, const char *name)
{
	struct core_attr attr;
	int rc = rig_lookup(rig, dir, name, &attr);

	if (rc && rc != -ENOENT)
		fail("lookup", rc);
	return rc ? 0 : attr.ino;
}

static int real_apply(struct worker *w, const struct op *op)
{
	static _Thread_local uint8_t buf[BYTES_MAX];
	struct rig *rig = w->load->rig;
	char name[64], to[64];
	struct core_attr attr;
	uint64_t ino;
	int rc;

	slot_name(name, op->a);
	slot_name(to, op->b % SLOTS);
	switch (op->kind) {
	case PUT:
		rc = core_create(rig->core, VIEW_BASE, &rig_cred, w->dir, name, strlen(name),
				 S_IFREG | 0644, 0, &attr);
		if (rc == 0)
			core_forget(rig->core, attr.ino, 1);
		return rc == -EEXIST ? 0 : rc;
	case PATCH: case CUT: case ALLOCATE: case PUNCH: case XATTR:
		ino = find(rig, w->dir, name);
		if (ino == 0)
			return 0;
		if (op->kind == CUT)
			return rig_truncate(rig, ino, op->len);
		if (op->kind == ALLOCATE || op->kind == PUNCH)
			return core_fallocate(rig->core, VIEW_BASE, ino,
					      op->kind == PUNCH ? CORE_PUNCH_HOLE | CORE_KEEP_SIZE
					      : keeps_size(op)  ? CORE_KEEP_SIZE
								: 0,
					      op->offset, op->len);
		if (op->kind == XATTR)
			return core_setxattr(rig->core, VIEW_BASE, ino, "user.x",
					     &(uint32_t){(uint32_t)op->seed | 1}, 4, 0);
		rig_fill(buf, op->len, op->seed);
		return rig_write(rig, ino, op->offset, buf, op->len);
	case UNLINK:
		rc = rig_unlink(rig, w->dir, name);
		return rc == -ENOENT ? 0 : rc;
	case MOVE:
		rc = op->a == op->b % SLOTS ? 0 : rig_rename(rig, w->dir, name, w->dir, to);
		return rc == -ENOENT ? 0 : rc;
	case NAMES_ADD:
		small_name(name, op->b);
		rc = core_create(rig->core, VIEW_BASE, &rig_cred, w->dir, name, strlen(name),
				 S_IFREG | 0644, 0, &attr);
		if (rc == 0)
			core_forget(rig->core, attr.ino, 1);
		return rc == -EEXIST ? 0 : rc;
	case NAMES_DROP:
		small_name(name, op->b);
		rc = rig_unlink(rig, w->dir, name);
		return rc == -ENOENT ? 0 : rc;
	case KINDS:
		break;
	}
	return 0;
}

/* Names come and go in waves, so that pages do. */
static void shape(struct op *op, unsigned number)
{
	if (op->kind == NAMES_ADD || op->kind == NAMES_DROP)
		op->kind = number / 400 % 2 ? NAMES_DROP : NAMES_ADD;
}

static void one_op(struct worker *w)
{
	unsigned i = atomic_load(&w->over);
	struct op op;
	int rc;

	op_make(w->seed, i, &op);
	shape(&op, i);
	w->begin_tick[i] = atomic_fetch_add(&w->load->tick, 1);
	atomic_store(&w->begun, i + 1);
	rc = real_apply(w, &op);
	w->failed[i] = rc == -ENOSPC;
	if (rc == -ENOSPC)
		atomic_fetch_add(&w->load->full, 1);
	else if (rc)
		fail(error_text(rc), (int64_t)op.kind);
	w->end_tick[i] = atomic_fetch_add(&w->load->tick, 1);
	atomic_store(&w->over, i + 1);
}

static void work(void *arg)
{
	struct worker *w = arg;

	while (!atomic_load(&w->load->stop) && atomic_load(&w->over) < BACKUP_LOAD_OPS_MAX)
		one_op(w);
}

struct backup_load *backup_load_new(struct rig *rig, uint64_t seed)
{
	struct backup_load *load = calloc(1, sizeof(*load));

	check(load != NULL);
	load->rig = rig;
	for (unsigned i = 0; i < BACKUP_LOAD_THREADS; i++) {
		struct worker *w = &load->worker[i];
		char name[16];

		snprintf(name, sizeof(name), "worker%u", i);
		w->load = load;
		w->number = i;
		w->seed = seed * 100 + i;
		w->dir = rig_dir(rig, INO_ROOT, name);
		check(w->dir != 0);
	}
	return load;
}

void backup_load_start(struct backup_load *load)
{
	atomic_store(&load->stop, false);
	for (unsigned i = 0; i < BACKUP_LOAD_THREADS; i++)
		if (os_thread_start(&load->worker[i].thread, "load", work, &load->worker[i]))
			fail("thread", 0);
}

void backup_load_stop(struct backup_load *load)
{
	atomic_store(&load->stop, true);
	for (unsigned i = 0; i < BACKUP_LOAD_THREADS; i++)
		os_thread_join(&load->worker[i].thread);
}

void backup_load_step(struct backup_load *load, unsigned count)
{
	for (unsigned n = 0; n < count; n++)
		for (unsigned i = 0; i < BACKUP_LOAD_THREADS; i++)
			one_op(&load->worker[i]);
}

void backup_load_await(struct backup_load *load, unsigned count)
{
	struct backup_load_point from = backup_load_over(load);
	const struct os *os = os_current();
	_Atomic uint32_t nobody = 0;

	for (unsigned i = 0; i < BACKUP_LOAD_THREADS; i++)
		while (atomic_load(&load->worker[i].over) < from.at[i] + count &&
		       atomic_load(&load->worker[i].over) < BACKUP_LOAD_OPS_MAX)
			os->wait(os, &nobody, 0, 100000);
}

uint64_t backup_load_full(const struct backup_load *load)
{
	return atomic_load(&load->full);
}

struct backup_load_point backup_load_over(struct backup_load *load)
{
	struct backup_load_point point;

	for (unsigned i = 0; i < BACKUP_LOAD_THREADS; i++)
		point.at[i] = atomic_load(&load->worker[i].over);
	return point;
}

struct backup_load_point backup_load_begun(struct backup_load *load)
{
	struct backup_load_point point;

	for (unsigned i = 0; i < BACKUP_LOAD_THREADS; i++)
		point.at[i] = atomic_load(&load->worker[i].begun);
	return point;
}

/* ------------------------------------------------------------- comparing */

static int lookup(struct core *core, uint64_t dir, const char *name, struct core_attr *attr)
{
	int rc = core_lookup(core, VIEW_BASE, dir, name, strlen(name), attr);

	if (rc == 0)
		core_forget(core, attr->ino, 1);
	else if (rc != -ENOENT)
		fail("lookup in the restored volume", rc);
	return rc;
}

static uint64_t real_digest(struct core *core, uint64_t dir)
{
	uint8_t *buf = malloc(BYTES_MAX);
	uint64_t digest = 1;
	struct core_attr attr;
	char name[64];

	check(buf != NULL);
	for (unsigned i = 0; i < SLOTS; i++) {
		uint32_t xattr = 0;
		size_t done = 0;
		int rc;

		slot_name(name, i);
		rc = lookup(core, dir, name, &attr);
		digest = mix(digest, rc == 0);
		if (rc)
			continue;
		rc = core_read(core, VIEW_BASE, attr.ino, 0, buf, BYTES_MAX, &done);
		if (rc || done != attr.size)
			fail("read in the restored volume", rc);
		rc = core_getxattr(core, VIEW_BASE, attr.ino, "user.x", &xattr, 4, &(size_t){0});
		if (rc && rc != -ENODATA)
			fail("getxattr in the restored volume", rc);
		digest = mix(digest, done);
		digest = mix(digest, done ? crc32c(0, buf, done) : 0);
		digest = mix(digest, xattr);
	}
	for (unsigned i = 0; i < NAMES; i++) {
		small_name(name, i);
		digest = mix(digest, lookup(core, dir, name, &attr) == 0);
	}
	free(buf);
	return digest;
}

/*
 * When a directory looked like this: after its operation number `begin` - 1 had begun
 * and before the next one was over.  As ticks.
 */
struct span {
	uint64_t begin, end;
};

#define SPANS_MAX 4096u

/* Of each prefix of w's operations, from first to last, that looks like `digest`. */
static unsigned find_spans(struct worker *w, uint64_t digest, unsigned first, unsigned last,
			   struct span *spans)
{
	struct dir_model *m = calloc(1, sizeof(*m));
	unsigned over = atomic_load(&w->over), count = 0;

	check(m != NULL);
	for (unsigned i = 0;; i++) {
		struct op op;

		if (i >= first && count < SPANS_MAX && model_digest(m) == digest)
			spans[count++] = (struct span){
				.begin = i > 0 ? w->begin_tick[i - 1] : 0,
				.end = i < over ? w->end_tick[i] : UINT64_MAX,
			};
		if (i == last)
			break;
		op_make(w->seed, i, &op);
		shape(&op, i);
		if (!w->failed[i])
			model_apply(m, &op);
	}
	model_free(m);
	free(m);
	if (count == 0)
		fail("a directory is as it never was, thread", w->number);
	return count;
}

/* Has one span of each thread a moment in common with the given one? */
static bool meet(struct span spans[][SPANS_MAX], const unsigned *count, unsigned thread,
		 struct span all)
{
	if (thread == BACKUP_LOAD_THREADS)
		return true;
	for (unsigned i = 0; i < count[thread]; i++) {
		struct span both = spans[thread][i];

		if (both.begin < all.begin)
			both.begin = all.begin;
		if (both.end > all.end)
			both.end = all.end;
		if (both.begin < both.end && meet(spans, count, thread + 1, both))
			return true;
	}
	return false;
}

void backup_load_check(struct backup_load *load, struct core *core, struct backup_load_point first,
		       struct backup_load_point last)
{
	struct span (*spans)[SPANS_MAX] = calloc(BACKUP_LOAD_THREADS, sizeof(*spans));
	unsigned count[BACKUP_LOAD_THREADS];

	check(spans != NULL);
	for (unsigned i = 0; i < BACKUP_LOAD_THREADS; i++) {
		struct worker *w = &load->worker[i];

		count[i] = find_spans(w, real_digest(core, w->dir), first.at[i], last.at[i],
				      spans[i]);
	}
	if (!meet(spans, count, 0, (struct span){0, UINT64_MAX}))
		fail("the directories are not of one moment", 0);
	free(spans);
}

void backup_load_free(struct backup_load *load)
{
	for (unsigned i = 0; i < BACKUP_LOAD_THREADS; i++)
		model_free(&load->worker[i].model);
	free(load);
}
