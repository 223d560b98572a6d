/* The commands: blinkfs backup, blinkfs restore.  argv[0] is their name; exit codes. */
#ifndef BLINKFS_SERVER_BACKUP_H
#define BLINKFS_SERVER_BACKUP_H

int backup_main(int argc, char **argv);
int restore_main(int argc, char **argv);

#endif
