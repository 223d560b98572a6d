/* One run of fsck on one volume: see session.h. */
#include "fsck/session.h"

#include "fsck/raw.h"
#include "fsck/repair.h"
#include "fsck/report.h"

#include "engine/base/error.h"
#include "engine/log_device.h"
#include "engine/volume.h"
#include "log/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS_MAX 16u /* each repairs one kind; three are usual */

struct session {
	const struct session_options *options;
	const char *path;
	struct device *dev;
	struct device *log_dev; /* of an external log; else NULL */
	bool in_use;            /* looked at without a lock */
	struct raw_volume raw;
	struct report report;
	struct fsck_result result; /* of the last walk */
	bool flagged;              /* SB_DAMAGED was set */
	bool primary_bad, copy_bad;
	bool log_empty; /* what is in place is the volume as it is */
	bool distrust;  /* the log could not be replayed: no repair */
	uint64_t log_end;
	bool changed; /* something was corrected */
};

/* ------------------------------------------------------------------ opening */

static int open_read_only(struct session *s)
{
	int rc = dev_open_file(&s->dev, s->path, DEV_READ_ONLY | DEV_SHARED_LOCK,
			       s->options->lock_wait_ns);

	if (rc != -BE_BUSY)
		return rc;
	report_line(&s->report, "%s: in use; what follows may be wrong", s->path);
	s->in_use = true;
	return dev_open_file(&s->dev, s->path, DEV_READ_ONLY | DEV_NO_LOCK, 0);
}

static int open_device(struct session *s)
{
	int rc = s->options->mode == MODE_NO
			 ? open_read_only(s)
			 : dev_open_file(&s->dev, s->path, 0, s->options->lock_wait_ns);

	if (rc)
		report_line(&s->report, "%s: %s", s->path, error_text(rc));
	return rc ? EXIT_OPERATIONAL : 0;
}

/* Why it could not be opened has been told, on stderr. */
static int open_log_device(struct session *s)
{
	bool looks = s->options->mode == MODE_NO;
	struct log_device_request request = {
		.path = s->options->log_path,
		.how = "-j PATH",
		.flags = looks ? DEV_READ_ONLY | DEV_SHARED_LOCK : 0,
		.wait_ns = s->options->lock_wait_ns,
	};

	if (s->in_use)
		request.flags = DEV_READ_ONLY | DEV_NO_LOCK;
	return log_device_open(&s->log_dev, s->dev, &request) ? EXIT_OPERATIONAL : 0;
}

/* --------------------------------------------------------------- superblock */

static bool superblock_at(struct session *s, uint64_t block)
{
	struct disk_superblock sb;

	return dev_read(s->dev, &sb, sizeof(sb), block * BLOCK_SIZE) == 0 &&
	       raw_superblock_valid(&sb) && memcmp(sb.uuid, s->raw.sb.uuid, sizeof(sb.uuid)) == 0;
}

static int read_superblock(struct session *s)
{
	int rc = raw_open(&s->raw, s->dev);

	if (rc) {
		report_line(&s->report, "%s: %s", s->path, error_text(rc));
		return rc == -BE_DAMAGE || rc == -BE_FORMAT ? EXIT_UNCORRECTED : EXIT_OPERATIONAL;
	}
	s->flagged = le32_get(s->raw.sb.state) & SB_DAMAGED;
	s->primary_bad = !superblock_at(s, 0);
	s->copy_bad = !superblock_at(s, s->raw.geo.block_count - 1);
	if (s->primary_bad)
		report_problem(&s->report, FSCK_SB_PRIMARY, "block 0");
	if (s->copy_bad)
		report_problem(&s->report, FSCK_SB_COPY, "the last block");
	if (s->flagged)
		report_problem(&s->report, FSCK_SB_DAMAGED, "it is checked as a whole");
	return 0;
}

/* ---------------------------------------------------------------------- log */

/* Does the log hold anything but marks and padding? */
static int visit_mtr(void *arg, const struct log_mtr *mtr)
{
	struct log_cursor cursor = {mtr->records, mtr->records_bytes};
	bool *empty = arg;
	struct log_rec record;
	int rc;

	while ((rc = log_next_record(&cursor, &record)) > 0)
		if (record.type != REC_MARK && record.type != REC_PAD)
			*empty = false;
	return rc;
}

static int scan_log(struct session *s, struct log_scan_result *found)
{
	struct log_place place = {
		.dev = s->log_dev ? s->log_dev : s->dev,
		.offset = s->raw.geo.log_start * BLOCK_SIZE,
		.size_bytes = s->raw.geo.log_bytes,
	};
	struct log *log = NULL;
	int rc;

	if (s->raw.geo.log_external && !s->log_dev)
		return -BE_NOLOG;
	memcpy(place.uuid, s->raw.sb.log_uuid, sizeof(place.uuid));
	rc = log_open(&log, &place, le64_get(s->raw.sb.log_gen), le64_get(s->raw.sb.mount_gen));
	if (!rc)
		rc = log_scan(log, visit_mtr, &s->log_empty, found);
	if (!rc && found->end < le64_get(s->raw.sb.log_reached))
		rc = -BE_OLDLOG;
	log_close(log);
	return rc;
}

/* INV-SB-2: 'clean' is advice, the log is scanned all the same. */
static bool is_settled(struct session *s)
{
	struct log_scan_result found = {0};

	if (le32_get(s->raw.sb.state) != SB_CLEAN || s->options->force || s->options->data ||
	    s->primary_bad || s->copy_bad)
		return false;
	s->log_empty = s->raw.geo.other.start == 0;
	return scan_log(s, &found) == 0 && s->log_empty && !found.damaged;
}

static int look_at_log(struct session *s)
{
	struct log_scan_result found = {0};
	int rc;

	/* A resize that a crash has interrupted is settled by recovery, too. */
	s->log_empty = s->raw.geo.other.start == 0;
	rc = scan_log(s, &found);
	if (rc == -ENOMEM)
		return rc;
	s->log_end = rc ? 0 : found.end;
	if (rc) {
		report_problem(&s->report, FSCK_REPLAY, "%s", error_text(rc));
	} else if (found.damaged) {
		report_problem(&s->report, FSCK_LOG_DAMAGED,
			       "at LSN %" PRIu64 ", but %" PRIu64 " was durable", found.end,
			       found.damage_mark);
	}
	s->distrust = rc || found.damaged;
	return 0;
}

/* ------------------------------------------------------------------ walking */

static bool cancelled(void *arg)
{
	const struct session *s = arg;

	return s->options->cancelled && s->options->cancelled(s->options->arg);
}

static void progress(void *arg, const char *what)
{
	struct session *s = arg;

	if (s->options->verbose)
		report_line(&s->report, "checking %s", what);
}

static int walk(struct session *s)
{
	struct fsck_options options = {
		.data = s->options->data,
		.collect_fixes = true,
		.cancelled = cancelled,
		.progress = progress,
		.arg = s,
		.log_dev = s->log_dev,
	};
	int rc;

	fsck_result_free(&s->result);
	if (!s->log_empty && !s->distrust) {
		rc = fsck_recover_and_walk(s->dev, s->options->cache_bytes, &options, report_found,
					   &s->report, &s->result);
		if (rc == 0 || rc == -ENOMEM || rc == -ECANCELED)
			return rc;
		/* Recovery refuses it: what is in place is looked at all the same. */
		report_problem(&s->report, FSCK_REPLAY, "%s", error_text(rc));
		s->distrust = true;
		fsck_result_free(&s->result);
	}
	options.lsn_end = s->distrust ? 0 : s->log_end;
	return fsck_walk(s->dev, &options, report_found, &s->report, &s->result);
}

/* ---------------------------------------------------------------- repairing */

static bool is_repairable(const struct session *s)
{
	return s->result.repairable && s->result.whole && !s->distrust;
}

static bool may_repair(const struct session *s)
{
	uint64_t count = (is_repairable(s) ? s->result.repairable : 0) + s->primary_bad +
			 s->copy_bad;
	char question[96];

	if (s->options->mode != MODE_ASK)
		return s->options->mode == MODE_REPAIR;
	if (!count || !s->options->ask)
		return false;
	snprintf(question, sizeof(question), "Repair what can be repaired (%" PRIu64 ")?", count);
	return s->options->ask(s->options->arg, question);
}

static int repair_round(struct session *s)
{
	int rc;

	s->changed = true;
	if (s->log_empty && repair_has_bitmaps(&s->result))
		rc = repair_bitmaps(s->dev, &s->result, s->log_end);
	else
		rc = repair_engine(s->dev, s->log_dev, s->options->cache_bytes, &s->result);
	if (!rc)
		rc = raw_open(&s->raw, s->dev);
	return rc ? rc : look_at_log(s);
}

/* Repairs and walks again until nothing repairable is left. */
static int repair_all(struct session *s)
{
	int rc = 0;

	report_rest(&s->report);
	report_hold(&s->report);
	for (unsigned round = 0; round < ROUNDS_MAX && is_repairable(s) && !rc; round++) {
		report_forget(&s->report);
		rc = repair_round(s);
		if (!rc)
			rc = walk(s);
	}
	report_release(&s->report, "after the repair:");
	return rc;
}

/* ------------------------------------------------------------------ the end */

static int write_state(struct session *s, uint32_t state)
{
	int rc = raw_open(&s->raw, s->dev);

	if (!rc && (le32_get(s->raw.sb.state) != state || s->primary_bad || s->copy_bad)) {
		s->raw.sb.state = le32_make(state);
		rc = superblock_write(s->dev, &s->raw.sb);
	}
	return rc;
}

/* Nothing is wrong: the log is replayed for good, the flags say so. */
static int settle(struct session *s)
{
	const struct fsck_result nothing = {0};
	int rc = 0;

	if (!s->log_empty)
		rc = repair_engine(s->dev, s->log_dev, s->options->cache_bytes, &nothing);

	s->changed |= s->flagged || s->primary_bad || s->copy_bad;
	return rc ? rc : write_state(s, SB_CLEAN);
}

/* What is wrong stays, and no mount writes to it before the next fsck. */
static int leave(struct session *s, bool allowed)
{
	uint32_t state = le32_get(s->raw.sb.state);

	if (s->result.serious || s->distrust)
		return write_state(s, SB_DAMAGED);
	return allowed ? write_state(s, state) : 0; /* for the sake of a broken superblock */
}

static void summarize(struct session *s)
{
	report_rest(&s->report);
	report_line(&s->report,
		    "%s: %" PRIu64 " files, %" PRIu64 " directories, %" PRIu64 "/%" PRIu64
		    " blocks",
		    s->path, s->result.files, s->result.directories, s->result.blocks_used,
		    s->result.blocks_total);
}

static int check_and_repair(struct session *s)
{
	bool wrong, allowed;
	int rc = look_at_log(s);

	if (!rc)
		rc = walk(s);
	if (rc)
		return rc;
	allowed = may_repair(s);
	if (allowed)
		rc = repair_all(s);
	if (rc)
		return rc;
	wrong = s->result.problems || s->distrust || (!allowed && (s->primary_bad || s->copy_bad));
	if (s->options->mode != MODE_NO)
		rc = wrong ? leave(s, allowed) : settle(s);
	else
		wrong |= s->flagged;
	summarize(s);
	if (rc)
		return rc;
	return (wrong ? EXIT_UNCORRECTED : 0) | (s->changed ? EXIT_CORRECTED : 0);
}

static int run(struct session *s)
{
	int bits = read_superblock(s), rc;

	if (bits)
		return bits;
	if (is_settled(s)) {
		report_line(&s->report, "%s: clean", s->path);
		return EXIT_CLEAN;
	}
	rc = check_and_repair(s);
	if (rc >= 0)
		return rc;
	if (rc == -ECANCELED) {
		report_line(&s->report, "%s: interrupted", s->path);
		return EXIT_CANCELLED | (s->changed ? EXIT_CORRECTED : 0);
	}
	report_line(&s->report, "%s: %s", s->path, error_text(rc));
	return EXIT_OPERATIONAL | (s->changed ? EXIT_CORRECTED : 0);
}

static struct session *session_new(const char *path, const struct session_options *options)
{
	struct session *s = calloc(1, sizeof(*s));

	if (s) {
		s->options = options;
		s->path = path;
		report_init(&s->report, options->print, options->arg, options->verbose);
	}
	return s;
}

static void session_free(struct session *s)
{
	fsck_result_free(&s->result);
	report_free(&s->report);
	free(s);
}

int session_run_on(struct device *dev, const char *path, const struct session_options *options)
{
	struct session *s = session_new(path, options);
	int bits;

	if (!s)
		return EXIT_OPERATIONAL;
	s->dev = dev;
	s->log_dev = options->log_dev;
	bits = run(s);
	session_free(s);
	return bits;
}

int session_run(const char *path, const struct session_options *options)
{
	struct session *s = session_new(path, options);
	int bits;

	if (!s)
		return EXIT_OPERATIONAL;
	bits = open_device(s);
	if (!bits)
		bits = open_log_device(s);
	if (!bits)
		bits = run(s);
	dev_close(s->log_dev);
	dev_close(s->dev);
	session_free(s);
	return bits;
}
