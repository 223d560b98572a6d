/*
 * A file that everybody writes as a whole and reads as a whole: each write is a
 * version, and what is read must be one of them, wholly, and of the right time.
 *
 * INV-REGISTER-1: what a read finds was begun before the read ended, and not
 * overwritten by a write that began after it had ended, and that had ended before
 * the read began.
 * INV-REGISTER-2: what a crash leaves is a version, not overwritten in that sense by
 * one that had ended before the last fsync began.
 */
#include "tests/sim/world.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define VERSIONS_MAX 256u

struct version {
	uint64_t number, began;
	uint64_t ended;      /* UINT64_MAX: under way, or cut off */
	uint64_t over_since; /* surely overwritten */
};

struct reg {
	struct world *world;
	uint64_t ino;
	size_t words, bytes;
	struct version version[VERSIONS_MAX];
	unsigned count, active;
	uint64_t last;
};

static struct version *find(struct reg *r, uint64_t number)
{
	for (unsigned i = 0; i < r->count; i++)
		if (r->version[i].number == number)
			return &r->version[i];
	return NULL;
}

/* Nobody can find these any more. */
static void prune(struct reg *r)
{
	for (unsigned i = 0; r->active == 0 && i < r->count;) {
		if (r->version[i].over_since <= r->world->durable)
			r->version[i] = r->version[--r->count];
		else
			i++;
	}
}

static void overwrite(struct reg *r, const struct version *by)
{
	for (unsigned i = 0; i < r->count; i++)
		if (r->version[i].ended < by->began && by->ended < r->version[i].over_since)
			r->version[i].over_since = by->ended;
}

static void forget(struct reg *r, uint64_t number)
{
	struct version *v = find(r, number);

	*v = r->version[--r->count];
}

static void write_it(struct reg *r, struct client *c)
{
	uint64_t *words = malloc(r->bytes), number = ++r->last;
	int rc;

	check(words);
	r->version[r->count++] = (struct version){.number = number,
						  .began = ++r->world->counter,
						  .ended = UINT64_MAX,
						  .over_since = UINT64_MAX};
	for (unsigned i = 0; i < r->words; i++)
		words[i] = number;
	rc = core_write(c->play.core, VIEW_BASE, r->ino, 0, words, r->bytes, 0);
	if (rc == 0) {
		find(r, number)->ended = ++r->world->counter;
		overwrite(r, find(r, number));
	} else if (rc == -EIO) {
		client_got_error(c);
	} else if (rc != -ENOSPC || !r->world->climate.may_fill) {
		world_fail(r->world, "register: write", rc, 0);
	}
	if (rc && !r->world->stop)
		forget(r, number);
	free(words);
}

/* One version wholly; began: of the read. */
static void judge(struct reg *r, const uint64_t *words, size_t bytes, uint64_t began)
{
	const struct version *v;

	if (bytes != r->bytes)
		world_fail(r->world, "register: bytes", (int64_t)bytes,
			   (int64_t)r->bytes);
	for (unsigned i = 1; i < r->words; i++)
		if (words[i] != words[0])
			world_fail(r->world, "register: two versions in one", (int64_t)words[i],
				   (int64_t)words[0]);
	v = find(r, words[0]);
	if (!v || v->over_since < began)
		world_fail(r->world, "register: a version that was overwritten", (int64_t)words[0],
			   (int64_t)r->last);
}

static int read_it(struct reg *r, uint64_t began)
{
	uint64_t *words = malloc(r->bytes);
	size_t done = 0;
	int rc;

	check(words);
	rc = core_read(r->world->core, VIEW_BASE, r->ino, 0, words, r->bytes, &done);
	if (rc == 0)
		judge(r, words, done, began);
	free(words);
	return rc;
}

void register_step(struct reg *r, struct client *c)
{
	int rc = 0;

	prune(r);
	if (r->count == VERSIONS_MAX)
		return;
	r->active++;
	r->world->tally.operations++;
	if (play_below(&c->play, 2))
		write_it(r, c);
	else
		rc = read_it(r, ++r->world->counter);
	if (rc == -EIO)
		client_got_error(c);
	else if (rc)
		world_fail(r->world, "register: read", rc, 0);
	r->active--;
}

void register_reopened(struct reg *r, bool crashed)
{
	uint64_t *words = malloc(r->bytes);
	uint64_t now = crashed ? r->world->durable : r->world->counter;
	size_t done;

	check(words && r->active == 0);
	if (core_read(r->world->core, VIEW_BASE, r->ino, 0, words, r->bytes, &done))
		world_fail(r->world, "register: read", 0, 0);
	judge(r, words, done, now);
	r->version[0] = (struct version){.number = words[0], .over_since = UINT64_MAX};
	r->count = 1;
	free(words);
}

struct reg *register_new(struct world *world, uint64_t ino)
{
	struct reg *r = calloc(1, sizeof(*r));
	uint64_t *words = calloc(world->climate.register_words, sizeof(*words));

	check(r && words);
	r->world = world;
	r->ino = ino;
	r->words = world->climate.register_words;
	r->bytes = r->words * sizeof(*words);
	r->count = 1;
	r->version[0].over_since = UINT64_MAX; /* version 0 */
	if (core_write(world->core, VIEW_BASE, ino, 0, words, r->bytes, 0))
		world_fail(world, "register: first write", 0, 0);
	free(words);
	return r;
}
