/*
 * The log archive: everything that is written to the circular log, kept as a
 * sequence of files in a directory; on wish with the file data that it refers to.
 * backup_format.h has the files and which follows which.
 *
 *	   durable log --read--> NAME.part --synced--> the hold of the log moves on
 *	                            |
 *	                            +-- full, unmount, recovery: end in its header, synced,
 *	                                renamed NAME.log; the next file names that end
 *
 *	ON ---- error of the directory ----> PAUSED ---- it takes files again ----> ON,
 *	   message, counter, nothing is held           a file with ARCHIVE_GAP
 *
 * INV-ARCH-1: while it is on, no log space is reused, and with data no freed
 * block is given out, before what they held is durable in the archive; whoever
 * waits for space waits for the archive, and for nothing beyond it: an error lets
 * go at once.  So the archive never stops the volume, and what it lacks is named.
 * INV-ARCH-2: two files of one generation never hold different bytes for one LSN.
 * A crash leaves an unfinished file, whose whole mtrs up to the cut are kept; the
 * recovery that follows reads the rest from the log before it begins a new
 * generation.
 *
 *	crash while                     the next mount
 *	NAME.part is written            keeps its whole mtrs, adds what the log has
 *	its end is being written        the same
 *	before the rename               the same
 *	after it                        goes on in a new file of the new generation
 *	paused                          continues, if the log still has all; else a gap
 */
#ifndef BLINKFS_ENGINE_ARCHIVE_H
#define BLINKFS_ENGINE_ARCHIVE_H

#include "engine/volume.h"

#define ARCHIVE_FILE_BYTES (64u << 20) /* a file is ended when it is longer */

/* By volume_open().  A directory that cannot be used at all is an error, said on message(). */
int archive_open(struct archive **out, struct volume *volume, const char *dir,
		 bool data) must_check;
/* Recovery has found the cut; the log of the old generation can still be read. */
void archive_recovered(struct archive *archive, lsn_t cut);
/* The log is open for appending, nothing has been appended. */
void archive_begin(struct archive *archive);
/* The background thread. */
int archive_start(struct archive *archive) must_check;
void archive_stop(struct archive *archive);
/* Everything durable is archived and the file is ended; nothing is held afterwards. */
void archive_finish(struct archive *archive);
void archive_close(struct archive *archive); /* NULL is allowed */

/*
 * Waits until what is durable now has been archived, or the archive is paused.  Where
 * no thread runs, does the work.  May wait.
 */
void archive_catch_up(struct archive *archive);
/* One round of whoever archives; retry: also when it is paused, and not yet due. */
void archive_round(struct archive *archive, bool retry);
/* Somebody wants a checkpoint at `lsn`.  Where no thread runs, one round by the caller. */
void archive_help(struct archive *archive, lsn_t lsn);

struct archive_status {
	const char *dir;
	bool paused, data;
	lsn_t archived_lsn;  /* everything below is durable in the archive, gaps apart */
	lsn_t gap_from;      /* paused: from here on it is missing */
};
void archive_status(struct archive *archive, struct archive_status *status);

#endif
