/* blinkfs sync DIR: everything that was done in a mounted volume becomes durable. */
#ifndef BLINKFS_SERVER_SYNC_H
#define BLINKFS_SERVER_SYNC_H

/* All of it is durable: 0; else an exit code, and a message has said why. */
int sync_directory(const char *dir);

/* argv[0] is "sync".  Returns the exit code. */
int sync_main(int argc, char **argv);

#endif
