/*
 * Purge beside a load that never pauses: threads whose files are emptied and filled
 * again, replaced by rename, and removed, so that each step leaves something to
 * reclaim.
 *
 *	keeps_up   the lag (purge_lag()) stays below its bound (INV-PURGE-3), at the end it
 *	           comes down to nothing, and all the space is back
 *	stalled    purge stands still in the middle of its work: who detaches more than
 *	           LAG_MAX is slowed down, and goes on; so does purge afterwards
 *	in_use     what is removed and in use does not count: nobody is slowed down for it
 */
#include "engine/base/os.h"
#include "engine/purge.h"
#include "engine/space.h"
#include "tests/lib/core_rig.h"
#include "tests/lib/scratch.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4u
#define ROUNDS 300u
#define LAG_MAX 200u /* instead of PURGE_LAG_MAX */
#define FILE_BYTES (96u << 10)

static struct rig rig;
static _Atomic uint64_t lag_max;
static _Atomic bool hold_purge, holding;

struct worker {
	struct os_thread thread;
	unsigned number, rounds;
	uint64_t dir;
};

static void expect(bool ok, const char *what, int64_t got)
{
	if (ok)
		return;
	fprintf(stderr, "race_purge: %s: %" PRId64 "\n", what, got);
	abort();
}

/* Of the purge thread alone: everybody else passes. */
static void at_point(const struct os *os, const char *name)
{
	(void)os;
	if (strcmp(name, "purge:batch") != 0)
		return;
	while (atomic_load(&hold_purge)) {
		atomic_store(&holding, true);
		sched_yield();
	}
	atomic_store(&holding, false);
}

static void note_lag(void)
{
	uint64_t lag = purge_lag(rig.volume), seen = atomic_load(&lag_max);

	while (lag > seen && !atomic_compare_exchange_weak(&lag_max, &seen, lag))
		;
}

static void work(void *arg)
{
	struct worker *w = arg;
	uint8_t *data = malloc(FILE_BYTES);
	uint64_t ino = rig_file(&rig, w->dir, "file");

	rig_fill(data, FILE_BYTES, w->number);
	for (unsigned i = 0; i < w->rounds; i++) {
		uint64_t other;

		expect(rig_write(&rig, ino, 0, data, FILE_BYTES) == 0, "write", i);
		switch (i % 3) {
		case 0:
			expect(rig_truncate(&rig, ino, 0) == 0, "truncate", i);
			break;
		case 1:
			other = rig_file(&rig, w->dir, "other");
			expect(rig_write(&rig, other, 0, data, FILE_BYTES) == 0, "write", i);
			expect(rig_rename(&rig, w->dir, "other", w->dir, "file") == 0, "rename", i);
			ino = other;
			break;
		default:
			expect(rig_unlink(&rig, w->dir, "file") == 0, "unlink", i);
			ino = rig_file(&rig, w->dir, "file");
			break;
		}
		note_lag();
	}
	free(data);
}

static void keeps_up(void)
{
	struct worker worker[THREADS];
	unsigned rounds = ROUNDS * test_scale();
	struct space_counts before, after;

	rig_open(&rig, 512u << 20, 0, true);
	space_count(rig.volume->space, &before);
	for (unsigned i = 0; i < THREADS; i++) {
		char name[16];

		snprintf(name, sizeof(name), "dir%u", i);
		worker[i] = (struct worker){
			.number = i,
			.rounds = rounds,
			.dir = rig_dir(&rig, INO_ROOT, name),
		};
		expect(os_thread_start(&worker[i].thread, "load", work, &worker[i]) == 0,
		       "thread", i);
	}
	for (unsigned i = 0; i < THREADS; i++)
		os_thread_join(&worker[i].thread);
	printf("keeps_up: at most %" PRIu64 " records behind, of %u\n", atomic_load(&lag_max),
	       THREADS * rounds);
	expect(atomic_load(&lag_max) <= PURGE_LAG_MAX, "lag",
	       (int64_t)atomic_load(&lag_max));
	rig_purge(&rig);
	expect(purge_lag(rig.volume) == 0, "lag at the end", (int64_t)purge_lag(rig.volume));
	space_count(rig.volume->space, &after);
	expect(after.free + after.deferred + (1u << 10) > before.free, "space is missing",
	       (int64_t)(before.free - after.free));
	rig_close(&rig);
}

static void make_and_remove(uint64_t dir, unsigned number)
{
	char name[16];

	snprintf(name, sizeof(name), "f%u", number);
	expect(rig_file(&rig, dir, name) != 0, "create", number);
	expect(rig_unlink(&rig, dir, name) == 0, "unlink", number);
}

static uint64_t paces(void)
{
	return stat_read(&rig.volume->stats, STAT_purge_paces);
}

static void stalled(void)
{
	struct os os = os_linux;
	uint64_t dir, waited;

	os.point = at_point;
	os_set_current(&os); /* the volume's threads inherit it */
	rig_open(&rig, 256u << 20, 0, true);
	atomic_store(&rig.volume->purge_lag_max, LAG_MAX);
	dir = rig_dir(&rig, INO_ROOT, "dir");
	atomic_store(&hold_purge, true);
	make_and_remove(dir, 0);
	while (!atomic_load(&holding))
		sched_yield();
	for (unsigned i = 1; purge_lag(rig.volume) <= LAG_MAX; i++)
		make_and_remove(dir, i);
	waited = paces();
	for (unsigned i = 0; i < 10; i++)
		make_and_remove(dir, i);
	expect(paces() == waited + 10, "slowed down", (int64_t)(paces() - waited));
	atomic_store(&hold_purge, false);
	rig_purge(&rig);
	expect(purge_lag(rig.volume) == 0, "lag at the end", (int64_t)purge_lag(rig.volume));
	rig_close(&rig);
	os_set_current(&os_linux);
}

static void in_use(void)
{
	unsigned count = LAG_MAX + 200;
	uint64_t *ino = calloc(count, sizeof(*ino)), waited;
	uint64_t dir;

	rig_open(&rig, 256u << 20, 0, true);
	atomic_store(&rig.volume->purge_lag_max, LAG_MAX);
	dir = rig_dir(&rig, INO_ROOT, "dir");
	for (unsigned i = 0; i < count; i++) {
		ino[i] = rig_held_file(&rig, dir, "file");
		expect(rig_unlink(&rig, dir, "file") == 0, "unlink", i);
	}
	expect(purge_drain(rig.volume->purge, NULL) == 0, "pass", 0);
	expect(purge_lag(rig.volume) == count, "records of what is in use",
	       (int64_t)purge_lag(rig.volume));
	waited = paces();
	make_and_remove(dir, 0);
	expect(paces() == waited, "slowed down", (int64_t)(paces() - waited));
	for (unsigned i = 0; i < count; i++)
		core_forget(rig.core, ino[i], 1);
	free(ino);
	rig_purge(&rig);
	expect(purge_lag(rig.volume) == 0, "lag at the end", (int64_t)purge_lag(rig.volume));
	rig_close(&rig);
}

int main(void)
{
	keeps_up();
	stalled();
	in_use();
	return 0;
}
