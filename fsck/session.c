/* One run of fsck on one volume: see session.h. */
#include "fsck/session.h"

#include "fsck/lost_superblock.h"
#include "fsck/raw.h"
#include "fsck/repair.h"
#include "fsck/replay.h"
#include "fsck/report.h"

#include "engine/base/error.h"
#include "engine/log_device.h"
#include "engine/volume.h"
#include "log/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS_MAX 40u /* each repairs one phase; three are usual */

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
	bool approved[PROBLEM_NUMBERS], decided[PROBLEM_NUMBERS];
	uint64_t found[PROBLEM_NUMBERS]; /* by the last walk */
	unsigned walks;
	bool primary_bad, copy_bad;
	bool checkpoint_bad;
	bool log_empty;                   /* what is in place is the volume as it is */
	enum fsck_problem_id log_problem; /* FSCK_LOG_DAMAGED, FSCK_REPLAY, or 0 */
	uint64_t log_end;
	uint64_t tally; /* as of the checkpoint: of an empty log, as it is */
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

/* ----------------------------------------------------------------- deciding */

static bool cancelled(void *arg)
{
	const struct session *s = arg;

	return s->options->cancelled && s->options->cancelled(s->options->arg);
}

/* May problems of this kind be repaired?  A person is asked once for each. */
static bool decide(struct session *s, unsigned number)
{
	const struct fsck_problem_kind *kind = fsck_problem_kind(number);
	char question[160];
	bool answer = false;

	if (s->decided[number])
		return s->approved[number];
	switch (s->options->mode) {
	case MODE_NO:
		break;
	case MODE_PREEN:
		answer = kind->repair == REPAIR_SAFE;
		break;
	case MODE_REPAIR:
		answer = true;
		break;
	case MODE_ASK:
		snprintf(question, sizeof(question), "Repair [%u] %s (%" PRIu64 ")?", number,
			 kind->title, s->found[number] ? s->found[number] : 1);
		/* Whoever interrupts a question has not answered it, and wants no other. */
		answer = s->options->ask && !cancelled(s) &&
			 s->options->ask(s->options->arg, question) && !cancelled(s);
		break;
	}
	s->decided[number] = true;
	s->approved[number] = answer;
	return answer;
}

/* --------------------------------------------------------------- superblock */

static bool superblock_at(struct session *s, uint64_t block)
{
	struct disk_superblock sb;

	return dev_read(s->dev, &sb, sizeof(sb), block * BLOCK_SIZE) == 0 &&
	       raw_superblock_valid(&sb) && memcmp(sb.uuid, s->raw.sb.uuid, sizeof(sb.uuid)) == 0;
}

/* Neither superblock is where it should be: is there a volume all the same? */
static int find_superblock(struct session *s)
{
	struct superblock_found found;

	if (superblock_find(s->dev, &found))
		return -BE_NOVOLUME;
	report_problem(&s->report, FSCK_SB_LOST, "found again from %s%s",
		       found.from_copy ? "a copy" : "the log and the pages",
		       found.foreign ? "; but block 0 holds something else" : "");
	/* Another filesystem may have come since: only a person can tell. */
	if (found.foreign && s->options->mode == MODE_REPAIR) {
		report_line(&s->report,
			    "%s: -y does not overwrite block 0; answer the question "
			    "on a terminal",
			    s->path);
		return -BE_DAMAGE;
	}
	if (!decide(s, FSCK_SB_LOST))
		return -BE_DAMAGE;
	s->changed = true;
	return superblock_write(s->dev, &found.sb);
}

static int read_superblock(struct session *s)
{
	int rc = raw_open(&s->raw, s->dev);

	if (rc == -BE_DAMAGE || rc == -BE_FORMAT || rc == -BE_NOVOLUME) {
		int found = find_superblock(s);

		if (found != -BE_NOVOLUME)
			rc = found ? found : raw_open(&s->raw, s->dev);
	}
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
	if (!rc)
		s->tally = log_found_checkpoint(log)->tally;
	if (!rc && found->end < le64_get(s->raw.sb.log_reached))
		rc = -BE_OLDLOG;
	log_close(log);
	return rc;
}

/*
 * Of a volume that was closed both checkpoint blocks are good; a power cut may
 * tear the one that is being written, which is legal.  One that is marked as damaged
 * has been closed, or it was being repaired: then a torn one is written anew with the rest.
 */
static void look_at_checkpoints(struct session *s)
{
	uint32_t state = le32_get(s->raw.sb.state);
	bool clean = state == SB_CLEAN || (state & SB_DAMAGED);

	s->checkpoint_bad = false;
	for (unsigned which = 0; which < 2 && clean && !s->log_problem; which++) {
		if (raw_checkpoint_valid(&s->raw, s->log_dev, which))
			continue;
		s->checkpoint_bad = true;
		report_problem(&s->report, FSCK_CHECKPOINT, "block %u", which);
	}
}

/* INV-SB-2: 'clean' is advice, the log is scanned all the same. */
static bool is_settled(struct session *s)
{
	struct log_scan_result found = {0};

	if (le32_get(s->raw.sb.state) != SB_CLEAN || s->options->force || s->options->data ||
	    s->primary_bad || s->copy_bad)
		return false;
	s->log_empty = s->raw.geo.other.start == 0;
	return scan_log(s, &found) == 0 && s->log_empty && !found.damaged &&
	       raw_checkpoint_valid(&s->raw, s->log_dev, 0) &&
	       raw_checkpoint_valid(&s->raw, s->log_dev, 1);
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
	s->log_problem = rc ? FSCK_REPLAY : found.damaged ? FSCK_LOG_DAMAGED : 0;
	return 0;
}

/* ------------------------------------------------------------------ walking */

static void progress(void *arg, const char *what, unsigned done, unsigned total)
{
	struct session *s = arg;

	if (s->options->verbose)
		report_line(&s->report, "checking %s", what);
	if (s->options->progress)
		s->options->progress(s->options->arg, s->walks, what, done, total);
}

static void found(void *arg, const struct fsck_problem *problem)
{
	struct session *s = arg;

	s->found[problem->number]++;
	report_found(&s->report, problem);
}

/* Does recovery refuse the volume for what is on it? */
static bool is_damage(int rc)
{
	return rc == -BE_DAMAGE || rc == -BE_CRC || rc == -BE_FORMAT || rc == -BE_IDENTITY ||
	       rc == -BE_FUTURE || rc == -BE_NOVOLUME || rc == -BE_NOTFOUND || rc == -EIO;
}

static int walk(struct session *s)
{
	struct fsck_options options = {
		.data = s->options->data,
		.collect_fixes = true,
		.memory_bytes = s->options->memory_bytes,
		.threads = s->options->threads,
		.cancelled = cancelled,
		.progress = progress,
		.arg = s,
		.log_dev = s->log_dev,
	};
	int rc;

	fsck_result_free(&s->result);
	memset(s->found, 0, sizeof(s->found));
	s->walks++;
	if (!s->log_empty && !s->log_problem) {
		rc = fsck_recover_and_walk(s->dev, s->options->cache_bytes, &options, found, s,
					   &s->result);
		if (!is_damage(rc))
			return rc;
		/* Recovery refuses it: what is in place is looked at all the same. */
		report_problem(&s->report, FSCK_REPLAY, "%s", error_text(rc));
		s->log_problem = FSCK_REPLAY;
		fsck_result_free(&s->result);
	}
	options.lsn_end = s->log_problem ? 0 : s->log_end;
	options.tally = s->log_problem || !s->log_empty ? 0 : s->tally;
	return fsck_walk(s->dev, &options, found, s, &s->result);
}

static void decide_phase(struct session *s, enum fix_phase phase)
{
	for (size_t i = 0; i < s->result.fix_count; i++)
		if (fsck_fix_phase(&s->result.fixes[i]) == phase)
			decide(s, s->result.fixes[i].number);
}

/* The first phase with something to do; PHASE_COUNT: none (INV-FSCK-1). */
static enum fix_phase next_phase(struct session *s)
{
	bool person = s->options->mode == MODE_REPAIR || s->options->mode == MODE_ASK;
	enum fix_phase end = s->result.whole ? PHASE_COUNT : person ? PHASE_COUNTER : 0;

	if (s->log_problem)
		end = 0;
	for (enum fix_phase phase = 0; phase < end; phase++) {
		decide_phase(s, phase);
		if (repair_has(&s->result, phase, s->approved))
			return phase;
	}
	return PHASE_COUNT;
}

/* ---------------------------------------------------------------- repairing */

static int write_state(struct session *s, uint32_t state)
{
	int rc = raw_open(&s->raw, s->dev);

	if (!rc && (le32_get(s->raw.sb.state) != state || s->primary_bad || s->copy_bad)) {
		s->raw.sb.state = le32_make(state);
		rc = superblock_write(s->dev, &s->raw.sb);
	}
	return rc;
}

static void say(void *arg, const char *line)
{
	struct session *s = arg;

	report_line(&s->report, "%s", line);
}

static int replay(struct session *s)
{
	static const struct repair_round nothing;

	return repair_engine(s->dev, s->log_dev, s->options->cache_bytes, &nothing);
}

/* A tree is built beside what is left of it, and there is no room: it stays as it is. */
static int rebuild(struct session *s, const struct repair_round *round)
{
	int rc = repair_trees(s->dev, s->log_dev, round);

	if (rc != -ENOSPC)
		return rc;
	report_line(&s->report,
		    "%s: no room to build an index anew; mount it read-only and save "
		    "what can be read",
		    s->path);
	for (unsigned number = FSCK_PAGE_UNREADABLE; number <= FSCK_PAGE_FUTURE; number++)
		s->approved[number] = false;
	return 0;
}

/* What writes bitmaps past the log leaves the count to the next mount. */
static int forget_tally(struct session *s)
{
	return log_write_tally(s->log_dev ? s->log_dev : s->dev,
			       s->raw.geo.log_start * BLOCK_SIZE, s->raw.sb.log_uuid, 0);
}

static int repair_round(struct session *s, enum fix_phase phase)
{
	const struct repair_round round = {
		.result = &s->result,
		.phase = phase,
		.approved = s->approved,
		.lsn = s->log_end,
		.say = say,
		.arg = s,
	};
	int rc = s->result.serious ? write_state(s, SB_DAMAGED) : 0;

	s->changed = true;
	if (rc)
		return rc;
	if (phase <= PHASE_TREE && s->log_empty)
		rc = forget_tally(s);
	if (rc)
		return rc;
	if (phase <= PHASE_TREE && !s->log_empty)
		rc = replay(s);
	else if (phase == PHASE_TREE)
		rc = rebuild(s, &round);
	else if (phase == PHASE_BITMAP)
		rc = repair_bitmaps(s->dev, &round);
	else
		rc = repair_engine(s->dev, s->log_dev, s->options->cache_bytes, &round);
	if (!rc)
		rc = raw_open(&s->raw, s->dev);
	return rc ? rc : look_at_log(s);
}

static int walk_again(struct session *s)
{
	report_forget(&s->report);
	return walk(s);
}

/* The log cannot be replayed as it is: what can be applied is, the rest is cut. */
static int repair_log(struct session *s)
{
	int rc;

	if (!s->log_problem || !decide(s, s->log_problem))
		return 0;
	s->changed = true;
	rc = write_state(s, SB_DAMAGED);
	if (!rc)
		rc = replay_by_force(s->dev, s->log_dev, s->result.lsn_max, say, s);
	if (!rc)
		rc = raw_open(&s->raw, s->dev);
	if (!rc)
		rc = look_at_log(s);
	return rc ? rc : walk_again(s);
}

/* Repairs and walks again until there is nothing that can be, and may be, repaired. */
static int repair_all(struct session *s)
{
	int rc;

	report_rest(&s->report);
	report_hold(&s->report);
	rc = repair_log(s);
	for (unsigned round = 0; round < ROUNDS_MAX && !rc; round++) {
		enum fix_phase phase;

		report_news(&s->report, "found behind it:");
		phase = next_phase(s);
		if (cancelled(s))
			return -ECANCELED;
		if (phase == PHASE_COUNT)
			break;
		rc = repair_round(s, phase);
		if (!rc)
			rc = walk_again(s);
	}
	return rc;
}

/* ------------------------------------------------------------------ the end */

/* Nothing is wrong: the log is replayed for good, the flags say so. */
static int settle(struct session *s)
{
	int rc = s->log_empty ? 0 : replay(s);

	if (!rc && s->checkpoint_bad)
		rc = log_go_on_at(s->dev, s->log_dev, s->log_end);
	s->changed |= s->flagged || s->primary_bad || s->copy_bad || s->checkpoint_bad;
	return rc ? rc : write_state(s, SB_CLEAN);
}

/* What is wrong stays, and no mount writes to it before the next fsck. */
static int leave(struct session *s, bool rewrite)
{
	uint32_t state = le32_get(s->raw.sb.state);

	if (s->result.serious || s->log_problem)
		return write_state(s, SB_DAMAGED);
	if (!rewrite)
		return 0;
	s->changed |= s->primary_bad || s->copy_bad;
	return write_state(s, state); /* for the sake of a broken superblock */
}

static void advise(struct session *s)
{
	if (s->options->mode == MODE_ASK && !s->options->ask)
		report_line(&s->report,
			    "%s: nothing was repaired, there is no terminal to ask on; "
			    "use -p (what is safe) or -y (everything)",
			    s->path);
	else if (s->options->mode == MODE_PREEN)
		report_line(&s->report,
			    "%s: what is left wants a decision; run fsck.blinkfs without -p",
			    s->path);
}

static void summarize(struct session *s)
{
	report_rest(&s->report);
	if (s->options->done)
		s->options->done(s->options->arg, &s->result);
	report_line(&s->report,
		    "%s: %" PRIu64 " files, %" PRIu64 " directories, %" PRIu64 "/%" PRIu64
		    " blocks",
		    s->path, s->result.files, s->result.directories, s->result.blocks_used,
		    s->result.blocks_total);
}

static int check_and_repair(struct session *s)
{
	bool wrong, rewrite, restart;
	int rc = look_at_log(s);

	if (!rc)
		rc = walk(s);
	if (rc)
		return rc;
	look_at_checkpoints(s);
	rewrite = (!s->primary_bad || decide(s, FSCK_SB_PRIMARY)) &&
		  (!s->copy_bad || decide(s, FSCK_SB_COPY));
	/* A log that goes on elsewhere writes the superblock as well. */
	restart = !s->checkpoint_bad || (rewrite && decide(s, FSCK_CHECKPOINT));
	if (cancelled(s))
		return -ECANCELED;
	if (s->options->mode != MODE_NO)
		rc = repair_all(s);
	if (rc)
		return rc;
	report_left(&s->report, "after the repair:");
	wrong = s->result.problems || s->log_problem || !rewrite || !restart;
	if (s->options->mode != MODE_NO)
		rc = wrong ? leave(s, rewrite) : settle(s);
	else
		wrong |= s->flagged;
	summarize(s);
	if (wrong)
		advise(s);
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
		s->report.found = options->found;
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
