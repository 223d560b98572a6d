/*
 * Sparse contents of a memory device, as a value: copying one is a reference
 * count, changing one copies only the blocks that it changes.
 */
#ifndef BLINKFS_DEV_SPARSE_H
#define BLINKFS_DEV_SPARSE_H

#include "engine/base/check.h"

#include <stddef.h>
#include <stdint.h>

struct sparse {
	void *root;      /* NULL: all zeros */
	unsigned levels; /* of nodes above the blocks; fixed by sparse_init() */
};

void sparse_init(struct sparse *sparse, uint64_t size_bytes);
void sparse_free(struct sparse *sparse);

/* A second reference to the same contents; free both. */
struct sparse sparse_share(struct sparse from);

void sparse_read(const struct sparse *sparse, void *buf, size_t len, uint64_t offset);
/* On -ENOMEM a part may have been written. */
int sparse_write(struct sparse *sparse, const void *buf, size_t len, uint64_t offset) must_check;
/* Makes a range of `to` equal to that of `from` (of the same size); shares whole blocks. */
int sparse_copy(struct sparse *to, const struct sparse *from, size_t len,
		uint64_t offset) must_check;
/* For each block, in order, that the two do not share; NULL stands for zeros. */
void sparse_compare(const struct sparse *a, const struct sparse *b,
		    void (*differs)(void *arg, uint64_t block, const void *of_a, const void *of_b),
		    void *arg);

#endif
