#include "tests/model/play.h"

#include "tests/lib/scratch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define NAME_ROOM 256u

static const struct core_cred cred = {.uid = 1000, .gid = 1000};

static noreturn void fail(const struct play *p, const char *what, int64_t got, int64_t want)
{
	p->fail(p, what, got, want);
	abort();
}

void play_init(struct play *p, struct core *core, uint64_t root, uint64_t seed)
{
	p->core = core;
	p->random = seed;
	p->bytes_max = ORACLE_FILE_BYTES_MAX;
	p->now = oracle_new();
	p->ino[0] = root;
}

void play_free(struct play *p)
{
	oracle_free(p->now);
}

uint64_t play_below(struct play *p, uint64_t limit)
{
	return random_next(&p->random) % limit;
}

static void name_of(const struct play *p, uint32_t dir, char *name, uint32_t number)
{
	/* The last ones are long, so that pages of names differ in size. */
	int width = number > ORACLE_NAMES - 3 ? 200 : 1;

	snprintf(name, NAME_ROOM, "%sname%0*u", dir == 0 ? p->prefix : "", width, number);
}

static const char *xattr_name(uint32_t number)
{
	static const char *const names[ORACLE_XATTRS_MAX] = {"user.a", "user.b", "trusted.c",
							     "security.d"};
	return names[number % ORACLE_XATTRS_MAX];
}

/* --- one operation on the core ------------------------------------------- */

static int do_write(struct play *p, const struct oracle_op *op, uint64_t ino, unsigned flags)
{
	oracle_fill(p->buf, op->len, op->seed);
	return core_write(p->core, VIEW_BASE, ino, op->offset, p->buf, op->len, flags);
}

static int do_setattr(struct play *p, uint64_t ino, unsigned set, uint64_t size, uint32_t mode)
{
	struct core_attr attr = {.size = size, .mode = mode};

	return core_setattr(p->core, VIEW_BASE, ino, set, &attr);
}

static int do_allocate(struct play *p, const struct oracle_op *op, uint64_t ino)
{
	unsigned mode = op->kind == OP_PUNCH ? CORE_PUNCH_HOLE | CORE_KEEP_SIZE
					      : op->keep_size ? CORE_KEEP_SIZE : 0;

	if (op->kind == OP_ZERO)
		mode |= CORE_ZERO_RANGE;
	return core_fallocate(p->core, VIEW_BASE, ino, mode, op->offset, op->len);
}

static int do_setxattr(struct play *p, const struct oracle_op *op, uint64_t ino)
{
	oracle_fill(p->buf, op->len, op->seed);
	return core_setxattr(p->core, VIEW_BASE, ino, xattr_name(op->name), p->buf, op->len, 0);
}

static int do_make(struct play *p, const struct oracle_op *op, uint64_t parent, const char *name,
		   uint64_t *made)
{
	struct core_attr attr;
	char target[SYMLINK_BYTES_MAX + 1];
	int rc;

	if (op->kind == OP_SYMLINK) {
		oracle_target(target, op->len, op->seed);
		rc = core_symlink(p->core, VIEW_BASE, &cred, parent, name, strlen(name), target,
				  op->len, &attr);
	} else {
		rc = core_create(p->core, VIEW_BASE, &cred, parent, name, strlen(name),
				 op->mode | (op->kind == OP_MKDIR ? S_IFDIR : S_IFREG), 0, &attr);
	}
	if (rc == 0) {
		*made = attr.ino;
		core_forget(p->core, attr.ino, 1);
	}
	return rc;
}

static int do_link(struct play *p, uint64_t ino, uint64_t parent, const char *name)
{
	struct core_attr attr;
	int rc = core_link(p->core, VIEW_BASE, ino, parent, name, strlen(name), &attr);

	if (rc == 0)
		core_forget(p->core, attr.ino, 1);
	return rc;
}

static int do_whiteout(struct play *p, const struct oracle_op *op, const char *name,
		       const char *name2, unsigned flags, uint64_t *made)
{
	struct core_attr attr;
	int rc = core_rename_whiteout(p->core, VIEW_BASE, &cred, p->ino[op->node], name,
				      strlen(name), p->ino[op->node2], name2, strlen(name2), flags);

	if (rc == 0)
		rc = core_lookup(p->core, VIEW_BASE, p->ino[op->node], name, strlen(name), &attr);
	if (rc == 0) {
		*made = attr.ino;
		core_forget(p->core, attr.ino, 1);
	}
	return rc;
}

static int do_rename(struct play *p, const struct oracle_op *op, const char *name,
		     const char *name2, uint64_t *made)
{
	unsigned flags = op->noreplace  ? CORE_RENAME_NOREPLACE
			 : op->exchange ? CORE_RENAME_EXCHANGE
					: 0;

	if (op->whiteout)
		return do_whiteout(p, op, name, name2, flags, made);
	return core_rename(p->core, VIEW_BASE, p->ino[op->node], name, strlen(name),
			   p->ino[op->node2], name2, strlen(name2), flags);
}

static int do_copy(struct play *p, const struct oracle_op *op, uint64_t from, uint64_t to)
{
	uint64_t done = 0, size = p->now->node[op->node2]->size;
	int rc = core_copy(p->core, VIEW_BASE, from, op->offset2, to, op->offset, op->len, &done);

	if (rc == 0 && op->offset2 < size)
		check(done == op->len || done == size - op->offset2);
	return rc;
}

int play_do(struct play *p, const struct oracle_op *op, uint64_t *made)
{
	uint64_t ino = p->ino[op->node], ino2 = p->ino[op->node2];
	char name[NAME_ROOM], name2[NAME_ROOM];

	name_of(p, op->node, name, op->name);
	name_of(p, op->node2, name2, op->name2);
	switch (op->kind) {
	case OP_CREATE: case OP_MKDIR: case OP_SYMLINK:
		return do_make(p, op, ino, name, made);
	case OP_LINK:
		return do_link(p, ino2, ino, name);
	case OP_UNLINK:
		return core_unlink(p->core, VIEW_BASE, ino, name, strlen(name));
	case OP_RMDIR:
		return core_rmdir(p->core, VIEW_BASE, ino, name, strlen(name));
	case OP_RENAME:
		return do_rename(p, op, name, name2, made);
	case OP_WRITE:
		return do_write(p, op, ino, 0);
	case OP_APPEND:
		return do_write(p, op, ino, CORE_WRITE_APPEND);
	case OP_COPY:
		return do_copy(p, op, ino2, ino);
	case OP_ALLOCATE: case OP_PUNCH: case OP_ZERO:
		return do_allocate(p, op, ino);
	case OP_TRUNCATE:
		return do_setattr(p, ino, CORE_SET_SIZE, op->len, 0);
	case OP_CHMOD:
		return do_setattr(p, ino, CORE_SET_MODE, 0, op->mode);
	case OP_SETXATTR:
		return do_setxattr(p, op, ino);
	case OP_REMOVEXATTR:
		return core_removexattr(p->core, VIEW_BASE, ino, xattr_name(op->name));
	case OP_KINDS:
		break;
	}
	abort();
}

void play_print(const struct oracle_op *op)
{
	fprintf(stderr, "kind %d node %u name %u node2 %u name2 %u offset %" PRIu64
		" offset2 %" PRIu64 " len %" PRIu64 "\n", op->kind, op->node, op->name, op->node2,
		op->name2, op->offset, op->offset2, op->len);
}

bool play_frees_space(const struct oracle_op *op)
{
	return op->kind == OP_UNLINK || op->kind == OP_RMDIR || op->kind == OP_TRUNCATE ||
	       (op->kind == OP_RENAME && !op->whiteout) || op->kind == OP_REMOVEXATTR;
}

/* --- choosing operations ------------------------------------------------- */

/* A random way down from the root. */
static uint32_t random_directory(struct play *p)
{
	uint32_t at = 0;

	while (play_below(p, 3)) {
		uint32_t child = p->now->node[at]->child[play_below(p, ORACLE_NAMES)];

		if (!child || p->now->node[child]->type != S_IFDIR)
			break;
		at = child;
	}
	return at;
}

static uint32_t random_node(struct play *p)
{
	uint32_t held = p->held[play_below(p, PLAY_HELD_MAX)];
	uint32_t dir = random_directory(p);

	if (held && play_below(p, 4) == 0)
		return held;
	for (unsigned tries = 0; tries < 4; tries++) {
		uint32_t child = p->now->node[dir]->child[play_below(p, ORACLE_NAMES)];

		if (child)
			return child;
	}
	return dir;
}

/* Most often a name that exists, or one that does not. */
static uint32_t random_name(struct play *p, uint32_t dir, bool existing)
{
	const struct oracle_node *d = p->now->node[dir];
	uint32_t name = (uint32_t)play_below(p, ORACLE_NAMES);

	for (unsigned tries = (unsigned)play_below(p, 8); tries > 0; tries--) {
		if ((d->child[name] != 0) == existing)
			break;
		name = (uint32_t)play_below(p, ORACLE_NAMES);
	}
	return name;
}

static void choose_range(struct play *p, struct oracle_op *op)
{
	uint64_t size = p->now->node[op->node]->size;
	uint64_t limit = play_below(p, 2) ? p->bytes_max : 1500;

	op->offset = play_below(p, limit);
	if (play_below(p, 3) == 0)
		op->offset &= ~4095ull;
	op->len = 1 + play_below(p, limit - op->offset);
	if (op->kind == OP_APPEND && size + op->len > p->bytes_max)
		op->kind = OP_WRITE;
	if (op->kind == OP_TRUNCATE)
		op->len = play_below(p, 3) ? op->offset : 0;
}

/*
 * Whole blocks, most often, and such that the copy is one piece, so that a crash
 * leaves all of it or nothing.
 */
static void choose_copy(struct play *p, struct oracle_op *op)
{
	uint64_t limit = p->bytes_max / 4096 * 4096, size, len;

	op->node2 = play_below(p, 4) ? random_node(p) : op->node;
	size = p->now->node[op->node2]->size;
	op->offset = play_below(p, limit / 4096) * 4096;
	op->offset2 = play_below(p, 3) ? play_below(p, size / 4096 + 1) * 4096 : 0;
	op->len = 4096 * (1 + play_below(p, 20));
	if (op->len > limit - op->offset)
		op->len = limit - op->offset;
	if (op->offset2 >= size)
		return;
	len = op->len < size - op->offset2 ? op->len : size - op->offset2;
	if (len % 4096 && op->offset + len < p->now->node[op->node]->size)
		op->len = len / 4096 * 4096;
	if (op->len == 0)
		op->kind = OP_CHMOD;
}

static bool is_of_attributes(enum oracle_kind kind)
{
	return kind == OP_CHMOD || kind == OP_SETXATTR || kind == OP_REMOVEXATTR;
}

static void choose_for_node(struct play *p, struct oracle_op *op)
{
	op->node = random_node(p);
	op->name = (uint32_t)play_below(p, ORACLE_XATTRS_MAX);
	choose_range(p, op);
	if (op->kind == OP_COPY)
		choose_copy(p, op);
	/* A shared directory's attributes are nobody's. */
	if (op->node == 0 && p->prefix[0] && is_of_attributes(op->kind))
		op->kind = OP_WRITE;
}

static void choose_for_names(struct play *p, struct oracle_op *op)
{
	op->node = play_below(p, 20) ? random_directory(p) : random_node(p);
	op->node2 = op->kind == OP_LINK ? random_node(p) : random_directory(p);
	op->name = random_name(p, op->node, op->kind >= OP_UNLINK);
	op->name2 = random_name(p, op->node2, play_below(p, 2));
}

struct oracle_op play_choose(struct play *p)
{
	static const enum oracle_kind kinds[] = {
		OP_CREATE, OP_CREATE, OP_CREATE, OP_CREATE, OP_MKDIR, OP_MKDIR, OP_SYMLINK,
		OP_LINK, OP_LINK, OP_UNLINK, OP_UNLINK, OP_RMDIR, OP_RENAME, OP_RENAME, OP_RENAME,
		OP_WRITE, OP_WRITE, OP_WRITE, OP_WRITE, OP_WRITE, OP_WRITE, OP_APPEND,
		OP_COPY, OP_COPY, OP_COPY, OP_COPY,
		OP_ALLOCATE, OP_ALLOCATE, OP_PUNCH, OP_PUNCH, OP_ZERO,
		OP_TRUNCATE, OP_CHMOD, OP_SETXATTR, OP_SETXATTR, OP_REMOVEXATTR,
	};
	struct oracle_op op = {.kind = kinds[play_below(p, array_count(kinds))]};

	op.seed = random_next(&p->random);
	op.mode = (uint32_t)play_below(p, 01000);
	op.noreplace = play_below(p, 4) == 0;
	op.exchange = !op.noreplace && play_below(p, 3) == 0;
	op.keep_size = play_below(p, 3) == 0;
	op.whiteout = p->whiteouts && op.kind == OP_RENAME && !op.exchange &&
		      play_below(p, 4) == 0;
	if (op.kind >= OP_WRITE)
		choose_for_node(p, &op);
	else
		choose_for_names(p, &op);
	if (op.kind == OP_SETXATTR)
		op.len = play_below(p, 4) ? play_below(p, 400) : play_below(p, 20000);
	if (op.kind == OP_SYMLINK)
		op.len = 1 + (play_below(p, 4) ? play_below(p, 100)
					       : play_below(p, SYMLINK_BYTES_MAX));
	return op;
}

/* --- looking at it ------------------------------------------------------- */

bool play_is_held(const struct play *p, uint32_t node)
{
	for (unsigned i = 0; i < PLAY_HELD_MAX; i++)
		if (p->held[i] == node)
			return true;
	return false;
}

int play_hold(struct play *p, uint32_t *let_go)
{
	unsigned slot = (unsigned)play_below(p, PLAY_HELD_MAX);
	uint32_t node = p->held[slot], dir = random_directory(p);
	uint32_t name = (uint32_t)play_below(p, ORACLE_NAMES);
	struct core_attr attr;
	char text[NAME_ROOM];
	int rc;

	*let_go = node;
	if (node) {
		p->held[slot] = 0;
		core_forget(p->core, p->ino[node], 1);
		return 0;
	}
	node = p->now->node[dir]->child[name];
	name_of(p, dir, text, name);
	rc = core_lookup(p->core, VIEW_BASE, p->ino[dir], text, strlen(text), &attr);
	if (rc == -EIO)
		return rc;
	if (rc != (node ? 0 : -ENOENT))
		fail(p, "lookup", rc, node ? 0 : -ENOENT);
	if (!node)
		return 0;
	if (attr.ino != p->ino[node])
		fail(p, "inode number", (int64_t)attr.ino, (int64_t)p->ino[node]);
	if (play_is_held(p, node))
		core_forget(p->core, attr.ino, 1);
	else
		p->held[slot] = node;
	return 0;
}

int play_compare_file(struct play *p)
{
	uint32_t node = random_node(p);
	const struct oracle_node *n = p->now->node[node];
	uint64_t offset;
	size_t done, want;
	int rc;

	if (n->type != S_IFREG)
		return 0;
	offset = play_below(p, n->size + 1);
	want = n->size - offset;
	rc = core_read(p->core, VIEW_BASE, p->ino[node], offset, p->buf, sizeof(p->buf), &done);
	if (rc == -EIO)
		return rc;
	if (rc)
		fail(p, "read", rc, 0);
	if (done != want)
		fail(p, "bytes read", (int64_t)done, (int64_t)want);
	if (done && memcmp(p->buf, n->bytes + offset, done))
		fail(p, "contents", -1, 0);
	return 0;
}

/* --- the walk ------------------------------------------------------------ */

struct listing {
	struct play *p;
	bool shared;
	uint64_t ino[ORACLE_NAMES];
	uint32_t type[ORACLE_NAMES];
};

static bool is_ours(const struct play *p, const struct core_dirent *d)
{
	size_t len = strlen(p->prefix);

	return d->name_len >= len && memcmp(d->name, p->prefix, len) == 0;
}

static int note_child(void *arg, const struct core_dirent *d)
{
	struct listing *l = arg;
	char name[NAME_ROOM];

	if (d->cookie <= 2 || (l->shared && !is_ours(l->p, d)))
		return 0;
	for (uint32_t i = 0; i < ORACLE_NAMES; i++) {
		name_of(l->p, l->shared ? 0 : 1, name, i);
		if (d->name_len != strlen(name) || memcmp(name, d->name, d->name_len))
			continue;
		if (l->ino[i])
			fail(l->p, "listed twice", i, 0);
		l->ino[i] = d->ino;
		l->type[i] = d->type;
		return 0;
	}
	fail(l->p, "unknown name", 0, 0);
}

static struct listing list(struct play *p, uint64_t ino, bool top)
{
	struct listing l = {.p = p, .shared = top && p->prefix[0]};
	int rc = core_readdir(p->core, VIEW_BASE, ino, 0, false, note_child, &l);

	if (rc)
		fail(p, "readdir on the walk", rc, 0);
	return l;
}

static uint64_t mix_number(uint64_t digest, uint64_t number)
{
	return oracle_mix(digest, &number, sizeof(number));
}

static uint64_t mix_contents(struct play *p, const struct core_attr *attr, uint64_t digest)
{
	size_t done;
	int rc;

	if (S_ISCHR(attr->mode))
		return digest;
	if (S_ISLNK(attr->mode)) {
		rc = core_readlink(p->core, VIEW_BASE, attr->ino, (char *)p->buf);
		done = attr->size;
	} else {
		rc = core_read(p->core, VIEW_BASE, attr->ino, 0, p->buf, sizeof(p->buf), &done);
	}
	if (rc)
		fail(p, "read on the walk", rc, 0);
	return done ? oracle_mix(digest, p->buf, done) : digest;
}

static uint64_t mix_xattrs(struct play *p, uint64_t ino, uint64_t digest)
{
	for (unsigned i = 0; i < ORACLE_XATTRS_MAX; i++) {
		size_t len;
		int rc = core_getxattr(p->core, VIEW_BASE, ino, xattr_name(i), p->buf,
				       sizeof(p->buf), &len);

		if (rc == -ENODATA)
			continue;
		if (rc)
			fail(p, "getxattr on the walk", rc, 0);
		digest = oracle_mix(mix_number(digest, i), p->buf, len);
	}
	return digest;
}

static void check_parent(struct play *p, uint64_t ino, uint64_t parent)
{
	struct core_attr up;
	int rc = core_lookup(p->core, VIEW_BASE, ino, "..", 2, &up);

	if (rc || up.ino != parent)
		fail(p, "parent", rc ? rc : (int64_t)up.ino, (int64_t)parent);
	core_forget(p->core, up.ino, 1);
}

static uint64_t digest_inode(struct play *p, uint64_t ino, uint64_t parent, uint64_t digest);

static uint64_t mix_children(struct play *p, const struct listing *l, uint64_t ino,
			     uint64_t digest)
{
	for (uint32_t i = 0; i < ORACLE_NAMES; i++)
		if (l->ino[i])
			digest = digest_inode(p, l->ino[i], ino, mix_number(digest, i));
	return mix_number(digest, ORACLE_NAMES); /* where a directory ends */
}

/* The digest of oracle.c, from the core. */
static uint64_t digest_inode(struct play *p, uint64_t ino, uint64_t parent, uint64_t digest)
{
	struct listing l;
	struct core_attr attr;
	int rc = core_getattr(p->core, VIEW_BASE, ino, &attr);

	if (rc)
		fail(p, "getattr on the walk", rc, 0);
	digest = mix_number(digest, attr.mode);
	digest = mix_number(digest, attr.nlink);
	if (!S_ISDIR(attr.mode)) {
		digest = mix_contents(p, &attr, mix_number(digest, attr.size));
		return mix_xattrs(p, ino, digest);
	}
	digest = mix_xattrs(p, ino, digest);
	check_parent(p, ino, parent);
	l = list(p, ino, false);
	return mix_children(p, &l, ino, digest);
}

/* Of a shared directory only what is ours can be compared. */
static uint64_t digest_shared(struct play *p)
{
	struct listing l = list(p, p->ino[0], true);
	uint64_t digest, nlink = 2;

	for (uint32_t i = 0; i < ORACLE_NAMES; i++)
		nlink += l.ino[i] && S_ISDIR(l.type[i]);
	digest = mix_number(mix_number(0, S_IFDIR | p->now->node[0]->mode), nlink);
	return mix_children(p, &l, p->ino[0], digest);
}

uint64_t play_digest(struct play *p)
{
	return p->prefix[0] ? digest_shared(p) : digest_inode(p, p->ino[0], p->ino[0], 0);
}

static void rebind(struct play *p, uint32_t node, bool top)
{
	struct listing l = list(p, p->ino[node], top);

	for (uint32_t i = 0; i < ORACLE_NAMES; i++) {
		uint32_t child = p->now->node[node]->child[i];

		if ((child != 0) != (l.ino[i] != 0))
			fail(p, "a name is, or is not, there", i, child);
		if (!child)
			continue;
		p->ino[child] = l.ino[i];
		if (p->now->node[child]->type == S_IFDIR)
			rebind(p, child, false);
	}
}

void play_rebind(struct play *p)
{
	rebind(p, 0, true);
}
