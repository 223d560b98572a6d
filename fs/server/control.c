/*
 * A file of the control directory is a snapshot, taken when its name is looked
 * up: each look-up makes a node of its own, whose contents never change and
 * which lives until the kernel forgets it.  So whoever reads it in pieces reads
 * one state, and the kernel, which trusts its own idea of a file's size, has the
 * right one.  What is written to a node of tunables/ sets the switch; the next
 * look-up shows it.
 *
 * INV-CTL-1: there are at most SNAPSHOTS_MAX of them; look-up fails beyond.
 */
#include "fs/server/control.h"

#include "engine/base/latch.h"
#include "engine/base/message.h"
#include "fs/server/reply.h"
#include "fs/server/worker.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define DIR_INO 1u
#define TUNABLES_INO 2u
#define COMMAND_INO 3u
#define TUNABLES_NAME "tunables"
#define FIRST_COOKIE 3u
#define FIRST_SNAPSHOT_INO 16u
#define SNAPSHOTS_MAX 256u

struct snapshot {
	struct snapshot *next;
	uint64_t ino;
	uint64_t lookups;
	enum tunable tunable; /* TUNABLE_COUNT: stats */
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

static struct core_attr dir_attr(const struct control *control, uint64_t ino)
{
	return (struct core_attr){
		.ino = ino,
		.mode = S_IFDIR | 0555,
		.nlink = 2,
		.atime = control->opened,
		.mtime = control->opened,
		.ctime = control->opened,
		.btime = control->opened,
		.links_settled = true,
	};
}

static struct core_attr snapshot_attr(const struct snapshot *snapshot)
{
	return (struct core_attr){
		.ino = snapshot->ino,
		.mode = S_IFREG | (snapshot->tunable < TUNABLE_COUNT ? 0644 : 0444),
		.nlink = 1,
		.uid = snapshot->tunable < TUNABLE_COUNT ? geteuid() : 0,
		.size = snapshot->len,
		.blocks_512 = (snapshot->len + 511) / 512,
		.atime = snapshot->time,
		.mtime = snapshot->time,
		.ctime = snapshot->time,
		.btime = snapshot->time,
		.links_settled = true,
	};
}

/* Only its owner, and root, can open it: the kernel looks at the mode. */
static struct core_attr command_attr(const struct control *control)
{
	return (struct core_attr){
		.ino = COMMAND_INO,
		.mode = S_IFREG | 0600,
		.nlink = 1,
		.uid = geteuid(),
		.gid = getegid(),
		.atime = control->opened,
		.mtime = control->opened,
		.ctime = control->opened,
	};
}

bool control_takes_commands(fuse_ino_t node)
{
	return node_view(node) == VIEW_CONTROL && node_ino(node) == COMMAND_INO;
}

/* ---------------------------------------------------------------- look-up */

static char *tunable_text(struct server *server, enum tunable tunable)
{
	return strdup(tunable_is_on(&server->volume->tunables, tunable) ? "on\n" : "off\n");
}

static struct snapshot *snapshot_take(struct server *server, enum tunable tunable)
{
	struct snapshot *snapshot = calloc(1, sizeof(*snapshot));

	if (!snapshot)
		return NULL;
	snapshot->tunable = tunable;
	snapshot->text = tunable < TUNABLE_COUNT ? tunable_text(server, tunable)
						 : stats_json(server);
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

static void lookup_file(fuse_req_t req, enum tunable tunable)
{
	struct server *server = req_server(req);
	struct snapshot *snapshot = snapshot_take(server, tunable);
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
	const struct control *control = req_server(req)->control;
	bool in_tunables = parent != FUSE_ROOT_ID && node_ino(parent) == TUNABLES_INO;
	struct core_attr top = dir_attr(control, DIR_INO);
	struct core_attr command = command_attr(control);
	struct core_attr tunables = dir_attr(control, TUNABLES_INO);

	if (parent == FUSE_ROOT_ID || strcmp(name, in_tunables ? ".." : ".") == 0)
		reply_entry(req, 0, VIEW_CONTROL, &top);
	else if (strcmp(name, in_tunables ? "." : TUNABLES_NAME) == 0)
		reply_entry(req, 0, VIEW_CONTROL, &tunables);
	else if (in_tunables && tunable_find(name) < TUNABLE_COUNT)
		lookup_file(req, tunable_find(name));
	else if (!in_tunables && strcmp(name, "stats") == 0)
		lookup_file(req, TUNABLE_COUNT);
	else if (!in_tunables && strcmp(name, "control") == 0)
		reply_entry(req, 0, VIEW_CONTROL, &command);
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

static bool is_dir(fuse_ino_t node)
{
	return node_ino(node) == DIR_INO || node_ino(node) == TUNABLES_INO;
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

	if (node_ino(node) == COMMAND_INO) {
		*attr = command_attr(control);
		return 0;
	}
	*attr = dir_attr(control, node_ino(node));
	if (is_dir(node))
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
	if (!snapshot && !rc && node_ino(node) != COMMAND_INO)
		rc = -ESTALE;
	if (snapshot && !rc && offset < snapshot->len) {
		done = len < snapshot->len - offset ? len : snapshot->len - offset;
		memcpy(buf, snapshot->text + offset, done);
	}
	unlatch_s(&control->latch);
	if (rc)
		reply_status(req, rc);
	else
		fuse_reply_buf(req, buf, done);
}

/* ---------------------------------------------------------------- writing */

/* Which switch the node sets; TUNABLE_COUNT: none. */
static enum tunable tunable_of(struct control *control, fuse_ino_t node)
{
	enum tunable tunable = TUNABLE_COUNT;
	struct snapshot *snapshot;

	latch_s(&control->latch);
	snapshot = *find_locked(control, node);
	if (snapshot)
		tunable = snapshot->tunable;
	unlatch_s(&control->latch);
	return tunable;
}

static bool is_word(const char *word, const char *buf, size_t len)
{
	while (len > 0 && (buf[len - 1] == '\n' || buf[len - 1] == ' '))
		len--;
	return len == strlen(word) && memcmp(buf, word, len) == 0;
}

void control_write(fuse_req_t req, fuse_ino_t node, const char *buf, size_t len, uint64_t offset)
{
	struct server *server = req_server(req);
	enum tunable tunable = tunable_of(server->control, node);
	bool on = is_word("on", buf, len);

	if (tunable == TUNABLE_COUNT) {
		reply_status(req, -EPERM);
	} else if (offset > 0 || (!on && !is_word("off", buf, len))) {
		message(LOG_ERR, "%s/%s/%s: write 'on' or 'off'", CONTROL_NAME, TUNABLES_NAME,
			tunable_name(tunable));
		reply_status(req, -EINVAL);
	} else {
		tunable_set(&server->volume->tunables, tunable, on);
		fuse_reply_write(req, len);
	}
}

void control_setattr(fuse_req_t req, fuse_ino_t node, unsigned set, struct core_attr *attr)
{
	struct control *control = req_server(req)->control;
	const unsigned refused = CORE_SET_MODE | CORE_SET_UID | CORE_SET_GID;
	uint64_t size = attr->size;
	struct snapshot *snapshot;
	int rc = -EPERM;

	latch_s(&control->latch);
	snapshot = *find_locked(control, node);
	if (snapshot && snapshot->tunable < TUNABLE_COUNT && !(set & refused)) {
		*attr = snapshot_attr(snapshot);
		attr->size = set & CORE_SET_SIZE ? size : attr->size;
		rc = 0;
	}
	unlatch_s(&control->latch);
	reply_attr(req, rc, VIEW_CONTROL, attr);
}

/* ---------------------------------------------------------------- listing */

/* What lies behind "." and ".." of either directory; a name of NULL at the end. */
struct listed {
	const char *name;
	uint64_t ino;
	uint32_t type;
};

static struct listed listed_at(bool in_tunables, unsigned i)
{
	static const struct listed top[] = {
		{"stats", FIRST_SNAPSHOT_INO, S_IFREG},
		{TUNABLES_NAME, TUNABLES_INO, S_IFDIR},
		{"control", COMMAND_INO, S_IFREG},
		{NULL, 0, 0},
	};

	if (!in_tunables)
		return top[i];
	return (struct listed){
		.name = i < TUNABLE_COUNT ? tunable_name((enum tunable)i) : NULL,
		.ino = FIRST_SNAPSHOT_INO,
		.type = S_IFREG,
	};
}

static bool emit_name(core_emit emit, void *arg, const char *name, uint64_t cookie, uint64_t ino,
		      uint32_t type)
{
	const struct core_dirent entry = {
		.name = name,
		.name_len = strlen(name),
		.ino = ino,
		.cookie = cookie,
		.type = type,
	};

	return emit(arg, &entry) == 0;
}

int control_readdir(fuse_ino_t node, uint64_t cookie, core_emit emit, void *arg)
{
	bool in_tunables = node_ino(node) == TUNABLES_INO;
	struct listed entry;

	if (!is_dir(node))
		return -ENOTDIR;
	if (cookie < 1 && !emit_name(emit, arg, ".", 1, node_ino(node), S_IFDIR))
		return 0;
	if (cookie < 2 && !emit_name(emit, arg, "..", 2, DIR_INO, S_IFDIR))
		return 0;
	for (unsigned i = 0; (entry = listed_at(in_tunables, i)).name; i++)
		if (FIRST_COOKIE + i > cookie &&
		    !emit_name(emit, arg, entry.name, FIRST_COOKIE + i, entry.ino, entry.type))
			break;
	return 0;
}
