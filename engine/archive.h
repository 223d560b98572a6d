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
 * INV-ARCH-3: a log that moves within a mount (log_resize.h) begins a new generation at
 * a new LSN, and loses nothing between the two.  The file that says so, the first of
 * the new generation, is durable before the log's checkpoint blocks are, and after the
 * superblock has been told of the generation, which so belongs to this move alone.
 * Whichever of the two generations the next mount finds, its files are complete: if it
 * is the old one, the other's file is empty, and is removed.
 *
 *	crash while                     the next mount
 *	NAME.part is written            keeps its whole mtrs, adds what the log has
 *	its end is being written        the same
 *	before the rename               the same
 *	after it                        goes on in a new file of the new generation
 *	the log moves                   goes on with what it finds (INV-ARCH-3)
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

/*
 * The log, frozen and durable, moves (INV-ARCH-3).  begin archives what is missing and
 * keeps others from archiving until end, which is due if it was true; false: a round has
 * not ended in time.  next says that the log will have this generation and be at `geo`;
 * end finds out whether it has.  An error of the directory pauses the archive and does
 * not hinder the move.
 */
bool archive_move_begin(struct archive *archive) must_check;
void archive_move_next(struct archive *archive, uint64_t generation, const struct geometry *geo);
void archive_move_end(struct archive *archive);

struct archive_status {
	const char *dir;
	bool paused, data;
	lsn_t archived_lsn;  /* everything below is durable in the archive, gaps apart */
	lsn_t gap_from;      /* paused: from here on it is missing */
};
void archive_status(struct archive *archive, struct archive_status *status);

#endif
