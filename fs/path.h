/*
 * From an inode number back to a path, for messages about damage: directories
 * know their parent, a file's name has to be searched for.
 */
#ifndef BLINKFS_FS_PATH_H
#define BLINKFS_FS_PATH_H

#include "engine/volume.h"

#define PATH_TEXT_BYTES 1024u

/*
 * One of the paths of an inode, as it is found meanwhile, with '?' for bytes that
 * cannot be printed.  "" when there is none, or it is not found within bounds.
 * May wait; nothing latched, no epoch.
 */
void path_text(struct volume *volume, uint64_t ino, char text[PATH_TEXT_BYTES]);

#endif
