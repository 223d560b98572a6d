/*
 * Free maps are built when their group is first wanted, so that a mount does not read
 * all bitmaps; how many blocks are free is known before any of them is.
 *
 *	table[n]:  NULL ----------------------------------> a group
 *	             \   read, or found in a pinned frame     ^
 *	              '-> bad (unreadable) -------------------'  when a frame can be had later
 *
 * INV-SPACE-4: a group's bits change only while it is loaded.  Whoever changes bits has
 * the bitmap page pinned, by space_pin_bitmap(), which loads.  Hence a bitmap that is not
 * loaded is what it was at the mount, recovery having put it durably in place; a read of
 * the device past the pool is right, and one that met a half-written page finds the group
 * loaded by now.  Reserved and deferred blocks are in loaded groups only.
 * INV-SPACE-5: space->unread is the number of free blocks in groups that are not loaded:
 * at the mount, what the log's tally (INV-LOG-12) leaves of the volume; less what each
 * group is found to have.  So statfs is right to the block at once, zero means that no
 * other group needs to be looked into, and a count that was wrong is noticed.
 *
 * Groups that nobody has named are tried in steps that spread over the volume: where one
 * in n groups has room, about n are read, wherever the full ones are.
 *
 * A group that cannot be read counts as full, and is said to be bad.  When all others are
 * loaded, what is left of `unread` is in such groups and no longer free.  Before anybody is
 * told that nothing is left they are tried again, since the error may have passed; while
 * it has not, and there is room in them, the answer is EIO.
 */
#include "engine/space_internal.h"

#include "engine/base/message.h"
#include "engine/pool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------- the table */

static struct group *_Atomic *entry(struct space *space, uint32_t number)
{
	return &atomic_load(&space->table)[number];
}

/* How many blocks of a group there are in a volume whose groups end at `end`. */
uint32_t space_bits_below(const struct space *space, uint32_t number, uint64_t end)
{
	uint64_t first = space_first_block(space, number);

	if (end <= first)
		return 0;
	return end - first < space->group_blocks ? (uint32_t)(end - first) : space->group_blocks;
}

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
	while (b) {
		uint32_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* Steps of about the golden ratio; as many as there are groups visit each of them once. */
static void choose_steps(struct space *space, uint32_t count)
{
	uint32_t step = (uint32_t)((uint64_t)count * 618 / 1000);

	while (step == 0 || common_divisor(step, count) != 1)
		step++;
	space->probe_step = step;
	space->probes = 0;
}

int space_table_grow(struct space *space, uint32_t group_count)
{
	uint32_t room = space->table_room;
	struct space_table *table;

	if (group_count <= room)
		return 0;
	room = group_count > 2 * room ? group_count : 2 * room;
	table = calloc(1, sizeof(*table) + room * sizeof(table->group[0]));
	if (table == NULL)
		return -ENOMEM;
	latch_x(&space->load_latch);
	for (uint32_t i = 0; i < space->group_count; i++)
		atomic_store(&table->group[i], atomic_load(entry(space, i)));
	table->older = space->tables;
	space->tables = table;
	space->table_room = room;
	atomic_store(&space->table, table->group);
	unlatch_x(&space->load_latch);
	return 0;
}

void space_table_free(struct space *space)
{
	for (uint32_t i = 0; i < space->group_count; i++)
		free(space_group(space, i));
	while (space->tables) {
		struct space_table *table = space->tables;

		space->tables = table->older;
		free(table);
	}
}

/* --------------------------------------------------------------------- loading */

static struct group *new_group(struct space *space, uint32_t number)
{
	size_t held_words = (space->group_blocks / space->page_blocks + 63) / 64;
	bool keeps_stale = space->volume->options.discard;
	size_t words = space->words * (1 + keeps_stale) + held_words;
	struct group *group = calloc(1, sizeof(*group) + words * sizeof(uint64_t));
	uint64_t *busy;

	if (group == NULL)
		return NULL;
	busy = (uint64_t *)(group + 1);
	group_init(space, group, number, busy, busy + space->words,
		   keeps_stale ? busy + space->words + held_words : NULL);
	return group;
}

static void fill(struct space *space, struct group *group, const void *page)
{
	uint32_t bits = space_bits_below(space, group->number, space->end);

	memcpy(group->busy, (const struct disk_bitmap_page *)page + 1, (bits + 7) / 8);
	for (uint32_t bit = bits; bit % 8; bit++)
		group->busy[bit / 64] |= 1ull << bit % 64;
	group_loaded(space, group);
}

/*
 * All groups are known, or bad: what is left is in bad ones.  Returns how far the count
 * was wrong.
 */
static int64_t settle_locked(struct space *space)
{
	uint64_t unread = atomic_load(&space->unread), wrong = 0;

	if (atomic_load(&space->loaded) + atomic_load(&space->bad_count) < space->group_count)
		return 0;
	atomic_store(&space->unread, 0);
	atomic_fetch_sub(&space->free, (int64_t)unread);
	space->written_off += unread;
	if (atomic_load(&space->bad_count) == 0) {
		wrong = space->written_off;
		space->written_off = 0;
	}
	return (int64_t)wrong;
}

/* So many free blocks were found where they are not among the unread any more. */
static int64_t found_locked(struct space *space, uint64_t found)
{
	uint64_t unread = atomic_load(&space->unread), back, rest;

	rest = found < unread ? found : unread;
	atomic_store(&space->unread, unread - rest);
	found -= rest;
	back = found < space->written_off ? found : space->written_off;
	space->written_off -= back;
	atomic_fetch_add(&space->free, (int64_t)found);
	return -(int64_t)(found - back);
}

static void say_wrong(struct space *space, int64_t wrong)
{
	if (wrong)
		(void)!corrupt_at(space->volume, space->volume->geo.groups_start, "space_load",
				  wrong > 0 ? "fewer blocks are free than were counted"
					    : "more blocks are free than were counted");
}

/* False: somebody else was first. */
static bool publish(struct space *space, struct group *group, const void *page)
{
	struct group *_Atomic *at = entry(space, group->number);
	struct group *was = atomic_load(at);

	if (was != NULL && was != &space->bad)
		return false;
	fill(space, group, page);
	if (was == &space->bad)
		atomic_fetch_sub(&space->bad_count, 1);
	atomic_fetch_add(&space->loaded, 1);
	atomic_store(at, group);
	return true;
}

/* Of a bitmap page that does not change meanwhile. */
static int load_from(struct space *space, uint32_t number, const void *page)
{
	struct group *group = new_group(space, number);
	int64_t wrong = 0;
	bool mine;

	if (group == NULL)
		return -ENOMEM;
	latch_x(&space->load_latch);
	mine = publish(space, group, page);
	if (mine) {
		wrong = found_locked(space, atomic_load(&group->free));
		wrong += settle_locked(space);
	}
	unlatch_x(&space->load_latch);
	if (!mine) {
		free(group);
		return 0;
	}
	stat_add(&space->volume->stats, STAT_space_groups_loaded, 1);
	say_wrong(space, wrong);
	return 0;
}

/* damaged: what was read is wrong, and not that it could not be. */
static void judge_bad(struct space *space, uint32_t number, const char *why, bool damaged)
{
	struct group *none = NULL;
	int64_t wrong = 0;
	bool mine;

	latch_x(&space->load_latch);
	mine = atomic_compare_exchange_strong(entry(space, number), &none, &space->bad);
	if (mine) {
		atomic_fetch_add(&space->bad_count, 1);
		wrong = settle_locked(space);
	}
	unlatch_x(&space->load_latch);
	if (!mine)
		return;
	if (damaged)
		(void)!corrupt_at(space->volume, space_first_block(space, number), "space_load",
				  why);
	message(LOG_WARNING, "%s: the free blocks of group %" PRIu32 " are not used: its bitmap "
			     "cannot be read: %s",
		space->volume->dev->path, number, why);
	say_wrong(space, wrong);
}

static const char *judge(struct volume *volume, const void *buf, uint64_t pageno, uint32_t number)
{
	const struct disk_bitmap_page *page = buf;
	const char *why = NULL;
	int rc = page_verify(buf, volume->geo.page_size, pageno, volume->tag, &why);

	if (rc)
		return why ? why : error_text(rc);
	if (page->head.type != PAGE_BITMAP || le32_get(page->group) != number)
		return "bitmap of another group";
	if (!page_bits_are(buf, 0, volume->geo.page_blocks, true))
		return "bitmap page marked free";
	return NULL;
}

/* Of a group that is not loaded, or bad. */
static int read_group(struct space *space, uint32_t number)
{
	struct volume *volume = space->volume;
	uint64_t pageno = space_first_block(space, number);
	const char *why;
	void *buf;
	int rc;

	buf = aligned_alloc(BLOCK_SIZE, volume->geo.page_size);
	if (buf == NULL)
		return -ENOMEM;
	os_point("space:loading");
	rc = dev_read(volume->dev, buf, volume->geo.page_size, pageno * BLOCK_SIZE);
	os_point("space:read");
	why = rc ? error_text(rc) : judge(volume, buf, pageno, number);
	if (space_group(space, number))
		rc = 0;
	else if (why)
		judge_bad(space, number, why, rc == 0);
	else
		rc = load_from(space, number, buf);
	free(buf);
	if (rc == -ENOMEM)
		return rc;
	if (space_group(space, number) == NULL)
		return -EIO;
	pages_group_loaded(space, space_group(space, number));
	return 0;
}

int space_load(struct space *space, uint32_t number)
{
	if (atomic_load(entry(space, number)) == NULL)
		return read_group(space, number);
	return space_group(space, number) ? 0 : -EIO;
}

bool space_load_bad(struct space *space)
{
	for (uint32_t i = 0; atomic_load(&space->bad_count) > 0 && i < space->group_count; i++)
		if (atomic_load(entry(space, i)) == &space->bad && read_group(space, i) == 0)
			return true;
	return false;
}

bool space_is_unreadable(struct space *space)
{
	bool is;

	latch_x(&space->load_latch);
	is = space->written_off > 0;
	unlatch_x(&space->load_latch);
	return is;
}

/* The next that nobody has tried; at last also one that somebody else is reading. */
static bool next_unread(struct space *space, uint32_t *number)
{
	uint32_t count = space->group_count;
	bool found = false;

	latch_x(&space->load_latch);
	while (!found && space->probes < count) {
		*number = (uint32_t)((uint64_t)space->probes++ * space->probe_step % count);
		found = atomic_load(entry(space, *number)) == NULL;
	}
	for (uint32_t i = 0; !found && i < count; i++) {
		if (atomic_load(&space->loaded) + atomic_load(&space->bad_count) == count)
			break;
		*number = i;
		found = atomic_load(entry(space, i)) == NULL;
	}
	unlatch_x(&space->load_latch);
	return found;
}

struct group *space_load_more(struct space *space)
{
	uint32_t number;

	while (atomic_load(&space->unread) > 0 && next_unread(space, &number)) {
		int rc = space_load(space, number);

		if (rc == 0)
			return space_group(space, number);
		if (rc == -ENOMEM)
			break;
	}
	return NULL;
}

int space_pin_bitmap(struct volume *volume, uint64_t block, struct frame **out)
{
	struct space *space = volume->space;
	uint64_t pageno = space_bitmap_page(volume, block);
	uint32_t number = (uint32_t)((pageno - volume->geo.groups_start) /
				     volume->geo.group_blocks);
	struct frame *frame;
	int rc = pool_get(volume->pool, pageno, PAGE_BITMAP, 0, &frame);

	if (rc)
		return rc;
	if (space_group(space, number) == NULL) {
		latch_s(&frame->latch);
		rc = load_from(space, number, frame->data);
		unlatch_s(&frame->latch);
		os_point("space:pinned");
	}
	if (rc) {
		pool_put(frame);
		return rc;
	}
	pages_group_loaded(space, space_group(space, number));
	*out = frame;
	return 0;
}

/* --------------------------------------------------------------------- opening */

/* Blocks that exist in groups, the bitmap pages left out. */
static uint64_t usable_blocks(const struct geometry *geo)
{
	uint64_t blocks = (uint64_t)geo->group_count * geo->group_blocks;

	if (blocks > geo->block_count - 1 - geo->groups_start)
		blocks = geo->block_count - 1 - geo->groups_start;
	return blocks - (uint64_t)geo->group_count * geo->page_blocks;
}

int space_load_first(struct space *space, uint32_t count)
{
	const struct geometry *geo = &space->volume->geo;
	uint64_t used = log_tally(space->volume->log);

	check(used > 0 && used <= usable_blocks(geo));
	space->total = usable_blocks(geo) + (uint64_t)geo->group_count * geo->page_blocks;
	space->end = geo->groups_start + space->total;
	choose_steps(space, geo->group_count);
	atomic_store(&space->unread, usable_blocks(geo) - used);
	atomic_store(&space->free, (int64_t)(usable_blocks(geo) - used));
	for (uint32_t number = 0; number < count && number < geo->group_count; number++)
		if (space_load(space, number) == -ENOMEM)
			return -ENOMEM;
	return 0;
}

/* Their bits are clear on the medium: they are found with the others, or given at once. */
void space_load_grown(struct space *space, uint32_t had, uint64_t new_end)
{
	uint32_t have = space->volume->geo.group_count, last = had - 1;
	uint64_t end = space_first_block(space, have);
	uint64_t gained = 0;
	uint32_t from = 0, to = 0;
	struct group *group;

	if (end > new_end)
		end = new_end;
	latch_x(&space->load_latch);
	group = space_group(space, last);
	from = space_bits_below(space, last, space->end);
	to = space_bits_below(space, last, end);
	for (uint32_t number = had; number < have; number++)
		gained += space_bits_below(space, number, end) - space->page_blocks;
	if (group == NULL)
		gained += to - from;
	atomic_fetch_add(&space->total, end - space->end);
	space->end = end;
	space->group_count = have;
	choose_steps(space, have);
	atomic_fetch_add(&space->unread, gained);
	atomic_fetch_add(&space->free, (int64_t)gained);
	unlatch_x(&space->load_latch);
	if (group && from < to) {
		uint32_t went = group_give_discarded(space, group, from, to - from);

		atomic_fetch_add(&space->free, (int64_t)(to - from - went));
	}
}

/* ---------------------------------------------------------- a count from scratch */

#define COUNT_BATCH 32u

static uint64_t count_used(const struct geometry *geo, const void *page, uint32_t number)
{
	uint64_t first = (uint64_t)number * geo->group_blocks;
	uint64_t bits = geo->block_count - 1 - geo->groups_start - first, used = 0;
	const uint8_t *map = (const uint8_t *)page + sizeof(struct disk_bitmap_page);

	if (bits > geo->group_blocks)
		bits = geo->group_blocks;
	for (uint64_t bit = 0; bit < bits; bit += 8) {
		unsigned byte = map[bit / 8];

		if (bits - bit < 8)
			byte &= (1u << (bits - bit)) - 1;
		used += (unsigned)__builtin_popcount(byte);
	}
	return used - geo->page_blocks;
}

static int count_batch(struct volume *volume, uint32_t from, uint8_t *buf, uint64_t *used)
{
	const struct geometry *geo = &volume->geo;
	struct dev_request request[COUNT_BATCH];
	uint32_t count = geo->group_count - from < COUNT_BATCH ? geo->group_count - from
							       : COUNT_BATCH;
	int rc;

	for (uint32_t i = 0; i < count; i++)
		request[i] = (struct dev_request){
			.buf = buf + (size_t)i * geo->page_size,
			.len = geo->page_size,
			.offset = (geo->groups_start + (uint64_t)(from + i) * geo->group_blocks) *
				  BLOCK_SIZE,
		};
	rc = dev_batch(volume->dev, request, count);
	for (uint32_t i = 0; rc == 0 && i < count; i++) {
		const void *page = request[i].buf;
		uint64_t pageno = request[i].offset / BLOCK_SIZE;
		const char *why = judge(volume, page, pageno, from + i);

		if (why)
			rc = corrupt_at(volume, pageno, "space_count_used", why);
		else
			*used += count_used(geo, page, from + i);
	}
	return rc;
}

int space_count_used(struct volume *volume, uint64_t *used)
{
	uint8_t *buf = aligned_alloc(BLOCK_SIZE, (size_t)COUNT_BATCH * volume->geo.page_size);
	int rc = buf ? 0 : -ENOMEM;

	*used = 0;
	for (uint32_t from = 0; rc == 0 && from < volume->geo.group_count; from += COUNT_BATCH)
		rc = count_batch(volume, from, buf, used);
	free(buf);
	return rc;
}

bool space_used_is_possible(const struct volume *volume, uint64_t used)
{
	return used > 0 && used <= usable_blocks(&volume->geo);
}
