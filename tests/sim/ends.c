/*
 * A file whose two ends are written one after the other, and read at once.  Between
 * them lie so many extents that a read takes them from several leaves of the index, and
 * all that keeps the file still from the first to the last is its range lock (INV-LOB-1).
 *
 *	head 0, tail 0 --1--> head 1 --2--> tail 1 --3--> head 2 --4--> tail 2 ...
 *
 * One writer at a time, so a state is the number of writes that are in it.
 *
 * INV-ENDS-1: what a read finds is one of these states: not before the last write that
 * had ended when the read began, not behind the last that had begun when it ended.
 * INV-ENDS-2: what a crash leaves is one of them, too, with all that had ended before
 * the last fsync began.
 */
#include "tests/sim/world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define WORDS (BLOCK_SIZE / sizeof(uint64_t))
#define BLOCKS 239u        /* every other one; in one read */
#define KEPT 512u          /* writes that may be lost */
#define WRITES_MAX 4u      /* of one step */

struct ends {
	struct world *world;
	uint64_t ino;
	bool writing;
	uint64_t begun, done;      /* writes */
	uint64_t durable;          /* of them, which no crash can take */
	uint64_t ended[KEPT];      /* when, of those behind `durable`: by number % KEPT */
};

static void note_durable(struct ends *e)
{
	while (e->durable < e->done &&
	       e->ended[(e->durable + 1) % KEPT] <= e->world->durable)
		e->durable++;
}

/* The next one; an error that changed nothing leaves it to the next step. */
static int write_next(struct ends *e, struct client *c)
{
	uint64_t number = ++e->begun, words[WORDS];
	uint64_t block = number % 2 ? 0 : BLOCKS - 1;
	int rc;

	for (unsigned i = 0; i < WORDS; i++)
		words[i] = (number + 1) / 2;
	rc = core_write(c->play.core, VIEW_BASE, e->ino, block * BLOCK_SIZE, words, sizeof(words),
			0);
	if (rc == 0) {
		e->done = number;
		e->ended[number % KEPT] = ++e->world->counter;
	} else if (rc == -EIO) {
		client_got_error(c);
		if (!e->world->stop)
			e->begun--;
	} else {
		world_fail(e->world, "ends: write", rc, 0);
	}
	return rc;
}

/* The word that a block is full of. */
static uint64_t word_of(const struct ends *e, const uint64_t *block)
{
	for (unsigned i = 1; i < WORDS; i++)
		if (block[i] != block[0])
			world_fail(e->world, "ends: two versions in one block", (int64_t)block[i],
				   (int64_t)block[0]);
	return block[0];
}

/* How many writes are in it: at least `least`. */
static uint64_t judge(const struct ends *e, const uint64_t *words, size_t bytes, uint64_t least)
{
	uint64_t head, tail;

	if (bytes != BLOCKS * (size_t)BLOCK_SIZE)
		world_fail(e->world, "ends: bytes", (int64_t)bytes, BLOCKS * (int64_t)BLOCK_SIZE);
	head = word_of(e, words);
	tail = word_of(e, words + (BLOCKS - 1) * WORDS);
	if (head != tail && head != tail + 1)
		world_fail(e->world, "ends: a mixture of two states", (int64_t)tail, (int64_t)head);
	if (head + tail < least || head + tail > e->begun)
		world_fail(e->world, "ends: a state of another time", (int64_t)(head + tail),
			   (int64_t)least);
	for (unsigned block = 1; block < BLOCKS - 1; block++)
		if (word_of(e, words + block * WORDS) != 0)
			world_fail(e->world, "ends: something between them", block, 0);
	return head + tail;
}

static int read_both(struct ends *e, uint64_t least, uint64_t *found)
{
	uint64_t *words = malloc(BLOCKS * (size_t)BLOCK_SIZE);
	size_t done = 0;
	int rc;

	check(words);
	rc = core_read(e->world->core, VIEW_BASE, e->ino, 0, words, BLOCKS * (size_t)BLOCK_SIZE,
		       &done);
	if (rc == 0)
		*found = judge(e, words, done, least);
	free(words);
	return rc;
}

void ends_step(struct ends *e, struct client *c)
{
	unsigned writes = 1 + (unsigned)play_below(&c->play, WRITES_MAX);
	bool to_write = play_below(&c->play, 2);
	uint64_t found;
	int rc = 0;

	e->world->tally.operations++;
	note_durable(e);
	if (!to_write || e->writing) {
		rc = read_both(e, e->done, &found);
		if (rc == -EIO)
			client_got_error(c);
		else if (rc)
			world_fail(e->world, "ends: read", rc, 0);
		return;
	}
	e->writing = true;
	for (unsigned i = 0; rc == 0 && i < writes && e->begun - e->durable < KEPT; i++)
		rc = write_next(e, c);
	e->writing = false;
}

void ends_reopened(struct ends *e, bool crashed)
{
	uint64_t found = 0;

	note_durable(e);
	if (read_both(e, crashed ? e->durable : e->done, &found))
		world_fail(e->world, "ends: read", 0, 0);
	e->begun = e->done = e->durable = found;
}

struct ends *ends_new(struct world *world, uint64_t ino)
{
	struct ends *e = calloc(1, sizeof(*e));
	const uint64_t zeros[WORDS] = {0};
	int rc = 0;

	check(e);
	e->world = world;
	e->ino = ino;
	/* Without contents that would have to be read. */
	for (uint64_t block = 0; rc == 0 && block < BLOCKS; block += 2)
		rc = core_fallocate(world->core, VIEW_BASE, ino, 0, block * BLOCK_SIZE, BLOCK_SIZE);
	for (uint64_t block = 0; rc == 0 && block < BLOCKS; block += BLOCKS - 1)
		rc = core_write(world->core, VIEW_BASE, ino, block * BLOCK_SIZE, zeros,
				sizeof(zeros), 0);
	if (rc)
		world_fail(world, "ends: first writes", rc, 0);
	return e;
}
