/*
 * From a LOB back to whose it is, for messages about damage: no index leads there, so
 * inodes, then attributes, are searched.
 */
#ifndef BLINKFS_FS_OWNER_H
#define BLINKFS_FS_OWNER_H

#include "engine/volume.h"

#define OWNER_TEXT_BYTES 1536u

/*
 * "PATH, inode N" or "PATH, inode N, attribute NAME", as it is found meanwhile; what
 * nobody owns (any more) is named by its number.  May wait; nothing latched, no epoch.
 */
void owner_text(struct volume *volume, uint64_t lob, char text[OWNER_TEXT_BYTES]);

#endif
