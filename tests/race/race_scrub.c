/*
 * Scrubs of a volume that three threads change: nothing is ever called damaged, and what
 * was there before is judged.  The scrub waits at its points until the others have
 * done something; the threads yield in the tree and while pages are written back.
 *
 *	race_scrub [seed]
 */
#include "engine/base/error.h"
#include "engine/scrub.h"
#include "engine/space.h"
#include "tests/lib/backup_load.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define VOLUME_BYTES (12u << 20)
#define ROUNDS 4u
#define STILL_MIB 6u
#define CHURN_PIECE 65536u

static struct backup_load *beside;

static noreturn void fail(const char *what, int64_t got)
{
	fprintf(stderr, "race_scrub: %s: %lld\n", what, (long long)got);
	abort();
}

static bool chance(unsigned in)
{
	static _Thread_local uint64_t state;

	if (state == 0)
		state = (uint64_t)(uintptr_t)&state;
	return random_next(&state) % in == 0;
}

/* Where nothing is held, the scrub lets a thread or all of them get ahead. */
static void let_others(const char *point)
{
	if (strcmp(point, "scrub:begun") == 0 || strcmp(point, "scrub:late") == 0 ||
	    (strcmp(point, "scrub:leaf") == 0 && chance(4)))
		backup_load_await(beside, 60);
	else if (strcmp(point, "scrub:located") != 0 && chance(2))
		backup_load_await(beside, 1);
	else
		sched_yield();
}

static void yield_at(const char *point)
{
	if (strncmp(point, "scrub:", 6) == 0 && beside)
		let_others(point);
	else if ((strncmp(point, "tree:", 5) == 0 || strncmp(point, "flush:", 6) == 0) && chance(3))
		sched_yield();
}

static void found(void *arg, const struct scrub_damage *damage)
{
	(void)arg;
	fprintf(stderr, "race_scrub: place %d, block %llu, index %u, level %u, lob %llu: %s\n",
		(int)damage->place, (unsigned long long)damage->block, damage->index,
		damage->level, (unsigned long long)damage->lob, damage->why);
	abort();
}

/* A fourth thread writes one file anew, over and over, where little else is free. */
struct churn {
	struct os_thread thread;
	struct rig *rig;
	uint64_t ino;
	_Atomic bool stop;
};

static void churn_main(void *arg)
{
	struct churn *churn = arg;
	static uint8_t bytes[CHURN_PIECE];

	for (uint64_t n = 0; !atomic_load(&churn->stop); n++) {
		int rc;

		rig_fill(bytes, sizeof(bytes), n);
		rc = rig_write(churn->rig, churn->ino, n * 7 % 16 * CHURN_PIECE, bytes,
			       sizeof(bytes));
		if (rc && rc != -ENOSPC)
			fail("write", rc);
	}
}

static void churn_start(struct churn *churn, struct rig *rig)
{
	static uint8_t bytes[WRITE_BYTES_MAX];
	uint64_t still = rig_file(rig, INO_ROOT, "still");

	for (unsigned i = 0; i < STILL_MIB; i++)
		if (rig_write(rig, still, (uint64_t)i * sizeof(bytes), bytes, sizeof(bytes)))
			fail("no room for what stays", i);
	*churn = (struct churn){.rig = rig, .ino = rig_file(rig, INO_ROOT, "churn")};
	if (os_thread_start(&churn->thread, "churn", churn_main, churn))
		fail("thread", 0);
}

static void scrub(struct rig *rig, struct backup_load *load)
{
	const struct scrub_params params = {.found = found};
	struct scrub_progress result;
	int rc;

	beside = load;
	rc = scrub_run(rig->volume, &params, &result);
	beside = NULL;
	if (rc) {
		fprintf(stderr, "%s: ", error_text(rc));
		fail("scrub", rc);
	}
	if (result.pages == 0 || result.blocks == 0)
		fail("nothing was looked at", (int64_t)result.pages);
	printf("%llu pages, %llu blocks, %llu skipped, %llu searches so far\n",
	       (unsigned long long)result.pages, (unsigned long long)result.blocks,
	       (unsigned long long)result.skipped,
	       (unsigned long long)stat_read(&rig->volume->stats, STAT_scrub_searches));
}

static void round_of(uint64_t seed)
{
	struct backup_load *load;
	struct churn churn;
	struct rig rig;

	rig_open(&rig, VOLUME_BYTES, 4096, true);
	load = backup_load_new(&rig, seed);
	churn_start(&churn, &rig);
	backup_load_start(load);
	backup_load_await(load, 800);
	for (unsigned i = 0; i < ROUNDS; i++) {
		if (i == ROUNDS / 2)
			volume_set_smo(rig.volume, SMO_INDEX_LATCH);
		scrub(&rig, load);
	}
	backup_load_stop(load);
	atomic_store(&churn.stop, true);
	os_thread_join(&churn.thread);
	if (atomic_load(&rig.volume->corrupt))
		fail("the volume is marked as damaged", 0);
	backup_load_free(load);
	rig_close(&rig);
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;

	os_linux_set_point_handler(yield_at);
	for (unsigned i = 0; i < test_scale(); i++)
		round_of(seed + i);
	return 0;
}
