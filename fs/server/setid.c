/*
 * As Linux does for its own filesystems: setgid goes with setuid where the group may
 * execute; elsewhere only when the caller is not of the file's group.
 *
 * INV-SETID-1: whose groups cannot be found out is not of the group: at worst a bit is
 * lost that might have stayed.
 */
#include "fs/server/setid.h"

#include "engine/base/os.h"

#include <stdlib.h>
#include <sys/stat.h>

#define GROUPS_USUAL 64

static bool is_among(const gid_t *groups, int count, gid_t group)
{
	for (int i = 0; i < count; i++)
		if (groups[i] == group)
			return true;
	return false;
}

/* The kernel names the thread that asked, which waits for the answer. */
static bool is_of_group(fuse_req_t req, gid_t group)
{
	gid_t usual[GROUPS_USUAL], *groups = usual;
	int room = GROUPS_USUAL, count;
	bool found = false;

	if (fuse_req_ctx(req)->gid == group)
		return true;
	os_may_block();
	count = fuse_req_getgroups(req, room, groups);
	if (count > room) {
		room = count;
		groups = calloc((size_t)room, sizeof(*groups));
		count = groups ? fuse_req_getgroups(req, room, groups) : 0;
	}
	if (count > 0)
		found = is_among(groups, count < room ? count : room, group);
	if (groups != usual)
		free(groups);
	return found;
}

struct setid setid_of_node(fuse_req_t req, fuse_ino_t node)
{
	struct setid setid = {0};
	struct core_attr attr;

	if (core_getattr(req_core(req), node_view(node), node_ino(node), &attr))
		return setid;
	setid.any = attr.mode & (S_ISUID | S_ISGID);
	setid.outsider = S_ISREG(attr.mode) && attr.mode & S_ISGID && !(attr.mode & S_IXGRP) &&
			 !is_of_group(req, attr.gid);
	return setid;
}
