/*
 * How far the kernel reads ahead on the mount.
 */
#ifndef BLINKFS_SERVER_READAHEAD_H
#define BLINKFS_SERVER_READAHEAD_H

/*
 * Several requests of WRITE_BYTES_MAX instead of the kernel's 128 KiB: they are in
 * work side by side, so that the medium is busy while others are summed and copied.
 * INIT can only lower it; the mount's entry in /sys takes more, from root.  Best effort.
 */
void readahead_raise(const char *mount_dir);

#endif
