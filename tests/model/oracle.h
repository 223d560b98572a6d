/*
 * A filesystem in plain memory: what the core should do.
 *
 * Nodes are numbered in order of creation, so applying the same operations to a
 * copy gives the same numbers.  oracle_apply() changes the model and returns the
 * result that the core must return.
 */
#ifndef BLINKFS_TESTS_ORACLE_H
#define BLINKFS_TESTS_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORACLE_NODES_MAX 60000u
#define ORACLE_NAMES 32u
#define ORACLE_XATTRS_MAX 4u
#define ORACLE_FILE_BYTES_MAX 100000u

enum oracle_kind {
	OP_CREATE, OP_MKDIR, OP_SYMLINK, OP_LINK, OP_UNLINK, OP_RMDIR, OP_RENAME,
	OP_WRITE, OP_APPEND, OP_COPY, OP_ALLOCATE, OP_PUNCH, OP_ZERO, OP_TRUNCATE,
	OP_CHMOD, OP_SETXATTR, OP_REMOVEXATTR,
	OP_KINDS
};

struct oracle_op {
	enum oracle_kind kind;
	uint32_t node;         /* directory, or what is changed */
	uint32_t name;         /* number of a name, or of an xattr */
	uint32_t node2, name2; /* rename's target, link's inode, a copy's source */
	bool noreplace, exchange, whiteout; /* rename; the last makes a node */
	bool keep_size;        /* ranges allocated */
	uint64_t offset, len, seed;
	uint64_t offset2;      /* in a copy's source */
	uint32_t mode;
};

struct oracle_xattr {
	bool exists;
	uint32_t len;
	uint64_t seed;
};

struct oracle_node {
	uint32_t type;   /* S_IF*; 0: never made */
	uint32_t mode, nlink;
	uint32_t parent;
	uint64_t size;
	uint8_t *bytes;  /* of a file: size of them; of a symlink: NULL, made from `seed` */
	uint64_t room;   /* bytes that there is memory for; zeros from size on */
	uint64_t seed;
	struct oracle_xattr xattr[ORACLE_XATTRS_MAX];
	uint32_t child[ORACLE_NAMES]; /* 0: none (the root is nobody's child) */
};

struct oracle {
	struct oracle_node *node[ORACLE_NODES_MAX]; /* 0 is the root */
	uint32_t count;
};

struct oracle *oracle_new(void);
struct oracle *oracle_copy(const struct oracle *from);
void oracle_free(struct oracle *oracle);
/* A node without names that nobody holds. */
void oracle_drop(struct oracle *oracle, uint32_t node);

/* 0 or a negative errno.  A created node has the number oracle->count - 1 after. */
int oracle_apply(struct oracle *oracle, const struct oracle_op *op);

/* The bytes that operations with this seed write. */
void oracle_fill(uint8_t *buf, size_t len, uint64_t seed);
/* Printable, no NUL. */
void oracle_target(char *buf, size_t len, uint64_t seed);

/* A digest of all that can be seen from the root; the walk of the core computes the same. */
uint64_t oracle_digest(const struct oracle *oracle);
uint64_t oracle_mix(uint64_t digest, const void *bytes, size_t len);

#endif
