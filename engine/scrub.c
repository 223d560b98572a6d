/*
 * The steps of a scrub, its pace, and what stands at fixed places.
 *
 * Pace: no more bytes a second than it is told; and while others work, it rests three
 * times as long as its reads took, so that at least three quarters of a busy medium's
 * time are theirs.
 */
#include "engine/scrub_internal.h"

#include "engine/flush.h"
#include "engine/page.h"
#include "engine/pool_internal.h"
#include "engine/space.h"

#include <errno.h>
#include <stdlib.h>

#define SLEEP_NS_MAX 50000000ull /* between two looks whether it is cancelled */
#define REST_SHARE 3u
#define REST_NS_MAX 200000000ull

/* -------------------------------------------------------------------- reads */

int scrub_read(struct scrub *s, void *buf, size_t len, uint64_t offset)
{
	struct device *dev = s->volume->dev;
	uint64_t began = os_mono_ns();
	int rc;

	if (s->way && offset + len <= s->way->size_bytes)
		rc = dev_read(s->way, buf, len, offset);
	else
		rc = dev_read(dev, buf, len, offset);
	s->read_ns += os_mono_ns() - began;
	s->progress.bytes += len;
	stat_add(&s->volume->stats, STAT_scrub_bytes, len);
	return rc;
}

/* Moves whenever somebody uses the volume. */
static uint64_t others_done(struct volume *volume)
{
	struct stats *stats = &volume->stats;

	return log_next_lsn(volume->log) + stat_read(stats, STAT_core_reads) +
	       stat_read(stats, STAT_core_lookups) + stat_read(stats, STAT_core_getattrs) +
	       stat_read(stats, STAT_core_readdirs) + stat_read(stats, STAT_lob_reads);
}

static int look(struct scrub *s)
{
	const struct scrub_params *params = s->params;

	if (params->progress)
		params->progress(params->arg, &s->progress);
	if (params->cancelled && params->cancelled(params->arg))
		return -ECANCELED;
	return atomic_load(&s->volume->failed) ? -EIO : 0;
}

static uint64_t rest_ns(struct scrub *s)
{
	uint64_t others = others_done(s->volume), rest = 0;

	if (others != s->others) {
		rest = REST_SHARE * s->read_ns;
		stat_add(&s->volume->stats, STAT_scrub_yields, 1);
	}
	s->others = others;
	s->read_ns = 0;
	return rest < REST_NS_MAX ? rest : REST_NS_MAX;
}

int scrub_pause(struct scrub *s)
{
	uint64_t rate = s->params->bytes_per_second, now = os_mono_ns();
	uint64_t until = now + rest_ns(s);
	struct waitq nobody = {0};
	int rc = look(s);

	if (rate) {
		uint64_t due = s->began_ns + (uint64_t)((double)s->progress.bytes /
							(double)rate * 1e9);

		until = due > until ? due : until;
	}
	while (rc == 0 && (now = os_mono_ns()) < until) {
		uint64_t left = until - now;

		waitq_wait(&nobody, waitq_ticket(&nobody),
			   left < SLEEP_NS_MAX ? left : SLEEP_NS_MAX);
		rc = look(s);
	}
	return rc;
}

/* ------------------------------------------------------------------- damage */

void scrub_found(struct scrub *s, const struct scrub_damage *damage)
{
	struct volume *volume = s->volume;

	if (damage->place == SCRUB_DATA) {
		s->progress.bad_blocks++;
		stat_add(&volume->stats, STAT_scrub_bad_blocks, 1);
		stat_add(&volume->stats, STAT_lob_crc_errors, 1);
	} else {
		s->progress.bad_pages++;
		stat_add(&volume->stats, STAT_scrub_bad_pages, 1);
		(void)!corrupt_at(volume, damage->block, "scrub", damage->why);
	}
	if (s->params->found)
		s->params->found(s->params->arg, damage);
}

/* -------------------------------------------------------------- superblocks */

static int scrub_superblocks(struct scrub *s)
{
	struct volume *volume = s->volume;
	struct scrub_damage damage = {.place = SCRUB_SUPERBLOCK};
	uint64_t at[2] = {0, volume->geo.block_count - 1};
	const char *why[2];

	/* Whoever updates them holds the latch until both are durable. */
	latch_x(&volume->sb_latch);
	at[1] = le64_get(volume->sb.block_count) - 1;
	superblock_judge_copies(s->way ? s->way : volume->dev, &volume->sb, why);
	unlatch_x(&volume->sb_latch);
	s->progress.bytes += sizeof(volume->sb) * array_count(at);
	for (unsigned i = 0; i < array_count(at); i++) {
		if (why[i] == NULL)
			continue;
		damage.block = at[i];
		damage.why = why[i];
		scrub_found(s, &damage);
	}
	return scrub_pause(s);
}

/* ---------------------------------------------------------------------- log */

static int scrub_log(struct scrub *s)
{
	struct volume *volume = s->volume;
	struct scrub_damage damage = {.place = SCRUB_LOG};
	bool elsewhere = volume->log_dev != volume->dev;
	struct log_judgement judgement;

	flusher_pause(volume->flusher);
	log_judge_places(volume->log, elsewhere ? s->log_way : s->way, &judgement);
	flusher_resume(volume->flusher);
	os_point("scrub:log_judged");
	s->progress.bytes += LOG_RECORDS_START;
	for (unsigned i = 0; i < array_count(judgement.why); i++) {
		if (judgement.why[i] == NULL)
			continue;
		damage.block = judgement.offset[i] / BLOCK_SIZE;
		damage.why = judgement.why[i];
		scrub_found(s, &damage);
	}
	return scrub_pause(s);
}

/* -------------------------------------------------------------- fixed pages */

int scrub_judge_page(struct scrub *s, uint64_t pageno, const char **why)
{
	const struct volume *volume = s->volume;
	int rc = page_verify(s->place, volume->geo.page_size, pageno, volume->tag, why);

	if (rc == 0 && page_lsn(s->place) > log_next_lsn(volume->log))
		rc = -BE_FUTURE;
	if (rc)
		*why = *why ? *why : error_text(rc);
	return rc;
}

static int judge_fixed(struct scrub *s, uint64_t pageno, enum page_type type, const char **why)
{
	const struct geometry *geo = &s->volume->geo;
	const struct disk_page *head = (const struct disk_page *)s->place;
	uint64_t group = (pageno - geo->groups_start) / geo->group_blocks;
	int rc = scrub_read(s, s->place, geo->page_size, pageno * BLOCK_SIZE);

	*why = NULL;
	if (rc) {
		*why = error_text(rc);
		return rc;
	}
	rc = scrub_judge_page(s, pageno, why);
	if (rc)
		return rc;
	if (head->type != type ||
	    (type == PAGE_BITMAP &&
	     le32_get(((const struct disk_bitmap_page *)s->place)->group) != group)) {
		*why = error_text(-BE_IDENTITY);
		return -BE_IDENTITY;
	}
	return 0;
}

static int scrub_fixed(struct scrub *s, uint64_t pageno, enum page_type type)
{
	struct scrub_damage damage = {.place = SCRUB_FIXED_PAGE, .block = pageno};
	const char *why;
	int rc = judge_fixed(s, pageno, type, &why);

	if (rc) {
		flusher_pause(s->volume->flusher);
		os_point("scrub:judging");
		rc = judge_fixed(s, pageno, type, &why);
		flusher_resume(s->volume->flusher);
	}
	s->progress.pages++;
	s->progress.bytes_passed += s->volume->geo.page_size;
	stat_add(&s->volume->stats, STAT_scrub_pages, 1);
	if (rc) {
		damage.why = why;
		scrub_found(s, &damage);
	}
	return scrub_pause(s);
}

static int scrub_fixed_pages(struct scrub *s)
{
	const struct geometry *geo = &s->volume->geo;
	int rc = scrub_fixed(s, geo->system_page, PAGE_SYSTEM);

	for (uint32_t i = 0; rc == 0 && i < geo->group_count; i++)
		rc = scrub_fixed(s, geo->groups_start + (uint64_t)i * geo->group_blocks,
				 PAGE_BITMAP);
	return rc;
}

/* ---------------------------------------------------------------- the whole */

static void open_ways(struct scrub *s)
{
	struct volume *volume = s->volume;

	if (dev_open_lane(&s->way, volume->dev, LANE_DIRECT | LANE_READ, 0, 0) != 0) {
		s->way = NULL;
		s->progress.cached = true;
	}
	if (volume->log_dev != volume->dev &&
	    dev_open_lane(&s->log_way, volume->log_dev, LANE_DIRECT | LANE_READ, 0, 0) != 0)
		s->log_way = NULL;
}

/* INV-SCRUB-3: all that is reachable now is in place. */
static int scrub_begin(struct scrub *s)
{
	struct volume *volume = s->volume;
	uint32_t page_size = volume->geo.page_size;
	struct space_counts counts;

	s->place = aligned_alloc(PAGE_SIZE_MIN, page_size);
	s->page = aligned_alloc(PAGE_SIZE_MIN, page_size);
	s->data = aligned_alloc(BLOCK_SIZE, (size_t)SCRUB_CHUNK_BLOCKS * BLOCK_SIZE);
	s->seen_blocks = volume->geo.block_count;
	if (atomic_load(&volume->shares_used))
		s->seen = calloc(s->seen_blocks / 64 + 1, sizeof(*s->seen));
	if (!s->place || !s->page || !s->data || (atomic_load(&volume->shares_used) && !s->seen))
		return -ENOMEM;
	open_ways(s);
	space_count(volume->space, &counts);
	s->progress.bytes_used = (counts.total - counts.free) * BLOCK_SIZE;
	s->others = others_done(volume);
	return flush_everything(volume->flusher);
}

int scrub_run(struct volume *volume, const struct scrub_params *params,
	      struct scrub_progress *result)
{
	struct scrub s = {.volume = volume, .params = params, .began_ns = os_mono_ns()};
	int rc;

	*result = s.progress;
	if (volume->options.read_only)
		return -EROFS;
	stat_add(&volume->stats, STAT_scrub_runs, 1);
	rc = scrub_begin(&s);
	os_point("scrub:begun");
	if (rc == 0)
		rc = scrub_superblocks(&s);
	if (rc == 0)
		rc = scrub_log(&s);
	if (rc == 0)
		rc = scrub_fixed_pages(&s);
	if (rc == 0)
		rc = scrub_walk(&s);
	*result = s.progress;
	dev_close(s.log_way);
	dev_close(s.way);
	free(s.seen);
	free(s.data);
	free(s.page);
	free(s.place);
	return rc;
}
