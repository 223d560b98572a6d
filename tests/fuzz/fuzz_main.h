/*
 * The main() of a fuzzer that is not built with libFuzzer:
 *
 *	NAME                       the corpus of the sources, then seeds 1, 2, ...
 *	NAME SEED [COUNT]          seeds from there on
 *	NAME --file FILE...        inputs that were recorded
 *	NAME --seeds DIR COUNT     writes inputs there, for libFuzzer to begin with
 */
#ifndef BLINKFS_TESTS_FUZZ_MAIN_H
#define BLINKFS_TESTS_FUZZ_MAIN_H

#include <stddef.h>
#include <stdint.h>

#define FUZZ_INPUT_MAX (1u << 16)

/* The entry point of either kind of program. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* make: an input of that seed into FUZZ_INPUT_MAX bytes; its length.  count: times TEST_SCALE. */
int fuzz_main(const char *name, unsigned count, size_t (*make)(uint8_t *out, uint64_t seed),
	      int argc, char **argv);

#endif
