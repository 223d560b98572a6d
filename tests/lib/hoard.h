/* All free blocks of a volume in the hands of a test. */
#ifndef BLINKFS_TESTS_HOARD_H
#define BLINKFS_TESTS_HOARD_H

#include "engine/space.h"
#include "engine/volume.h"

struct hoard {
	struct reservation *r; /* of one block each; count 0 = given back */
	unsigned count;
};

/* Takes everything that a caller with these flags may have, in single blocks. */
struct hoard hoard_take(struct volume *volume, unsigned flags);
void hoard_give_one(struct volume *volume, struct hoard *hoard, unsigned at);
void hoard_give(struct volume *volume, struct hoard *hoard);

/* Sets or clears the bits of a reservation in an mtr, as if they were somebody's blocks. */
lsn_t hoard_bits(struct volume *volume, const struct reservation *r, bool set);
struct space_counts hoard_counts(struct volume *volume);

#endif
