/*
 * A region of a file device as memory.
 *
 *	tmpfs, DAX     byte-addressable: durable when the CPU's caches are written
 *	               back (on tmpfs: as durable as anything there)
 *	anything else  the kernel's page cache: durable after a flush of the device
 *
 * The map is made by mmap() rather than pmem_map_file(), which maps whole files
 * only; MAP_SYNC is what tells that the CPU's caches are all that has to be
 * written back, as libpmem finds out too.  What then has to be done to them is
 * libpmem's.
 *
 * INV-DEV-7: storing into the map allocates nothing: every block is there before,
 * or a full disk would be a signal.
 */
#include "engine/dev/file_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <libpmem.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static bool is_tmpfs(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

static bool is_dax(int fd)
{
#ifdef STATX_ATTR_DAX
	struct statx stx;

	return statx(fd, "", AT_EMPTY_PATH, 0, &stx) == 0 && (stx.stx_attributes & STATX_ATTR_DAX);
#else
	(void)fd;
	return false;
#endif
}

bool file_is_memory(int fd)
{
	return is_tmpfs(fd) || is_dax(fd);
}

/* INV-DEV-7.  A block device has all of its blocks. */
static int allocate(const struct file_device *file, const struct dev_map *map)
{
	if (file->is_block)
		return 0;
	while (fallocate(file->fd, 0, (off_t)map->offset, (off_t)map->len) != 0) {
		if (errno == EOPNOTSUPP || errno == ENOSYS)
			return -EOPNOTSUPP;
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

static int map_pages(struct dev_map *map, int fd, int flags)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t from = map->offset / page * page;

	map->mapping_len = map->offset + map->len - from;
	map->mapping = mmap(NULL, map->mapping_len, PROT_READ | PROT_WRITE, flags, fd, (off_t)from);
	if (map->mapping == MAP_FAILED) {
		map->mapping = NULL;
		return errno == ENODEV || errno == EINVAL ? -EOPNOTSUPP : -errno;
	}
	map->at = (uint8_t *)map->mapping + (map->offset - from);
	return 0;
}

int file_map(struct device *dev, struct dev_map *map)
{
	struct file_device *file = file_device(dev);
	bool dax = dev->byte_addressable && !is_tmpfs(file->fd);
	int error = allocate(file, map);

	if (error)
		return error;
	map->byte_addressable = dev->byte_addressable;
	error = map_pages(map, file->fd, dax ? MAP_SHARED_VALIDATE | MAP_SYNC : MAP_SHARED);
	/*
	 * Where a page can leave the memory, reading it back is a wait inside a
	 * store, and a failure of that a signal: keep them all, if we may.
	 */
	if (!error && !map->byte_addressable)
		(void)mlock(map->mapping, map->mapping_len);
	return error;
}

void file_persist(struct device *dev, const struct dev_map *map, const void *at, size_t len)
{
	(void)dev;
	(void)map;
	pmem_persist(at, len);
}

void file_unmap(struct device *dev, struct dev_map *map)
{
	(void)dev;
	check(munmap(map->mapping, map->mapping_len) == 0);
}
