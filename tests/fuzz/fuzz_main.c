#include "tests/fuzz/fuzz_main.h"

#include "tests/lib/scratch.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANNOUNCE_EVERY 100u

typedef size_t (*make_fn)(uint8_t *out, uint64_t seed);

/* The entry point lies in the program, this file in a library that it is linked with. */
static int run_file(const char *path, uint8_t *bytes)
{
	FILE *file = fopen(path, "rb");
	size_t len;

	if (!file) {
		perror(path);
		return 1;
	}
	len = fread(bytes, 1, FUZZ_INPUT_MAX, file);
	fclose(file);
	printf("%s: %zu bytes\n", path, len);
	fflush(stdout);
	return LLVMFuzzerTestOneInput(bytes, len);
}

/* What was found once stays found: tests/fuzz/corpus/NAME. */
static int run_corpus(const char *name, uint8_t *bytes)
{
	char dir[256], path[512];
	struct dirent *entry;
	int rc = 0;
	DIR *at;

	snprintf(dir, sizeof(dir), "tests/fuzz/corpus/%s", name);
	at = opendir(dir);
	if (!at)
		return 0;
	while (rc == 0 && (entry = readdir(at)) != NULL) {
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		if (entry->d_name[0] != '.')
			rc = run_file(path, bytes);
	}
	closedir(at);
	return rc;
}

static int write_seeds(const char *dir, uint64_t count, make_fn make, uint8_t *bytes)
{
	char path[512];

	for (uint64_t seed = 1; seed <= count; seed++) {
		size_t len = make(bytes, seed);
		FILE *file;

		snprintf(path, sizeof(path), "%s/seed%llu", dir, (unsigned long long)seed);
		file = fopen(path, "wb");
		if (!file || fwrite(bytes, 1, len, file) != len || fclose(file) != 0) {
			perror(path);
			return 1;
		}
	}
	return 0;
}

static int run_seeds(const char *name, uint64_t first, uint64_t count, make_fn make, uint8_t *bytes)
{
	for (uint64_t seed = first; seed < first + count; seed++) {
		if ((seed - first) % ANNOUNCE_EVERY == 0) {
			printf("%s: seed %llu\n", name, (unsigned long long)seed);
			fflush(stdout);
		}
		(void)LLVMFuzzerTestOneInput(bytes, make(bytes, seed));
	}
	printf("%s: %llu inputs from seed %llu\n", name, (unsigned long long)count,
	       (unsigned long long)first);
	return 0;
}

int fuzz_main(const char *name, unsigned count, make_fn make, int argc, char **argv)
{
	uint8_t *bytes = malloc(FUZZ_INPUT_MAX);
	uint64_t inputs = (uint64_t)count * test_scale(), first = 1;
	int rc = 0;

	check(bytes != NULL);
	if (argc == 4 && strcmp(argv[1], "--seeds") == 0) {
		rc = write_seeds(argv[2], strtoull(argv[3], NULL, 0), make, bytes);
	} else if (argc > 2 && strcmp(argv[1], "--file") == 0) {
		for (int i = 2; i < argc && rc == 0; i++)
			rc = run_file(argv[i], bytes);
	} else {
		if (argc > 1)
			first = strtoull(argv[1], NULL, 0);
		else
			rc = run_corpus(name, bytes);
		if (argc > 2)
			inputs = strtoull(argv[2], NULL, 0);
		if (rc == 0)
			rc = run_seeds(name, first, inputs, make, bytes);
	}
	free(bytes);
	return rc;
}
