/*
 * One file under random operations, compared with a copy in memory after each
 * read: through the page cache, directly, through a mapping, and after the kernel
 * was told to forget it.
 *
 *	cases_random [CASE DIR]
 *
 * TEST_SEED: of the operations; printed.  TEST_SCALE multiplies their number.
 */
#include "tests/lib/cases.h"

#include "tests/lib/scratch.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096u
#define PIECE_MAX (1u << 20)

struct play {
	uint64_t random;
	int fd, direct;
	uint8_t *copy;    /* what the file should hold */
	uint8_t *buffer;  /* aligned, PIECE_MAX */
	size_t size, size_max, piece_max;
};

static size_t below(struct play *p, size_t limit)
{
	return (size_t)(random_next(&p->random) % limit);
}

static void extend(struct play *p, size_t end)
{
	if (end <= p->size)
		return;
	memset(p->copy + p->size, 0, end - p->size);
	p->size = end;
}

static void fill(struct play *p, size_t len)
{
	for (size_t i = 0; i < len; i += sizeof(uint64_t)) {
		uint64_t word = random_next(&p->random);

		memcpy(p->buffer + i, &word, len - i < sizeof(word) ? len - i : sizeof(word));
	}
}

/* A place and a length within size_max; multiples of `unit`. */
static size_t choose(struct play *p, size_t unit, size_t *len)
{
	size_t offset = below(p, p->size_max / unit) * unit;

	*len = (1 + below(p, p->piece_max / unit)) * unit;
	if (*len > p->size_max - offset)
		*len = p->size_max - offset;
	return offset;
}

static void write_piece(struct play *p, int fd, size_t unit)
{
	size_t len, offset = choose(p, unit, &len);

	fill(p, len);
	expect(pwrite(fd, p->buffer, len, (off_t)offset) == (ssize_t)len);
	extend(p, offset + len);
	memcpy(p->copy + offset, p->buffer, len);
}

static void read_piece(struct play *p, int fd, size_t unit)
{
	size_t len, offset = choose(p, unit, &len);
	size_t there = offset >= p->size ? 0 : p->size - offset < len ? p->size - offset : len;

	expect(pread(fd, p->buffer, len, (off_t)offset) == (ssize_t)there);
	expect(memcmp(p->buffer, p->copy + offset, there) == 0);
}

static void truncate_somewhere(struct play *p)
{
	size_t size = below(p, p->size_max + 1);

	if (below(p, 3) == 0)
		size -= size % BLOCK;
	if (below(p, 8) == 0)
		size = 0;
	expect(ftruncate(p->fd, (off_t)size) == 0);
	if (size > p->size)
		extend(p, size);
	p->size = size;
}

static void use_mapping(struct play *p)
{
	uint8_t *map;
	size_t at, len;

	if (p->size == 0)
		return;
	map = mmap(NULL, p->size, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, 0);
	expect(map != MAP_FAILED);
	at = below(p, p->size);
	len = 1 + below(p, p->size - at < p->piece_max ? p->size - at : p->piece_max);
	expect(memcmp(map + at, p->copy + at, len) == 0);
	fill(p, len);
	memcpy(map + at, p->buffer, len);
	memcpy(p->copy + at, p->buffer, len);
	if (below(p, 2))
		expect(msync(map, p->size, below(p, 2) ? MS_SYNC : MS_ASYNC) == 0);
	expect(munmap(map, p->size) == 0);
}

static void open_both(struct play *p)
{
	p->fd = open("f", O_RDWR | O_CREAT, 0644);
	p->direct = open("f", O_RDWR | O_DIRECT);
	expect(p->fd >= 0 && p->direct >= 0);
}

static void open_again(struct play *p)
{
	struct stat st;

	expect(close(p->fd) == 0 && close(p->direct) == 0);
	open_both(p);
	expect(fstat(p->fd, &st) == 0 && st.st_size == (off_t)p->size);
}

static void forget_pages(struct play *p)
{
	expect(fsync(p->fd) == 0);
	expect(posix_fadvise(p->fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
}

static void allocate_somewhere(struct play *p)
{
	static const int modes[] = {
		0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		FALLOC_FL_ZERO_RANGE, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
	};
	int mode = modes[below(p, sizeof(modes) / sizeof(*modes))];
	size_t len, offset = choose(p, below(p, 2) ? BLOCK : 1, &len);
	size_t end = offset + len;

	expect(fallocate(p->fd, mode, (off_t)offset, (off_t)len) == 0);
	if (!(mode & FALLOC_FL_KEEP_SIZE))
		extend(p, end);
	if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) && offset < p->size)
		memset(p->copy + offset, 0, (end < p->size ? end : p->size) - offset);
}

static void step(struct play *p)
{
	switch (below(p, 18)) {
	case 0 ... 3:
		write_piece(p, p->fd, 1);
		break;
	case 4 ... 6:
		write_piece(p, p->direct, BLOCK);
		break;
	case 7 ... 9:
		read_piece(p, p->fd, 1);
		break;
	case 10 ... 11:
		read_piece(p, p->direct, BLOCK);
		break;
	case 12:
		if (below(p, 4) == 0)
			truncate_somewhere(p);
		break;
	case 13:
		use_mapping(p);
		break;
	case 14:
		forget_pages(p);
		break;
	case 15 ... 16:
		allocate_somewhere(p);
		break;
	default:
		open_again(p);
	}
}

static void compare_all(struct play *p)
{
	for (size_t at = 0; at < p->size; at += PIECE_MAX) {
		size_t len = p->size - at < PIECE_MAX ? p->size - at : PIECE_MAX;

		expect(pread(p->fd, p->buffer, len, (off_t)at) == (ssize_t)len);
		expect(memcmp(p->buffer, p->copy + at, len) == 0);
	}
}

static void play(size_t size_max, size_t piece_max, unsigned steps)
{
	const char *seed = getenv("TEST_SEED");
	struct play p = {
		.random = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL),
		.copy = calloc(1, size_max + 1),
		.buffer = aligned_alloc(BLOCK, PIECE_MAX + BLOCK),
		.size_max = size_max,
		.piece_max = piece_max,
	};

	expect(p.copy && p.buffer);
	fprintf(stderr, "TEST_SEED=%llu\n", (unsigned long long)p.random);
	open_both(&p);
	expect(ftruncate(p.fd, 0) == 0);
	for (unsigned i = 0; i < steps * test_scale(); i++)
		step(&p);
	compare_all(&p);
	forget_pages(&p);
	compare_all(&p);
	close(p.fd);
	close(p.direct);
	free(p.copy);
	free(p.buffer);
}

/* Around the border between contents within the inode and blocks. */
static void tiny_file(void)
{
	play(3 * BLOCK, BLOCK, 3000);
}

static void small_file(void)
{
	play(256 << 10, 64 << 10, 2000);
}

/* Many extents: small writes all over it, and large ones over them. */
static void scattered_file(void)
{
	play(16 << 20, 3 * BLOCK, 4000);
	play(16 << 20, PIECE_MAX, 100);
}

static const struct case_entry cases[] = {
	{"tiny_file", tiny_file},
	{"small_file", small_file},
	{"scattered_file", scattered_file},
};

int main(int argc, char **argv)
{
	return cases_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
