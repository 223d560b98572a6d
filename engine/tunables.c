#include "engine/tunables.h"

#include <string.h>

static const char *const names[TUNABLE_COUNT] = {
#define X(name, text) #name,
#include "engine/tunables.def"
#undef X
};

void tunables_init(struct tunables *tunables)
{
	for (unsigned i = 0; i < TUNABLE_COUNT; i++)
		atomic_init(&tunables->on[i], true);
}

const char *tunable_name(enum tunable tunable)
{
	return names[tunable];
}

enum tunable tunable_find(const char *name)
{
	unsigned i = 0;

	while (i < TUNABLE_COUNT && strcmp(names[i], name) != 0)
		i++;
	return (enum tunable)i;
}
