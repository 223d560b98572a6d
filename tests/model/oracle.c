#include "tests/model/oracle.h"

#include "tests/lib/scratch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

static struct oracle_node *add(struct oracle *o, uint32_t type, uint32_t mode)
{
	struct oracle_node *n = must(calloc(1, sizeof(*n)));

	if (o->count == ORACLE_NODES_MAX)
		abort();
	n->type = type;
	n->mode = mode;
	n->nlink = type == S_IFDIR ? 2 : 1;
	o->node[o->count++] = n;
	return n;
}

struct oracle *oracle_new(void)
{
	struct oracle *o = must(calloc(1, sizeof(*o)));

	add(o, S_IFDIR, 0755);
	return o;
}

struct oracle *oracle_copy(const struct oracle *from)
{
	struct oracle *o = must(calloc(1, sizeof(*o)));

	o->count = from->count;
	for (uint32_t i = 0; i < from->count; i++) {
		if (!from->node[i])
			continue;
		o->node[i] = must(malloc(sizeof(*o->node[i])));
		*o->node[i] = *from->node[i];
		if (from->node[i]->bytes) {
			o->node[i]->bytes = must(malloc(from->node[i]->room));
			memcpy(o->node[i]->bytes, from->node[i]->bytes, from->node[i]->room);
		}
	}
	return o;
}

void oracle_drop(struct oracle *o, uint32_t node)
{
	if (!o->node[node])
		return;
	free(o->node[node]->bytes);
	free(o->node[node]);
	o->node[node] = NULL;
}

void oracle_free(struct oracle *o)
{
	for (uint32_t i = 0; i < o->count; i++)
		oracle_drop(o, i);
	free(o);
}

void oracle_fill(uint8_t *buf, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len; i += 8) {
		uint64_t word = random_next(&seed);

		memcpy(buf + i, &word, len - i < 8 ? len - i : 8);
	}
}

void oracle_target(char *buf, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (char)('a' + random_next(&seed) % 26);
}

/* --- namespace ----------------------------------------------------------- */

static struct oracle_node *directory(struct oracle *o, uint32_t node, int *rc)
{
	struct oracle_node *d = o->node[node];

	*rc = d->type == S_IFDIR ? 0 : -ENOTDIR;
	return d;
}

static int make(struct oracle *o, const struct oracle_op *op, uint32_t type)
{
	struct oracle_node *d, *n;
	int rc;

	d = directory(o, op->node, &rc);
	if (rc)
		return rc;
	if (d->nlink == 0)
		return -ENOENT;
	if (d->child[op->name])
		return -EEXIST;
	n = add(o, type, type == S_IFLNK ? 0777 : op->mode);
	n->parent = op->node;
	d->child[op->name] = o->count - 1;
	d->nlink += type == S_IFDIR;
	if (type == S_IFLNK) {
		n->size = op->len;
		n->seed = op->seed;
	}
	return 0;
}

static int make_link(struct oracle *o, const struct oracle_op *op)
{
	struct oracle_node *n = o->node[op->node2], *d;
	int rc;

	if (n->type == S_IFDIR)
		return -EPERM;
	if (n->nlink == 0)
		return -ENOENT;
	d = directory(o, op->node, &rc);
	if (rc)
		return rc;
	if (d->nlink == 0)
		return -ENOENT;
	if (d->child[op->name])
		return -EEXIST;
	d->child[op->name] = op->node2;
	n->nlink++;
	return 0;
}

static bool is_empty(const struct oracle_node *d)
{
	for (unsigned i = 0; i < ORACLE_NAMES; i++)
		if (d->child[i])
			return false;
	return true;
}

static int take_out(struct oracle *o, const struct oracle_op *op, bool dir)
{
	struct oracle_node *d, *n;
	int rc;

	d = directory(o, op->node, &rc);
	if (rc)
		return rc;
	if (!d->child[op->name])
		return -ENOENT;
	n = o->node[d->child[op->name]];
	if (!dir && n->type == S_IFDIR)
		return -EISDIR;
	if (dir && n->type != S_IFDIR)
		return -ENOTDIR;
	if (dir && !is_empty(n))
		return -ENOTEMPTY;
	d->child[op->name] = 0;
	d->nlink -= dir;
	n->nlink = dir ? 0 : n->nlink - 1;
	return 0;
}

static bool is_inside(struct oracle *o, uint32_t node, uint32_t ancestor)
{
	for (;;) {
		if (node == ancestor)
			return true;
		if (node == 0)
			return false;
		node = o->node[node]->parent;
	}
}

static int judge_rename(struct oracle *o, const struct oracle_op *op, uint32_t moved,
			uint32_t target, const struct oracle_node *to)
{
	bool dir = o->node[moved]->type == S_IFDIR;

	if (target && op->noreplace)
		return -EEXIST;
	if (!target && op->exchange)
		return -ENOENT;
	if (target == moved)
		return 1;
	if (to->nlink == 0)
		return -ENOENT;
	if (dir && op->node != op->node2 && is_inside(o, op->node2, moved))
		return -EINVAL;
	if (!target)
		return 0;
	if (op->exchange)
		return o->node[target]->type == S_IFDIR && op->node != op->node2 &&
				       is_inside(o, op->node, target)
			       ? -EINVAL
			       : 0;
	if (dir && o->node[target]->type != S_IFDIR)
		return -ENOTDIR;
	if (!dir && o->node[target]->type == S_IFDIR)
		return -EISDIR;
	return dir && !is_empty(o->node[target]) ? -ENOTEMPTY : 0;
}

static void exchange(struct oracle *o, const struct oracle_op *op, uint32_t moved, uint32_t other)
{
	struct oracle_node *from = o->node[op->node], *to = o->node[op->node2];
	bool dir = o->node[moved]->type == S_IFDIR, other_dir = o->node[other]->type == S_IFDIR;

	from->child[op->name] = other;
	to->child[op->name2] = moved;
	from->nlink += other_dir;
	from->nlink -= dir;
	to->nlink += dir;
	to->nlink -= other_dir;
	if (dir)
		o->node[moved]->parent = op->node2;
	if (other_dir)
		o->node[other]->parent = op->node;
}

static int move(struct oracle *o, const struct oracle_op *op)
{
	struct oracle_node *from, *to;
	uint32_t moved, target;
	bool dir;
	int rc;

	from = directory(o, op->node, &rc);
	if (rc)
		return rc;
	to = directory(o, op->node2, &rc);
	if (rc)
		return rc;
	moved = from->child[op->name];
	target = to->child[op->name2];
	if (!moved)
		return -ENOENT;
	rc = judge_rename(o, op, moved, target, to);
	if (rc)
		return rc == 1 ? 0 : rc;
	if (op->exchange) {
		exchange(o, op, moved, target);
		return 0;
	}
	dir = o->node[moved]->type == S_IFDIR;
	from->child[op->name] = 0;
	if (op->whiteout) {
		add(o, S_IFCHR, 0)->parent = op->node;
		from->child[op->name] = o->count - 1;
	}
	to->child[op->name2] = moved;
	from->nlink -= dir;
	to->nlink += dir;
	if (dir)
		o->node[moved]->parent = op->node2;
	if (target) {
		to->nlink -= dir;
		o->node[target]->nlink = dir ? 0 : o->node[target]->nlink - 1;
	}
	return 0;
}

/* --- contents and attributes --------------------------------------------- */

static void make_room(struct oracle_node *n, uint64_t size)
{
	uint64_t room = n->room ? n->room : 512;

	if (size <= n->room)
		return;
	while (room < size)
		room *= 2;
	n->bytes = must(realloc(n->bytes, room));
	memset(n->bytes + n->room, 0, room - n->room);
	n->room = room;
}

static int put_bytes(struct oracle_node *n, uint64_t offset, const struct oracle_op *op)
{
	if (n->type != S_IFREG)
		return n->type == S_IFDIR ? -EISDIR : -EINVAL;
	if (op->len == 0)
		return 0;
	make_room(n, offset + op->len);
	oracle_fill(n->bytes + offset, op->len, op->seed);
	if (offset + op->len > n->size)
		n->size = offset + op->len;
	return 0;
}

/* Of the same bytes at once: what a memmove() would do is an error. */
static int copy_bytes(struct oracle_node *n, const struct oracle_node *from,
		      const struct oracle_op *op)
{
	uint64_t len = op->len;

	if (from->type != S_IFREG)
		return from->type == S_IFDIR ? -EISDIR : -EINVAL;
	if (n->type != S_IFREG)
		return n->type == S_IFDIR ? -EISDIR : -EINVAL;
	if (op->offset2 >= from->size)
		return 0;
	if (len > from->size - op->offset2)
		len = from->size - op->offset2;
	if (n == from && op->offset2 < op->offset + len && op->offset < op->offset2 + len)
		return -EINVAL;
	make_room(n, op->offset + len);
	if (from->bytes)
		memmove(n->bytes + op->offset, from->bytes + op->offset2, len);
	else
		memset(n->bytes + op->offset, 0, len);
	if (op->offset + len > n->size)
		n->size = op->offset + len;
	return 0;
}

static int cut(struct oracle_node *n, uint64_t size)
{
	if (n->type != S_IFREG)
		return n->type == S_IFDIR ? -EISDIR : -EINVAL;
	if (size < n->size)
		memset(n->bytes + size, 0, n->size - size);
	make_room(n, size);
	n->size = size;
	return 0;
}

/* What fallocate() shows: zeros, and the size. */
static int allocate(struct oracle_node *n, const struct oracle_op *op)
{
	uint64_t end = op->offset + op->len;

	if (n->type != S_IFREG)
		return n->type == S_IFDIR ? -EISDIR : -EINVAL;
	if (op->kind != OP_ALLOCATE && op->offset < n->size)
		memset(n->bytes + op->offset, 0, (end < n->size ? end : n->size) - op->offset);
	if (op->kind == OP_PUNCH || op->keep_size || end <= n->size)
		return 0;
	make_room(n, end);
	n->size = end;
	return 0;
}

static int set_xattr(struct oracle_node *n, const struct oracle_op *op, bool set)
{
	struct oracle_xattr *x = &n->xattr[op->name % ORACLE_XATTRS_MAX];

	if (!set && !x->exists)
		return -ENODATA;
	*x = (struct oracle_xattr){.exists = set, .len = (uint32_t)op->len, .seed = op->seed};
	return 0;
}

int oracle_apply(struct oracle *o, const struct oracle_op *op)
{
	struct oracle_node *n = o->node[op->node];

	switch (op->kind) {
	case OP_CREATE:
		return make(o, op, S_IFREG);
	case OP_MKDIR:
		return make(o, op, S_IFDIR);
	case OP_SYMLINK:
		return make(o, op, S_IFLNK);
	case OP_LINK:
		return make_link(o, op);
	case OP_UNLINK:
		return take_out(o, op, false);
	case OP_RMDIR:
		return take_out(o, op, true);
	case OP_RENAME:
		return move(o, op);
	case OP_WRITE:
		return put_bytes(n, op->offset, op);
	case OP_APPEND:
		return put_bytes(n, n->size, op);
	case OP_COPY:
		return copy_bytes(n, o->node[op->node2], op);
	case OP_ALLOCATE: case OP_PUNCH: case OP_ZERO:
		return allocate(n, op);
	case OP_TRUNCATE:
		return cut(n, op->len);
	case OP_CHMOD:
		n->mode = op->mode;
		return 0;
	case OP_SETXATTR:
		return set_xattr(n, op, true);
	case OP_REMOVEXATTR:
		return set_xattr(n, op, false);
	case OP_KINDS:
		break;
	}
	abort();
}

/* --- digest -------------------------------------------------------------- */

uint64_t oracle_mix(uint64_t digest, const void *bytes, size_t len)
{
	return XXH3_64bits_withSeed(bytes, len, digest);
}

static uint64_t mix_number(uint64_t digest, uint64_t number)
{
	return oracle_mix(digest, &number, sizeof(number));
}

static uint64_t digest_node(const struct oracle *o, uint32_t node, uint64_t digest)
{
	const struct oracle_node *n = o->node[node];
	static uint8_t value[65536];

	digest = mix_number(digest, n->type | n->mode);
	digest = mix_number(digest, n->nlink);
	if (n->type != S_IFDIR)
		digest = mix_number(digest, n->size);
	if (n->type == S_IFREG && n->size)
		digest = oracle_mix(digest, n->bytes, n->size);
	if (n->type == S_IFLNK) {
		oracle_target((char *)value, n->size, n->seed);
		digest = oracle_mix(digest, value, n->size);
	}
	for (unsigned i = 0; i < ORACLE_XATTRS_MAX; i++) {
		if (!n->xattr[i].exists)
			continue;
		oracle_fill(value, n->xattr[i].len, n->xattr[i].seed);
		digest = mix_number(digest, i);
		digest = oracle_mix(digest, value, n->xattr[i].len);
	}
	for (unsigned i = 0; i < ORACLE_NAMES; i++) {
		if (!n->child[i])
			continue;
		digest = mix_number(digest, i);
		digest = digest_node(o, n->child[i], digest);
	}
	/* Or a last name here and a last name in the directory before it would be the same. */
	return n->type == S_IFDIR ? mix_number(digest, ORACLE_NAMES) : digest;
}

uint64_t oracle_digest(const struct oracle *o)
{
	return digest_node(o, 0, 0);
}
