/* The number of inodes: see census.h. */
#include "fs/census.h"

#include "engine/base/error.h"
#include "engine/volume.h"

void census_init(struct census *census, uint64_t below)
{
	*census = (struct census){.below = below};
	latch_init(&census->latch, RANK_LEAF, 0);
}

void census_created(struct census *census)
{
	latch_x(&census->latch);
	census->new_count++;
	unlatch_x(&census->latch);
}

bool census_claim(struct census *census, uint64_t ino)
{
	bool granted = true;

	if (ino >= census->below)
		return true;
	latch_x(&census->latch);
	if (census->state == CENSUS_RUNNING && ino > census->position)
		granted = false;
	else
		census->claims++;
	unlatch_x(&census->latch);
	return granted;
}

void census_release(struct census *census, uint64_t ino, bool gone)
{
	latch_x(&census->latch);
	if (ino >= census->below) {
		census->new_count -= gone;
	} else {
		check(census->claims > 0);
		census->claims--;
		if (census->state != CENSUS_UNKNOWN)
			census->old_count -= gone;
	}
	unlatch_x(&census->latch);
	waitq_wake_all(&census->wake);
}

static bool settled(struct census *census)
{
	bool idle;

	latch_s(&census->latch);
	idle = census->claims == 0;
	unlatch_s(&census->latch);
	return idle;
}

/* New claims of old inodes are refused (position is 0); those of before end by themselves. */
static void wait_for_claims(struct census *census)
{
	for (;;) {
		uint32_t ticket = waitq_ticket(&census->wake);

		if (settled(census))
			return;
		waitq_wait(&census->wake, ticket, OS_FOREVER);
	}
}

static void counted(struct census *census, uint64_t ino)
{
	latch_x(&census->latch);
	census->old_count++;
	census->position = ino;
	unlatch_x(&census->latch);
}

static int scan(struct census *census, struct volume *volume)
{
	uint8_t from[KEY_INODE_BYTES] = {0};
	struct tree_cursor cursor;
	int rc;

	rc = tree_cursor_open(&cursor, &volume->index[INDEX_INODES], from, sizeof(from));
	while (rc == 0 && (rc = tree_cursor_next(&cursor)) == 0) {
		uint64_t ino;

		if (cursor.key.len != KEY_INODE_BYTES) {
			rc = corrupt_at(volume, 0, "inode key", "wrong length");
			break;
		}
		ino = be64_get(cursor.key.bytes);
		if (ino >= census->below)
			break;
		counted(census, ino);
	}
	tree_cursor_close(&cursor);
	return rc == -BE_END ? 0 : rc;
}

/* Becomes the scanner, or waits for the one there is; true: scan. */
static bool begin_scan(struct census *census)
{
	for (;;) {
		uint32_t ticket = waitq_ticket(&census->wake);
		enum census_state state;

		latch_x(&census->latch);
		state = census->state;
		if (state == CENSUS_UNKNOWN) {
			census->state = CENSUS_RUNNING;
			census->position = 0;
			census->old_count = 0;
		}
		unlatch_x(&census->latch);
		if (state != CENSUS_RUNNING)
			return state == CENSUS_UNKNOWN;
		waitq_wait(&census->wake, ticket, OS_FOREVER);
	}
}

static void end_scan(struct census *census, enum census_state state)
{
	latch_x(&census->latch);
	census->state = state;
	unlatch_x(&census->latch);
	waitq_wake_all(&census->wake);
}

int census_count(struct census *census, struct volume *volume, uint64_t *inodes)
{
	int rc = 0;

	if (begin_scan(census)) {
		wait_for_claims(census);
		os_point("census:scan");
		os_may_block(); /* the whole index: long, though nothing may be waited for */
		rc = scan(census, volume);
		end_scan(census, rc ? CENSUS_UNKNOWN : CENSUS_KNOWN);
	}
	if (rc)
		return rc;
	latch_s(&census->latch);
	*inodes = (uint64_t)(census->old_count + census->new_count);
	unlatch_s(&census->latch);
	return 0;
}

bool census_wait(struct census *census)
{
	bool waited = false;

	for (;;) {
		uint32_t ticket = waitq_ticket(&census->wake);
		bool running;

		latch_s(&census->latch);
		running = census->state == CENSUS_RUNNING;
		unlatch_s(&census->latch);
		if (!running)
			return waited;
		waited = true;
		waitq_wait(&census->wake, ticket, OS_FOREVER);
	}
}
