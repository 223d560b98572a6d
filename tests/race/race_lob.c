/*
 * One LOB, many threads, each the owner of a range of blocks (as if it held the
 * range lock): while neighbours split and join extents across the borders, what
 * a thread reads in its own range is what it wrote (INV-LOB-1, INV-LOB-7).  Now
 * and then somebody takes all ranges and writes extents that span them.
 *
 * Now and then an owner clones its range to another LOB, whose extents its
 * neighbours' clones join and split as well.
 *
 * The switches (tunables.def) change all the time.
 *
 * Other threads read anything they like, without any lock: the mapping may be
 * of any moment, but each block has a valid checksum (INV-LOB-4) or, when it was
 * overwritten and reused, has no reader left.
 */
#include "engine/lob_internal.h"

#include "tests/lib/lob_rig.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOB 40u
#define COPY 41u   /* gets clones of owners' ranges */
#define OWNERS 4u
#define RANGE 61u /* blocks of each: no multiple of anything */
#define BLOCKS (OWNERS * RANGE)
#define ROUNDS 500u

struct race {
	struct volume *volume;
	pthread_rwlock_t ranges;    /* an owner holds its range; the spanning writer all */
	uint32_t version[BLOCKS];   /* [lock: ranges] of each block, by its owner */
	uint32_t copied[BLOCKS];    /* of each block of the copy, by its owner */
	_Atomic uint32_t next_version;
	_Atomic uint64_t clones;
	_Atomic bool stop;
	_Atomic uint64_t compared;
};

struct worker {
	struct race *race;
	uint32_t id;
	struct os_thread thread;
};

static void point(const char *name)
{
	static _Thread_local uint64_t seed;

	(void)name;
	if (random_next(&seed) % 3 == 0)
		sched_yield();
}

static int change(struct race *race, uint64_t first, uint64_t end, uint32_t version)
{
	int rc;

	if (version)
		rc = lob_rig_write(race->volume, LOB, first, (uint32_t)(end - first), version, 0,
				   NULL);
	else if (first % 2)
		rc = lob_rig_hole(race->volume, LOB, first, end, NULL);
	else
		rc = lob_rig_allocate(race->volume, LOB, first, (uint32_t)(end - first), NULL);
	if (rc == 0)
		for (uint64_t b = first; b < end; b++)
			race->version[b] = version;
	check(rc == 0 || rc == -ENOSPC || rc == -E2BIG);
	return rc;
}

static void compare(struct race *race, uint64_t first, uint32_t count)
{
	uint32_t found[RANGE];

	check(lob_rig_read(race->volume, LOB, first, count, found) == 0);
	for (uint32_t i = 0; i < count; i++)
		check(found[i] == race->version[first + i]);
	atomic_fetch_add(&race->compared, count);
}

/* The copy keeps what was cloned, whatever happens to the original, and the other way round. */
static int clone_range(struct race *race, uint64_t base)
{
	uint32_t found[RANGE];
	uint64_t done;
	int rc = lob_rig_clone(race->volume, COPY, LOB, base, base + RANGE, NULL, &done);

	check(rc == 0 || rc == -ENOSPC || rc == -E2BIG);
	if (rc == 0)
		memcpy(race->copied + base, race->version + base,
		       (done - base) * sizeof(race->copied[0]));
	atomic_fetch_add(&race->clones, rc == 0);
	check(lob_rig_read(race->volume, COPY, base, RANGE, found) == 0);
	check(memcmp(found, race->copied + base, sizeof(found)) == 0);
	return rc;
}

static void own_loop(void *arg)
{
	struct worker *w = arg;
	struct race *race = w->race;
	uint64_t seed = w->id, base = (uint64_t)w->id * RANGE;

	for (unsigned i = 0; i < ROUNDS * test_scale(); i++) {
		uint64_t first = base + random_next(&seed) % RANGE;
		uint64_t length = 1 + random_next(&seed) % (random_next(&seed) % 3 ? 4 : RANGE);
		uint64_t end = first + length < base + RANGE ? first + length : base + RANGE;
		uint32_t version = atomic_fetch_add(&race->next_version, 1);
		int rc;

		if (random_next(&seed) % 8 == 0)
			lob_rig_switch(race->volume, &seed);
		pthread_rwlock_rdlock(&race->ranges);
		rc = change(race, first, end, random_next(&seed) % 5 ? version : 0);
		compare(race, base, RANGE);
		compare(race, first, (uint32_t)(end - first));
		if (rc == 0 && random_next(&seed) % 4 == 0)
			rc = clone_range(race, base);
		pthread_rwlock_unlock(&race->ranges);
		if (rc == -ENOSPC)
			check(space_drain(race->volume->space) != -EIO);
	}
}

static void span_loop(void *arg)
{
	struct worker *w = arg;
	struct race *race = w->race;
	uint64_t seed = 99;

	while (!atomic_load(&race->stop)) {
		struct timespec pause = {.tv_nsec = 3000000};
		uint64_t first = random_next(&seed) % (BLOCKS / 2);
		uint64_t end = first + 1 + random_next(&seed) % (BLOCKS - first);
		int rc;

		pthread_rwlock_wrlock(&race->ranges);
		rc = change(race, first, end, atomic_fetch_add(&race->next_version, 1));
		pthread_rwlock_unlock(&race->ranges);
		if (rc == -ENOSPC)
			check(space_drain(race->volume->space) != -EIO);
		nanosleep(&pause, NULL);
	}
}

static void look_loop(void *arg)
{
	struct worker *w = arg;
	struct race *race = w->race;
	uint64_t seed = 7;
	uint32_t found[BLOCKS];
	uint64_t out;

	while (!atomic_load(&race->stop)) {
		uint64_t first = random_next(&seed) % BLOCKS;
		uint32_t count = (uint32_t)(1 + random_next(&seed) % (BLOCKS - first));

		check(lob_rig_read(race->volume, LOB, first, count, found) == 0);
		for (uint32_t i = 0; i < count; i++)
			check(found[i] != UINT32_MAX);
		check(lob_seek(race->volume, LOB, first, count % 2, 0, 0, &out) == 0);
	}
}

int main(void)
{
	struct worker owner[OWNERS], span, look;
	struct race race = {.next_version = 1};

	os_linux_set_point_handler(point);
	check(pthread_rwlock_init(&race.ranges, NULL) == 0);
	race.volume = scratch_open(scratch_format(16u << 20, 4096, 1u << 20), true);
	for (uint32_t i = 0; i < OWNERS; i++) {
		owner[i] = (struct worker){.race = &race, .id = i};
		check(os_thread_start(&owner[i].thread, "owner", own_loop, &owner[i]) == 0);
	}
	span = look = (struct worker){.race = &race};
	check(os_thread_start(&span.thread, "span", span_loop, &span) == 0);
	check(os_thread_start(&look.thread, "look", look_loop, &look) == 0);
	for (uint32_t i = 0; i < OWNERS; i++)
		os_thread_join(&owner[i].thread);
	atomic_store(&race.stop, true);
	os_thread_join(&span.thread);
	os_thread_join(&look.thread);
	for (uint32_t i = 0; i < OWNERS; i++)
		compare(&race, (uint64_t)i * RANGE, RANGE);
	check(scratch_problems(race.volume) == 0);
	check(volume_close(race.volume) == 0);
	pthread_rwlock_destroy(&race.ranges);
	printf("race_lob: %llu blocks compared, %llu clones\n",
	       (unsigned long long)atomic_load(&race.compared),
	       (unsigned long long)atomic_load(&race.clones));
	return 0;
}
