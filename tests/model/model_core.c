/*
 * Random operations on the core against a filesystem in plain memory.
 *
 *	model_core [seed [operations [MiB of the volume]]]
 *
 * Each result must be the oracle's; a small volume may also say ENOSPC, but not
 * to what frees space, and then nothing may have changed.  Now and then the volume
 * is closed or just abandoned, and opened again.  After its death it must show the
 * oracle as it was after some prefix of the operations that reaches at least to
 * the last fsync.
 */
#include "engine/base/error.h"
#include "tests/lib/core_rig.h"
#include "tests/lib/scratch.h"
#include "tests/model/oracle.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LOG_MAX 4000u  /* operations between two syncs */
#define HELD_MAX 6u
#define MAY_FILL_MIB 64u

struct model {
	struct rig rig;
	uint64_t seed, random;
	unsigned step;
	struct oracle *now;           /* all operations */
	struct oracle *synced;        /* those before the last sync */
	struct oracle_op log[LOG_MAX]; /* those after it that succeeded */
	unsigned logged;
	uint64_t ino[ORACLE_NODES_MAX];
	uint32_t held[HELD_MAX];      /* nodes that are looked up; 0: none */
	unsigned full, crashes, prefixes;
};

static noreturn void fail(const struct model *m, const char *what, int64_t got, int64_t want)
{
	fprintf(stderr, "model_core: seed %" PRIu64 ", step %u: %s: got %" PRId64 ", want %" PRId64
		"\n", m->seed, m->step, what, got, want);
	abort();
}

static uint64_t below(struct model *m, uint64_t limit)
{
	return random_next(&m->random) % limit;
}

static void name_of(char *name, uint32_t number)
{
	/* The last ones are long, so that pages of names differ in size. */
	int width = number > ORACLE_NAMES - 3 ? 200 : 1;

	snprintf(name, 256, "name%0*u", width, number);
}

static const char *xattr_name(uint32_t number)
{
	static const char *const names[ORACLE_XATTRS_MAX] = {"user.a", "user.b", "trusted.c",
							     "security.d"};
	return names[number % ORACLE_XATTRS_MAX];
}

/* --- one operation on the core ------------------------------------------- */

static int do_write(struct model *m, const struct oracle_op *op, uint64_t ino, unsigned flags)
{
	static uint8_t buf[ORACLE_FILE_BYTES_MAX];

	oracle_fill(buf, op->len, op->seed);
	return core_write(m->rig.core, VIEW_BASE, ino, op->offset, buf, op->len, flags);
}

static int do_setattr(struct model *m, uint64_t ino, unsigned set, uint64_t size, uint32_t mode)
{
	struct core_attr attr = {.size = size, .mode = mode};

	return core_setattr(m->rig.core, VIEW_BASE, ino, set, &attr);
}

static int do_allocate(struct model *m, const struct oracle_op *op, uint64_t ino)
{
	unsigned mode = op->kind == OP_PUNCH ? CORE_PUNCH_HOLE | CORE_KEEP_SIZE
					      : op->keep_size ? CORE_KEEP_SIZE : 0;

	if (op->kind == OP_ZERO)
		mode |= CORE_ZERO_RANGE;
	return core_fallocate(m->rig.core, VIEW_BASE, ino, mode, op->offset, op->len);
}

static int do_setxattr(struct model *m, const struct oracle_op *op, uint64_t ino)
{
	static uint8_t buf[65536];

	oracle_fill(buf, op->len, op->seed);
	return core_setxattr(m->rig.core, VIEW_BASE, ino, xattr_name(op->name), buf, op->len, 0);
}

static int do_make(struct model *m, const struct oracle_op *op, uint64_t parent, const char *name,
		   uint64_t *made)
{
	struct core *core = m->rig.core;
	struct core_attr attr;
	char target[SYMLINK_BYTES_MAX + 1];
	int rc;

	if (op->kind == OP_SYMLINK) {
		oracle_target(target, op->len, op->seed);
		rc = core_symlink(core, VIEW_BASE, &rig_cred, parent, name, strlen(name), target,
				  op->len, &attr);
	} else {
		rc = core_create(core, VIEW_BASE, &rig_cred, parent, name, strlen(name),
				 op->mode | (op->kind == OP_MKDIR ? S_IFDIR : S_IFREG), 0, &attr);
	}
	if (rc == 0) {
		*made = attr.ino;
		core_forget(core, attr.ino, 1);
	}
	return rc;
}

static int do_copy(struct model *m, const struct oracle_op *op, uint64_t from, uint64_t to)
{
	uint64_t done = 0;
	int rc = core_copy(m->rig.core, VIEW_BASE, from, op->offset2, to, op->offset, op->len,
			   &done);
	uint64_t size = m->now->node[op->node2]->size;

	if (rc == 0 && from != to && op->offset2 < size)
		check(done == op->len || done == size - op->offset2);
	return rc;
}

static int do_core(struct model *m, const struct oracle_op *op, uint64_t *made)
{
	struct core *core = m->rig.core;
	uint64_t ino = m->ino[op->node], ino2 = m->ino[op->node2];
	char name[256], name2[256];

	name_of(name, op->name);
	name_of(name2, op->name2);
	switch (op->kind) {
	case OP_CREATE: case OP_MKDIR: case OP_SYMLINK:
		return do_make(m, op, ino, name, made);
	case OP_LINK:
		return rig_link(&m->rig, ino2, ino, name);
	case OP_UNLINK:
		return rig_unlink(&m->rig, ino, name);
	case OP_RMDIR:
		return rig_rmdir(&m->rig, ino, name);
	case OP_RENAME:
		return core_rename(core, VIEW_BASE, ino, name, strlen(name), ino2, name2,
				   strlen(name2), op->noreplace  ? CORE_RENAME_NOREPLACE
						  : op->exchange ? CORE_RENAME_EXCHANGE
								 : 0);
	case OP_WRITE:
		return do_write(m, op, ino, 0);
	case OP_APPEND:
		return do_write(m, op, ino, CORE_WRITE_APPEND);
	case OP_COPY:
		return do_copy(m, op, ino2, ino);
	case OP_ALLOCATE: case OP_PUNCH: case OP_ZERO:
		return do_allocate(m, op, ino);
	case OP_TRUNCATE:
		return do_setattr(m, ino, CORE_SET_SIZE, op->len, 0);
	case OP_CHMOD:
		return do_setattr(m, ino, CORE_SET_MODE, 0, op->mode);
	case OP_SETXATTR:
		return do_setxattr(m, op, ino);
	case OP_REMOVEXATTR:
		return core_removexattr(core, VIEW_BASE, ino, xattr_name(op->name));
	case OP_KINDS:
		break;
	}
	abort();
}

/* --- choosing operations ------------------------------------------------- */

/* A random way down from the root. */
static uint32_t random_directory(struct model *m)
{
	uint32_t at = 0;

	while (below(m, 3)) {
		uint32_t child = m->now->node[at]->child[below(m, ORACLE_NAMES)];

		if (!child || m->now->node[child]->type != S_IFDIR)
			break;
		at = child;
	}
	return at;
}

static uint32_t random_node(struct model *m)
{
	uint32_t held = m->held[below(m, HELD_MAX)];
	uint32_t dir = random_directory(m);

	if (held && below(m, 4) == 0)
		return held;
	for (unsigned tries = 0; tries < 4; tries++) {
		uint32_t child = m->now->node[dir]->child[below(m, ORACLE_NAMES)];

		if (child)
			return child;
	}
	return dir;
}

/* Most often a name that exists, or one that does not. */
static uint32_t random_name(struct model *m, uint32_t dir, bool existing)
{
	const struct oracle_node *d = m->now->node[dir];
	uint32_t name = (uint32_t)below(m, ORACLE_NAMES);

	for (unsigned tries = (unsigned)below(m, 8); tries > 0; tries--) {
		if ((d->child[name] != 0) == existing)
			break;
		name = (uint32_t)below(m, ORACLE_NAMES);
	}
	return name;
}

static void choose_range(struct model *m, struct oracle_op *op)
{
	uint64_t size = m->now->node[op->node]->size;
	uint64_t limit = below(m, 2) ? ORACLE_FILE_BYTES_MAX : 1500;

	op->offset = below(m, limit);
	if (below(m, 3) == 0)
		op->offset &= ~4095ull;
	op->len = 1 + below(m, limit - op->offset);
	if (op->kind == OP_APPEND && size + op->len > ORACLE_FILE_BYTES_MAX)
		op->kind = OP_WRITE;
	if (op->kind == OP_TRUNCATE)
		op->len = below(m, 3) ? op->offset : 0;
}

/*
 * Whole blocks, most often, and such that the copy is one piece, so that a crash
 * leaves all of it or nothing.
 */
static void choose_copy(struct model *m, struct oracle_op *op)
{
	uint64_t limit = ORACLE_FILE_BYTES_MAX / 4096 * 4096, size, len;

	op->node2 = below(m, 4) ? random_node(m) : op->node;
	size = m->now->node[op->node2]->size;
	op->offset = below(m, limit / 4096) * 4096;
	op->offset2 = below(m, 3) ? below(m, size / 4096 + 1) * 4096 : 0;
	op->len = 4096 * (1 + below(m, 20));
	if (op->len > limit - op->offset)
		op->len = limit - op->offset;
	if (op->offset2 >= size)
		return;
	len = op->len < size - op->offset2 ? op->len : size - op->offset2;
	if (len % 4096 && op->offset + len < m->now->node[op->node]->size)
		op->len = len / 4096 * 4096;
	if (op->len == 0)
		op->kind = OP_CHMOD;
}

static struct oracle_op choose(struct model *m)
{
	static const enum oracle_kind kinds[] = {
		OP_CREATE, OP_CREATE, OP_CREATE, OP_CREATE, OP_MKDIR, OP_MKDIR, OP_SYMLINK,
		OP_LINK, OP_LINK, OP_UNLINK, OP_UNLINK, OP_RMDIR, OP_RENAME, OP_RENAME, OP_RENAME,
		OP_WRITE, OP_WRITE, OP_WRITE, OP_WRITE, OP_WRITE, OP_WRITE, OP_APPEND,
		OP_COPY, OP_COPY, OP_COPY, OP_COPY,
		OP_ALLOCATE, OP_ALLOCATE, OP_PUNCH, OP_PUNCH, OP_ZERO,
		OP_TRUNCATE, OP_CHMOD, OP_SETXATTR, OP_SETXATTR, OP_REMOVEXATTR,
	};
	struct oracle_op op = {.kind = kinds[below(m, array_count(kinds))]};

	op.seed = random_next(&m->random);
	op.mode = (uint32_t)below(m, 01000);
	op.noreplace = below(m, 4) == 0;
	op.exchange = !op.noreplace && below(m, 3) == 0;
	op.keep_size = below(m, 3) == 0;
	if (op.kind >= OP_WRITE) {
		op.node = random_node(m);
		op.name = (uint32_t)below(m, ORACLE_XATTRS_MAX);
		choose_range(m, &op);
		if (op.kind == OP_COPY)
			choose_copy(m, &op);
	} else {
		op.node = below(m, 20) ? random_directory(m) : random_node(m);
		op.node2 = op.kind == OP_LINK ? random_node(m) : random_directory(m);
		op.name = random_name(m, op.node, op.kind >= OP_UNLINK);
		op.name2 = random_name(m, op.node2, below(m, 2));
	}
	if (op.kind == OP_SETXATTR)
		op.len = below(m, 4) ? below(m, 400) : below(m, 20000);
	if (op.kind == OP_SYMLINK)
		op.len = 1 + (below(m, 4) ? below(m, 100) : below(m, SYMLINK_BYTES_MAX));
	return op;
}

/* --- nodes that go ------------------------------------------------------- */

static bool is_held(const struct model *m, uint32_t node)
{
	for (unsigned i = 0; i < HELD_MAX; i++)
		if (m->held[i] == node)
			return true;
	return false;
}

static void drop_if_gone(struct model *m, uint32_t node)
{
	struct core_attr attr;
	int rc;

	if (!node || !m->now->node[node] || m->now->node[node]->nlink || is_held(m, node))
		return;
	oracle_drop(m->now, node);
	if (below(m, 4) == 0) {
		rig_purge(&m->rig);
		rc = core_getattr(m->rig.core, VIEW_BASE, m->ino[node], &attr);
		if (rc != -ENOENT)
			fail(m, "inode after purge", rc, -ENOENT);
	}
}

static void hold(struct model *m)
{
	unsigned slot = (unsigned)below(m, HELD_MAX);
	uint32_t node = m->held[slot], dir = random_directory(m);
	uint32_t name = (uint32_t)below(m, ORACLE_NAMES);
	struct core_attr attr;
	char text[256];
	int rc;

	if (node) {
		m->held[slot] = 0;
		core_forget(m->rig.core, m->ino[node], 1);
		drop_if_gone(m, node);
		return;
	}
	node = m->now->node[dir]->child[name];
	name_of(text, name);
	rc = core_lookup(m->rig.core, VIEW_BASE, m->ino[dir], text, strlen(text), &attr);
	if (rc != (node ? 0 : -ENOENT))
		fail(m, "lookup", rc, node ? 0 : -ENOENT);
	if (!node)
		return;
	if (attr.ino != m->ino[node])
		fail(m, "inode number", (int64_t)attr.ino, (int64_t)m->ino[node]);
	if (is_held(m, node))
		core_forget(m->rig.core, attr.ino, 1);
	else
		m->held[slot] = node;
}

/* --- comparing ----------------------------------------------------------- */

static void compare_file(struct model *m, uint32_t node)
{
	static uint8_t buf[ORACLE_FILE_BYTES_MAX];
	const struct oracle_node *n = m->now->node[node];
	uint64_t offset;
	size_t done, want;
	int rc;

	if (n->type != S_IFREG)
		return;
	offset = below(m, n->size + 1);
	want = n->size - offset;
	rc = core_read(m->rig.core, VIEW_BASE, m->ino[node], offset, buf, sizeof(buf), &done);
	if (rc)
		fail(m, "read", rc, 0);
	if (done != want)
		fail(m, "bytes read", (int64_t)done, (int64_t)want);
	if (done && memcmp(buf, n->bytes + offset, done))
		fail(m, "contents", -1, 0);
}

struct walk {
	const struct model *m;
	uint64_t ino[ORACLE_NAMES];
};

static int note_child(void *arg, const struct core_dirent *d)
{
	struct walk *w = arg;
	char name[256];

	if (d->cookie <= 2)
		return 0;
	for (uint32_t i = 0; i < ORACLE_NAMES; i++) {
		name_of(name, i);
		if (d->name_len != strlen(name) || memcmp(name, d->name, d->name_len))
			continue;
		if (w->ino[i])
			fail(w->m, "listed twice", i, 0);
		w->ino[i] = d->ino;
		return 0;
	}
	fail(w->m, "unknown name", 0, 0);
}

static uint64_t mix_number(uint64_t digest, uint64_t number)
{
	return oracle_mix(digest, &number, sizeof(number));
}

static uint64_t mix_contents(const struct model *m, const struct core_attr *attr, uint64_t digest)
{
	static uint8_t buf[ORACLE_FILE_BYTES_MAX];
	size_t done;
	int rc;

	if (S_ISLNK(attr->mode)) {
		rc = core_readlink(m->rig.core, VIEW_BASE, attr->ino, (char *)buf);
		done = attr->size;
	} else {
		rc = core_read(m->rig.core, VIEW_BASE, attr->ino, 0, buf, sizeof(buf), &done);
	}
	if (rc)
		fail(m, "read on the walk", rc, 0);
	return done ? oracle_mix(digest, buf, done) : digest;
}

static uint64_t mix_xattrs(const struct model *m, uint64_t ino, uint64_t digest)
{
	static uint8_t buf[65536];

	for (unsigned i = 0; i < ORACLE_XATTRS_MAX; i++) {
		size_t len;
		int rc = core_getxattr(m->rig.core, VIEW_BASE, ino, xattr_name(i), buf, sizeof(buf),
				       &len);

		if (rc == -ENODATA)
			continue;
		if (rc)
			fail(m, "getxattr on the walk", rc, 0);
		digest = oracle_mix(mix_number(digest, i), buf, len);
	}
	return digest;
}

/* The digest of oracle.c, from the core. */
static uint64_t digest_inode(const struct model *m, uint64_t ino, uint64_t parent, uint64_t digest)
{
	struct walk w = {.m = m};
	struct core_attr attr, up;
	int rc = core_getattr(m->rig.core, VIEW_BASE, ino, &attr);

	if (rc)
		fail(m, "getattr on the walk", rc, 0);
	digest = mix_number(digest, attr.mode);
	digest = mix_number(digest, attr.nlink);
	if (!S_ISDIR(attr.mode)) {
		digest = mix_contents(m, &attr, mix_number(digest, attr.size));
		return mix_xattrs(m, ino, digest);
	}
	digest = mix_xattrs(m, ino, digest);
	rc = rig_lookup((struct rig *)&m->rig, ino, "..", &up);
	if (rc || up.ino != parent)
		fail(m, "parent", rc ? rc : (int64_t)up.ino, (int64_t)parent);
	rc = core_readdir(m->rig.core, VIEW_BASE, ino, 0, false, note_child, &w);
	if (rc)
		fail(m, "readdir on the walk", rc, 0);
	for (uint32_t i = 0; i < ORACLE_NAMES; i++)
		if (w.ino[i])
			digest = digest_inode(m, w.ino[i], ino, mix_number(digest, i));
	return digest;
}

static uint64_t digest_core(const struct model *m)
{
	return digest_inode(m, INO_ROOT, INO_ROOT, 0);
}

static void compare_all(struct model *m)
{
	uint64_t got = digest_core(m), want = oracle_digest(m->now);

	if (got != want)
		fail(m, "digest of the tree", (int64_t)got, (int64_t)want);
}

/* --- life cycle ---------------------------------------------------------- */

static void note_synced(struct model *m)
{
	oracle_free(m->synced);
	m->synced = oracle_copy(m->now);
	m->logged = 0;
}

static void sync_now(struct model *m)
{
	int rc = core_fsync(m->rig.core, VIEW_BASE, INO_ROOT, false);

	if (rc)
		fail(m, "fsync", rc, 0);
	note_synced(m);
}

static void check_volume(struct model *m)
{
	uint64_t problems = rig_problems(&m->rig);

	if (problems)
		fail(m, "volume_check", (int64_t)problems, 0);
}

static void drop_nameless(struct oracle *o)
{
	for (uint32_t i = 1; i < o->count; i++)
		if (o->node[i] && o->node[i]->nlink == 0)
			oracle_drop(o, i);
}

/* Which prefix of the operations survived?  The oracle goes back to it. */
static void find_prefix(struct model *m)
{
	uint64_t got = digest_core(m);
	struct oracle *o = m->synced;
	unsigned applied = 0;

	while (oracle_digest(o) != got) {
		if (applied == m->logged)
			fail(m, "no prefix of the operations is what survived; since sync",
			     m->logged, 0);
		(void)oracle_apply(o, &m->log[applied++]);
	}
	/* Operations that leave no trace in the digest do not count. */
	m->prefixes += m->logged ? applied * 100 / m->logged : 100;
	drop_nameless(o);
	oracle_free(m->now);
	m->now = o;
	m->synced = oracle_copy(m->now);
	m->logged = 0;
}

static void reopen(struct model *m, bool crash)
{
	memset(m->held, 0, sizeof(m->held));
	if (!crash) {
		drop_nameless(m->now);
		rig_reopen(&m->rig, false);
		compare_all(m);
		note_synced(m);
	} else {
		if (below(m, 2))
			sync_now(m);
		rig_reopen(&m->rig, true);
		find_prefix(m);
		m->crashes++;
	}
	check_volume(m);
}

/* --- one step ------------------------------------------------------------ */

static bool frees_space(enum oracle_kind kind)
{
	return kind == OP_UNLINK || kind == OP_RMDIR || kind == OP_TRUNCATE || kind == OP_RENAME ||
	       kind == OP_REMOVEXATTR;
}

/*
 * The oracle goes first, on itself; ENOSPC then undoes it by a copy made before.
 * Copies are dear, so only a volume that is meant to fill gets them.
 */
static void run_op(struct model *m, bool may_fill)
{
	struct oracle_op op = choose(m);
	struct oracle *before = may_fill ? oracle_copy(m->now) : NULL;
	uint32_t count = m->now->count;
	uint64_t made = 0;
	uint32_t gone[2] = {0, 0};
	int want, got;

	if (op.kind == OP_UNLINK || op.kind == OP_RMDIR)
		gone[0] = m->now->node[op.node]->child[op.name];
	if (op.kind == OP_RENAME && !op.exchange)
		gone[1] = m->now->node[op.node2]->child[op.name2];
	want = oracle_apply(m->now, &op);
	got = do_core(m, &op, &made);
	if (got == -ENOSPC && may_fill && !frees_space(op.kind)) {
		oracle_free(m->now);
		m->now = before;
		m->full++;
		return;
	}
	if (before)
		oracle_free(before);
	if (got != want) {
		fprintf(stderr, "kind %d node %u name %u node2 %u name2 %u offset %" PRIu64
			" len %" PRIu64 "\n", op.kind, op.node, op.name, op.node2, op.name2,
			op.offset, op.len);
		fail(m, "result", got, want);
	}
	if (got)
		return;
	if (m->now->count > count)
		m->ino[count] = made;
	m->log[m->logged++] = op;
	drop_if_gone(m, gone[0]);
	drop_if_gone(m, gone[1]);
}

static void step(struct model *m, bool may_fill)
{
	uint64_t kind = below(m, 1000);

	if (kind < 3)
		reopen(m, false);
	else if (kind < 7)
		reopen(m, true);
	else if (kind < 20 || m->logged == LOG_MAX)
		sync_now(m);
	else if (kind < 30)
		rig_purge(&m->rig);
	else if (kind < 34)
		compare_all(m);
	else if (kind < 100)
		hold(m);
	else if (kind < 200)
		compare_file(m, random_node(m));
	else
		run_op(m, may_fill);
}

static void report_space(struct model *m)
{
	struct statvfs s;
	int rc = core_statfs(m->rig.core, VIEW_BASE, &s);

	if (rc)
		fail(m, "statfs", rc, 0);
	printf("%" PRIu64 " inodes, %" PRIu64 " of %" PRIu64 " blocks in use\n",
	       (uint64_t)(s.f_files - s.f_ffree), (uint64_t)(s.f_blocks - s.f_bfree),
	       (uint64_t)s.f_blocks);
}

static void set_root_mode(struct model *m)
{
	struct core_attr attr = rig_attr(&m->rig, INO_ROOT);

	m->ino[0] = INO_ROOT;
	m->now->node[0]->mode = attr.mode & 07777;
}

static uint32_t page_size(uint64_t seed, bool small_volume)
{
	static const uint32_t sizes[] = {65536, 4096, 16384, 4096};

	return small_volume ? 4096 : sizes[seed % array_count(sizes)];
}

static void run(uint64_t seed, uint64_t steps, uint64_t mib)
{
	struct model *m = calloc(1, sizeof(*m));
	bool may_fill = mib < MAY_FILL_MIB;

	if (!m)
		abort();
	m->seed = seed;
	m->random = seed;
	printf("model_core: seed %" PRIu64 ", %" PRIu64 " steps, %" PRIu64 " MiB\n", seed, steps,
	       mib);
	fflush(stdout);
	rig_open(&m->rig, mib << 20, page_size(seed, may_fill), seed % 2);
	m->now = oracle_new();
	set_root_mode(m);
	m->synced = oracle_copy(m->now);
	for (m->step = 0; m->step < steps && m->now->count < ORACLE_NODES_MAX - 1; m->step++)
		step(m, may_fill);
	compare_all(m);
	check_volume(m);
	report_space(m);
	rig_close(&m->rig);
	printf("%u nodes made, %u times full, %u crashes (%u%% of what was not synced survived)\n",
	       m->now->count, m->full, m->crashes, m->crashes ? m->prefixes / m->crashes : 0);
	oracle_free(m->now);
	oracle_free(m->synced);
	free(m);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		run(strtoull(argv[1], NULL, 0), argc > 2 ? strtoull(argv[2], NULL, 0) : 6000,
		    argc > 3 ? strtoull(argv[3], NULL, 0) : 96);
		return 0;
	}
	for (unsigned i = 0; i < test_scale(); i++) {
		run(2 * i + 1, 6000, 96); /* with background threads */
		run(2 * i + 2, 6000, 96); /* without */
		run(i + 5, 6000, 4);      /* fills up */
	}
	return 0;
}
