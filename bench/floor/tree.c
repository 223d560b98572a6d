/*
 * Names and nodes.
 */
#include "bench/floor/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUCKETS (1u << 20) /* enough for every program in this folder */

static uint32_t hash_of(const struct node *dir, const char *name)
{
	uint64_t hash = (uintptr_t)dir * 0x9e3779b97f4a7c15ull;

	for (; *name; name++)
		hash = (hash ^ (uint8_t)*name) * 0x100000001b3ull;
	return (uint32_t)(hash >> 20);
}

static struct timespec now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_REALTIME_COARSE, &time);
	return time;
}

/* ------------------------------------------------------------------ nodes */

static struct node *node_create(const struct stat *like)
{
	struct node *node = calloc(1, sizeof(*node));

	if (!node)
		return NULL;
	node->st = *like;
	node->st.st_nlink = S_ISDIR(like->st_mode) ? 2 : 1;
	node->st.st_blksize = 4096;
	node->st.st_atim = node->st.st_mtim = node->st.st_ctim = now();
	node->cookie_next = 3; /* after "." and ".." */
	pthread_rwlock_init(&node->contents.lock, NULL);
	return node;
}

static void node_free(struct node *node)
{
	if (!node)
		return;
	pthread_rwlock_destroy(&node->contents.lock);
	free(node->contents.bytes);
	free(node);
}

/* The node, if nobody can reach it any more: to be freed without the lock. */
static struct node *take_dead_locked(struct tree *tree, struct node *node)
{
	if (!node || node->lookups > 0 || node->st.st_nlink > 0 || node == tree->root)
		return NULL;
	tree->nodes--;
	return node;
}

static void touch_locked(struct node *node)
{
	node->st.st_mtim = node->st.st_ctim = now();
}

/* ---------------------------------------------------------------- entries */

static struct entry *entry_create(struct node *dir, const char *name, struct node *node)
{
	size_t len = strlen(name) + 1;
	struct entry *entry = malloc(sizeof(*entry) + len);

	if (!entry)
		return NULL;
	*entry = (struct entry){.dir = dir, .node = node, .hash = hash_of(dir, name)};
	memcpy(entry->name, name, len);
	return entry;
}

static struct entry **find_locked(struct tree *tree, struct node *dir, const char *name)
{
	uint32_t hash = hash_of(dir, name);
	struct entry **at = &tree->buckets[hash % BUCKETS];

	while (*at && ((*at)->hash != hash || (*at)->dir != dir || strcmp((*at)->name, name) != 0))
		at = &(*at)->hash_next;
	return at;
}

static void insert_locked(struct tree *tree, struct entry *entry)
{
	struct entry **bucket = &tree->buckets[entry->hash % BUCKETS];
	struct node *dir = entry->dir;

	entry->hash_next = *bucket;
	*bucket = entry;
	entry->cookie = dir->cookie_next++;
	entry->prev = dir->last;
	*(dir->last ? &dir->last->next : &dir->first) = entry;
	dir->last = entry;
	if (S_ISDIR(entry->node->st.st_mode)) {
		entry->node->parent = dir;
		dir->st.st_nlink++;
	}
	touch_locked(dir);
}

static struct entry *unhook_locked(struct entry **at)
{
	struct entry *entry = *at;
	struct node *dir = entry->dir;

	*at = entry->hash_next;
	*(entry->prev ? &entry->prev->next : &dir->first) = entry->next;
	*(entry->next ? &entry->next->prev : &dir->last) = entry->prev;
	if (dir->listed == entry)
		dir->listed = entry->prev;
	if (S_ISDIR(entry->node->st.st_mode))
		dir->st.st_nlink--;
	touch_locked(dir);
	return entry;
}

static void drop_link_locked(struct node *node)
{
	if (S_ISDIR(node->st.st_mode))
		node->st.st_nlink = 0;
	else
		node->st.st_nlink--;
	node->st.st_ctim = now();
}

/* -------------------------------------------------------------- operations */

int tree_create(struct tree **out)
{
	struct stat like = {.st_mode = S_IFDIR | 0755, .st_ino = 1};
	struct tree *tree = calloc(1, sizeof(*tree));
	pthread_mutexattr_t attr;

	if (!tree)
		return -ENOMEM;
	tree->buckets = calloc(BUCKETS, sizeof(tree->buckets[0]));
	tree->root = node_create(&like);
	if (!tree->buckets || !tree->root) {
		node_free(tree->root);
		free(tree->buckets);
		free(tree);
		return -ENOMEM;
	}
	tree->root->parent = tree->root;
	tree->ino_next = 2;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(&tree->lock, &attr);
	pthread_mutexattr_destroy(&attr);
	*out = tree;
	return 0;
}

int tree_lookup(struct tree *tree, struct node *dir, const char *name, struct node **out,
		struct stat *st)
{
	struct entry *entry;

	pthread_mutex_lock(&tree->lock);
	entry = *find_locked(tree, dir, name);
	if (entry) {
		entry->node->lookups++;
		*out = entry->node;
		*st = entry->node->st;
	}
	pthread_mutex_unlock(&tree->lock);
	return entry ? 0 : -ENOENT;
}

int tree_make(struct tree *tree, struct node *dir, const char *name, const struct stat *like,
	      struct node **out, struct stat *st)
{
	struct node *node = node_create(like);
	struct entry *entry = node ? entry_create(dir, name, node) : NULL;
	int rc = entry ? 0 : -ENOMEM;

	if (rc)
		goto out;
	pthread_mutex_lock(&tree->lock);
	if (*find_locked(tree, dir, name)) {
		rc = -EEXIST;
	} else {
		node->st.st_ino = tree->ino_next++;
		node->lookups = 1;
		tree->nodes++;
		insert_locked(tree, entry);
		*out = node;
		*st = node->st;
	}
	pthread_mutex_unlock(&tree->lock);
out:
	if (rc) {
		free(entry);
		node_free(node);
	}
	return rc;
}

int tree_link(struct tree *tree, struct node *node, struct node *dir, const char *name,
	      struct stat *st)
{
	struct entry *entry = entry_create(dir, name, node);
	int rc = entry ? 0 : -ENOMEM;

	if (rc)
		return rc;
	pthread_mutex_lock(&tree->lock);
	if (*find_locked(tree, dir, name)) {
		rc = -EEXIST;
	} else {
		node->st.st_nlink++;
		node->st.st_ctim = now();
		node->lookups++;
		insert_locked(tree, entry);
		*st = node->st;
	}
	pthread_mutex_unlock(&tree->lock);
	if (rc)
		free(entry);
	return rc;
}

static int may_remove_locked(const struct entry *entry, bool is_dir)
{
	if (!entry)
		return -ENOENT;
	if (is_dir != S_ISDIR(entry->node->st.st_mode))
		return is_dir ? -ENOTDIR : -EISDIR;
	return entry->node->first ? -ENOTEMPTY : 0;
}

int tree_remove(struct tree *tree, struct node *dir, const char *name, bool is_dir)
{
	struct node *dead = NULL;
	struct entry **at, *entry = NULL;
	int rc;

	pthread_mutex_lock(&tree->lock);
	at = find_locked(tree, dir, name);
	rc = may_remove_locked(*at, is_dir);
	if (!rc) {
		entry = unhook_locked(at);
		drop_link_locked(entry->node);
		dead = take_dead_locked(tree, entry->node);
	}
	pthread_mutex_unlock(&tree->lock);
	free(entry);
	node_free(dead);
	return rc;
}

int tree_rename(struct tree *tree, struct node *from, const char *from_name, struct node *to,
		const char *to_name, bool replace)
{
	struct entry *moved = NULL, *replaced = NULL, *entry = entry_create(to, to_name, NULL);
	struct node *dead = NULL;
	struct entry **at;
	int rc = 0;

	if (!entry)
		return -ENOMEM;
	pthread_mutex_lock(&tree->lock);
	at = find_locked(tree, to, to_name);
	if (!*find_locked(tree, from, from_name)) {
		rc = -ENOENT;
	} else if (*at) {
		rc = replace ? may_remove_locked(*at, S_ISDIR((*at)->node->st.st_mode)) : -EEXIST;
		if (!rc) {
			replaced = unhook_locked(at);
			drop_link_locked(replaced->node);
			dead = take_dead_locked(tree, replaced->node);
		}
	}
	if (!rc) {
		moved = unhook_locked(find_locked(tree, from, from_name));
		entry->node = moved->node;
		insert_locked(tree, entry);
		entry = NULL;
	}
	pthread_mutex_unlock(&tree->lock);
	free(entry);
	free(moved);
	free(replaced);
	node_free(dead);
	return rc;
}

void tree_forget(struct tree *tree, struct node *node, uint64_t count)
{
	struct node *dead;

	pthread_mutex_lock(&tree->lock);
	node->lookups -= count < node->lookups ? count : node->lookups;
	dead = take_dead_locked(tree, node);
	pthread_mutex_unlock(&tree->lock);
	node_free(dead);
}

void tree_getattr(struct tree *tree, struct node *node, struct stat *st)
{
	pthread_mutex_lock(&tree->lock);
	*st = node->st;
	pthread_mutex_unlock(&tree->lock);
}

void tree_wrote(struct tree *tree, struct node *node, off_t end)
{
	pthread_mutex_lock(&tree->lock);
	if (end > node->st.st_size) {
		node->st.st_size = end;
		node->st.st_blocks = (end + 4095) / 4096 * 8;
	}
	touch_locked(node);
	pthread_mutex_unlock(&tree->lock);
}

void tree_list(struct tree *tree, struct node *dir, uint64_t cookie, tree_emit emit, void *arg)
{
	struct entry *entry, *last;

	pthread_mutex_lock(&tree->lock);
	last = dir->listed;
	entry = last && last->cookie <= cookie ? last : dir->first;
	while (entry && entry->cookie <= cookie)
		entry = entry->next;
	for (; entry && emit(arg, entry->name, entry->node, entry->cookie); entry = entry->next)
		last = entry;
	dir->listed = last;
	pthread_mutex_unlock(&tree->lock);
}
