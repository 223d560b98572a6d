/*
 * The log, gathered while pages are copied.
 *
 * A thread of its own reads what has become durable and moves the hold on, so
 * that the log's space is free again within milliseconds.  It waits for nothing
 * but the volume's own log: neither for the backup file nor for who copies pages
 * (INV-BAK-2).  The bytes are kept in memory, at most BACKUP_LOG_BYTES_MAX; beyond
 * that the backup ends, and not the volume.
 */
#include "engine/backup_internal.h"

#include "engine/flush.h"

#include <errno.h>
#include <stdlib.h>

#define LOOK_NS 5000000ull
#define GATHER_BYTES_MAX (4u << 20) /* of one step */

static int make_room(struct backup_log *l, size_t used, size_t more)
{
	size_t cap = l->cap ? l->cap : GATHER_BYTES_MAX;
	uint8_t *grown;

	if (used + more > BACKUP_LOG_BYTES_MAX)
		return -EFBIG;
	while (cap < used + more)
		cap *= 2;
	if (cap == l->cap)
		return 0;
	grown = realloc(l->bytes, cap);
	if (grown == NULL)
		return -ENOMEM;
	l->bytes = grown;
	l->cap = cap;
	return 0;
}

static int gather_step(struct backup_log *l, lsn_t from, lsn_t to)
{
	size_t used = from - l->from;
	int rc = make_room(l, used, to - from);

	if (rc == 0)
		rc = log_read(l->volume->log, from, to, l->bytes + used);
	if (rc)
		return rc;
	stat_add(&l->volume->stats, STAT_backup_log_bytes, to - from);
	atomic_store(&l->gathered, to);
	waitq_wake_all(&l->moved);
	return 0;
}

/* Up to what is durable now, where an mtr ends, so that the hold may move there. */
static int gather(struct backup_log *l)
{
	struct log *log = l->volume->log;
	lsn_t at = atomic_load(&l->gathered), end = log_durable_lsn(log);
	int rc = 0;

	while (at < end && rc == 0) {
		lsn_t to = end - at > GATHER_BYTES_MAX ? at + GATHER_BYTES_MAX : end;

		rc = gather_step(l, at, to);
		at = to;
	}
	if (rc == 0 && log_hold_move(log, LOG_HOLD_BACKUP, end))
		flusher_want_space(l->volume->flusher, end);
	return rc;
}

static void gather_main(void *arg)
{
	struct backup_log *l = arg;

	while (!atomic_load(&l->stop) && atomic_load(&l->error) == 0) {
		uint32_t ticket = waitq_ticket(&l->volume->hold_queue);
		int rc = gather(l);

		if (rc)
			atomic_store(&l->error, rc);
		else if (log_durable_lsn(l->volume->log) == atomic_load(&l->gathered))
			waitq_wait(&l->volume->hold_queue, ticket, LOOK_NS);
	}
	/* Nobody is to wait for a backup that has failed. */
	if (log_release(l->volume->log, LOG_HOLD_BACKUP))
		flusher_want_space(l->volume->flusher, log_durable_lsn(l->volume->log));
	waitq_wake_all(&l->moved);
}

int backup_log_start(struct backup *b)
{
	struct backup_log *l = &b->log;
	int rc;

	l->volume = b->volume;
	l->from = b->start;
	atomic_store(&l->gathered, b->start);
	rc = os_thread_start(&l->thread, "backup-log", gather_main, l);
	l->running = rc == 0;
	return rc;
}

int backup_log_need(struct backup *b, lsn_t lsn)
{
	struct backup_log *l = &b->log;

	for (;;) {
		uint32_t ticket = waitq_ticket(&l->moved);

		if (atomic_load(&l->gathered) >= lsn)
			return 0;
		if (atomic_load(&l->error))
			return atomic_load(&l->error);
		waitq_wake_all(&b->volume->hold_queue);
		waitq_wait(&l->moved, ticket, LOOK_NS);
	}
}

void backup_log_stop(struct backup *b)
{
	struct backup_log *l = &b->log;

	if (!l->running)
		return;
	atomic_store(&l->stop, true);
	waitq_wake_all(&b->volume->hold_queue);
	os_thread_join(&l->thread);
	l->running = false;
}

void backup_log_free(struct backup *b)
{
	free(b->log.bytes);
	b->log.bytes = NULL;
}
