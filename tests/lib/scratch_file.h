/*
 * Files of tests: below TMPDIR, which tests/run.sh removes with all that a test that
 * crashed has left in it, or /tmp.
 */
#ifndef BLINKFS_TESTS_SCRATCH_FILE_H
#define BLINKFS_TESTS_SCRATCH_FILE_H

#define SCRATCH_PATH_BYTES 256

/* Any failure of these ends the program with a message: they are not what is tested. */
const char *scratch_folder(void);
/* An empty file, or folder, whose name is put into path. */
int scratch_file(char path[SCRATCH_PATH_BYTES]);
void scratch_dir(char path[SCRATCH_PATH_BYTES]);
void scratch_dir_remove(const char *path); /* with what is in it */
/* An empty file without a name, which goes with its descriptor. */
int scratch_file_unnamed(void);
/* In a folder that need not be there; -1 then. */
int scratch_file_in(const char *folder, char path[SCRATCH_PATH_BYTES]);

#endif
