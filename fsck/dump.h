/*
 * `blinkfs dump`: shows what is on the medium, of an unmounted or a mounted
 * volume.
 *
 *	dump [-r] super|log|page N|index NAME|inode N VOLUME
 *
 * Without -r pages are shown as they are in place, which is the state of the
 * last checkpoint or a little later; with -r the log is replayed in memory
 * first.  Of a mounted volume pages may be caught in the middle of a change:
 * such a page is reported and left out.
 */
#ifndef BLINKFS_FSCK_DUMP_H
#define BLINKFS_FSCK_DUMP_H

/*
 * argv[0] is "dump".  Returns an exit code: 0; 1, nothing found or damaged; 2, wrong
 * usage or the volume cannot be opened.
 */
int dump_main(int argc, char **argv);

#endif
