/*
 * A small volume with a bit of everything, for tests of fsck and dump.
 */
#ifndef BLINKFS_TESTS_FSCK_WORLD_H
#define BLINKFS_TESTS_FSCK_WORLD_H

#include "tests/lib/image_edit.h"
#include "tests/lib/scratch_file.h"

#define WORLD_BYTES (8u << 20)
#define WORLD_PAGE 4096u
#define WORLD_CACHE (4u << 20)
#define WORLD_MANY 200u /* files in /many: trees of two levels */

struct world {
	struct device *dev; /* quiet: closed in good order */
	uint64_t small, big, sparse, empty, dir, sub, deep, link, many, orphan, cut;
	uint64_t many_file[WORLD_MANY];
};

/*
 *	/small    inline, two attributes, one of them long
 *	/big      in blocks, also /dir/hard
 *	/sparse   three extents
 *	/empty
 *	/dir/sub/deep    inline
 *	/link     a symlink
 *	/many/... WORLD_MANY empty files
 *	an orphan in blocks, an attribute's former long value: to be purged
 */
void world_make(struct world *world);
/* The same, dead before anything was written back: the log has to be replayed. */
void world_make_crashed(struct world *world);
void world_free(struct world *world);
/* Into a file whose name is put into path. */
void world_save(const struct world *world, char path[SCRATCH_PATH_BYTES]);

#endif
