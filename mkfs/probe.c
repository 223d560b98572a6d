/*
 * libblkid knows the signatures of everybody else's filesystems, RAID members
 * and partition tables; blinkfs recognises itself.
 */
#include "mkfs/probe.h"

#include "engine/base/error.h"
#include "engine/volume.h"

#include <blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include <uuid.h>

#define SIGNATURES_MAX 64 /* of one device: more is not a device but an attempt */

static int probe_open(struct device *dev, int open_flags, int *fd, blkid_probe *out)
{
	blkid_probe probe = blkid_new_probe();

	*out = probe;
	if (!probe)
		return -ENOMEM;
	*fd = open(dev->path, open_flags | O_CLOEXEC);
	if (*fd < 0)
		return -errno;
	if (blkid_probe_set_device(probe, *fd, 0, 0) != 0 ||
	    blkid_probe_enable_superblocks(probe, 1) != 0 ||
	    blkid_probe_set_superblocks_flags(probe, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_LABEL |
							     BLKID_SUBLKS_MAGIC |
							     BLKID_SUBLKS_BADCSUM) != 0 ||
	    blkid_probe_enable_partitions(probe, 1) != 0 ||
	    blkid_probe_set_partitions_flags(probe, BLKID_PARTS_MAGIC) != 0)
		return -EIO;
	return 0;
}

static void probe_close(int fd, blkid_probe probe)
{
	blkid_free_probe(probe); /* NULL is allowed */
	if (fd >= 0)
		close(fd);
}

static void describe(blkid_probe probe, char what[PROBE_TEXT_BYTES])
{
	const char *type = NULL, *label = NULL;

	if (blkid_probe_lookup_value(probe, "PTTYPE", &type, NULL) == 0) {
		snprintf(what, PROBE_TEXT_BYTES, "a partition table (%s)", type);
		return;
	}
	if (blkid_probe_lookup_value(probe, "TYPE", &type, NULL) != 0)
		type = "unknown";
	if (blkid_probe_lookup_value(probe, "LABEL", &label, NULL) == 0)
		snprintf(what, PROBE_TEXT_BYTES, "a filesystem (%s, label '%.32s')", type, label);
	else
		snprintf(what, PROBE_TEXT_BYTES, "a filesystem (%s)", type);
}

static int probe_foreign(struct device *dev, char what[PROBE_TEXT_BYTES])
{
	blkid_probe probe = NULL;
	int fd = -1;
	int rc = probe_open(dev, O_RDONLY, &fd, &probe);

	if (rc)
		goto out;
	rc = blkid_do_probe(probe); /* 0: the first of possibly many; 1: none */
	if (rc == 0) {
		describe(probe, what);
		rc = -EEXIST;
	} else {
		rc = rc == 1 ? 0 : -EIO;
	}
out:
	probe_close(fd, probe);
	return rc;
}

/* The log of a volume that lies elsewhere. */
static int probe_log(struct device *dev, char what[PROBE_TEXT_BYTES])
{
	struct log_identity id;
	int rc = log_identify(dev, 0, &id);
	char uuid[37];

	if (rc == -BE_NOVOLUME)
		return 0;
	if (rc == 0) {
		uuid_unparse(id.volume, uuid);
		snprintf(what, PROBE_TEXT_BYTES, "the redo log of blinkfs volume %s", uuid);
	} else if (rc == -BE_DAMAGE || rc == -BE_VERSION) {
		snprintf(what, PROBE_TEXT_BYTES, "a blinkfs redo log (%s)",
			 rc == -BE_DAMAGE ? "damaged" : "of a newer version");
	} else {
		return error_errno(rc);
	}
	return -EEXIST;
}

int probe_contents(struct device *dev, char what[PROBE_TEXT_BYTES])
{
	struct disk_superblock sb;
	int rc = superblock_read(dev, &sb, NULL);

	if (rc == -BE_NOVOLUME) {
		rc = probe_log(dev, what);
		return rc ? rc : probe_foreign(dev, what);
	}
	if (rc == 0 && sb.label[0])
		snprintf(what, PROBE_TEXT_BYTES, "a blinkfs volume (label '%.64s')",
			 (const char *)sb.label);
	else if (rc == -BE_VERSION)
		snprintf(what, PROBE_TEXT_BYTES, "a blinkfs volume of a newer version");
	else if (rc == 0)
		snprintf(what, PROBE_TEXT_BYTES, "a blinkfs volume");
	else if (rc == -BE_DAMAGE || rc == -BE_TRUNCATED)
		snprintf(what, PROBE_TEXT_BYTES, "a damaged blinkfs volume");
	else
		return error_errno(rc);
	return -EEXIST;
}

/* A log that was here would be recognised behind the new superblock. */
static int wipe_log(struct device *dev)
{
	static const uint8_t zeros[LOG_HEADER_BYTES];
	const uint64_t at[] = {0, LOG_HEADER_1};
	int rc = 0;

	for (unsigned i = 0; i < array_count(at) && !rc; i++)
		rc = dev_write(dev, zeros, sizeof(zeros), at[i]);
	return rc;
}

int probe_wipe(struct device *dev)
{
	blkid_probe probe = NULL;
	int fd = -1;
	int rc = probe_open(dev, O_RDWR, &fd, &probe);

	for (unsigned i = 0; !rc && i < SIGNATURES_MAX; i++) {
		int found = blkid_do_probe(probe);

		if (found == 1)
			break;
		if (found != 0 || blkid_do_wipe(probe, 0) != 0)
			rc = -EIO;
	}
	probe_close(fd, probe);
	return rc ? rc : wipe_log(dev);
}
