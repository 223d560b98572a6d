/*
 * From backups to a volume.
 *
 *	restore_begin()     the device that becomes the volume: its superblocks are
 *	                    destroyed first, so that nothing unfinished can be mounted
 *	restore_apply()     a full backup, then incrementals, in order
 *	restore_log()       perhaps: an archive of the log with file data, from there on
 *	restore_finish()    an empty log, then the superblocks
 *
 * INV-RST-1: what is not the next piece is refused before anything of it is
 * written: another volume, another history, another base, another LSN.
 * Where the log lay may have changed since the backup; what it gave up is part of files
 * then.  restore_log() reads from the archive where it was at the LSN that it comes to
 * (backup_format.h), and restore_finish() writes it there and nowhere else.
 *
 * INV-RST-2: the volume begins a new history (backup_format.h), and its log is
 * empty and of a generation that was never used.
 *
 * All say on message() what is wrong.
 */
#ifndef BLINKFS_ENGINE_RESTORE_H
#define BLINKFS_ENGINE_RESTORE_H

#include "engine/backup_format.h"
#include "engine/volume.h"

struct restore;

/* What a backup file says of itself; -BE_NOVOLUME (no backup), -BE_TRUNCATED (unfinished). */
int backup_header_read(int fd, const char *name, struct disk_backup_header *out) must_check;
/* Reads a whole backup and compares every checksum. */
int backup_verify(int fd, const char *name) must_check;

int restore_begin(struct restore **out, struct device *dev) must_check;
/*
 * INV-RST-3: the log of a volume is where it was.  One that had its log on another device
 * gets a new one on `log_dev`, which is made as long as it was, with a UUID of its own,
 * so that no log of the saved volume is ever taken for it; `path` is what the superblock
 * says of it.  Without that call, or with it for a volume whose log is inside,
 * restore_apply() refuses.
 */
void restore_log_to(struct restore *restore, struct device *log_dev, const char *path);
/* -BE_ORDER: not the next piece.  -BE_NOLOG, -EINVAL: INV-RST-3. */
int restore_apply(struct restore *restore, int fd, const char *name) must_check;
/* Up to the last mtr that ends at or below `until` (UINT64_MAX: all there is). */
int restore_log(struct restore *restore, const char *dir, lsn_t until) must_check;
int restore_finish(struct restore *restore, lsn_t *lsn) must_check;
void restore_end(struct restore *restore); /* NULL is allowed; the device stays the caller's */

#endif
