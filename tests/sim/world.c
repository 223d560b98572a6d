#include "tests/sim/world.h"

#include "engine/base/error.h"
#include "engine/purge.h"
#include "fsck/check.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define OPENS_MAX 20u /* attempts with errors, before one without */

noreturn void world_fail(const struct world *w, const char *what, int64_t got, int64_t want)
{
	fprintf(stderr, "%s: got %" PRId64 ", want %" PRId64 " (operation %" PRIu64
		", life %" PRIu64 ")\n", what, got, want, w->tally.operations, w->tally.lives);
	sim_print(w->sim);
	abort();
}

static void demand(const struct world *w, int rc, const char *what)
{
	if (rc)
		world_fail(w, what, rc, 0);
}

/* --- what the seed decides ---------------------------------------------------------- */

static uint64_t one_of(struct sim *sim, const uint64_t *values, size_t count)
{
	return values[sim_below(sim, count)];
}
#define ONE_OF(sim, ...)                                                                     \
	one_of(sim, (const uint64_t[]){__VA_ARGS__},                                          \
	       array_count(((const uint64_t[]){__VA_ARGS__})))

static struct climate draw_climate(struct sim *sim)
{
	struct climate c = {0};
	uint64_t kind = sim_below(sim, 8);

	c.may_fill = sim_below(sim, 4) == 0;
	c.page_size = c.may_fill || sim_below(sim, 4) ? 4096 : 16384;
	c.size_bytes = c.may_fill ? 4u << 20 : 32u << 20;
	c.cache_pages = ONE_OF(sim, 256, 512, 1024);
	c.log_pages = ONE_OF(sim, 256, 256, 512);
	c.log_apart = sim_below(sim, 6) == 0;
	c.scrub = sim_below(sim, 4) == 0;
	c.clients = 1 + (unsigned)sim_below(sim, CLIENTS_MAX);
	c.file_bytes = ONE_OF(sim, 5000, 20000, 20000, 70000);
	c.crowd = (uint32_t)ONE_OF(sim, 16, 128, 1024, CROWD_MAX);
	c.register_words = (unsigned)ONE_OF(sim, 40, 3000, 3000, 30000);
	c.crowd_digits = (int)ONE_OF(sim, 1, 1, 110);
	c.crowd_full = !c.may_fill && sim_below(sim, 6) == 0;
	c.background = sim_below(sim, 8) != 0;
	c.cuts = kind >= 1;
	c.errors = kind >= 4;
	c.flips = kind >= 6;
	return c;
}

static struct sim_temper draw_temper(struct sim *sim)
{
	struct sim_temper t = {0};

	t.switch_every = (unsigned)ONE_OF(sim, 0, 5, 20, 50, 200, 1000);
	t.stall_every = (unsigned)ONE_OF(sim, 0, 20, 100, 1000);
	t.stall_ns = ONE_OF(sim, 100000, 5000000, 300000000);
	if (sim_below(sim, 2))
		t.favourite = 1 + (unsigned)sim_below(sim, SIM_CLASSES);
	t.spurious_every = (unsigned)ONE_OF(sim, 0, 100, 1000);
	t.processors = 1 + (unsigned)sim_below(sim, 4);
	return t;
}

static struct medium_faults draw_faults(const struct world *w, bool opening)
{
	struct medium_faults f = {0};
	struct sim *sim = w->sim;

	if (w->climate.cuts && sim_below(sim, 2))
		f.cut = 1 + sim_below(sim, opening ? 200 : 3000);
	if (w->climate.errors && sim_below(sim, 2)) {
		f.read_error = ONE_OF(sim, 0, 50, 500, 5000);
		f.write_error = ONE_OF(sim, 0, 0, 500, 5000);
		f.flush_error = ONE_OF(sim, 0, 0, 100, 1000);
	}
	if (w->climate.flips && !opening)
		f.flip = ONE_OF(sim, 0, 50, 500, 5000);
	return f;
}

/* --- opening ------------------------------------------------------------------------- */

static void die(struct world *w)
{
	core_close(w->core);
	volume_abandon(w->volume);
}

static int open_once(struct world *w)
{
	struct volume_options options = {
		.cache_bytes = w->climate.cache_pages * w->climate.page_size,
		.log_buffer_bytes = 1u << 20,
		.no_background = !w->climate.background,
		.ignore_damage = w->climate.flips,
		.log_scrub = w->climate.scrub,
	};
	struct device *dev = medium_open(w->medium);
	int rc;

	options.log_dev = w->log_medium ? medium_open(w->log_medium) : NULL;
	rc = volume_open(&w->volume, dev, &options);
	if (rc) {
		dev_close(options.log_dev);
		dev_close(dev);
		return error_errno(rc);
	}
	rc = core_open(&w->core, w->volume);
	if (rc) {
		volume_abandon(w->volume);
		return rc;
	}
	/* It may be open and dead: that shows only later. */
	if (medium_is_cut(w->medium) || atomic_load(&w->volume->failed)) {
		die(w);
		return -EIO;
	}
	return 0;
}

static bool had_trouble(const struct medium *medium)
{
	struct medium_seen seen = medium_seen(medium);

	return medium_is_cut(medium) || seen.read_errors + seen.write_errors + seen.flush_errors;
}

/* INV-WORLD-8 */
static void open_volume(struct world *w)
{
	int rc = -EIO;

	for (unsigned i = 0; rc && i <= OPENS_MAX; i++) {
		struct medium_faults faults = i < OPENS_MAX ? draw_faults(w, true)
							     : (struct medium_faults){0};

		medium_set_faults(w->medium, &faults);
		rc = open_once(w);
		sim_progress(w->sim);
		if (rc == 0)
			break;
		w->tally.opens_failed++;
		if (rc != -EIO || !had_trouble(w->medium))
			world_fail(w, "open", rc, 0);
		medium_cut(w->medium);
	}
	demand(w, rc, "open");
	medium_set_faults(w->medium, &(struct medium_faults){0});
	for (unsigned i = 0; i < w->climate.clients; i++)
		if (w->client[i])
			w->client[i]->play.core = w->core;
}

/* --- a life ----------------------------------------------------------------------------- */

static void work(struct world *w, uint64_t operations)
{
	struct medium_faults faults = draw_faults(w, false);
	struct sim_temper temper = draw_temper(w->sim);

	faults.lies = w->lying_disk;
	sim_set_temper(w->sim, &temper);
	w->left = operations;
	w->stop = false;
	w->faulty = w->climate.errors || w->climate.flips;
	medium_set_faults(w->medium, &faults);
	for (unsigned i = 0; i < w->climate.clients; i++)
		demand(w, os_thread_start(&w->client[i]->thread, "client", client_work,
					  w->client[i]), "thread");
	for (unsigned i = 0; i < w->climate.clients; i++)
		os_thread_join(&w->client[i]->thread);
	faults = (struct medium_faults){0};
	medium_set_faults(w->medium, &faults);
	w->faulty = false;
}

static void print_problem(void *arg, const char *text)
{
	(void)arg;
	fprintf(stderr, "volume_check: %s\n", text);
}

static void check_volume(struct world *w)
{
	struct check_report report = {.problem = print_problem};

	demand(w, purge_drain(w->volume->purge, NULL), "purge");
	demand(w, volume_check(w->volume, &report), "check");
	if (report.problems)
		world_fail(w, "volume_check", (int64_t)report.problems, 0);
}

static void print_fsck(void *arg, const struct fsck_problem *problem)
{
	(void)arg;
	fprintf(stderr, "fsck: [%u] %s: %s\n", problem->number, problem->title, problem->detail);
}

/* Of a volume that nobody has open; recovery happens in memory. */
static void check_by_fsck(struct world *w)
{
	struct fsck_options options = {.data = true};
	struct fsck_result result;
	struct device *dev = medium_open(w->medium);
	int rc;

	options.log_dev = w->log_medium ? medium_open(w->log_medium) : NULL;
	medium_be_ideal(w->medium, true);
	rc = fsck_recover_and_walk(dev, w->climate.cache_pages * w->climate.page_size, &options,
				   print_fsck, NULL, &result);
	if (rc || result.problems)
		world_fail(w, "fsck", rc ? rc : (int64_t)result.problems, 0);
	fsck_result_free(&result);
	dev_close(options.log_dev);
	dev_close(dev);
	medium_be_ideal(w->medium, false);
}

static void close_volume(struct world *w)
{
	for (unsigned i = 0; i < w->climate.clients; i++)
		client_compare(w->client[i]);
	core_close(w->core);
	demand(w, volume_close(w->volume), "close");
	for (unsigned i = 0; i < w->climate.clients; i++)
		client_all_durable(w->client[i], true);
}

static void count_stats(struct world *w)
{
	for (unsigned i = 0; i < STAT_COUNT; i++)
		w->tally.stat[i] += stat_read(&w->volume->stats, (enum stat_id)i);
	if (w->climate.flips)
		return;
	if (stat_read(&w->volume->stats, STAT_corruptions))
		world_fail(w, "damage that nobody has done", 1, 0); /* INV-WORLD-7 */
	if (stat_read(&w->volume->stats, STAT_lob_crc_errors))
		world_fail(w, "a checksum that nobody has spoilt", 1, 0);
}

/* INV-WORLD-5 */
static void look_at_failed(struct world *w)
{
	static const struct core_cred cred = {0};
	struct core_attr attr;
	int rc;

	medium_be_ideal(w->medium, true);
	for (unsigned i = 0; i < w->climate.clients; i++) {
		(void)play_digest(&w->client[i]->play);
		(void)crowd_list(w->client[i]);
	}
	rc = core_create(w->core, VIEW_BASE, &cred, INO_ROOT, "x", 1, S_IFREG, 0, &attr);
	if (rc != -EIO)
		world_fail(w, "a change of a failed volume", rc, -EIO);
	rc = core_fsync(w->core, VIEW_BASE, INO_ROOT, false);
	if (rc != -EIO)
		world_fail(w, "fsync of a failed volume", rc, -EIO);
	medium_be_ideal(w->medium, false);
}

/* true: what was not durable may be lost. */
static bool end_life(struct world *w)
{
	struct medium_seen seen = medium_seen(w->medium);
	bool failed = atomic_load(&w->volume->failed) && !medium_is_cut(w->medium);

	count_stats(w);
	w->tally.failures += failed;
	if (failed)
		look_at_failed(w);
	if (!failed && !medium_is_cut(w->medium) && sim_below(w->sim, 3) == 0) {
		close_volume(w);
		return false;
	}
	if (w->climate.cuts && sim_below(w->sim, 2))
		medium_cut(w->medium);
	die(w);
	/* What a failed flush has left is not to be trusted: see medium.h. */
	if (seen.flush_errors || seen.write_errors)
		medium_cut(w->medium);
	if (medium_is_cut(w->medium))
		w->tally.cuts++;
	else
		w->tally.deaths++;
	return true;
}

static void live(struct world *w, uint64_t operations)
{
	bool crashed;

	w->tally.lives++;
	work(w, operations);
	crashed = end_life(w);
	if (sim_below(w->sim, 8) == 0)
		check_by_fsck(w);
	open_volume(w);
	medium_be_ideal(w->medium, true);
	if (crashed)
		judge_survivors(w);
	contest_reopened(w->contest, crashed);
	register_reopened(w->reg, crashed);
	if (w->ends)
		ends_reopened(w->ends, crashed);
	if (sim_below(w->sim, 4) == 0)
		check_volume(w);
	medium_be_ideal(w->medium, false);
}

/* --- a run ------------------------------------------------------------------------------- */

static void format(struct world *w)
{
	struct format_params params = {
		.size_bytes = w->climate.size_bytes,
		.page_size = w->climate.page_size,
		.log_bytes = w->climate.log_pages * w->climate.page_size,
		.uuid = "simulated-volum",
		.hash_seed = "simulated-hashs",
		.log_uuid = "simulated-log-1",
	};
	struct device *dev;

	w->medium = medium_new(w->sim, w->climate.size_bytes);
	if (w->climate.log_apart) {
		w->log_medium = medium_new(w->sim, params.log_bytes);
		medium_join(w->medium, w->log_medium);
		params.log_dev = medium_open(w->log_medium);
	}
	medium_be_ideal(w->medium, true);
	dev = medium_open(w->medium);
	demand(w, volume_format(dev, &params, NULL), "format");
	dev_close(params.log_dev);
	dev_close(dev);
	medium_be_ideal(w->medium, false);
}

static uint64_t make_one(struct world *w, const char *name, uint32_t type)
{
	static const struct core_cred cred = {0};
	struct core_attr attr;

	demand(w, core_create(w->core, VIEW_BASE, &cred, INO_ROOT, name, strlen(name),
			      type | 0755, 0, &attr), name);
	core_forget(w->core, attr.ino, 1);
	return attr.ino;
}

static void begin(struct world *w)
{
	w->sim = sim_begin(w->seed);
	w->climate = draw_climate(w->sim);
	format(w);
	open_volume(w);
	medium_be_ideal(w->medium, true);
	w->crowd_dir = make_one(w, "crowd", S_IFDIR);
	w->contest_dir = make_one(w, "contest", S_IFDIR);
	for (unsigned i = 0; i < w->climate.clients; i++) {
		w->client[i] = client_new(w, i);
		if (w->climate.crowd_full)
			crowd_fill(w->client[i]);
	}
	w->contest = contest_new(w);
	w->reg = register_new(w, make_one(w, "register", S_IFREG));
	if (!w->climate.may_fill)
		w->ends = ends_new(w, make_one(w, "ends", S_IFREG));
	demand(w, core_fsync(w->core, VIEW_BASE, INO_ROOT, false), "fsync");
	medium_be_ideal(w->medium, false);
}

static void end(struct world *w)
{
	medium_be_ideal(w->medium, true);
	check_volume(w);
	close_volume(w);
	check_by_fsck(w);
	contest_free(w->contest);
	free(w->reg);
	free(w->ends);
	medium_free(w->medium);
	if (w->log_medium)
		medium_free(w->log_medium);
	for (unsigned i = 0; i < w->climate.clients; i++)
		client_free(w->client[i]);
	sim_end(w->sim);
}

uint64_t world_run(uint64_t seed, uint64_t operations, bool lying_disk, bool verbose,
		   struct tally *tally)
{
	struct world *w = calloc(1, sizeof(*w));
	uint64_t digest, before;

	check(w);
	w->seed = seed;
	w->lying_disk = lying_disk;
	begin(w);
	while (w->tally.operations < operations) {
		before = w->tally.operations;
		live(w, 50 + sim_below(w->sim, 4000));
		if (verbose)
			fprintf(stderr, "life %" PRIu64 ": %" PRIu64 " operations, digest %016"
				PRIx64 "\n", w->tally.lives, w->tally.operations - before,
				sim_digest(w->sim));
	}
	digest = sim_digest(w->sim);
	*tally = w->tally;
	end(w);
	free(w);
	return digest;
}
