/* Offsets of the on-disk structs, asserted so that no edit moves a byte unnoticed. */
#include "engine/format.h"

#include <stddef.h>

#define AT(type, member, offset)                                                       \
	static_assert(offsetof(struct type, member) == (offset), #type "." #member)

AT(disk_superblock, crc, 8);
AT(disk_superblock, uuid, 40);
AT(disk_superblock, label, 56);
AT(disk_superblock, update_gen, 120);
AT(disk_superblock, block_count, 144);
AT(disk_superblock, page_size, 152);
AT(disk_superblock, dw_start, 168);
AT(disk_superblock, log_start, 184);
AT(disk_superblock, groups_start, 216);
AT(disk_superblock, root, 232);
AT(disk_superblock, hash_seed, 296);
AT(disk_superblock, root_ino, 320);
AT(disk_superblock, log_reached, 1024);
AT(disk_superblock, log_path, 1048);
AT(disk_page, pageno, 8);
AT(disk_page, lsn, 16);
AT(disk_tree_page, right, 32);
AT(disk_tree_page, slot_count, 48);
AT(disk_tree_page, low, 56);
AT(disk_tree_page, high, 88);
AT(disk_inode, size, 16);
AT(disk_inode, atime, 64);
AT(disk_inode, dead_first, 112);
AT(disk_inode, entries, 144);
AT(disk_checkpoint, lsn, 24);
AT(disk_checkpoint, sequence, 48);
AT(disk_checkpoint, tally, 56);
AT(disk_log_header, size_bytes, 32);
AT(disk_log_header, volume, 52);
