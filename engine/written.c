/* Which blocks were written since the last backup: see written.h. */
#include "engine/written.h"

#include <stdlib.h>

static bool allocate(struct written *written, uint64_t block_count)
{
	size_t words = block_count / 64 + 1;

	if (written->words > 0)
		return true;
	for (unsigned i = 0; i < 2; i++) {
		free(written->map[i]);
		written->map[i] = calloc(words, sizeof(*written->map[i]));
	}
	if (written->map[0] == NULL || written->map[1] == NULL)
		return false;
	written->words = words;
	return true;
}

void written_begin(struct written *written, uint64_t block_count)
{
	unsigned next = !written->current;

	if (!allocate(written, block_count))
		return;
	/* A map that is off may still get bits of somebody who saw it on: they do no harm. */
	for (size_t i = 0; i < written->words; i++)
		atomic_store_explicit(&written->map[next][i], 0, memory_order_relaxed);
	atomic_fetch_or(&written->on, 1u << next);
}

void written_end(struct written *written, lsn_t lsn)
{
	unsigned next = !written->current;

	if (written->words == 0)
		return;
	if (lsn == 0) {
		atomic_fetch_and(&written->on, ~(1u << next));
		return;
	}
	atomic_fetch_and(&written->on, ~(1u << written->current));
	written->current = next;
	written->lsn = lsn;
}

bool written_knows(const struct written *written, lsn_t lsn)
{
	return lsn > 0 && written->lsn == lsn;
}

bool written_has(const struct written *written, uint64_t block)
{
	const _Atomic uint64_t *map = written->map[written->current];

	if (block / 64 >= written->words)
		return true;
	return atomic_load_explicit(&map[block / 64], memory_order_relaxed) >> block % 64 & 1;
}

static void set_bits(_Atomic uint64_t *map, size_t words, uint64_t start, uint32_t count)
{
	while (count > 0 && start / 64 < words) {
		uint32_t shift = start % 64;
		uint32_t n = 64 - shift < count ? 64 - shift : count;
		uint64_t mask = (n == 64 ? UINT64_MAX : (1ull << n) - 1) << shift;

		atomic_fetch_or_explicit(&map[start / 64], mask, memory_order_relaxed);
		start += n;
		count -= n;
	}
}

void written_note(struct written *written, uint64_t start, uint32_t count)
{
	unsigned on = atomic_load(&written->on);

	for (unsigned i = 0; i < 2; i++)
		if (on >> i & 1)
			set_bits(written->map[i], written->words, start, count);
}

void written_free(struct written *written)
{
	free(written->map[0]);
	free(written->map[1]);
}
