#include "tests/lib/crash_state.h"

#include "engine/flush.h"
#include "fsck/check.h"
#include "tests/lib/scratch.h"
#include "tests/lib/script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int crash_open(struct device *dev, const struct crash_medium *medium, struct volume **volume,
	       struct core **core)
{
	struct volume_options options = {.cache_bytes = SCRATCH_CACHE,
					 .log_buffer_bytes = 1u << 20,
					 .log_mode = medium->log_mode,
					 .no_background = true};
	int rc = volume_open(volume, dev, &options);

	if (rc)
		dev_close(dev);
	else
		check(core_open(core, *volume) == 0);
	return rc;
}

void crash_abandon(struct volume *volume, struct core *core)
{
	core_close(core);
	volume_abandon(volume);
}

void crash_run(struct core *core, const char *text)
{
	struct script script;

	script_parse(&script, text);
	for (unsigned i = 0; i < script.count; i++)
		check(script_run(core, script.statement[i]) == 0);
	script_free(&script);
	check(script_run(core, "flush") == 0);
}

struct device *crash_set_up(struct device *dev, const char *text, const struct crash_medium *medium)
{
	struct device *after;
	struct volume *volume;
	struct core *core;

	dev_record_start(dev);
	check(crash_open(dev, medium, &volume, &core) == 0);
	crash_run(core, text);
	check(dev_record_cut(dev, dev_record_count(dev), &after) == 0);
	crash_abandon(volume, core);
	return after;
}

struct device *crash_prepare(const char *text, const struct crash_medium *medium)
{
	struct device *dev = scratch_format(SCRATCH_BYTES, SCRATCH_PAGE, SCRATCH_LOG);

	if (medium->pmem)
		dev_memory_be_pmem(dev);
	return crash_set_up(dev, text, medium);
}

/* --------------------------------------------------------------- judging */

static void print_problem(void *arg, const struct fsck_problem *problem)
{
	(void)arg;
	fprintf(stderr, "fsck: [%u] %s: %s\n", problem->number, problem->title, problem->detail);
}

const char *crash_shows(struct core *core, char *const *snapshot, unsigned oldest, unsigned last)
{
	char *found = core_snapshot(core);
	bool shows = false;

	if (found == NULL)
		return "something cannot be read";
	for (unsigned i = oldest; i <= last && !shows; i++)
		shows = strcmp(found, snapshot[i]) == 0;
	if (!shows)
		fprintf(stderr, "found:\n%s\noldest allowed:\n%s\nlast:\n%s\n", found,
			snapshot[oldest], snapshot[last]);
	free(found);
	return shows ? NULL : "not a state between two operations, or a durable one is lost";
}

const char *crash_fsck_recovered(struct device *dev, struct device *log)
{
	struct fsck_options options = {.data = true, .log_dev = log};
	struct fsck_result result;
	int rc = fsck_recover_and_walk(dev, SCRATCH_CACHE, &options, print_problem, NULL, &result);
	uint64_t problems = result.problems;

	fsck_result_free(&result);
	return rc || problems > 0 ? "fsck finds problems" : NULL;
}

const char *crash_fsck_open(struct volume *volume)
{
	struct fsck_options options = {.data = true};
	struct fsck_result result;
	const char *wrong;

	if (flush_everything(volume->flusher))
		return "cannot be written back";
	options.lsn_end = log_next_lsn(volume->log);
	if (fsck_walk(volume->dev, &options, print_problem, NULL, &result))
		wrong = "fsck cannot walk";
	else
		wrong = result.problems > 0 ? "fsck finds problems" : NULL;
	fsck_result_free(&result);
	return wrong;
}

const char *crash_go_on(struct volume *volume, struct core *core)
{
	static const char *const more[] = {"create zz", "write zz 0 6000 99", "mkdir zd",
					   "rename zz zd/zz", "trunc zd/zz 10", "unlink zd/zz",
					   "purge", "rmdir zd", "flush"};

	for (size_t i = 0; i < array_count(more); i++)
		if (script_run(core, more[i]))
			return "the recovered volume does not go on working";
	return scratch_problems(volume) > 0 ? "problems after going on" : NULL;
}
