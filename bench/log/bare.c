/* Committing without the log. */
#include "bench/log/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GROUP_BYTES_MOST (THREADS_MOST * 1024u)

struct bare {
	int fd;
	bool appends;
	uint64_t flush_delay_ns;
	_Atomic uint64_t next; /* where the next sector goes; bytes since the start */

	pthread_mutex_t mutex; /* protects what follows */
	pthread_cond_t done;
	uint8_t *gathering, *writing;
	size_t gathered;
	uint64_t durable, group; /* groups: all below are; the one that gathers */
	bool in_flight;
};

static void write_at(struct bare *bare, const void *buf, size_t len, uint64_t at)
{
	uint64_t offset = bare->appends ? at : at % (FILE_BYTES - GROUP_BYTES_MOST);

	if (pwrite(bare->fd, buf, len, (off_t)offset) != (ssize_t)len)
		die("pwrite");
}

static void sync_all(struct bare *bare)
{
	if (bare->flush_delay_ns)
		sleep_ns(bare->flush_delay_ns);
	if (fdatasync(bare->fd) != 0)
		die("fdatasync");
}

static void fill_file(int fd)
{
	const size_t len = 1u << 20;
	char *ones = malloc(len);

	if (!ones)
		die("memory");
	memset(ones, 1, len);
	for (uint64_t at = 0; at < FILE_BYTES; at += len)
		if (pwrite(fd, ones, len, (off_t)at) != (ssize_t)len)
			die("pwrite");
	free(ones);
}

static void *bare_open(const char *path, uint64_t flush_delay_ns, bool appends)
{
	struct bare *bare = calloc(1, sizeof(*bare));

	if (!bare)
		die("memory");
	bare->fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (bare->fd < 0)
		die(path);
	if (!appends)
		fill_file(bare->fd);
	if (fsync(bare->fd) != 0)
		die("fsync");
	bare->appends = appends;
	bare->flush_delay_ns = flush_delay_ns;
	bare->gathering = calloc(1, GROUP_BYTES_MOST);
	bare->writing = calloc(1, GROUP_BYTES_MOST);
	if (!bare->gathering || !bare->writing)
		die("memory");
	pthread_mutex_init(&bare->mutex, NULL);
	pthread_cond_init(&bare->done, NULL);
	return bare;
}

static void *open_overwrite(const char *path, uint64_t flush_delay_ns)
{
	return bare_open(path, flush_delay_ns, false);
}

static void *open_append(const char *path, uint64_t flush_delay_ns)
{
	return bare_open(path, flush_delay_ns, true);
}

static void bare_close(void *self)
{
	struct bare *bare = self;

	close(bare->fd);
	free(bare->gathering);
	free(bare->writing);
	free(bare);
}

/* ------------------------------------------------------------------ plain */

static void commit_plain(void *self, unsigned worker)
{
	struct bare *bare = self;
	uint8_t sector[SECTOR_BYTES];

	memset(sector, (int)worker, sizeof(sector));
	write_at(bare, sector, sizeof(sector), atomic_fetch_add(&bare->next, sizeof(sector)));
	sync_all(bare);
}

static void commit_serial(void *self, unsigned worker)
{
	struct bare *bare = self;

	pthread_mutex_lock(&bare->mutex);
	commit_plain(self, worker);
	pthread_mutex_unlock(&bare->mutex);
}

const struct committer plain_overwrite = {open_overwrite, commit_plain, bare_close};
const struct committer plain_append = {open_append, commit_plain, bare_close};
const struct committer serial = {open_overwrite, commit_serial, bare_close};

/* ------------------------------------------------------------------ group */

/* Writes what has been gathered.  Mutex held, and released in between. */
static void lead(struct bare *bare)
{
	size_t len = (bare->gathered + SECTOR_BYTES - 1) / SECTOR_BYTES * SECTOR_BYTES;
	uint8_t *group = bare->gathering;

	bare->gathering = bare->writing;
	bare->writing = group;
	bare->gathered = 0;
	bare->group++;
	bare->in_flight = true;
	pthread_mutex_unlock(&bare->mutex);
	write_at(bare, group, len, atomic_fetch_add(&bare->next, len));
	sync_all(bare);
	pthread_mutex_lock(&bare->mutex);
	bare->in_flight = false;
	bare->durable = bare->group;
	pthread_cond_broadcast(&bare->done);
}

static void commit_group(void *self, unsigned worker)
{
	struct bare *bare = self;
	uint64_t group;

	pthread_mutex_lock(&bare->mutex);
	group = bare->group;
	memset(bare->gathering + bare->gathered, (int)worker, RECORD_BYTES);
	bare->gathered += RECORD_BYTES;
	while (bare->durable <= group) {
		if (bare->in_flight)
			pthread_cond_wait(&bare->done, &bare->mutex);
		else
			lead(bare);
	}
	pthread_mutex_unlock(&bare->mutex);
}

const struct committer bare_group = {open_overwrite, commit_group, bare_close};
const struct committer bare_group_append = {open_append, commit_group, bare_close};
