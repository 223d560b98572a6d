#include "bench/engines/engines.h"

#include "engine/mtr.h"
#include "engine/volume.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INDEX INDEX_DIRENTS

static void demand(int rc, const char *what)
{
	if (rc)
		fail("blinkfs", what, error_text(rc));
}

static void *open_volume(const char *folder, uint64_t bytes)
{
	struct format_params params = {
		.size_bytes = bytes * 2 + (2048ull << 20),
		.log_bytes = 1024u << 20,
		.uuid = "bench-engines!!",
		.hash_seed = "bench-hash-seed",
	};
	struct volume_options options = {.cache_bytes = bytes + (64u << 20)};
	struct volume *volume;
	struct device *dev;
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/volume", folder);
	fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)params.size_bytes))
		fail("blinkfs", path, "cannot be made");
	close(fd);
	demand(dev_open_file(&dev, path, 0, 0), path);
	demand(volume_format(dev, &params, NULL), "format");
	demand(volume_open(&volume, dev, &options), "open");
	return volume;
}

static void close_volume(void *db)
{
	demand(volume_close(db), "close");
}

static void *begin(void *db)
{
	return db;
}

static void end(void *session)
{
	(void)session;
}

static void put(void *session, const uint8_t *key, const void *value, size_t len)
{
	struct mtr *m;
	int rc;

	demand(mtr_begin(session, 0, &m), "begin");
	mtr_want_key(m, INDEX, key, KEY_BYTES);
	do {
		rc = mtr_latch(m);
		if (rc)
			break;
		mtr_put(m, INDEX, key, KEY_BYTES, value, len);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	demand(rc, "put");
}

static bool get(void *session, const uint8_t *key, void *value, size_t *len)
{
	struct volume *volume = session;
	int rc = tree_get(&volume->index[INDEX], key, KEY_BYTES, value, VALUE_MOST, len);

	if (rc != -BE_NOTFOUND)
		demand(rc, "get");
	return rc == 0;
}

static unsigned scan(void *session, const uint8_t *key, unsigned rows)
{
	struct volume *volume = session;
	struct tree_cursor cursor;
	unsigned count = 0;
	int rc = tree_cursor_open(&cursor, &volume->index[INDEX], key, KEY_BYTES);

	while (rc == 0 && count < rows && (rc = tree_cursor_next(&cursor)) == 0)
		count++;
	tree_cursor_close(&cursor);
	if (rc != -BE_END)
		demand(rc, "scan");
	return count;
}

const struct engine engine_blinkfs = {
	.name = "blinkfs",
	.setting = "log flushed by its own thread as it grows, at the latest after 5 s",
	.open = open_volume,
	.close = close_volume,
	.begin = begin,
	.end = end,
	.put = put,
	.get = get,
	.scan = scan,
};
