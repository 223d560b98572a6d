/*
 * What a fuzzer does with an image that it has changed, each on a copy of its own:
 *
 *	walk     fsck_walk() with contents: ends, leaks nothing, the same for any threads
 *	repair   fsck -y ends with all repaired, and finds nothing the next time
 *	mount    opens, looks at everything that can be reached, changes things, closes
 *
 * What is promised is checked; the program ends when a promise is broken.
 */
#ifndef BLINKFS_TESTS_IMAGE_USE_H
#define BLINKFS_TESTS_IMAGE_USE_H

#include "engine/dev/device.h"

struct image_use {
	const char *name;
	void (*use)(struct device *dev);
};
extern const struct image_use image_uses[]; /* the last has no name */

/*
 * For an input of libFuzzer one of the names, by its bytes, since three times as many
 * inputs find more; else what the environment's FUZZ_ONLY says, NULL: all.
 */
const char *image_use_chosen(const uint8_t *data, size_t size);
/* copy: a device with the changed image.  only: one of the names; NULL: all. */
void image_use_all(struct device *(*copy)(void *arg), void *arg, const char *only);

#endif
