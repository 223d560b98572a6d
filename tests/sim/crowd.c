/*
 * Each client's part of the crowd: see world.h.
 */
#include "tests/sim/world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define NAME_BYTES 128u

static const struct core_cred cred = {.uid = 1, .gid = 1};

static bool is_there(const struct crowd *crowd, uint32_t i)
{
	return crowd->there[i / 8] & 1u << i % 8;
}

static void flip(struct crowd *crowd, uint32_t i)
{
	crowd->there[i / 8] ^= (uint8_t)(1u << i % 8);
}

/* A rename flips two. */
void crowd_flip(struct crowd *crowd, const struct oracle_op *op)
{
	flip(crowd, op->name);
	if (op->name2 != op->name)
		flip(crowd, op->name2);
}

uint64_t crowd_digest(const struct crowd *crowd)
{
	return oracle_mix(1, crowd->there, sizeof(crowd->there));
}

static size_t name_of(const struct client *c, char name[NAME_BYTES], uint32_t i)
{
	return (size_t)snprintf(name, NAME_BYTES, "%u.%0*u", c->number,
				c->world->climate.crowd_digits, i);
}

static int create(struct client *c, uint32_t i)
{
	char name[NAME_BYTES];
	size_t len = name_of(c, name, i);
	struct core_attr attr;
	int rc = core_create(c->play.core, VIEW_BASE, &cred, c->world->crowd_dir, name, len,
			     S_IFREG | 0600, 0, &attr);

	if (rc == 0) {
		c->crowd_ino[i] = attr.ino;
		core_forget(c->play.core, attr.ino, 1);
	}
	return rc;
}

static int rename_one(struct client *c, uint32_t from, uint32_t to)
{
	char name[NAME_BYTES], name2[NAME_BYTES];
	size_t len = name_of(c, name, from), len2 = name_of(c, name2, to);
	uint64_t dir = c->world->crowd_dir;
	int rc = core_rename(c->play.core, VIEW_BASE, dir, name, len, dir, name2, len2,
			     CORE_RENAME_NOREPLACE);

	if (rc == 0)
		c->crowd_ino[to] = c->crowd_ino[from];
	return rc;
}

static int unlink_one(struct client *c, uint32_t i)
{
	char name[NAME_BYTES];
	size_t len = name_of(c, name, i);

	return core_unlink(c->play.core, VIEW_BASE, c->world->crowd_dir, name, len);
}

void crowd_fill(struct client *c)
{
	for (uint32_t i = 0; i < c->world->climate.crowd; i += 2) {
		if (create(c, i))
			c->play.fail(&c->play, "filling the crowd", 0, 0);
		flip(&c->crowd, i);
	}
	c->crowd_synced = c->crowd;
}

static void look(struct client *c, uint32_t i)
{
	char name[NAME_BYTES];
	size_t len = name_of(c, name, i);
	struct core_attr attr;
	int rc = core_lookup(c->play.core, VIEW_BASE, c->world->crowd_dir, name, len, &attr);

	if (rc == -EIO) {
		client_got_error(c);
		return;
	}
	if (rc != (is_there(&c->crowd, i) ? 0 : -ENOENT))
		c->play.fail(&c->play, "lookup in the crowd", rc, is_there(&c->crowd, i));
	if (rc == 0 && attr.ino != c->crowd_ino[i])
		c->play.fail(&c->play, "inode in the crowd", (int64_t)attr.ino,
			     (int64_t)c->crowd_ino[i]);
	if (rc == 0)
		core_forget(c->play.core, attr.ino, 1);
}

static void change(struct client *c, uint32_t i, uint32_t other)
{
	struct world *w = c->world;
	bool moves = is_there(&c->crowd, i) && !is_there(&c->crowd, other) &&
		     play_below(&c->play, 2);
	struct oracle_op op = {.name = i, .name2 = moves ? other : i};
	uint64_t began = ++w->counter;
	int rc = !is_there(&c->crowd, i) ? create(c, i)
		 : moves		 ? rename_one(c, i, other)
					 : unlink_one(c, i);

	w->tally.operations++;
	sim_trace(w->sim, (uint32_t)rc);
	if (rc == 0) {
		crowd_flip(&c->crowd, &op);
		client_note(c, ENTRY_FLIP, &op, began);
	} else if (rc == -EIO) {
		c->maybe = (struct entry){
			.kind = ENTRY_FLIP, .op = op, .began = began, .ended = UINT64_MAX};
		client_got_error(c);
		c->has_maybe = w->stop;
	} else if (rc == -ENOSPC && w->climate.may_fill && !is_there(&c->crowd, i)) {
		w->tally.full++;
	} else {
		c->play.fail(&c->play, "a change of the crowd", rc, 0);
	}
}

/* It grows for a while, then shrinks again, so that pages split and merge. */
void crowd_step(struct client *c)
{
	uint32_t names = c->world->climate.crowd;
	uint32_t i = (uint32_t)play_below(&c->play, names);

	if (play_below(&c->play, names) == 0)
		c->crowd_grows = !c->crowd_grows;
	if (play_below(&c->play, 4) == 0)
		look(c, i);
	else if (is_there(&c->crowd, i) != c->crowd_grows || play_below(&c->play, 8) == 0)
		change(c, i, (uint32_t)play_below(&c->play, names));
}

struct listing {
	struct client *client;
	struct crowd crowd;
};

static int note_name(void *arg, const struct core_dirent *d)
{
	struct listing *l = arg;
	struct client *c = l->client;
	char name[NAME_BYTES];
	unsigned number, i;

	if (d->cookie <= 2)
		return 0;
	if (d->name_len >= sizeof(name))
		c->play.fail(&c->play, "name in the crowd", (int64_t)d->name_len, 0);
	memcpy(name, d->name, d->name_len);
	name[d->name_len] = '\0';
	if (sscanf(name, "%u.%u", &number, &i) != 2 || i >= CROWD_MAX)
		c->play.fail(&c->play, "name in the crowd", 0, 0);
	if (number != c->number)
		return 0;
	if (is_there(&l->crowd, i))
		c->play.fail(&c->play, "listed twice in the crowd", i, 0);
	flip(&l->crowd, i);
	c->crowd_ino[i] = d->ino;
	return 0;
}

struct crowd crowd_list(struct client *c)
{
	struct listing l = {.client = c};
	int rc = core_readdir(c->play.core, VIEW_BASE, c->world->crowd_dir, 0, false, note_name,
			      &l);

	if (rc)
		c->play.fail(&c->play, "listing the crowd", rc, 0);
	return l.crowd;
}
