/*
 * What has survived a crash.
 *
 * Each client's files are compared with its oracle after each prefix of its
 * operations, beginning with the shortest that is allowed.  That a prefix is there
 * demands others of the other clients (INV-WORLD-2); demands only grow with the
 * prefixes, so taking the shortest that fits, again and again, finds a solution if
 * there is one.
 */
#include "tests/sim/world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct survivor {
	struct client *client;
	struct oracle *oracle; /* after the first `count` */
	struct crowd crowd;
	unsigned count;
	uint64_t found;        /* digest of what is there */
	bool fits;
};

static const struct entry *entry(const struct client *c, unsigned i)
{
	return i < c->logged ? &c->log[i] : &c->maybe;
}

static unsigned entries(const struct client *c)
{
	return c->logged + c->has_maybe;
}

static void apply_next(struct survivor *s)
{
	entry_apply(entry(s->client, s->count++), s->oracle, &s->crowd);
	s->fits = false;
}

/* The shortest prefix from here on that is what was found. */
static void find(const struct world *w, struct survivor *s)
{
	unsigned from = s->count;

	while (oracle_digest(s->oracle) + crowd_digest(&s->crowd) != s->found) {
		if (s->count == entries(s->client)) {
			fprintf(stderr, "client %u: %u operations may be lost, at least %u not\n",
				s->client->number, entries(s->client) - from, from);
			world_fail(w, "no prefix of the operations is what survived", 0, 0);
		}
		apply_next(s);
	}
	s->fits = true;
}

/* Everything that had ended before this moment is there. */
static void demand(struct survivor *s, uint64_t moment)
{
	while (s->count < s->client->logged && s->client->log[s->count].ended < moment)
		apply_next(s);
}

static bool demand_of_others(struct survivor *all, unsigned count, const struct survivor *by)
{
	uint64_t began = by->count ? entry(by->client, by->count - 1)->began : 0;
	bool fit = true;

	for (unsigned i = 0; i < count; i++) {
		if (&all[i] != by)
			demand(&all[i], began);
		fit = fit && all[i].fits;
	}
	return fit;
}

static void drop_nameless(struct oracle *o)
{
	for (uint32_t i = 1; i < o->count; i++)
		if (o->node[i] && o->node[i]->nlink == 0)
			oracle_drop(o, i);
}

static void go_on(struct survivor *s)
{
	struct client *c = s->client;

	drop_nameless(s->oracle);
	oracle_free(c->play.now);
	c->play.now = s->oracle;
	c->synced = oracle_copy(s->oracle);
	c->crowd = c->crowd_synced = s->crowd;
	c->logged = 0;
	c->has_maybe = false;
	memset(c->play.held, 0, sizeof(c->play.held));
	play_rebind(&c->play);
}

void judge_survivors(struct world *w)
{
	struct survivor all[CLIENTS_MAX] = {0};
	unsigned count = w->climate.clients;
	bool fit;

	for (unsigned i = 0; i < count; i++) {
		struct client *c = w->client[i];

		struct crowd crowd = crowd_list(c);

		all[i] = (struct survivor){
			.client = c, .oracle = c->synced, .crowd = c->crowd_synced};
		all[i].found = play_digest(&c->play) + crowd_digest(&crowd);
		demand(&all[i], w->durable);
	}
	do {
		for (unsigned i = 0; i < count; i++)
			find(w, &all[i]);
		fit = true;
		for (unsigned i = 0; i < count; i++)
			fit = demand_of_others(all, count, &all[i]) && fit;
	} while (!fit);
	for (unsigned i = 0; i < count; i++)
		go_on(&all[i]);
}
