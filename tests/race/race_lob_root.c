/*
 * The root of `lob` is raised between the moment when a reader has found it as a
 * leaf and the moment when it latches it: what was mapped is not a hole.
 */
#include "engine/lob_internal.h"

#include "tests/lib/lob_rig.h"
#include "tests/lib/scratch.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#define LOB 40u

static _Atomic int stopped; /* 0 armed, 1 the reader waits, 2 it goes on */
static _Thread_local bool is_reader;

static void point(const char *name)
{
	int armed = 0;

	if (!is_reader || strcmp(name, "lob:leaf_located") != 0 ||
	    !atomic_compare_exchange_strong(&stopped, &armed, 1))
		return;
	while (atomic_load(&stopped) != 2)
		sched_yield();
}

static void read_first(void *arg)
{
	uint32_t found = 0;

	is_reader = true;
	check(lob_rig_read(arg, LOB, 0, 1, &found) == 0);
	check(found == 1);
}

int main(void)
{
	struct volume *volume = scratch_open(scratch_format(16u << 20, 4096, 1u << 20), true);
	struct os_thread reader;
	uint64_t block = 2;

	check(lob_rig_write(volume, LOB, 0, 1, 1, 0, NULL) == 0);
	os_linux_set_point_handler(point);
	check(os_thread_start(&reader, "reader", read_first, volume) == 0);
	while (atomic_load(&stopped) != 1)
		sched_yield();
	for (; stat_read(&volume->stats, STAT_tree_root_raises) == 0; block += 2)
		check(lob_rig_write(volume, LOB, block, 1, 2, 0, NULL) == 0);
	atomic_store(&stopped, 2);
	os_thread_join(&reader);
	os_linux_set_point_handler(NULL);
	check(scratch_problems(volume) == 0);
	check(volume_close(volume) == 0);
	puts("race_lob_root: ok");
	return 0;
}
