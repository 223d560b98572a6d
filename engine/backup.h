/*
 * Backup of a volume that is in use, as seen by the server.  backup_format.h has
 * the file, README.md the argument.
 *
 *	1. hold         freed blocks stay as they are (INV-LOG-7), the log is kept
 *	2. flush        everything below LSN c is in place
 *	3. pages        every metadata page is copied once, each as of some moment; a
 *	                thread gathers the log from c on in memory meanwhile
 *	4. e            the log is durable, data included, up to e; it is let go
 *	5. redo         the copies are brought to e
 *	6. data         the blocks that the leaves of the lob index name, as of e
 *	7. let go       the freed blocks; then the header is written: it is a backup
 *
 * The result is the state at e, which lies between the call and its return.
 * After step 4 nothing holds the log; from 1 to 6 freed blocks are not given out,
 * so a volume that is full may answer ENOSPC, which is then the truth.
 *
 * INV-BAK-4: the superblock that is copied says where the log was at e, and the log from
 * c to e is one stretch of one generation: no resize of the log is under way in steps
 * 1 to 4 (log_resize_forbid()); one that is, is waited for; one that comes is refused.
 *
 * INV-BAK-1: whatever way backup_run() ends, nothing is held afterwards.
 * INV-BAK-2: nobody who writes to the volume ever waits for the backup file.
 */
#ifndef BLINKFS_ENGINE_BACKUP_H
#define BLINKFS_ENGINE_BACKUP_H

#include "engine/volume.h"

struct backup_progress {
	uint64_t pages;        /* copied so far */
	uint64_t blocks;       /* of data, copied so far */
	uint64_t bytes;        /* of the file */
	lsn_t lsn;             /* e; 0 = not known yet */
	uint64_t bad_blocks;
};

struct backup_params {
	int fd;                /* of an empty file, to read and write; its offset is not used */
	lsn_t since;           /* 0: full; else what has not changed since is left out */
	uint8_t base_id[16];
	uint64_t bytes_per_second; /* of data read; 0 = as fast as it goes */
	/* Asked often; true: give up.  Both may be NULL. */
	bool (*cancelled)(void *arg);
	void (*progress)(void *arg, const struct backup_progress *progress);
	void *arg;
};

/*
 * 0: the file is complete and durable.  -EBUSY: another one is running;
 * -EROFS; -ECANCELED; -EINVAL: `since` lies in the future; -EFBIG: more log was
 * written while pages were copied than memory is spared for; or an error of the
 * file or the volume.
 */
int backup_run(struct volume *volume, const struct backup_params *params,
	       struct backup_progress *result) must_check;

#endif
