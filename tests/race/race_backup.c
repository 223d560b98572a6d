/*
 * Backups of a volume that three threads change, restored and compared.
 *
 *	chain     a full backup and incrementals, each beside the load; every prefix of
 *	          the chain restores to a moment between its call and its return
 *	archived  a full backup and the log archive, over deaths and clean mounts: every
 *	          moment that was noted can be had back
 *
 *	race_backup [seed]
 */
#include "engine/backup.h"
#include "engine/base/error.h"
#include "engine/restore.h"
#include "engine/space.h"
#include "fsck/session.h"
#include "tests/lib/backup_load.h"
#include "tests/lib/scratch.h"
#include "tests/lib/scratch_file.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define VOLUME_BYTES (24u << 20)
#define CHAIN 4u
#define MOMENTS 5u

static noreturn void fail(const char *what, int64_t got)
{
	fprintf(stderr, "race_backup: %s: %lld\n", what, (long long)got);
	abort();
}

static void demand(int rc, const char *what)
{
	if (rc) {
		fprintf(stderr, "%s: ", error_text(rc));
		fail(what, rc);
	}
}

static struct backup_load *beside; /* the load that goes on beside a backup */

/* The backup waits until others have done something, wherever it may have missed it. */
static void let_others(const char *point)
{
	if (beside == NULL)
		return;
	if (strcmp(point, "backup:page") == 0 || strcmp(point, "backup:data") == 0)
		backup_load_await(beside, 3);
	else
		backup_load_await(beside, 60);
}

static void yield_at(const char *point)
{
	static _Thread_local uint64_t state;

	if (strncmp(point, "backup:", 7) == 0)
		let_others(point);
	if (strncmp(point, "tree:", 5) && strncmp(point, "flush:", 6))
		return;
	if (state == 0)
		state = (uint64_t)(uintptr_t)&state;
	if (random_next(&state) % 3 == 0)
		sched_yield();
}

struct link {
	int fd;
	struct disk_backup_header head;
	struct backup_load_point first, last;
};

static void take(struct rig *rig, struct backup_load *load, struct link *link,
		 const struct link *base)
{
	struct backup_params params = {0};
	struct backup_progress result;

	link->fd = scratch_file_unnamed();
	params.fd = link->fd;
	if (base) {
		params.since = le64_get(base->head.lsn);
		memcpy(params.base_id, base->head.id, sizeof(params.base_id));
	}
	beside = load;
	link->first = backup_load_over(load);
	demand(backup_run(rig->volume, &params, &result), "backup");
	link->last = backup_load_begun(load);
	beside = NULL;
	demand(backup_header_read(link->fd, "backup", &link->head), "header");
	demand(backup_verify(link->fd, "backup"), "verify");
	if (result.bad_blocks)
		fail("bad blocks", (int64_t)result.bad_blocks);
	printf("%s of %llu pages, %llu blocks at %llu\n", base ? "incremental" : "full",
	       (unsigned long long)result.pages, (unsigned long long)result.blocks,
	       (unsigned long long)result.lsn);
}

static void print_line(void *arg, const char *line)
{
	(void)arg;
	fprintf(stderr, "fsck: %s\n", line);
}

/* dir: NULL, or an archive that is replayed up to `until`. */
static struct device *restore(const struct link *links, unsigned count, const char *dir,
			      lsn_t until)
{
	struct session_options fsck = {.mode = MODE_NO, .force = true, .data = true,
				       .print = print_line};
	struct restore *restore;
	struct device *dev;
	lsn_t lsn;
	int rc;

	demand(dev_open_memory(&dev, VOLUME_BYTES), "device");
	demand(restore_begin(&restore, dev), "begin");
	for (unsigned i = 0; i < count; i++)
		demand(restore_apply(restore, links[i].fd, "backup"), "apply");
	if (dir)
		demand(restore_log(restore, dir, until), "log");
	demand(restore_finish(restore, &lsn), "finish");
	restore_end(restore);
	if (dir == NULL && lsn != le64_get(links[count - 1].head.lsn))
		fail("LSN", (int64_t)lsn);
	rc = session_run_on(dev, "restored", &fsck);
	if (rc != EXIT_CLEAN)
		fail("fsck", rc);
	return dev;
}

static void open_restored(struct rig *rig, struct device *dev)
{
	struct volume_options options = {.cache_bytes = 4u << 20, .log_buffer_bytes = 2u << 20};

	*rig = (struct rig){.dev = dev, .page_size = 4096, .background = true};
	demand(volume_open(&rig->volume, scratch_keep(dev), &options), "open");
	demand(core_open(&rig->core, rig->volume), "core");
}

static void check_restored(struct backup_load *load, const struct link *links, unsigned count)
{
	struct rig rig;

	open_restored(&rig, restore(links, count, NULL, 0));
	backup_load_check(load, rig.core, links[count - 1].first, links[count - 1].last);
	rig_close(&rig);
}

static void chain(uint64_t seed)
{
	struct link link[CHAIN];
	struct backup_load *load;
	struct space_counts counts;
	struct rig rig;

	rig_open(&rig, VOLUME_BYTES, 4096, true);
	load = backup_load_new(&rig, seed);
	backup_load_start(load);
	backup_load_await(load, 1200);
	for (unsigned i = 0; i < CHAIN; i++) {
		take(&rig, load, &link[i], i ? &link[i - 1] : NULL);
		backup_load_await(load, 100);
	}
	backup_load_stop(load);
	for (unsigned i = 0; i < CHAIN; i++)
		check_restored(load, link, i + 1);
	/* INV-BAK-1: nothing is held. */
	rig_purge(&rig);
	(void)!space_drain(rig.volume->space);
	space_count(rig.volume->space, &counts);
	if (counts.deferred)
		fail("blocks are still held", (int64_t)counts.deferred);
	for (unsigned i = 0; i < CHAIN; i++)
		close(link[i].fd);
	backup_load_free(load);
	rig_close(&rig);
}

/* A moment that somebody may want back. */
struct moment {
	lsn_t lsn;
	struct backup_load_point first, last;
};

static struct moment now(struct rig *rig, struct backup_load *load)
{
	struct moment moment = {.first = backup_load_over(load)};

	moment.lsn = log_next_lsn(rig->volume->log);
	moment.last = backup_load_begun(load);
	return moment;
}

static void check_moment(struct backup_load *load, const struct link *full, const char *dir,
			 const struct moment *moment)
{
	struct rig rig;

	open_restored(&rig, restore(full, 1, dir, moment ? moment->lsn : UINT64_MAX));
	backup_load_check(load, rig.core, moment ? moment->first : backup_load_over(load),
			  moment ? moment->last : backup_load_over(load));
	rig_close(&rig);
}

/* A full backup, then the archive of the log: over deaths of the server and clean mounts. */
static void archived(uint64_t seed)
{
	char dir[SCRATCH_PATH_BYTES];
	struct moment moment[MOMENTS];
	struct backup_load *load;
	struct link full;
	struct rig rig;

	scratch_dir(dir);
	rig_open_archived(&rig, VOLUME_BYTES, 4096, true, dir);
	load = backup_load_new(&rig, seed);
	backup_load_start(load);
	backup_load_await(load, 300);
	take(&rig, load, &full, NULL);
	for (unsigned i = 0; i < MOMENTS; i++) {
		backup_load_await(load, 200);
		moment[i] = now(&rig, load);
		backup_load_await(load, 50);
		if (i % 2 == 0)
			continue;
		backup_load_stop(load);
		demand(volume_sync(rig.volume), "sync");
		rig_reopen(&rig, i % 4 == 1);
		backup_load_start(load);
	}
	backup_load_stop(load);
	demand(volume_sync(rig.volume), "sync");
	rig_reopen(&rig, seed & 1);
	for (unsigned i = 0; i < MOMENTS; i++)
		check_moment(load, &full, dir, &moment[i]);
	check_moment(load, &full, dir, NULL);
	close(full.fd);
	backup_load_free(load);
	rig_close(&rig);
	scratch_dir_remove(dir);
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;

	os_linux_set_point_handler(yield_at);
	for (unsigned i = 0; i < test_scale(); i++) {
		chain(seed + i);
		archived(seed + i);
	}
	return 0;
}
