/*
 * Small scripts of file system operations, run on a core: readable workloads
 * for crash and fault tests.
 *
 *	create P | mkdir P | symlink P TARGET | link P Q | unlink P | rmdir P
 *	whiteout P Q             rename that leaves one
 *	rename P Q | exchange P Q | write P OFFSET LEN SEED | append P LEN SEED | trunc P SIZE
 *	copy P Q                 all of P over the beginning of Q
 *	falloc P OFFSET LEN | punch P OFFSET LEN | zero P OFFSET LEN
 *	fallock P OFFSET LEN     falloc that keeps the size
 *	setx P NAME LEN SEED | rmx P NAME | chmod P OCTAL | acl P MASK | dacl P MASK
 *	tmplink P LEN SEED       a file made without a name, written, then named P
 *	hold P | drop P          keep a look-up (as an open file does), forget it
 *	fsync P | fdatasync P | sync   durable: everything before
 *	flush | purge            write back and checkpoint; reclaim
 *	writeback                write pages back, as a pool that needs frames does
 *	checkpoint               as far as what was written back allows
 *	advance                  what was freed becomes free to use, as far as it may
 *	scrub                    flush, and zero what the log no longer needs
 *	resize KIB               another size for the log
 *	grow KIB                 another size for the volume
 *	trim                     all free space goes back to the device
 *	settle                   mark, write-back, and what was freed is free
 *	lap BYTES                the log goes on until so many are left of its lap
 *
 * Statements are separated by ';'.  Paths have no leading slash; the root is ".".
 * The bytes of a SEED are those of rig_fill().
 */
#ifndef BLINKFS_TESTS_SCRIPT_H
#define BLINKFS_TESTS_SCRIPT_H

#include "fs/core.h"

#define SCRIPT_STATEMENTS_MAX 64u

struct script {
	char *text;                            /* owned; statements end in NUL */
	const char *statement[SCRIPT_STATEMENTS_MAX];
	unsigned count;
};

void script_parse(struct script *script, const char *text);
void script_free(struct script *script);
/* Runs one statement; the operation's own result. */
int script_run(struct core *core, const char *statement);
/* Does success mean that everything before is durable? */
bool script_is_sync(const char *statement);

/*
 * Everything that a user can see, as text: one line a name, sorted: path, type and
 * mode, nlink, size, xattrs, CRC of the contents.  Not times, and not the number of
 * blocks, which purge lowers after the operation.  NULL when something cannot be
 * read (a message says what).  The caller frees it.
 */
char *core_snapshot(struct core *core);

#endif
