/*
 * A client: random operations, each judged at once.
 */
#include "tests/sim/world.h"

#include "engine/base/error.h"
#include "engine/flush.h"
#include "engine/log_resize.h"
#include "engine/purge.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define THINK_NS 2000000u
#define LONG_THINK_NS 8000000000ull /* longer than the commit interval */

static void play_failed(const struct play *play, const char *what, int64_t got, int64_t want)
{
	const struct client *c = (const struct client *)play;

	fprintf(stderr, "client %u: ", c->number);
	world_fail(c->world, what, got, want);
}

struct client *client_new(struct world *world, unsigned number)
{
	struct client *c = calloc(1, sizeof(*c));

	check(c);
	c->world = world;
	c->number = number;
	play_init(&c->play, world->core, INO_ROOT, sim_random(world->sim));
	c->play.bytes_max = world->climate.file_bytes;
	c->play.fail = play_failed;
	snprintf(c->play.prefix, sizeof(c->play.prefix), "c%u-", number);
	c->synced = oracle_copy(c->play.now);
	return c;
}

void client_free(struct client *c)
{
	play_free(&c->play);
	oracle_free(c->synced);
	free(c);
}

/* --- the log of what may be lost ----------------------------------------------------- */

void entry_apply(const struct entry *e, struct oracle *oracle, struct crowd *crowd)
{
	if (e->kind == ENTRY_OP)
		(void)oracle_apply(oracle, &e->op);
	else if (e->kind == ENTRY_DROP)
		oracle_drop(oracle, e->op.node);
	else
		crowd_flip(crowd, &e->op);
}

static void forget_durable(struct client *c)
{
	unsigned n = 0;

	while (n < c->logged && c->log[n].ended <= c->world->durable)
		entry_apply(&c->log[n++], c->synced, &c->crowd_synced);
	memmove(c->log, c->log + n, (c->logged - n) * sizeof(c->log[0]));
	c->logged -= n;
}

void client_note(struct client *c, enum entry_kind kind, const struct oracle_op *op,
		 uint64_t began)
{
	check(c->logged < LOG_MAX);
	c->log[c->logged++] = (struct entry){
		.kind = kind, .op = *op, .began = began, .ended = ++c->world->counter};
}

void client_all_durable(struct client *c, bool closed)
{
	for (unsigned i = 0; i < c->logged; i++)
		entry_apply(&c->log[i], c->synced, &c->crowd_synced);
	c->logged = 0;
	if (!closed)
		return;
	for (unsigned i = 0; i < PLAY_HELD_MAX; i++) {
		uint32_t node = c->play.held[i];

		c->play.held[i] = 0;
		if (node && c->play.now->node[node] && c->play.now->node[node]->nlink == 0) {
			oracle_drop(c->play.now, node);
			oracle_drop(c->synced, node);
		}
	}
}

void client_compare(struct client *c)
{
	uint64_t got = play_digest(&c->play), want = oracle_digest(c->play.now);

	struct crowd crowd = crowd_list(c);

	if (got != want)
		c->play.fail(&c->play, "digest of the tree", (int64_t)got, (int64_t)want);
	if (memcmp(&crowd, &c->crowd, sizeof(crowd)))
		c->play.fail(&c->play, "names of the crowd", 0, 0);
}

/* --- one step ------------------------------------------------------------------------ */

void client_got_error(struct client *c)
{
	struct world *w = c->world;

	w->tally.errors++;
	if (medium_is_cut(w->medium) || atomic_load(&w->volume->failed)) {
		w->stop = true;
		return;
	}
	if (!w->faulty)
		c->play.fail(&c->play, "an error that nobody has caused", -EIO, 0);
}

static void drop_if_gone(struct client *c, uint32_t node)
{
	struct oracle *now = c->play.now;
	struct oracle_op let_go = {.node = node};

	if (!node || !now->node[node] || now->node[node]->nlink || play_is_held(&c->play, node))
		return;
	oracle_drop(now, node);
	client_note(c, ENTRY_DROP, &let_go, c->world->counter);
}

static void succeed(struct client *c, const struct oracle_op *op, uint64_t began, uint64_t made)
{
	struct oracle *now = c->play.now;
	uint32_t count = now->count, gone[2] = {0, 0};
	int want;

	if (op->kind == OP_UNLINK || op->kind == OP_RMDIR)
		gone[0] = now->node[op->node]->child[op->name];
	if (op->kind == OP_RENAME && !op->exchange)
		gone[1] = now->node[op->node2]->child[op->name2];
	want = oracle_apply(now, op);
	if (want) {
		play_print(op);
		c->play.fail(&c->play, "result", 0, want);
	}
	if (now->count > count)
		c->play.ino[count] = made;
	client_note(c, ENTRY_OP, op, began);
	drop_if_gone(c, gone[0]);
	drop_if_gone(c, gone[1]);
}

/* The oracle's answer must be the same; a failed operation changes nothing in it. */
static void expect_failure(struct client *c, const struct oracle_op *op, int got)
{
	int want = oracle_apply(c->play.now, op);

	if (want == got)
		return;
	play_print(op);
	c->play.fail(&c->play, "result", got, want);
}

static void operate(struct client *c)
{
	struct world *w = c->world;
	struct oracle_op op = play_choose(&c->play);
	uint64_t began = ++w->counter, made = 0;
	int got = play_do(&c->play, &op, &made);

	w->tally.operations++;
	sim_trace(w->sim, ((uint64_t)op.kind << 32) + (uint32_t)got);
	if (got == 0) {
		succeed(c, &op, began, made);
	} else if (got == -EIO) {
		c->has_maybe = true;
		c->maybe = (struct entry){.op = op, .began = began, .ended = UINT64_MAX};
		client_got_error(c);
		c->has_maybe = w->stop;
	} else if (got == -ENOSPC && w->climate.may_fill && !play_frees_space(&op)) {
		w->tally.full++;
	} else {
		expect_failure(c, &op, got);
	}
}

static void sync_all(struct client *c)
{
	struct world *w = c->world;
	uint64_t began = ++w->counter;
	int rc = core_fsync(w->core, VIEW_BASE, INO_ROOT, false);

	if (rc == -EIO)
		client_got_error(c);
	else if (rc)
		c->play.fail(&c->play, "fsync", rc, 0);
	if (rc == 0 && began > w->durable) {
		w->durable = began;
		contest_durable(w->contest);
	}
}

static void hold(struct client *c)
{
	uint32_t let_go;

	if (play_hold(&c->play, &let_go))
		client_got_error(c);
	else
		drop_if_gone(c, let_go);
}

/* At what others are changing: any answer will do but an error. */
static void peek(struct client *c)
{
	struct world *w = c->world;
	const struct play *other = &w->client[sim_below(w->sim, w->climate.clients)]->play;
	uint64_t ino = other->ino[play_below(&c->play, other->now->count)];
	struct core_attr attr;
	size_t done;
	int rc = core_getattr(w->core, VIEW_BASE, ino, &attr);

	if (rc == 0 && S_ISREG(attr.mode))
		rc = core_read(w->core, VIEW_BASE, ino, play_below(&c->play, 20000), c->play.buf,
			       8192, &done);
	if (rc == -EIO)
		client_got_error(c);
	else if (rc && rc != -ENOENT)
		c->play.fail(&c->play, "a look at another's file", rc, 0);
}

static void figures(struct client *c)
{
	struct statvfs s;
	int rc = core_statfs(c->world->core, VIEW_BASE, &s);

	if (rc == -EIO)
		client_got_error(c);
	else if (rc)
		c->play.fail(&c->play, "statfs", rc, 0);
}

/* Switches that may be turned at any time, and work that anybody may ask for. */
static void meddle(struct client *c)
{
	struct world *w = c->world;
	struct volume *volume = w->volume;
	enum tunable tunable = (enum tunable)play_below(&c->play, TUNABLE_COUNT);
	char why[LOG_RESIZE_TEXT_BYTES];
	int rc = 0;

	switch (play_below(&c->play, 8)) {
	case 0:
		tunable_set(&volume->tunables, tunable, play_below(&c->play, 3));
		break;
	case 1:
		volume_set_smo(volume, play_below(&c->play, 3) ? SMO_BLINK : SMO_INDEX_LATCH);
		break;
	case 2:
		rc = error_errno(purge_drain(volume->purge, NULL));
		break;
	case 3:
		if (w->climate.background)
			rc = error_errno(log_resize(volume, (1 + play_below(&c->play, 4)) << 20,
						    why));
		if (rc == -EINVAL || rc == -EOPNOTSUPP) /* not this size, not this disk */
			rc = 0;
		break;
	default:
		rc = error_errno(flush_everything(volume->flusher));
	}
	if (rc == -EIO)
		client_got_error(c);
	else if (rc && rc != -ENOSPC && rc != -EBUSY)
		c->play.fail(&c->play, "meddling", rc, 0);
}

static void think(struct client *c)
{
	uint64_t most = play_below(&c->play, 50) ? THINK_NS : LONG_THINK_NS;

	sim_sleep(c->world->sim, play_below(&c->play, most));
}

static void step(struct client *c)
{
	uint64_t kind = play_below(&c->play, 1000);

	if (kind < 12 || c->logged > LOG_MAX - 10)
		sync_all(c);
	else if (kind < 14)
		figures(c);
	else if (kind < 20)
		meddle(c);
	else if (kind < 60)
		hold(c);
	else if (kind < 150)
		(void)(play_compare_file(&c->play) ? client_got_error(c), 0 : 0);
	else if (kind < 180)
		peek(c);
	else if (kind < 190)
		think(c);
	else if (kind < 280)
		contest_step(c->world->contest, c);
	else if (kind < 310)
		register_step(c->world->reg, c);
	else if (kind < 330 && c->world->ends)
		ends_step(c->world->ends, c);
	else if (kind < 520)
		crowd_step(c);
	else
		operate(c);
}

void client_work(void *arg)
{
	struct client *c = arg;
	struct world *w = c->world;

	while (!w->stop && w->left > 0 && c->play.now->count < ORACLE_NODES_MAX - 1) {
		w->left--;
		step(c);
		sim_progress(w->sim);
		if (c->logged > LOG_MAX / 2)
			forget_durable(c);
	}
}
