/*
 * Names that all clients fight for: is there one order of their operations that
 * explains every result?
 *
 * Operations that overlap form a segment; a moment when none is under way ends it.
 * At its end all orders are tried that keep "ended before it began": those in which
 * each operation would have had the result that it had.  What the names may be then
 * is a set of states, from which the next segment goes on.
 *
 * INV-CONTEST-1: the set is never empty.
 * INV-CONTEST-2: what a crash leaves is a state that some such order passes through,
 * not before the last segment that had ended when the last fsync began; operations
 * that the crash has cut off may have happened or not.
 *
 * A segment takes SEGMENT_MAX operations at most; who comes then does something else.
 */
#include "tests/sim/world.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define NAMES 4u
#define SEGMENT_MAX 7u
#define STATES_MAX 20000u

enum action { CREATE, MKDIR, UNLINK, RMDIR, RENAME, LOOKUP, ACTIONS };

/* What is under a name; id 0: nothing. */
struct thing {
	uint32_t id;
	bool dir;
};

struct state {
	struct thing name[NAMES];
};

struct action_of {
	enum action action;
	uint32_t name, name2;
	unsigned flags;         /* of a rename */
	uint32_t id;            /* of what it makes */
	uint64_t began, ended;
	int result;
	uint64_t ino;           /* that it made or found */
	bool open;              /* under way */
	bool maybe;             /* cut off */
};

struct set {
	struct state *state;
	size_t count, room;
};

struct contest {
	struct world *world;
	struct set now;      /* after the last segment */
	struct set recent;   /* passed through since `recent_from` */
	uint64_t closed;     /* when the last segment ended */
	struct action_of segment[SEGMENT_MAX];
	unsigned count, open;
	uint64_t *ino;       /* by id */
	uint32_t ids, ids_room;
};

/* --- sets of states -------------------------------------------------------------- */

static void set_add(struct contest *c, struct set *set, const struct state *state)
{
	for (size_t i = 0; i < set->count; i++)
		if (memcmp(&set->state[i], state, sizeof(*state)) == 0)
			return;
	if (set->count == set->room) {
		set->room = set->room ? 2 * set->room : 64;
		set->state = realloc(set->state, set->room * sizeof(*set->state));
		check(set->state);
	}
	if (set->count >= STATES_MAX)
		world_fail(c->world, "contest: too many states", (int64_t)set->count, 0);
	set->state[set->count++] = *state;
}

static void set_take(struct contest *c, struct set *to, const struct set *from)
{
	to->count = 0;
	for (size_t i = 0; i < from->count; i++)
		set_add(c, to, &from->state[i]);
}

/* --- what one does ---------------------------------------------------------------- */

static int make(struct state *s, const struct action_of *a)
{
	struct thing *name = &s->name[a->name];

	if (name->id)
		return -EEXIST;
	name->id = a->id;
	name->dir = a->action == MKDIR;
	return 0;
}

static int take_away(struct state *s, const struct action_of *a)
{
	struct thing *name = &s->name[a->name];

	if (!name->id)
		return -ENOENT;
	if (name->dir != (a->action == RMDIR))
		return name->dir ? -EISDIR : -ENOTDIR;
	memset(name, 0, sizeof(*name));
	return 0;
}

static int move(struct state *s, const struct action_of *a)
{
	struct thing *from = &s->name[a->name], *to = &s->name[a->name2], kept = *to;

	if (!from->id)
		return -ENOENT;
	if (a->flags == CORE_RENAME_NOREPLACE && to->id)
		return -EEXIST;
	if (a->flags == CORE_RENAME_EXCHANGE && !to->id)
		return -ENOENT;
	if (from == to)
		return 0;
	if (a->flags != CORE_RENAME_EXCHANGE && to->id && from->dir != to->dir)
		return from->dir ? -ENOTDIR : -EISDIR;
	*to = *from;
	memset(from, 0, sizeof(*from));
	if (a->flags == CORE_RENAME_EXCHANGE)
		*from = kept;
	return 0;
}

static int apply(const struct contest *c, struct state *s, const struct action_of *a)
{
	switch (a->action) {
	case CREATE: case MKDIR:
		return make(s, a);
	case UNLINK: case RMDIR:
		return take_away(s, a);
	case RENAME:
		return move(s, a);
	case LOOKUP:
		if (!s->name[a->name].id)
			return -ENOENT;
		/* It must have found this one; that of what was cut off is not known. */
		if (a->result == 0 && c->ino[s->name[a->name].id] &&
		    c->ino[s->name[a->name].id] != a->ino)
			return -ESTALE;
		return 0;
	case ACTIONS:
		break;
	}
	abort();
}

/* --- all orders --------------------------------------------------------------------- */

static bool may_be_next(const struct contest *c, unsigned done, unsigned next)
{
	for (unsigned i = 0; i < c->count; i++)
		if (!(done & 1u << i) && c->segment[i].ended < c->segment[next].began)
			return false;
	return true;
}

static bool all_done(const struct contest *c, unsigned done)
{
	for (unsigned i = 0; i < c->count; i++)
		if (!(done & 1u << i) && !c->segment[i].maybe)
			return false;
	return true;
}

static void try_orders(struct contest *c, const struct state *state, unsigned done,
		       struct set *ends)
{
	set_add(c, &c->recent, state);
	if (all_done(c, done))
		set_add(c, ends, state);
	for (unsigned i = 0; i < c->count; i++) {
		const struct action_of *a = &c->segment[i];
		struct state after = *state;
		int result;

		if ((done & 1u << i) || !may_be_next(c, done, i))
			continue;
		result = apply(c, &after, a);
		if (a->maybe || result == a->result)
			try_orders(c, &after, done | 1u << i, ends);
	}
}

static void print_segment(const struct contest *c)
{
	for (unsigned i = 0; i < c->count; i++) {
		const struct action_of *a = &c->segment[i];

		fprintf(stderr, "contest: %" PRIu64 " to %" PRIu64 ": action %d, name %u, %u, "
			"flags %u: %d, inode %" PRIu64 "%s\n", a->began, a->ended, a->action,
			a->name, a->name2, a->flags, a->result, a->ino,
			a->maybe ? ", cut off" : "");
	}
}

static void end_segment(struct contest *c)
{
	struct set ends = {0};

	for (size_t i = 0; i < c->now.count; i++)
		try_orders(c, &c->now.state[i], 0, &ends);
	if (ends.count == 0) { /* INV-CONTEST-1 */
		print_segment(c);
		world_fail(c->world, "contest: no order explains these results", 0, 0);
	}
	free(c->now.state);
	c->now = ends;
	c->count = 0;
	c->closed = ++c->world->counter;
}

void contest_durable(struct contest *c)
{
	if (c->count == 0 && c->closed < c->world->durable)
		set_take(c, &c->recent, &c->now);
}

/* --- one operation -------------------------------------------------------------------- */

static size_t name_of(char name[8], uint32_t number)
{
	return (size_t)snprintf(name, 8, "n%u", number);
}

static int act(struct contest *c, struct core *core, struct action_of *a)
{
	static const struct core_cred cred = {0};
	uint64_t dir = c->world->contest_dir;
	struct core_attr attr = {0};
	char name[8], name2[8];
	size_t len = name_of(name, a->name), len2 = name_of(name2, a->name2);
	int rc;

	if (a->action == UNLINK)
		return core_unlink(core, VIEW_BASE, dir, name, len);
	if (a->action == RMDIR)
		return core_rmdir(core, VIEW_BASE, dir, name, len);
	if (a->action == RENAME)
		return core_rename(core, VIEW_BASE, dir, name, len, dir, name2, len2, a->flags);
	if (a->action == LOOKUP)
		rc = core_lookup(core, VIEW_BASE, dir, name, len, &attr);
	else
		rc = core_create(core, VIEW_BASE, &cred, dir, name, len,
				 (a->action == MKDIR ? S_IFDIR : S_IFREG) | 0700, 0, &attr);
	a->ino = attr.ino;
	if (rc == 0)
		core_forget(core, attr.ino, 1);
	return rc;
}

static uint32_t new_id(struct contest *c)
{
	if (c->ids == c->ids_room) {
		c->ids_room = c->ids_room ? 2 * c->ids_room : 256;
		c->ino = realloc(c->ino, c->ids_room * sizeof(*c->ino));
		check(c->ino);
	}
	c->ino[c->ids] = 0;
	return c->ids++;
}

static struct action_of choose(struct contest *c, struct play *play)
{
	static const unsigned flags[] = {0, 0, CORE_RENAME_NOREPLACE, CORE_RENAME_EXCHANGE};
	struct action_of a = {.ended = UINT64_MAX, .open = true};

	a.action = (enum action)play_below(play, ACTIONS);
	a.name = (uint32_t)play_below(play, NAMES);
	a.name2 = (uint32_t)play_below(play, NAMES);
	a.flags = flags[play_below(play, 4)];
	if (a.action == CREATE || a.action == MKDIR)
		a.id = new_id(c);
	return a;
}

/* The last of those under way ends the segment. */
static void finish(struct contest *c, struct client *client, struct action_of *a, int rc)
{
	struct world *w = c->world;
	bool no_space = rc == -ENOSPC && w->climate.may_fill &&
			(a->action == CREATE || a->action == MKDIR);

	a->open = false;
	a->result = rc;
	a->ended = ++w->counter;
	if (rc == -EIO)
		client_got_error(client);
	a->maybe = rc == -EIO && w->stop;
	if (a->id && (rc == 0 || a->maybe))
		c->ino[a->id] = a->ino;
	if (no_space || (rc == -EIO && !a->maybe))
		a->action = ACTIONS; /* nothing has happened */
	if (--c->open > 0 || w->stop)
		return;
	for (unsigned i = 0; i < c->count;)
		if (c->segment[i].action == ACTIONS)
			c->segment[i] = c->segment[--c->count];
		else
			i++;
	end_segment(c);
}

void contest_step(struct contest *c, struct client *client)
{
	struct action_of *a = &c->segment[c->count];
	int rc;

	if (c->count == SEGMENT_MAX)
		return;
	*a = choose(c, &client->play);
	c->count++;
	c->open++;
	c->world->tally.operations++;
	c->world->tally.contests++;
	a->began = ++c->world->counter;
	rc = act(c, client->play.core, a);
	sim_trace(c->world->sim, (uint32_t)rc);
	finish(c, client, a, rc);
}

/* --- life after life -------------------------------------------------------------------- */

struct seen {
	struct contest *contest;
	uint64_t ino[NAMES];
	bool dir[NAMES];
};

static int note_name(void *arg, const struct core_dirent *d)
{
	struct seen *seen = arg;
	uint32_t number;

	if (d->cookie <= 2)
		return 0;
	number = (uint32_t)(d->name[1] - '0');
	if (d->name_len != 2 || number >= NAMES || seen->ino[number])
		world_fail(seen->contest->world, "contest: a name", number, 0);
	seen->ino[number] = d->ino;
	seen->dir[number] = S_ISDIR(d->type);
	return 0;
}

/* The inode of what a crash has cut off, if it came to be, is not known. */
static bool matches(const struct contest *c, const struct state *s, const struct seen *seen)
{
	for (unsigned i = 0; i < NAMES; i++) {
		uint64_t ino = c->ino[s->name[i].id];

		if ((s->name[i].id != 0) != (seen->ino[i] != 0))
			return false;
		if (s->name[i].id && s->name[i].dir != seen->dir[i])
			return false;
		if (s->name[i].id && ino && ino != seen->ino[i])
			return false;
	}
	return true;
}

static void go_on(struct contest *c, const struct state *state, const struct seen *seen)
{
	c->now.count = c->recent.count = 0;
	set_add(c, &c->now, state);
	set_add(c, &c->recent, state);
	for (unsigned i = 0; i < NAMES; i++)
		if (state->name[i].id)
			c->ino[state->name[i].id] = seen->ino[i];
}

void contest_reopened(struct contest *c, bool crashed)
{
	struct seen seen = {.contest = c};
	const struct set *set = crashed ? &c->recent : &c->now;
	struct world *w = c->world;
	int rc;

	check(c->open == 0);
	for (unsigned i = 0; i < c->count;)
		if (c->segment[i].action == ACTIONS)
			c->segment[i] = c->segment[--c->count];
		else
			i++;
	if (c->count)
		end_segment(c);
	rc = core_readdir(w->core, VIEW_BASE, w->contest_dir, 0, false, note_name, &seen);
	if (rc)
		world_fail(w, "contest: listing", rc, 0);
	for (size_t i = 0; i < set->count; i++) {
		if (matches(c, &set->state[i], &seen)) {
			struct state found = set->state[i];

			go_on(c, &found, &seen);
			return;
		}
	}
	world_fail(w, "contest: no order of the operations leads to what is there",
		   (int64_t)set->count, 0); /* INV-CONTEST-2 */
}

struct contest *contest_new(struct world *world)
{
	struct contest *c = calloc(1, sizeof(*c));
	struct state empty = {0};

	check(c);
	c->world = world;
	(void)new_id(c); /* 0: nothing */
	set_add(c, &c->now, &empty);
	set_add(c, &c->recent, &empty);
	return c;
}

void contest_free(struct contest *c)
{
	free(c->now.state);
	free(c->recent.state);
	free(c->ino);
	free(c);
}
