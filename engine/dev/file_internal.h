/*
 * What the parts of the file device share.  Users include device.h only.
 *
 *	file.c       transfers, flushes, opening and locking
 *	file_ring.c  batches through io_uring
 *	file_lane.c  a second description: O_DIRECT, O_DSYNC
 *	file_direct.c transfers past the kernel's cache
 *	file_map.c   a region as memory
 */
#ifndef BLINKFS_DEV_FILE_INTERNAL_H
#define BLINKFS_DEV_FILE_INTERNAL_H

#include "engine/base/latch.h"
#include "engine/base/os.h"
#include "engine/dev/device.h"

#define RINGS_KEPT 16u                /* more threads than that may have rings, but not keep them */
#define FLUSHERS 4u                   /* concurrent flushes; more take turns */
#define TRANSFER_BYTES_MAX (1u << 30) /* the kernel ends a transfer at 2 GiB less a page */

struct io_uring;

struct file_device {
	struct device dev;
	int fd; /* all transfers, and the lock */
	bool is_block;
	bool is_locked; /* X, over all that is no lane */
	struct {
		struct latch latch; /* held over a flush through fd */
		int fd;
	} flusher[FLUSHERS];     /* not of a lane */
	int direct_fd;           /* past the cache; < 0: there is no such way, as of a lane */
	uint32_t direct_align;   /* of buffers, offsets and lengths there */
	atomic_bool no_direct;   /* the kernel has refused */
	int beside_fd;           /* for flushes that begin and end; not of a lane */
	_Atomic int flush_error; /* sticky; not of a lane */
	atomic_bool no_rings;    /* the kernel will never give one */
	_Atomic(struct io_uring *) rings[RINGS_KEPT];
};

static inline struct file_device *file_device(struct device *dev)
{
	return container_of(dev, struct file_device, dev);
}

/* ------------------------------------------------------------------ file.c */

int file_transfer(int fd, void *buf, size_t len, uint64_t offset, bool is_write) must_check;
int file_read(struct device *dev, void *buf, size_t len, uint64_t offset) must_check;
int file_write(struct device *dev, const void *buf, size_t len, uint64_t offset) must_check;
void file_close(struct device *dev);
/* fcntl(F_OFD_SETLK) of F_RDLCK, F_WRLCK or F_UNLCK; len 0: to the end. */
int file_lock(int fd, short type, uint64_t offset, uint64_t len) must_check;
/* A description of the same file, whatever its name is by now: a descriptor or a negative errno. */
int file_reopen(int fd, int os_flags) must_check;
/* Which description to flush through, latched, until file_flusher_give(). */
unsigned file_flusher_take(struct file_device *file);
/* Latched: what a flush through it came to, remembered if it failed (INV-DEV-5). */
int file_flusher_give(struct file_device *file, unsigned i, int error) must_check;
void file_sleep(uint64_t ns);

/* ------------------------------------------------------------- file_ring.c */

int file_batch(struct device *dev, struct dev_request *requests, size_t count) must_check;
int file_write_beside_flush(struct device *lane, struct dev_request *requests,
			    size_t count) must_check;
void file_flush_begin(struct device *dev, struct dev_flush *flush);
int file_flush_end(struct dev_flush *flush) must_check;
void file_rings_close(struct file_device *file);

/* ------------------------------------------------------------- file_lane.c */

int file_open_lane(struct device *dev, unsigned flags, uint64_t offset, uint64_t len,
		   struct device **out) must_check;

/* 0: no O_DIRECT. */
uint32_t file_direct_align(const struct file_device *file);

/* ----------------------------------------------------------- file_direct.c */

/* Where there is no such way, there is none: no error. */
int file_open_direct(struct file_device *file) must_check;
/* The description that a request goes through, which is counted. */
int file_way(const struct file_device *file, const struct dev_request *request);
/* Is the other way to be tried after this error? */
bool file_direct_refused(struct file_device *file, const struct dev_request *request, int error);

/* -------------------------------------------------------------- file_map.c */

/* Of a regular file: does it lie in memory that is never written back by pages? */
bool file_is_memory(int fd);
int file_map(struct device *dev, struct dev_map *map) must_check;
void file_persist(struct device *dev, const struct dev_map *map, const void *at, size_t len);
void file_unmap(struct device *dev, struct dev_map *map);

#endif
