/* The log archive, on and paused: see archive.h. */
#include "engine/archive_internal.h"

#include "engine/base/message.h"
#include "engine/flush.h"
#include "engine/space.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SYNC_BYTES (4u << 20)       /* so much is written before it is synced */
#define SYNC_NS 1000000000ull       /* or so long after the last time */
#define RETRY_NS 5000000000ull      /* a paused archive looks for room */
#define LOOK_NS 100000000ull
#define MOVE_WAIT_NS 5000000000ull  /* so long a log that moves waits for a round to end */
#define RESUME_BYTES (16u << 20)    /* less room than that is not worth a new beginning */

/* ------------------------------------------------------------- on and paused */

static void let_go(struct archive *archive)
{
	struct volume *volume = archive->volume;

	if (!atomic_load(&archive->begun))
		return;
	if (volume->space)
		space_hold(volume->space, SPACE_HOLD_ARCHIVE, SPACE_UNHELD);
	if (log_release(volume->log, LOG_HOLD_ARCHIVE) && volume->flusher)
		flusher_want_space(volume->flusher, log_durable_lsn(volume->log));
}

static void pause_archive(struct archive *archive, int error)
{
	struct volume *volume = archive->volume;
	lsn_t from = atomic_load(&archive->archived);

	message(LOG_WARNING,
		"%s: log archive %s: %s; archiving is paused, log from LSN %" PRIu64
		" on will be missing there", volume->dev->path, archive->dir, error_text(error),
		from);
	stat_add(&volume->stats, STAT_archive_pauses, 1);
	archive_out_drop(archive, from);
	archive->link.gap = true;
	archive->retry_at_ns = os_mono_ns() + RETRY_NS;
	atomic_store(&archive->paused, true);
	let_go(archive);
	waitq_wake_all(&archive->moved);
}

/*
 * From here on: nothing below is asked for.  What is freed from now on is kept, so the
 * data of everything that the log names behind the next group's end can still be read.
 */
static int take_hold(struct archive *archive)
{
	struct volume *volume = archive->volume;
	struct log *log = volume->log;
	lsn_t from;
	int rc;

	if (archive->data)
		space_hold(volume->space, SPACE_HOLD_ARCHIVE, log_next_lsn(log));
	(void)log_hold(log, LOG_HOLD_ARCHIVE);
	rc = log_flush(log, log_next_lsn(log));
	if (rc)
		return rc;
	from = log_durable_lsn(log);
	log_hold_move(log, LOG_HOLD_ARCHIVE, from);
	atomic_store(&archive->archived, from);
	return archive_out_begin(archive, from);
}

static bool has_room(const struct archive *archive)
{
	struct statvfs figures;

	return fstatvfs(archive->dir_fd, &figures) == 0 &&
	       (uint64_t)figures.f_bavail * figures.f_frsize >= RESUME_BYTES;
}

static void resume_archive(struct archive *archive)
{
	struct volume *volume = archive->volume;
	int rc = has_room(archive) ? take_hold(archive) : -ENOSPC;

	if (rc) {
		archive_out_drop(archive, 0);
		let_go(archive);
		archive->retry_at_ns = os_mono_ns() + RETRY_NS;
		return;
	}
	message(LOG_NOTICE,
		"%s: log archive %s: archiving goes on at LSN %" PRIu64 "; log from %" PRIu64
		" to there is missing", volume->dev->path, archive->dir,
		atomic_load(&archive->archived), archive->link.after_lsn);
	stat_add(&volume->stats, STAT_archive_gaps, 1);
	atomic_store(&archive->paused, false);
}

/* ------------------------------------------------------------------- rounds */

static void moved_on(struct archive *archive, lsn_t to)
{
	struct volume *volume = archive->volume;

	atomic_store(&archive->archived, to);
	if (archive->data)
		space_hold(volume->space, SPACE_HOLD_ARCHIVE, to);
	if (log_hold_move(volume->log, LOG_HOLD_ARCHIVE, to))
		flusher_want_space(volume->flusher, to);
	archive->sync_at_ns = os_mono_ns() + SYNC_NS;
	waitq_wake_all(&archive->moved);
}

static int next_file(struct archive *archive)
{
	lsn_t at = archive->out.at;
	int rc = archive_out_end(archive);

	return rc ? rc : archive_out_begin(archive, at);
}

/* Everything that is durable now. */
static void archive_all(struct archive *archive)
{
	struct log *log = archive->volume->log;
	lsn_t to = log_durable_lsn(log);
	int rc = 0;

	if (to == atomic_load(&archive->archived))
		return;
	rc = archive_out_write(archive, to);
	if (rc == 0)
		rc = archive_out_sync(archive);
	os_point("archive:synced");
	if (rc == 0)
		moved_on(archive, to);
	if (rc == 0 && archive->out.at - archive->out.first >= ARCHIVE_FILE_BYTES)
		rc = next_file(archive);
	if (rc)
		pause_archive(archive, rc);
}

static bool take_turn(struct archive *archive)
{
	return !atomic_exchange(&archive->busy, true);
}

static void give_turn(struct archive *archive)
{
	atomic_store(&archive->busy, false);
	waitq_wake_all(&archive->moved);
}

void archive_round(struct archive *archive, bool retry)
{
	if (!atomic_load(&archive->begun) || !take_turn(archive))
		return;
	if (atomic_load(&archive->paused) &&
	    (retry || os_mono_ns() >= archive->retry_at_ns) &&
	    !atomic_load(&archive->volume->failed))
		resume_archive(archive);
	if (!atomic_load(&archive->paused))
		archive_all(archive);
	give_turn(archive);
}

void archive_help(struct archive *archive, lsn_t lsn)
{
	if (!atomic_load(&archive->running)) {
		archive_round(archive, false);
	} else if (atomic_load(&archive->archived) < lsn) {
		atomic_store(&archive->urgent, true);
		waitq_wake_all(&archive->volume->hold_queue);
	}
}

/* ------------------------------------------------------- a log that moves */

/* Not every field is the log's; only those are looked at. */
static void note_place(struct archive *archive, const struct geometry *geo)
{
	archive->place = *geo;
}

bool archive_move_begin(struct archive *archive)
{
	uint64_t until = os_mono_ns() + MOVE_WAIT_NS;

	for (;;) {
		uint32_t ticket = waitq_ticket(&archive->moved);

		if (take_turn(archive))
			break;
		if (os_mono_ns() >= until)
			return false;
		waitq_wait(&archive->moved, ticket, LOOK_NS);
	}
	if (!atomic_load(&archive->paused))
		archive_all(archive);
	return true;
}

void archive_move_next(struct archive *archive, uint64_t generation, const struct geometry *geo)
{
	struct archive_out *out = &archive->out;
	int rc;

	if (atomic_load(&archive->paused))
		return;
	archive->back = out->at == out->first
				? archive->link
				: (struct archive_link){archive->generation, out->at, false};
	rc = archive_out_end(archive);
	if (rc == 0) {
		archive->generation = generation;
		note_place(archive, geo);
		rc = archive_out_begin(archive, log_move_lsn(archive->volume->log));
	}
	os_point("archive:move_next");
	if (rc)
		pause_archive(archive, rc);
}

/* The move is not made: the file of the old generation goes on, as another one. */
static void move_back(struct archive *archive)
{
	lsn_t at = atomic_load(&archive->archived);
	int rc;

	archive_out_drop(archive, 0);
	archive->link = archive->back;
	rc = archive_out_begin(archive, at);
	if (rc)
		pause_archive(archive, rc);
}

void archive_move_end(struct archive *archive)
{
	struct volume *volume = archive->volume;
	uint64_t was = archive->generation;

	archive->generation = log_epoch(volume->log);
	if (archive->generation != was || atomic_load(&archive->paused))
		note_place(archive, &volume->geo);
	if (!atomic_load(&archive->paused) && archive->generation != was)
		move_back(archive);
	else if (!atomic_load(&archive->paused) &&
		 atomic_load(&archive->archived) < archive->out.first)
		moved_on(archive, archive->out.first);
	give_turn(archive);
}

/* -------------------------------------------------------------- the thread */

static bool is_due(struct archive *archive)
{
	struct log *log = archive->volume->log;
	uint64_t new = log_durable_lsn(log) - atomic_load(&archive->archived);

	if (atomic_load(&archive->paused))
		return true; /* archive_round() looks at the time */
	return new >= SYNC_BYTES || new >= log_capacity(log) / 8 ||
	       (new > 0 && os_mono_ns() >= archive->sync_at_ns);
}

static void archive_main(void *arg)
{
	struct archive *archive = arg;
	struct volume *volume = archive->volume;

	while (!atomic_load(&archive->stop)) {
		uint32_t ticket = waitq_ticket(&volume->hold_queue);

		if (atomic_exchange(&archive->urgent, false) || is_due(archive))
			archive_round(archive, false);
		if (!atomic_load(&archive->stop) && !atomic_load(&archive->urgent))
			waitq_wait(&volume->hold_queue, ticket, LOOK_NS);
	}
}

int archive_start(struct archive *archive)
{
	int rc;

	atomic_store(&archive->stop, false);
	atomic_store(&archive->running, true);
	rc = os_thread_start(&archive->thread, "archive", archive_main, archive);
	if (rc)
		atomic_store(&archive->running, false);
	return rc;
}

void archive_stop(struct archive *archive)
{
	if (!atomic_load(&archive->running))
		return;
	atomic_store(&archive->stop, true);
	waitq_wake_all(&archive->volume->hold_queue);
	os_thread_join(&archive->thread);
	atomic_store(&archive->running, false);
}

void archive_catch_up(struct archive *archive)
{
	lsn_t want;

	if (!atomic_load(&archive->begun))
		return;
	want = log_durable_lsn(archive->volume->log);
	archive_help(archive, want);
	while (atomic_load(&archive->running) && !atomic_load(&archive->stop)) {
		uint32_t ticket = waitq_ticket(&archive->moved);

		if (atomic_load(&archive->archived) >= want || atomic_load(&archive->paused) ||
		    atomic_load(&archive->volume->failed))
			return;
		atomic_store(&archive->urgent, true);
		waitq_wake_all(&archive->volume->hold_queue);
		waitq_wait(&archive->moved, ticket, LOOK_NS);
	}
}

/* ------------------------------------------------------- the life of a mount */

int archive_open(struct archive **out, struct volume *volume, const char *dir, bool data)
{
	struct archive *archive = calloc(1, sizeof(*archive));
	int rc = -ENOMEM;

	if (archive == NULL)
		return -ENOMEM;
	archive->volume = volume;
	archive->data = data;
	archive->place = volume->geo;
	archive->out.fd = archive->out.data_fd = archive->dir_fd = -1;
	archive->dir = strdup(dir);
	archive->bytes = malloc(LOG_MTR_BYTES_MAX);
	archive->blocks = aligned_alloc(BLOCK_SIZE, (size_t)WRITE_BLOCKS_MAX * BLOCK_SIZE);
	if (archive->dir == NULL || archive->bytes == NULL || archive->blocks == NULL)
		goto fail;
	archive->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rc = archive->dir_fd < 0 ? -errno : faccessat(archive->dir_fd, ".", W_OK | X_OK, AT_EACCESS)
		     ? -errno : 0;
	if (rc) {
		message(LOG_ERR, "log archive %s: %s", dir, error_text(rc));
		goto fail;
	}
	*out = archive;
	return 0;
fail:
	archive_close(archive);
	return rc;
}

void archive_close(struct archive *archive)
{
	if (archive == NULL)
		return;
	check(!atomic_load(&archive->running));
	if (archive->out.fd >= 0)
		close(archive->out.fd);
	if (archive->out.data_fd >= 0)
		close(archive->out.data_fd);
	if (archive->dir_fd >= 0)
		close(archive->dir_fd);
	free(archive->blocks);
	free(archive->bytes);
	free(archive->dir);
	free(archive);
}

/*
 * The newest file and what the log has meet: the rest of the old generation is added.
 * A file without data cannot be continued by one with data, but followed.
 */
static int continue_old(struct archive *archive, const struct archive_file *last, lsn_t cut)
{
	bool same_kind = archive->data == !!(last->flags & ARCHIVE_DATA);
	int rc = 0;

	if (last->part) {
		rc = archive_out_resume(archive, last, cut);
		if (rc == 0 && (!same_kind || archive->out.at < log_found_checkpoint(
							archive->volume->log)->lsn))
			rc = archive_out_end(archive);
	} else {
		archive->link.after_generation = last->generation;
		archive->link.after_lsn = last->end;
		archive->link.gap = false;
	}
	if (rc == 0 && archive->out.fd < 0) {
		if (archive->link.after_lsn < log_found_checkpoint(archive->volume->log)->lsn) {
			/* What its data file lacks is in the log no more. */
			archive->link.gap = true;
			return 0;
		}
		if (archive->link.after_lsn >= cut)
			return 0;
		rc = archive_out_begin(archive, archive->link.after_lsn);
	}
	if (rc == 0)
		rc = archive_out_write(archive, cut);
	if (rc == 0)
		rc = archive_out_end(archive);
	return rc;
}

/* Files for moves of the log that were not made (INV-ARCH-3): nothing is in them. */
static void forget_unmade_moves(struct archive *archive, struct archive_list *list,
				uint64_t generation)
{
	while (list->count > 0) {
		const struct archive_file *file = &list->file[list->count - 1];

		if (file->generation <= generation || !file->part || file->end > file->first)
			return;
		archive_out_remove(archive, file->name);
		list->count--;
	}
}

void archive_recovered(struct archive *archive, lsn_t cut)
{
	const struct checkpoint *found = log_found_checkpoint(archive->volume->log);
	struct archive_file *last = NULL;
	struct archive_list list;
	int rc = archive_list_read(&list, archive->dir_fd, archive->dir, archive->volume->sb.uuid);

	archive->generation = found->generation;
	archive->link.gap = true;
	if (rc == 0)
		forget_unmade_moves(archive, &list, found->generation);
	if (rc == 0 && list.count > 0)
		last = &list.file[list.count - 1];
	if (last) {
		archive->link.after_generation = last->generation;
		archive->link.after_lsn = last->end;
	}
	if (last && last->generation == found->generation && last->end >= found->lsn)
		rc = continue_old(archive, last, cut);
	if (rc) {
		message(LOG_WARNING, "%s: log archive %s: the end of the last mount's log is "
			"missing there: %s", archive->volume->dev->path, archive->dir,
			error_text(rc));
		archive_out_drop(archive, 0);
		archive->link.gap = true;
	} else if (last && archive->link.gap) {
		message(LOG_WARNING, "%s: log archive %s: log from LSN %" PRIu64 " to %" PRIu64
			" is missing there", archive->volume->dev->path, archive->dir,
			archive->link.after_lsn, cut);
	}
	archive_list_free(&list);
}

void archive_begin(struct archive *archive)
{
	int rc;

	archive->generation = log_epoch(archive->volume->log);
	atomic_store(&archive->begun, true);
	archive->sync_at_ns = os_mono_ns() + SYNC_NS;
	stat_add(&archive->volume->stats, STAT_archive_gaps, archive->link.gap);
	rc = take_hold(archive);
	if (rc)
		pause_archive(archive, rc);
}

void archive_finish(struct archive *archive)
{
	int rc;

	check(!atomic_load(&archive->running));
	if (!atomic_load(&archive->begun))
		return;
	archive_round(archive, true);
	rc = archive_out_end(archive);
	if (rc)
		pause_archive(archive, rc);
	else
		let_go(archive);
	atomic_store(&archive->begun, false);
}

void archive_status(struct archive *archive, struct archive_status *status)
{
	*status = (struct archive_status){
		.dir = archive->dir,
		.paused = atomic_load(&archive->paused),
		.data = archive->data,
		.archived_lsn = atomic_load(&archive->archived),
	};
	status->gap_from = status->paused ? status->archived_lsn : 0;
}
