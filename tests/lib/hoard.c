#include "tests/lib/hoard.h"

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/mtr.h"

#include <stdlib.h>

struct hoard hoard_take(struct volume *volume, unsigned flags)
{
	struct hoard hoard = {0};
	unsigned room = 1024;

	hoard.r = malloc(room * sizeof(*hoard.r));
	check(hoard.r != NULL);
	while (space_reserve(volume->space, 1, 0, flags, &hoard.r[hoard.count]) == 0) {
		if (++hoard.count < room)
			continue;
		room *= 2;
		hoard.r = realloc(hoard.r, room * sizeof(*hoard.r));
		check(hoard.r != NULL);
	}
	return hoard;
}

void hoard_give_one(struct volume *volume, struct hoard *hoard, unsigned at)
{
	check(at < hoard->count && hoard->r[at].count == 1);
	space_unreserve(volume->space, &hoard->r[at]);
	hoard->r[at].count = 0;
}

void hoard_give(struct volume *volume, struct hoard *hoard)
{
	while (hoard->count > 0) {
		if (hoard->r[hoard->count - 1].count > 0)
			hoard_give_one(volume, hoard, hoard->count - 1);
		hoard->count--;
	}
	free(hoard->r);
}

lsn_t hoard_bits(struct volume *volume, const struct reservation *r, bool set)
{
	struct mtr *m;
	lsn_t lsn;
	int rc = mtr_begin(volume, 0, &m);

	check(rc == 0);
	do {
		check(mtr_latch(m) == 0);
		for (unsigned i = 0; i < r->count; i++) {
			if (set)
				mtr_set_bits(m, r->piece[i].start, r->piece[i].length);
			else
				mtr_clear_bits(m, r->piece[i].start, r->piece[i].length);
		}
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	check(rc == 0);
	lsn = mtr_lsn(m);
	mtr_end(m);
	return lsn;
}

struct space_counts hoard_counts(struct volume *volume)
{
	struct space_counts counts;

	space_count(volume->space, &counts);
	return counts;
}
