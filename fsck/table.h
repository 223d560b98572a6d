/*
 * Arrays that grow with the volume, and what bounds their memory.
 *
 * All tables of a walk together take as much memory of their own as the limit says.  One
 * that would grow beyond it moves to a file without a name (in $TMPDIR, or /var/tmp) that
 * is mapped in its place: the kernel writes it out and drops it as it needs the memory.
 * Nothing else changes, so a walk finds the same with any limit.
 *
 * INV-FSCK-5: the space of the file is there before it is mapped; a full disk is an error
 * (-ENOSPC), not a signal.
 */
#ifndef BLINKFS_FSCK_TABLE_H
#define BLINKFS_FSCK_TABLE_H

#include "engine/base/check.h"

#include <stddef.h>
#include <stdint.h>

struct table_limit {
	uint64_t max;   /* bytes; 0 = no limit */
	uint64_t used;  /* by tables that are not in files */
};

struct table_place {
	size_t mapped;  /* bytes; 0: on the heap */
	int fd;         /* of the mapping's file */
};

#define TABLE(type)                                                                                \
	struct {                                                                                   \
		type *at;                                                                          \
		size_t count, room;                                                                \
		struct table_place place;                                                          \
	}

/* Makes room for one more element; limit and place may be NULL.  -ENOMEM, -ENOSPC. */
int table_grow(struct table_limit *limit, struct table_place *place, void **at, size_t count,
	       size_t *room, size_t element) must_check;
#define table_room(limit, table)                                                                   \
	((table).count < (table).room                                                              \
		 ? 0                                                                               \
		 : table_grow(limit, &(table).place, (void **)&(table).at, (table).count,          \
			      &(table).room, sizeof(*(table).at)))

void table_release(struct table_place *place, void *at);
#define table_free(table) table_release(&(table).place, (table).at)

/* In place where the table is in a file: the usual sort takes as much memory again. */
void table_sort(const struct table_place *place, void *at, size_t count, size_t element,
		int (*compare)(const void *a, const void *b));

#endif
