#include "tests/lib/file_load.h"

#include "engine/backup.h"
#include "engine/restore.h"
#include "tests/lib/scratch.h"
#include "tests/lib/scratch_file.h"
#include "tests/lib/script.h"

#include <stdio.h>
#include <stdlib.h>

static void say(const struct file_load_worker *worker, unsigned round, const char *format)
{
	char statement[96];

	snprintf(statement, sizeof(statement), format, worker->number, round, worker->load->bytes,
		 round);
	check(script_run(worker->load->core, statement) == 0);
}

static void work(void *arg)
{
	const struct file_load_worker *worker = arg;

	for (unsigned round = 0; round < worker->load->rounds; round++) {
		say(worker, round, "create d%u/f%u");
		say(worker, round, "write d%u/f%u 0 %u %u");
		if (round % 3 == 0)
			say(worker, round, "fsync d%u/f%u");
		if (round % 4 != 0)
			say(worker, round, "unlink d%u/f%u");
	}
	atomic_fetch_sub(&worker->load->at_work, 1);
}

void file_load_start(struct file_load *load)
{
	atomic_store(&load->at_work, load->threads);
	for (unsigned i = 0; i < load->threads; i++) {
		struct file_load_worker *worker = &load->worker[i];

		worker->load = load;
		worker->number = i;
		say(worker, 0, "mkdir d%u");
		check(os_thread_start(&worker->thread, "work", work, worker) == 0);
	}
}

bool file_load_works(struct file_load *load)
{
	return atomic_load(&load->at_work) > 0;
}

void file_load_join(struct file_load *load)
{
	for (unsigned i = 0; i < load->threads; i++)
		os_thread_join(&load->worker[i].thread);
}

/* ---------------------------------------------------------------- backups */

int backup_take(struct volume *volume, lsn_t since, lsn_t *lsn)
{
	struct backup_params params = {.fd = scratch_file_unnamed(), .since = since};
	struct backup_progress result;

	check(backup_run(volume, &params, &result) == 0);
	*lsn = result.lsn;
	return params.fd;
}

static void restore_onto(const struct backup_source *source, struct device *dev,
			 struct device *log)
{
	struct restore *restore;
	lsn_t lsn;

	check(restore_begin(&restore, dev) == 0);
	if (log)
		restore_log_to(restore, log, NULL);
	for (unsigned i = 0; i < source->count; i++)
		check(restore_apply(restore, source->fd[i], "backup") == 0);
	check(!source->archive || restore_log(restore, source->archive, UINT64_MAX) == 0);
	check(restore_finish(restore, &lsn) == 0);
	restore_end(restore);
}

uint64_t backup_compare(const struct backup_source *source, struct device *dev,
			struct device *log, const char *expected)
{
	const struct volume_options options = {
		.cache_bytes = SCRATCH_CACHE, .no_background = true, .log_dev = log};
	struct volume *volume;
	struct core *core;
	char *snapshot;
	uint64_t blocks;

	restore_onto(source, dev, log);
	check(volume_open(&volume, dev, &options) == 0);
	check(core_open(&core, volume) == 0);
	check(script_run(core, "purge") == 0);
	check(scratch_problems(volume) == 0);
	blocks = volume->geo.block_count;
	snapshot = core_snapshot(core);
	check(snapshot != NULL && strcmp(snapshot, expected) == 0);
	free(snapshot);
	core_close(core);
	check(volume_close(volume) == 0);
	return blocks;
}
