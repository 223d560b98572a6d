/*
 * A table whose rows have one large value each, over the engine alone: a row is
 * an entry of `xattrs` that names the LOB of its value, as a long attribute's is.
 *
 *	insert   a new row and the LOB of its value, in one mini-transaction
 *	update   a new LOB; the row names it, the old one goes to purge, in one
 *	         mini-transaction; purge works beside it all the time
 *
 * Each thread has rows of its own, so rows are never waited for.  Nothing waits
 * for the medium: the log is written, and flushed between the runs.
 */
#include "bench/lob/bench.h"

#include "engine/lob.h"
#include "engine/purge.h"
#include "engine/space.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define VOLUME_BYTES (3ull << 30)
#define LOG_BYTES (256ull << 20)
#define VALUE_BYTES_MOST (256u << 10)
#define CHUNK_BYTES (1u << 20)

struct row {
	le64 lob;
	uint8_t columns[200];
};

struct worker {
	struct load *load;
	pthread_t thread;
	unsigned number;
	uint64_t done;
	uint64_t inserted;  /* rows of this run */
	uint8_t *value;
};

struct load {
	struct volume *volume;
	unsigned threads;
	uint32_t blocks;    /* of a value, in this run */
	bool updates;
	_Atomic bool stop;
	pthread_barrier_t barrier;
	struct worker worker[THREADS_MOST];
};

static void demand(int rc, const char *what)
{
	if (rc)
		die(what, rc);
}

static uint32_t blocks_of(enum operation operation)
{
	static const uint32_t kib[OPERATIONS] = {16, 64, 256, 16, 64};

	return kib[operation] * 1024 / BLOCK_SIZE;
}

/* Rows of a thread, for updates: about a leaf of them, less of large values. */
static unsigned rows_of(const struct load *load)
{
	return load->blocks > 16 ? 16 : 64;
}

/* -------------------------------------------------------------- operations */

struct change {
	uint8_t key[KEY_XATTR_BYTES];
	uint64_t old_lob, new_lob, purge_key; /* old_lob 0: an insert; new_lob 0: a removal */
	struct lob_new new;
};

static void want(struct mtr *m, const struct change *change)
{
	mtr_want_key(m, INDEX_XATTRS, change->key, sizeof(change->key));
	if (change->new_lob)
		lob_want_publish(m, change->new_lob, &change->new);
	if (change->old_lob)
		purge_want(m, change->purge_key);
}

static int stage(struct mtr *m, struct change *change)
{
	struct row row = {.lob = le64_make(change->new_lob)};
	int64_t delta;
	uint64_t done;
	int rc = mtr_latch(m);

	if (rc == 0 && change->new_lob)
		rc = lob_stage_replace(m, change->new_lob, 0, change->new.blocks, &change->new,
				       &delta, &done);
	if (rc)
		return rc;
	if (change->new_lob)
		mtr_put(m, INDEX_XATTRS, change->key, sizeof(change->key), &row, sizeof(row));
	else
		mtr_delete(m, INDEX_XATTRS, change->key, sizeof(change->key));
	if (change->old_lob)
		purge_stage(m, change->purge_key, PURGE_LOB, 0, change->old_lob, 0, UINT64_MAX);
	return mtr_commit(m);
}

static int commit(struct volume *volume, struct change *change)
{
	struct mtr *m;
	int rc = mtr_begin(volume, 0, &m);

	if (rc)
		return rc;
	want(m, change);
	do
		rc = stage(m, change);
	while (rc == -BE_AGAIN);
	mtr_end(m);
	return rc;
}

static int change_once(struct volume *volume, struct change *change, uint32_t blocks,
		       const uint8_t *value)
{
	int rc = lob_prepare(volume, 0, blocks, value, 0, 0, &change->new);

	if (rc)
		return rc;
	rc = commit(volume, change);
	if (rc)
		lob_abandon(volume, &change->new);
	else
		lob_published(&change->new);
	return rc;
}

static void make_key(struct change *change, unsigned thread, uint64_t row)
{
	be64_put(change->key, thread + 1);
	be64_put(change->key + 8, row);
}

static uint64_t lob_of(struct volume *volume, const struct change *change)
{
	struct row row;
	size_t len;
	int rc = tree_get(&volume->index[INDEX_XATTRS], change->key, sizeof(change->key), &row,
			  sizeof(row), &len);

	if (rc == -BE_NOTFOUND)
		return 0;
	demand(rc, "row");
	return le64_get(row.lob);
}

/* Inserts the row or replaces its value. */
static void write_row(struct worker *w, uint64_t row)
{
	struct volume *volume = w->load->volume;
	struct change change;
	int rc;

	make_key(&change, w->number, row);
	change.old_lob = w->load->updates ? lob_of(volume, &change) : 0;
	memcpy(w->value, &w->done, sizeof(w->done));
	demand(id_take(volume, COUNTER_LOB, &change.new_lob), "LOB id");
	if (change.old_lob)
		demand(id_take(volume, COUNTER_PURGE, &change.purge_key), "purge key");
	while ((rc = change_once(volume, &change, w->load->blocks, w->value)) == -ENOSPC)
		demand(space_drain(volume->space), "space");
	demand(rc, "change");
	if (change.old_lob)
		purge_kick(volume->purge);
}

static void remove_row(struct worker *w, uint64_t row)
{
	struct volume *volume = w->load->volume;
	struct change change = {.new_lob = 0};

	make_key(&change, w->number, row);
	change.old_lob = lob_of(volume, &change);
	if (change.old_lob == 0)
		return;
	demand(id_take(volume, COUNTER_PURGE, &change.purge_key), "purge key");
	demand(commit(volume, &change), "removal");
}

/* ----------------------------------------------------------------- threads */

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct load *load = w->load;

	pthread_barrier_wait(&load->barrier);
	for (w->done = 0; !atomic_load(&load->stop); w->done++)
		write_row(w, load->updates ? w->done % rows_of(load) : w->inserted++);
	pthread_barrier_wait(&load->barrier);
	return NULL;
}

static void sleep_ms(unsigned ms)
{
	struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	while (nanosleep(&pause, &pause) != 0 && errno == EINTR)
		;
}

/* Everything of the run before is in place, and what it freed can be used again. */
static void settle(struct load *load)
{
	demand(purge_drain(load->volume->purge, NULL), "purge");
	demand(volume_sync(load->volume), "sync");
	(void)!space_drain(load->volume->space); /* -ENOSPC: nothing was left to be freed */
}

static void set_switches(struct volume *volume, unsigned switches)
{
	for (unsigned i = 0; i < TUNABLE_COUNT; i++)
		tunable_set(&volume->tunables, (enum tunable)i, switches & 1u << i);
}

/* Rows for updates, of the size that they keep; rows of inserts go again. */
static void before(struct load *load, bool updates)
{
	for (unsigned i = 0; updates && i < load->threads; i++)
		for (unsigned row = 0; row < rows_of(load); row++)
			write_row(&load->worker[i], row);
	settle(load);
}

static void after(struct load *load)
{
	for (unsigned i = 0; i < load->threads; i++) {
		struct worker *w = &load->worker[i];
		uint64_t rows = w->inserted > rows_of(load) ? w->inserted : rows_of(load);

		for (uint64_t row = 0; row < rows; row++)
			remove_row(w, row);
		w->inserted = 0;
	}
	settle(load);
}

/* -------------------------------------------------------------------- runs */

static const enum stat_id counted[] = {
	STAT_purge_data_blocks_read, STAT_pool_latched_misses, STAT_dev_writes,
	STAT_space_reserves, STAT_log_append_bytes,
};

struct sample {
	uint64_t at_ns, stat[array_count(counted)], waits[RANK_COUNT];
};

static void take(struct volume *volume, struct sample *sample)
{
	sample->at_ns = os_mono_ns();
	for (size_t i = 0; i < array_count(counted); i++)
		sample->stat[i] = stat_read(&volume->stats, counted[i]);
	for (unsigned rank = 0; rank < RANK_COUNT; rank++)
		sample->waits[rank] = latch_wait_count((enum rank)rank);
}

static struct run_result result_of(const struct sample *from, const struct sample *to,
				   uint64_t settled_ns, uint64_t done)
{
	double seconds = (double)(to->at_ns - from->at_ns) / 1e9, ops = (double)done;
	double change[array_count(counted)];
	struct run_result result;

	for (size_t i = 0; i < array_count(counted); i++)
		change[i] = (double)(to->stat[i] - from->stat[i]);
	result = (struct run_result){
		.rate = ops / seconds,
		.settled_rate = ops * 1e9 / (double)(settled_ns - from->at_ns),
		.purge_data_blocks = change[0] / seconds,
		.latched_misses = change[1] / seconds,
		.writes_per_op = change[2] / ops,
		.reserves_per_op = change[3] / ops,
		.log_bytes_per_op = change[4] / ops,
	};
	for (unsigned rank = 0; rank < RANK_COUNT; rank++)
		result.waits[rank] = (double)(to->waits[rank] - from->waits[rank]) / seconds;
	return result;
}

struct run_result load_run(struct load *load, enum operation operation, unsigned switches,
			   unsigned duration_ms)
{
	struct volume *volume = load->volume;
	struct sample from, to;
	uint64_t done = 0;

	load->blocks = blocks_of(operation);
	load->updates = operation <= UPDATE_256K;
	set_switches(volume, ALL_ON);
	before(load, load->updates);
	set_switches(volume, switches);
	atomic_store(&load->stop, false);
	pthread_barrier_init(&load->barrier, NULL, load->threads + 1);
	for (unsigned i = 0; i < load->threads; i++)
		demand(-pthread_create(&load->worker[i].thread, NULL, worker_main,
				       &load->worker[i]), "thread");
	pthread_barrier_wait(&load->barrier);
	take(volume, &from);
	sleep_ms(duration_ms);
	atomic_store(&load->stop, true);
	pthread_barrier_wait(&load->barrier);
	take(volume, &to);
	demand(purge_drain(volume->purge, NULL), "purge");
	for (unsigned i = 0; i < load->threads; i++) {
		pthread_join(load->worker[i].thread, NULL);
		done += load->worker[i].done;
	}
	pthread_barrier_destroy(&load->barrier);
	struct run_result result = result_of(&from, &to, os_mono_ns(), done);

	set_switches(volume, ALL_ON);
	after(load);
	return result;
}

/* -------------------------------------------------------------- the volume */

/* Nobody shall pay for the first use of a block. */
static void write_image(const char *path)
{
	static uint8_t zeros[CHUNK_BYTES];
	FILE *image = fopen(path, "r+");

	if (!image)
		die(path, -errno);
	for (uint64_t at = 0; at < VOLUME_BYTES; at += CHUNK_BYTES)
		if (fwrite(zeros, CHUNK_BYTES, 1, image) != 1)
			die(path, -errno);
	if (fclose(image) != 0)
		die(path, -errno);
}

static struct volume *make_volume(const char *folder, bool direct)
{
	struct format_params params = {
		.size_bytes = VOLUME_BYTES,
		.log_bytes = LOG_BYTES,
		.uuid = "bench-of-values",
		.hash_seed = "bench-hash-seed",
	};
	struct volume_options options = {.commit_interval_ns = OS_FOREVER};
	struct geometry geometry;
	struct volume *volume;
	struct device *dev;
	char path[4096];

	snprintf(path, sizeof(path), "%s/lob_bench.%d.img", folder, (int)getpid());
	if (fclose(fopen(path, "w")) != 0 || truncate(path, (off_t)VOLUME_BYTES) != 0)
		die(path, -errno);
	write_image(path);
	demand(dev_open_file(&dev, path, 0, 0), path);
	unlink(path); /* gone when this program ends, however it ends */
	if (direct)
		dev = direct_device(dev);
	demand(volume_format(dev, &params, &geometry), "format");
	if (direct)
		direct_from(dev, geometry.groups_start * BLOCK_SIZE);
	demand(volume_open(&volume, dev, &options), "open");
	return volume;
}

struct load *load_open(const char *folder, unsigned threads, bool direct)
{
	struct load *load = calloc(1, sizeof(*load));

	if (!load)
		die("memory", -ENOMEM);
	load->threads = threads;
	load->volume = make_volume(folder, direct);
	for (unsigned i = 0; i < threads; i++) {
		struct worker *w = &load->worker[i];

		w->load = load;
		w->number = i;
		w->value = aligned_alloc(BLOCK_SIZE, VALUE_BYTES_MOST);
		if (!w->value)
			die("memory", -ENOMEM);
		memset(w->value, (int)i, VALUE_BYTES_MOST);
	}
	return load;
}

void load_close(struct load *load)
{
	for (unsigned i = 0; i < load->threads; i++)
		free(load->worker[i].value);
	demand(volume_close(load->volume), "close");
	free(load);
}
