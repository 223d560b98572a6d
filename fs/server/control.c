/*
 * A file of the control directory is a snapshot, taken when its name is looked
 * up: each look-up makes a node of its own, whose contents never change and
 * which lives until the kernel forgets it.  So whoever reads it in pieces reads
 * one state, and the kernel, which trusts its own idea of a file's size, has the
 * right one.
 *
 * INV-CTL-1: there are at most SNAPSHOTS_MAX of them; look-up fails beyond.
 */
#include "fs/server/control.h"

#include "engine/base/latch.h"
#include "fs/server/reply.h"
#include "fs/server/worker.h"

#include <errno.h>
#include <stdlib.h>

#define DIR_INO 1u
#define STATS_COOKIE 3u
#define FIRST_SNAPSHOT_INO 16u
#define SNAPSHOTS_MAX 256u

struct snapshot {
	struct snapshot *next;
	uint64_t ino;
	uint64_t lookups;
	struct timespec time;
	size_t len;
	char *text;
};

struct control {
	struct latch latch;
	struct snapshot *snapshots; /* [lock: latch] */
	unsigned count;             /* [lock: latch] */
	uint64_t next_ino;          /* [lock: latch] */
	struct timespec opened;
};

int control_open(struct control **out)
{
	struct control *control = calloc(1, sizeof(*control));

	if (!control)
		return -ENOMEM;
	latch_init(&control->latch, RANK_LEAF, 0);
	control->next_ino = FIRST_SNAPSHOT_INO;
	control->opened = os_realtime();
	*out = control;
	return 0;
}

static void snapshot_free(struct snapshot *snapshot)
{
	if (snapshot)
		free(snapshot->text);
	free(snapshot);
}

void control_close(struct control *control)
{
	while (control && control->snapshots) {
		struct snapshot *next = control->snapshots->next;

		snapshot_free(control->snapshots);
		control->snapshots = next;
	}
	free(control);
}

bool control_has_name(fuse_ino_t parent, const char *name)
{
	return parent == FUSE_ROOT_ID && strcmp(name, CONTROL_NAME) == 0;
}

/* ------------------------------------------------------------- attributes */

static struct core_attr dir_attr(const struct control *control)
{
	return (struct core_attr){
		.ino = DIR_INO,
		.mode = S_IFDIR | 0555,
		.nlink = 2,
		.atime = control->opened,
		.mtime = control->opened,
		.ctime = control->opened,
		.btime = control->opened,
	};
}

static struct core_attr snapshot_attr(const struct snapshot *snapshot)
{
	return (struct core_attr){
		.ino = snapshot->ino,
		.mode = S_IFREG | 0444,
		.nlink = 1,
		.size = snapshot->len,
		.blocks_512 = (snapshot->len + 511) / 512,
		.atime = snapshot->time,
		.mtime = snapshot->time,
		.ctime = snapshot->time,
		.btime = snapshot->time,
	};
}

/* ---------------------------------------------------------------- look-up */

static struct snapshot *snapshot_take(struct server *server)
{
	struct snapshot *snapshot = calloc(1, sizeof(*snapshot));

	if (!snapshot)
		return NULL;
	snapshot->text = stats_json(server);
	if (!snapshot->text) {
		free(snapshot);
		return NULL;
	}
	snapshot->len = strlen(snapshot->text);
	snapshot->time = os_realtime();
	snapshot->lookups = 1;
	return snapshot;
}

static int snapshot_add(struct control *control, struct snapshot *snapshot)
{
	int rc = -ENFILE;

	latch_x(&control->latch);
	if (control->count < SNAPSHOTS_MAX) {
		snapshot->ino = control->next_ino++;
		snapshot->next = control->snapshots;
		control->snapshots = snapshot;
		control->count++;
		rc = 0;
	}
	unlatch_x(&control->latch);
	return rc;
}

/* A name that must be asked for each time. */
static void reply_uncached(fuse_req_t req, const struct core_attr *attr)
{
	struct fuse_entry_param entry;

	reply_entry_fill(VIEW_CONTROL, attr, &entry);
	entry.entry_timeout = 0;
	fuse_reply_entry(req, &entry);
}

static void lookup_stats(fuse_req_t req)
{
	struct server *server = req_server(req);
	struct snapshot *snapshot = snapshot_take(server);
	struct core_attr attr;
	int rc = snapshot ? 0 : -ENOMEM;

	if (!rc) {
		/* Once it is added, a FORGET may come. */
		rc = snapshot_add(server->control, snapshot);
		if (!rc)
			attr = snapshot_attr(snapshot);
	}
	if (rc) {
		snapshot_free(snapshot);
		reply_status(req, rc);
		return;
	}
	reply_uncached(req, &attr);
}

void control_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct core_attr attr = dir_attr(req_server(req)->control);

	if (parent == FUSE_ROOT_ID || strcmp(name, ".") == 0)
		reply_entry(req, 0, VIEW_CONTROL, &attr);
	else if (strcmp(name, "stats") == 0)
		lookup_stats(req);
	else
		reply_status(req, -ENOENT);
}

/* ------------------------------------------------------------- other than */

static struct snapshot **find_locked(struct control *control, fuse_ino_t node)
{
	struct snapshot **at = &control->snapshots;

	while (*at && (*at)->ino != node_ino(node))
		at = &(*at)->next;
	return at;
}

void control_forget(struct control *control, fuse_ino_t node, uint64_t count)
{
	struct snapshot **at, *dead = NULL;

	latch_x(&control->latch);
	at = find_locked(control, node);
	if (*at && ((*at)->lookups -= count) == 0) {
		dead = *at;
		*at = dead->next;
		control->count--;
	}
	unlatch_x(&control->latch);
	snapshot_free(dead);
}

int control_attr(struct control *control, fuse_ino_t node, struct core_attr *attr)
{
	struct snapshot *snapshot;
	int rc = 0;

	*attr = dir_attr(control);
	if (node_ino(node) == DIR_INO)
		return 0;
	latch_s(&control->latch);
	snapshot = *find_locked(control, node);
	if (snapshot)
		*attr = snapshot_attr(snapshot);
	else
		rc = -ESTALE;
	unlatch_s(&control->latch);
	return rc;
}

void control_getattr(fuse_req_t req, fuse_ino_t node)
{
	struct core_attr attr;
	int rc = control_attr(req_server(req)->control, node, &attr);

	reply_attr(req, rc, VIEW_CONTROL, &attr);
}

/* Copied under the latch: once the kernel has the answer it may forget the node. */
void control_read(fuse_req_t req, fuse_ino_t node, size_t len, uint64_t offset)
{
	struct control *control = req_server(req)->control;
	char *buf = worker_buffer(len);
	struct snapshot *snapshot;
	size_t done = 0;
	int rc = buf ? 0 : -ENOMEM;

	latch_s(&control->latch);
	snapshot = *find_locked(control, node);
	if (!snapshot && !rc)
		rc = -ESTALE;
	if (!rc && offset < snapshot->len) {
		done = len < snapshot->len - offset ? len : snapshot->len - offset;
		memcpy(buf, snapshot->text + offset, done);
	}
	unlatch_s(&control->latch);
	if (rc)
		reply_status(req, rc);
	else
		fuse_reply_buf(req, buf, done);
}

int control_readdir(fuse_ino_t node, uint64_t cookie, core_emit emit, void *arg)
{
	const struct core_dirent entries[] = {
		{.name = ".", .name_len = 1, .ino = DIR_INO, .cookie = 1, .type = S_IFDIR},
		{.name = "..", .name_len = 2, .ino = DIR_INO, .cookie = 2, .type = S_IFDIR},
		{.name = "stats",
		 .name_len = 5,
		 .ino = FIRST_SNAPSHOT_INO,
		 .cookie = STATS_COOKIE,
		 .type = S_IFREG},
	};

	if (node_ino(node) != DIR_INO)
		return -ENOTDIR;
	for (unsigned i = 0; i < array_count(entries); i++)
		if (entries[i].cookie > cookie && emit(arg, &entries[i]) != 0)
			break;
	return 0;
}
