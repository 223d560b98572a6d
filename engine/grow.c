/* Growing a volume in use; grow.h has the steps and what each leaves. */
#include "engine/grow.h"

#include "engine/base/message.h"
#include "engine/base/units.h"
#include "engine/redo.h"
#include "engine/space.h"
#include "engine/volume.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

struct grow {
	struct volume *volume;
	char *text;
};

static int printf_like(3, 4) answer(struct grow *g, int rc, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(g->text, GROW_TEXT_BYTES, format, args);
	va_end(args);
	return rc;
}

/* ------------------------------------------------------------------- steps */

/* Step 1. */
static int format_groups(struct volume *volume, const struct geometry *after)
{
	uint32_t first = volume->geo.group_count;

	if (after->group_count == first)
		return 0;
	return volume_format_groups(volume->dev, after, volume->sb.uuid, first);
}

static void set_size(struct disk_superblock *sb, void *arg)
{
	const struct geometry *after = arg;

	sb->block_count = le64_make(after->block_count);
	sb->group_count = le32_make(after->group_count);
}

/* Step 3.  What is there is nobody's as yet; a search for lost superblocks could find it. */
static void zero_old_copy(struct volume *volume, uint64_t block)
{
	static const uint8_t zeros[BLOCK_SIZE];
	int rc = dev_write(volume->dev, zeros, sizeof(zeros), block * BLOCK_SIZE);

	if (rc)
		message(LOG_WARNING, "%s: the former copy of the superblock stays: %s",
			volume->dev->path, error_text(rc));
}

/* Step 4. */
static int log_size(struct volume *volume)
{
	struct redo redo;
	size_t len;
	int rc = redo_begin(&redo, volume, redo_record_bytes(20) + MTR_TRAILER_BYTES);

	if (rc)
		return rc;
	len = varint_put(redo.body, volume->geo.block_count);
	len += varint_put(redo.body + len, volume->geo.group_count);
	redo_note(&redo, REC_VOLUME_SIZE, len);
	redo_commit(&redo);
	redo_end(&redo);
	return 0;
}

static int grow_step(struct grow *g, const struct geometry *after)
{
	struct volume *volume = g->volume;
	struct geometry *geo = &volume->geo;
	uint64_t old_count = geo->block_count;
	struct geometry to = *after;
	int rc = space_grow_begin(volume->space, after->group_count);

	if (rc == 0)
		rc = format_groups(volume, after);
	if (rc)
		return rc;
	os_point("grow:before_switch");
	rc = volume_change_superblock(volume, set_size, &to);
	os_point("grow:switched");
	if (rc)
		return rc;
	zero_old_copy(volume, old_count - 1);
	geo->block_count = after->block_count;
	geo->group_count = after->group_count;
	rc = log_size(volume);
	if (rc)
		return answer(g, rc, "the volume has grown, but what it has gained is usable only "
				     "after the next mount: %s", error_text(rc));
	os_point("grow:logged");
	space_grow(volume->space, old_count - 1, after->block_count - 1);
	stat_add(&volume->stats, STAT_volume_grows, 1);
	os_point("grow:opened");
	return 0;
}

/* INV-GROW-3. */
static bool copy_is_in_the_way(const struct geometry *geo, const struct geometry *after)
{
	uint64_t bitmap = geo->groups_start + (uint64_t)geo->group_count * geo->group_blocks;
	uint64_t copy = geo->block_count - 1;

	return after->group_count > geo->group_count && copy >= bitmap &&
	       copy - bitmap < geo->page_blocks;
}

static int grow_to(struct grow *g, const struct geometry *after)
{
	struct geometry *geo = &g->volume->geo;
	int rc = 0;

	if (copy_is_in_the_way(geo, after)) {
		struct geometry between = *geo;

		between.block_count = geo->groups_start +
				      (uint64_t)geo->group_count * geo->group_blocks +
				      geo->page_blocks + 1;
		rc = grow_step(g, &between);
	}
	return rc ? rc : grow_step(g, after);
}

/* ---------------------------------------------------------------- the whole */

/* Step 0.  *former: the size that the file had, if it was extended. */
static int extend_device(struct grow *g, uint64_t blocks, uint64_t *former)
{
	struct device *dev = g->volume->dev;
	uint64_t had = dev->size_bytes;
	char size[SIZE_TEXT_BYTES];
	int rc;

	if (blocks <= had / BLOCK_SIZE)
		return 0;
	rc = dev_resize(dev, blocks * BLOCK_SIZE);
	if (rc == -EOPNOTSUPP)
		return answer(g, -ENOSPC, "its device has only %s", size_text(had, size));
	if (rc)
		return answer(g, rc, "its file cannot be extended: %s", error_text(rc));
	*former = had;
	return 0;
}

static int plan(struct grow *g, uint64_t bytes, struct geometry *after)
{
	const struct geometry *geo = &g->volume->geo;
	struct device *dev = g->volume->dev;
	char size[SIZE_TEXT_BYTES];
	uint64_t blocks;
	int rc = dev_measure(dev);

	if (rc)
		return answer(g, rc, "the size of its device cannot be told: %s", error_text(rc));
	blocks = (bytes ? bytes : dev->size_bytes) / BLOCK_SIZE;
	*after = *geo;
	if (blocks < geo->block_count)
		return answer(g, -EINVAL, "a volume cannot become smaller; it has %s",
			      size_text(geo->block_count * BLOCK_SIZE, size));
	if (geometry_set_size(after, blocks))
		return answer(g, -EFBIG, "too large: no volume with pages of this size can be");
	return 0;
}

static int run(struct grow *g, uint64_t bytes)
{
	struct volume *volume = g->volume;
	uint64_t before = volume->geo.block_count, former = 0;
	struct geometry after;
	char size[SIZE_TEXT_BYTES];
	int rc = plan(g, bytes, &after), undone;

	if (rc)
		return rc;
	if (after.block_count == before)
		return answer(g, 0, "nothing to do: the volume has %s%s",
			      size_text(before * BLOCK_SIZE, size),
			      bytes ? "" : ", as its device");
	rc = extend_device(g, after.block_count, &former);
	if (rc == 0)
		rc = grow_to(g, &after);
	if (rc && former && volume->geo.block_count == before && !atomic_load(&volume->failed)) {
		undone = dev_resize(volume->dev, former);
		if (undone)
			message(LOG_WARNING, "%s: keeps the size that it was extended to: %s",
				volume->dev->path, error_text(undone));
	}
	if (rc && g->text[0] == '\0')
		return answer(g, rc, "%s", error_text(rc));
	return rc;
}

int volume_grow(struct volume *volume, uint64_t bytes, char text[GROW_TEXT_BYTES])
{
	struct grow g = {.volume = volume, .text = text};
	int rc;

	latch_check_may_wait();
	text[0] = '\0';
	if (volume->options.read_only)
		return answer(&g, -EROFS, "mounted read-only");
	if (atomic_load(&volume->failed))
		return answer(&g, -EIO, "the volume has failed and is read-only");
	rc = log_resize_exclude(volume, text);
	if (rc)
		return rc;
	rc = run(&g, bytes);
	log_resize_allow(volume);
	return rc;
}
