/*
 * A radix tree of reference-counted nodes over 4 KiB blocks.
 *
 * INV-SPARSE-1: what has more than one reference is never changed: a writer
 * first replaces it, from the root down, by a copy of its own.
 * INV-SPARSE-2: a node or block with one reference is reachable only through
 * the one parent that holds it.  So a writer that owns the path to it, and has
 * seen the count 1, is alone, and other threads may use what it is shared with.
 * INV-SPARSE-3: NULL stands for zeros, at each level.
 */
#include "engine/dev/sparse.h"

#include "engine/base/limits.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define FANOUT_BITS 5u
#define FANOUT (1u << FANOUT_BITS) /* 1024 blocks, 4 MiB, in two levels */

struct node {
	_Atomic uint32_t references; /* first in both structs: see references_of() */
	void *child[FANOUT];         /* nodes; struct block on the lowest level */
};

struct block {
	_Atomic uint32_t references;
	unsigned char data[BLOCK_SIZE];
};

static_assert(offsetof(struct node, references) == offsetof(struct block, references),
	      "found without knowing which of the two it is");

static _Atomic uint32_t *references_of(void *item)
{
	return item;
}

static void *reference(void *item)
{
	if (item)
		atomic_fetch_add_explicit(references_of(item), 1, memory_order_relaxed);
	return item;
}

/* level 0: a block. */
static void release(void *item, unsigned level)
{
	if (!item || atomic_fetch_sub_explicit(references_of(item), 1, memory_order_acq_rel) > 1)
		return;
	for (unsigned i = 0; level > 0 && i < FANOUT; i++)
		release(((struct node *)item)->child[i], level - 1);
	free(item);
}

static unsigned slot_of(uint64_t block, unsigned level)
{
	return (unsigned)(block >> ((level - 1) * FANOUT_BITS)) % FANOUT;
}

static const struct block *find(const struct sparse *sparse, uint64_t block)
{
	void *item = sparse->root;

	for (unsigned level = sparse->levels; item && level > 0; level--)
		item = ((struct node *)item)->child[slot_of(block, level)];
	return item;
}

static bool is_own(void *item)
{
	return item && atomic_load_explicit(references_of(item), memory_order_acquire) == 1;
}

/* Makes *place a node that only the caller can reach; NULL without memory. */
static struct node *own_node(void **place, unsigned level)
{
	struct node *old = *place;
	struct node *copy;

	if (is_own(old))
		return old;
	copy = calloc(1, sizeof(*copy));
	if (!copy)
		return NULL;
	atomic_init(&copy->references, 1);
	for (unsigned i = 0; old && i < FANOUT; i++)
		copy->child[i] = reference(old->child[i]);
	*place = copy;
	release(old, level);
	return copy;
}

/* The same for a block; without `keep` its contents are up to the caller. */
static struct block *own_block(void **place, bool keep)
{
	struct block *old = *place;
	struct block *copy;

	if (is_own(old))
		return old;
	copy = malloc(sizeof(*copy));
	if (!copy)
		return NULL;
	atomic_init(&copy->references, 1);
	if (keep && old)
		memcpy(copy->data, old->data, BLOCK_SIZE);
	else if (keep)
		memset(copy->data, 0, BLOCK_SIZE);
	*place = copy;
	release(old, 0);
	return copy;
}

/* Where the block hangs, after the whole path to it has become the caller's own. */
static void **own_place(struct sparse *sparse, uint64_t block)
{
	void **place = &sparse->root;

	for (unsigned level = sparse->levels; level > 0; level--) {
		struct node *node = own_node(place, level);

		if (!node)
			return NULL;
		place = &node->child[slot_of(block, level)];
	}
	return place;
}

/* The part of [offset, offset + len) that lies in the first block of it. */
static size_t piece_bytes(size_t len, uint64_t offset)
{
	size_t room = BLOCK_SIZE - offset % BLOCK_SIZE;

	return len < room ? len : room;
}

void sparse_init(struct sparse *sparse, uint64_t size_bytes)
{
	uint64_t blocks = size_bytes / BLOCK_SIZE + (size_bytes % BLOCK_SIZE != 0);

	sparse->root = NULL;
	sparse->levels = 1;
	while (sparse->levels * FANOUT_BITS < 64 && blocks > 1ull << (sparse->levels * FANOUT_BITS))
		sparse->levels++;
}

void sparse_free(struct sparse *sparse)
{
	release(sparse->root, sparse->levels);
	sparse->root = NULL;
}

struct sparse sparse_share(struct sparse from)
{
	return (struct sparse){.root = reference(from.root), .levels = from.levels};
}

void sparse_read(const struct sparse *sparse, void *buf, size_t len, uint64_t offset)
{
	unsigned char *at = buf;

	while (len > 0) {
		const struct block *block = find(sparse, offset / BLOCK_SIZE);
		size_t piece = piece_bytes(len, offset);

		if (block)
			memcpy(at, block->data + offset % BLOCK_SIZE, piece);
		else
			memset(at, 0, piece);
		at += piece;
		offset += piece;
		len -= piece;
	}
}

int sparse_write(struct sparse *sparse, const void *buf, size_t len, uint64_t offset)
{
	const unsigned char *at = buf;

	while (len > 0) {
		size_t piece = piece_bytes(len, offset);
		void **place = own_place(sparse, offset / BLOCK_SIZE);
		struct block *block = place ? own_block(place, piece < BLOCK_SIZE) : NULL;

		if (!block)
			return -ENOMEM;
		memcpy(block->data + offset % BLOCK_SIZE, at, piece);
		at += piece;
		offset += piece;
		len -= piece;
	}
	return 0;
}

static int copy_part(struct sparse *to, const struct block *from, size_t len, uint64_t offset)
{
	static const unsigned char zeros[BLOCK_SIZE];
	const unsigned char *data = from ? from->data : zeros;

	return sparse_write(to, data + offset % BLOCK_SIZE, len, offset);
}

static int copy_block(struct sparse *to, const struct block *from, uint64_t block)
{
	void **place = own_place(to, block);
	void *old;

	if (!place)
		return -ENOMEM;
	old = *place;
	*place = reference((void *)from);
	release(old, 0);
	return 0;
}

int sparse_copy(struct sparse *to, const struct sparse *from, size_t len, uint64_t offset)
{
	check(to->levels == from->levels);
	while (len > 0) {
		uint64_t block = offset / BLOCK_SIZE;
		const struct block *source = find(from, block);
		size_t piece = piece_bytes(len, offset);
		int error = 0;

		if (source == find(to, block))
			; /* shared already */
		else if (piece == BLOCK_SIZE)
			error = copy_block(to, source, block);
		else
			error = copy_part(to, source, piece, offset);
		if (error)
			return error;
		offset += piece;
		len -= piece;
	}
	return 0;
}

struct comparison {
	void (*differs)(void *arg, uint64_t block, const void *of_a, const void *of_b);
	void *arg;
};

static void compare(const struct comparison *c, const void *a, const void *b, unsigned level,
		    uint64_t block)
{
	if (a == b)
		return;
	if (level == 0) {
		c->differs(c->arg, block, a ? ((const struct block *)a)->data : NULL,
			   b ? ((const struct block *)b)->data : NULL);
		return;
	}
	for (uint64_t i = 0; i < FANOUT; i++)
		compare(c, a ? ((const struct node *)a)->child[i] : NULL,
			b ? ((const struct node *)b)->child[i] : NULL, level - 1,
			block << FANOUT_BITS | i);
}

void sparse_compare(const struct sparse *a, const struct sparse *b,
		    void (*differs)(void *arg, uint64_t block, const void *of_a, const void *of_b),
		    void *arg)
{
	const struct comparison c = {.differs = differs, .arg = arg};

	check(a->levels == b->levels);
	compare(&c, a->root, b->root, a->levels, 0);
}
