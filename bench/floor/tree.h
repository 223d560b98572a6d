/*
 * What the floor server keeps: names in one hash table, nodes and file
 * contents in memory.  It does what a filesystem must do to answer correctly,
 * and nothing else; there is no format, no log and no disk.
 *
 * One lock covers names and attributes: it is held for well under a
 * microsecond, against tens of them that a request costs in the kernel.
 * Contents have a lock per node, since a copy of 1 MiB is not short.
 *
 * Calls return 0 or a negative errno.
 */
#ifndef BLINKFS_BENCH_FLOOR_TREE_H
#define BLINKFS_BENCH_FLOOR_TREE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct entry;

struct contents {
	pthread_rwlock_t lock;
	uint8_t *bytes;   /* [lock: lock] */
	size_t used, cap; /* [lock: lock] past `used` a file reads as zeros */
};

struct node {
	struct stat st;             /* [lock: tree->lock] */
	uint64_t lookups;           /* [lock: tree->lock] what the kernel knows of */
	struct node *parent;        /* of a directory [lock: tree->lock] */
	struct entry *first, *last; /* of a directory, by cookie [lock: tree->lock] */
	struct entry *listed;       /* where the last listing stopped [lock: tree->lock] */
	uint64_t cookie_next;       /* [lock: tree->lock] */
	struct contents contents;   /* a symbolic link's target too */
};

struct entry {
	struct node *dir, *node;
	struct entry *hash_next;
	struct entry *prev, *next;
	uint64_t cookie;
	uint32_t hash;
	char name[];
};

struct tree {
	pthread_mutex_t lock;
	struct entry **buckets; /* [lock: lock] */
	struct node *root;
	uint64_t ino_next; /* [lock: lock] */
	uint64_t nodes;    /* [lock: lock] */
};

int tree_create(struct tree **out);

/* Those that return a node have counted one look-up; *st is a copy. */
int tree_lookup(struct tree *tree, struct node *dir, const char *name, struct node **out,
		struct stat *st);
int tree_make(struct tree *tree, struct node *dir, const char *name, const struct stat *like,
	      struct node **out, struct stat *st);
int tree_link(struct tree *tree, struct node *node, struct node *dir, const char *name,
	      struct stat *st);
int tree_remove(struct tree *tree, struct node *dir, const char *name, bool is_dir);
int tree_rename(struct tree *tree, struct node *from, const char *from_name, struct node *to,
		const char *to_name, bool replace);
void tree_forget(struct tree *tree, struct node *node, uint64_t count);

void tree_getattr(struct tree *tree, struct node *node, struct stat *st);
/* The largest end of a write so far is the size; times move to now. */
void tree_wrote(struct tree *tree, struct node *node, off_t end);

/* Calls `emit` for entries after `cookie` under the lock; it returns false when full. */
typedef bool (*tree_emit)(void *arg, const char *name, struct node *node, uint64_t cookie);
void tree_list(struct tree *tree, struct node *dir, uint64_t cookie, tree_emit emit, void *arg);

/* data.c */
int contents_write(struct contents *contents, const void *buf, size_t len, size_t offset);
void contents_truncate(struct contents *contents, size_t size);

#endif
