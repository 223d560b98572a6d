/*
 * What a change of extents does to the blocks: bits of new ones are set, the old
 * ones lose a reference.
 *
 * INV-LOB-3: bits are cleared in the mtr that drops the last reference to them.
 * INV-LOB-8: blocks that become contents where they are, unwritten until now, are
 * neither new nor old.
 */
#include "engine/lob_stage.h"

#include <errno.h>

void lob_stage_new_blocks(struct stage *s, const struct lob_new *new)
{
	const le32 *crcs = new->crcs;

	for (unsigned i = 0; i < new->space.count; i++) {
		const struct piece *piece = &new->space.piece[i];

		if (!new->in_place[i])
			mtr_set_bits(s->m, piece->start, piece->length);
		if (crcs == NULL)
			continue;
		mtr_data(s->m, piece->start, piece->length, crcs);
		crcs += piece->length;
	}
}

/* Does this unwritten extent become a written one where it is? */
static bool stays_in_place(const struct stage *s, const struct extent *old)
{
	for (unsigned n = 0; n < s->new_count && old->unwritten; n++) {
		uint64_t at = s->new[n]->first;

		for (unsigned i = 0; i < s->new[n]->space.count; i++) {
			const struct piece *piece = &s->new[n]->space.piece[i];

			if (s->new[n]->in_place[i] && at < extent_end(old) &&
			    at + piece->length > old->first &&
			    piece->start + (old->first - at) == old->start)
				return true;
			at += piece->length;
		}
	}
	return false;
}

struct piece lob_freed_piece(const struct stage *s, const struct extent *old)
{
	uint64_t first = old->first > s->first ? old->first : s->first;
	uint64_t end = extent_end(old) < s->end ? extent_end(old) : s->end;

	return (struct piece){
		.start = old->start + (first - old->first),
		.length = (uint32_t)(end - first),
	};
}

/*
 * Frees the old blocks in order, neighbours on the volume as one run; *reached:
 * first file block whose bits could not be cleared.
 */
static uint64_t stage_old_blocks(struct stage *s, uint64_t *reached)
{
	struct piece run = {0};
	uint64_t freed = 0;

	*reached = s->end;
	for (unsigned i = 0; i < s->old_count; i++) {
		const struct extent *old = &s->old[i];
		struct piece piece;

		if (!lob_stage_overlaps(s, old))
			continue;
		piece = lob_freed_piece(s, old);
		if (stays_in_place(s, old)) {
			freed += piece.length;
			s->in_place -= piece.length;
			continue;
		}
		if (run.length > 0 && run.start + run.length == piece.start) {
			run.length += piece.length;
		} else {
			if (run.length > 0)
				mtr_clear_bits(s->m, run.start, run.length);
			run.length = 0;
			if (!mtr_can_clear(s->m, piece.start, piece.length)) {
				*reached = old->first > s->first ? old->first : s->first;
				break;
			}
			run = piece;
		}
		freed += piece.length;
	}
	if (run.length > 0)
		mtr_clear_bits(s->m, run.start, run.length);
	return freed;
}

void lob_change_shares(struct stage *s, uint64_t start, uint32_t length, int delta)
{
	s->change[s->change_count++] = (struct share_change){
		.start = start,
		.length = length,
		.delta = delta,
	};
}

/* Notes, among the changes of `sum`, that the old blocks lose a reference; how many. */
static uint64_t drop_references(struct stage *s, struct stage *sum)
{
	uint64_t freed = 0;

	for (unsigned i = 0; i < s->old_count; i++) {
		struct piece piece;

		if (!lob_stage_overlaps(s, &s->old[i]))
			continue;
		piece = lob_freed_piece(s, &s->old[i]);
		freed += piece.length;
		if (stays_in_place(s, &s->old[i]))
			s->in_place -= piece.length;
		else
			lob_change_shares(sum, piece.start, piece.length, -1);
	}
	return freed;
}

int lob_release_old(struct stage *s, uint64_t *freed, uint64_t *reached)
{
	/* INV-SHARE-1: asked after the leaves were latched. */
	if (!atomic_load(&s->volume->shares_used)) {
		*freed = stage_old_blocks(s, reached);
		return 0;
	}
	*reached = s->end;
	*freed = drop_references(s, s);
	return lob_stage_shares(s->m, s->change, s->change_count);
}

int lob_release_all(struct stage *const *stage, unsigned count, uint64_t *freed)
{
	struct stage *sum = stage[0];
	bool shares = atomic_load(&sum->volume->shares_used); /* INV-SHARE-1 */
	uint64_t reached;

	*freed = 0;
	for (unsigned i = 0; i < count; i++) {
		if (shares) {
			*freed += drop_references(stage[i], sum);
			continue;
		}
		*freed += stage_old_blocks(stage[i], &reached);
		if (reached != stage[i]->end)
			return -E2BIG;
	}
	return shares ? lob_stage_shares(sum->m, sum->change, sum->change_count) : 0;
}
