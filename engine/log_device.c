/* Finding and judging the device of an external log: see log_device.h. */
#include "engine/log_device.h"

#include "engine/base/error.h"
#include "engine/base/message.h"
#include "engine/volume.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define UUID_TEXT_BYTES 37u

static void uuid_text(const uint8_t uuid[16], char out[UUID_TEXT_BYTES])
{
	char *at = out;

	for (unsigned i = 0; i < 16; i++)
		at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
			      uuid[i]);
}

/* Where the log is said to be: NULL when nobody says it. */
static const char *choose_path(const struct disk_superblock *sb,
			       const struct log_device_request *request)
{
	if (request->path)
		return request->path;
	return sb->log_path[0] == '/' ? (const char *)sb->log_path : NULL;
}

static int explain_open(const char *volume, const char *path, const char *how, int rc)
{
	if (rc == -BE_BUSY) {
		message(LOG_ERR, "%s: the redo log of %s is in use", path, volume);
		return rc;
	}
	if (rc == -EINVAL || rc == -EISDIR)
		message(LOG_ERR, "%s: neither a regular file nor a block device", path);
	else
		message(LOG_ERR, "%s: cannot open its redo log %s: %s; say where it is with %s",
			volume, path, error_text(rc), how);
	return rc == -ENOMEM ? rc : -BE_NOLOG;
}

/* -BE_NOLOG: it is not the log that the superblock names. */
static int judge(struct device *log_dev, const struct disk_superblock *sb, const char *volume)
{
	char text[UUID_TEXT_BYTES];
	struct log_identity id;
	int rc = log_identify(log_dev, 0, &id);

	if (rc) {
		message(LOG_ERR, "%s: not the redo log of %s: %s", log_dev->path, volume,
			rc == -BE_NOVOLUME ? "no redo log at all" : error_text(rc));
		return -BE_NOLOG;
	}
	if (memcmp(id.uuid, sb->log_uuid, sizeof(id.uuid)) != 0) {
		uuid_text(id.volume, text);
		if (memcmp(id.volume, sb->uuid, sizeof(id.volume)) == 0)
			message(LOG_ERR, "%s: a former redo log of %s, of before it was made anew",
				log_dev->path, volume);
		else
			message(LOG_ERR, "%s: not the redo log of %s, but that of volume %s",
				log_dev->path, volume, text);
		return -BE_NOLOG;
	}
	if (log_dev->size_bytes < le64_get(sb->log_bytes)) {
		message(LOG_ERR, "%s: cut short: smaller than the redo log of %s in it",
			log_dev->path, volume);
		return -BE_NOLOG;
	}
	return 0;
}

int log_device_open(struct device **out, struct device *dev,
		    const struct log_device_request *request)
{
	struct disk_superblock sb;
	const char *path;
	int rc;

	*out = NULL;
	if (superblock_read(dev, &sb, NULL) != 0)
		return 0;
	if (!(le64_get(sb.incompat) & INCOMPAT_EXTERNAL_LOG)) {
		if (!request->path)
			return 0;
		message(LOG_ERR, "%s: has its redo log inside; leave out %s", dev->path,
			request->how);
		return -EINVAL;
	}
	path = choose_path(&sb, request);
	if (!path) {
		message(LOG_ERR, "%s: its redo log is elsewhere; say where with %s", dev->path,
			request->how);
		return -BE_NOLOG;
	}
	rc = dev_open_file(out, path, request->flags, request->wait_ns);
	if (rc)
		return explain_open(dev->path, path, request->how, rc);
	rc = judge(*out, &sb, dev->path);
	if (rc) {
		dev_close(*out);
		*out = NULL;
	}
	return rc;
}
