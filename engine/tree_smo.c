/* Which protocol changes the structure of indexes: names, and the switch. */
#include "engine/tree_internal.h"

static const char *const names[SMO_MODE_COUNT] = {
	[SMO_BLINK] = "blink",
	[SMO_INDEX_LATCH] = "index-latch",
};

const char *smo_mode_name(enum smo_mode mode)
{
	check(mode < SMO_MODE_COUNT);
	return names[mode];
}

bool smo_mode_parse(const char *name, enum smo_mode *mode)
{
	for (unsigned i = 0; i < SMO_MODE_COUNT; i++) {
		if (strcmp(name, names[i]) == 0) {
			*mode = (enum smo_mode)i;
			return true;
		}
	}
	return false;
}

/*
 * Nothing has to come to rest for it.  A page that one protocol left INCOMPLETE is
 * completed under the other, and searches of either move right (tree_classic.c has
 * the argument).
 */
void volume_set_smo(struct volume *volume, enum smo_mode mode)
{
	check(mode < SMO_MODE_COUNT);
	atomic_store_explicit(&volume->smo, mode, memory_order_relaxed);
}

enum smo_mode volume_smo(struct volume *volume)
{
	return (enum smo_mode)atomic_load_explicit(&volume->smo, memory_order_relaxed);
}
