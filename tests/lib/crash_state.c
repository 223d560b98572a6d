#include "tests/lib/crash_state.h"

#include "engine/flush.h"
#include "fsck/check.h"
#include "tests/lib/scratch.h"
#include "tests/lib/script.h"

#include <stdio.h>

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

struct device *crash_prepare(const char *text, const struct crash_medium *medium)
{
	struct device *dev = scratch_format(SCRATCH_BYTES, SCRATCH_PAGE, SCRATCH_LOG), *after;
	struct volume *volume;
	struct script script;
	struct core *core;

	if (medium->pmem)
		dev_memory_be_pmem(dev);
	dev_record_start(dev);
	check(crash_open(dev, medium, &volume, &core) == 0);
	script_parse(&script, text);
	for (unsigned i = 0; i < script.count; i++)
		check(script_run(core, script.statement[i]) == 0);
	script_free(&script);
	check(script_run(core, "flush") == 0);
	check(dev_record_cut(dev, dev_record_count(dev), &after) == 0);
	crash_abandon(volume, core);
	return after;
}

/* --------------------------------------------------------------- judging */

static void print_problem(void *arg, const struct fsck_problem *problem)
{
	(void)arg;
	fprintf(stderr, "fsck: [%u] %s: %s\n", problem->number, problem->title, problem->detail);
}

const char *crash_fsck_recovered(struct device *dev)
{
	struct fsck_options options = {.data = true};
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
