/*
 * Structures of the volume as text, one entry a line.
 */
#ifndef BLINKFS_FSCK_DUMP_TEXT_H
#define BLINKFS_FSCK_DUMP_TEXT_H

#include "fsck/raw.h"

#include <stdio.h>

void dump_super(FILE *out, const struct raw_volume *raw);
/* Any page, good or not; *good: it may be used. */
void dump_page(FILE *out, const struct raw_volume *raw, uint64_t pageno, const void *page);
/* A leaf entry of an index. */
void dump_entry(FILE *out, unsigned index, const struct raw_entry *entry);
/* The whole of an inode record. */
void dump_inode_record(FILE *out, uint64_t ino, const struct raw_entry *entry);
/* One record of the log. */
struct log_rec;
void dump_log_record(FILE *out, const struct log_rec *record);

#endif
