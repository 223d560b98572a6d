/* A core over a volume in memory, for tests: opened, closed, crashed, opened again. */
#ifndef BLINKFS_TESTS_CORE_RIG_H
#define BLINKFS_TESTS_CORE_RIG_H

#include "fs/core.h"

struct rig {
	struct device *dev;     /* outlives the volume */
	struct volume *volume;
	struct core *core;
	uint32_t page_size;
	bool background;
	const char *archive_dir; /* NULL: no log archive */
};

/* Failures of these end the program: they are not what is tested. */
void rig_open(struct rig *rig, uint64_t size_bytes, uint32_t page_size, bool background);
/* The same with a log archive, of file data as well. */
void rig_open_archived(struct rig *rig, uint64_t size_bytes, uint32_t page_size, bool background,
		       const char *dir);
/* Closed in good order, or dead at once (what was written has arrived). */
void rig_reopen(struct rig *rig, bool crash);
void rig_reopen_read_only(struct rig *rig);
/* Reclaims everything that nobody uses. */
void rig_purge(struct rig *rig);
/* purge, volume_check(): the number of problems. */
uint64_t rig_problems(struct rig *rig);
/* Ends it; a problem found at the end ends the program. */
void rig_close(struct rig *rig);

extern const struct core_cred rig_cred;

/* Create with all look-ups forgotten, unless it says held.  They return the ino, 0 on failure. */
uint64_t rig_file(struct rig *rig, uint64_t parent, const char *name);
uint64_t rig_dir(struct rig *rig, uint64_t parent, const char *name);
uint64_t rig_held_file(struct rig *rig, uint64_t parent, const char *name);
/* The results of the core's calls. */
int rig_lookup(struct rig *rig, uint64_t parent, const char *name, struct core_attr *attr);
int rig_unlink(struct rig *rig, uint64_t parent, const char *name);
int rig_rmdir(struct rig *rig, uint64_t parent, const char *name);
int rig_link(struct rig *rig, uint64_t ino, uint64_t parent, const char *name);
int rig_rename(struct rig *rig, uint64_t old_parent, const char *old_name, uint64_t new_parent,
	       const char *new_name);
int rig_write(struct rig *rig, uint64_t ino, uint64_t offset, const void *buf, size_t len);
int rig_truncate(struct rig *rig, uint64_t ino, uint64_t size);
struct core_attr rig_attr(struct rig *rig, uint64_t ino);
/* Waits until the clock of the volume's times shows another one (INV-OS-4). */
void rig_tick(void);

/* len bytes that depend on the seed. */
void rig_fill(uint8_t *buf, size_t len, uint64_t seed);

#endif
