/*
 * Single faults of a volume, for tests of fsck: made by hand on a quiet image,
 * found under their number, and, where they can be repaired, clean afterwards.
 *
 *	FAULT(name, number, STAYS or REPAIRED)
 *	{
 *		... edit the image; `w` and `i` are the world and its image ...
 *	}
 *
 * Includes Criterion: a test of that name in the suite fsck_faults.
 */
#ifndef BLINKFS_TESTS_FSCK_FAULT_H
#define BLINKFS_TESTS_FSCK_FAULT_H

#include "tests/lib/fsck_world.h"

#include <criterion/criterion.h>

enum outcome { STAYS, REPAIRED };

typedef void (*fault_fn)(struct world *w, struct image *i);

/* NULL, or what went wrong: valid until the next call. */
const char *fault_try(fault_fn fault, unsigned number, enum outcome outcome);

#define FAULT(name, number, outcome)                                                               \
	static void fault_##name(struct world *w, struct image *i);                                \
	Test(fsck_faults, name)                                                                    \
	{                                                                                          \
		const char *wrong = fault_try(fault_##name, number, outcome);                      \
		cr_assert_null(wrong, "%s", wrong);                                                \
	}                                                                                          \
	static void fault_##name(__attribute__((unused)) struct world *w, struct image *i)

/* Page number of an index's root. */
uint64_t fault_root(const struct image *i, unsigned index);
/* Loads the second of the inode index's leaves. */
void fault_second_leaf(struct image *i);
/* The extent that holds a file block, or the next: its key; its value, to be changed in place. */
struct disk_extent *fault_extent(struct image *i, uint64_t lob, uint64_t block, struct key *key);
uint64_t fault_lob(struct image *i, uint64_t ino);

#define EDIT_INODE(ino, statement)                                                                 \
	do {                                                                                       \
		struct disk_inode inode;                                                           \
		image_get_inode(i, ino, &inode);                                                   \
		statement;                                                                         \
		image_put_inode(i, ino, &inode);                                                   \
	} while (0)

#endif
