/* blinkfs sync DIR: everything that was done in a mounted volume becomes durable. */
#ifndef BLINKFS_SERVER_SYNC_H
#define BLINKFS_SERVER_SYNC_H

/* argv[0] is "sync".  Returns the exit code. */
int sync_main(int argc, char **argv);

#endif
