/*
 * How far the kernel reads ahead on the mount.
 */
#ifndef BLINKFS_SERVER_READAHEAD_H
#define BLINKFS_SERVER_READAHEAD_H

/*
 * One request's worth (WRITE_BYTES_MAX) instead of the kernel's 128 KiB: a READ
 * then waits for the medium once a MiB.  INIT can only lower it; the mount's
 * entry in /sys takes more, from root.  Best effort.
 */
void readahead_raise(const char *mount_dir);

#endif
