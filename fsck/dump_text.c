/* Structures of the volume as text: see dump_text.h. */
#include "fsck/dump_text.h"

#include "fsck/text.h"

#include "engine/base/error.h"
#include "engine/page.h"
#include "log/log.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

/* ------------------------------------------------------------------- super */

static void print_uuid(FILE *out, const char *name, const uint8_t uuid[16])
{
	fprintf(out, "%-14s", name);
	for (unsigned i = 0; i < 16; i++)
		fprintf(out, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
	fputc('\n', out);
}

static void print_number(FILE *out, const char *name, uint64_t value)
{
	fprintf(out, "%-14s%" PRIu64 "\n", name, value);
}

void dump_super(FILE *out, const struct raw_volume *raw)
{
	const struct disk_superblock *sb = &raw->sb;
	uint32_t state = le32_get(sb->state);

	print_uuid(out, "uuid", sb->uuid);
	fprintf(out, "%-14s%.64s\n", "label", (const char *)sb->label);
	print_number(out, "version", le32_get(sb->version));
	fprintf(out, "%-14s%#" PRIx64 " %#" PRIx64 " %#" PRIx64 "\n", "features",
		le64_get(sb->compat), le64_get(sb->ro_compat), le64_get(sb->incompat));
	fprintf(out, "%-14s%s%s\n", "state", state & SB_CLEAN ? "clean" : "not clean",
		state & SB_DAMAGED ? ", damaged" : "");
	print_number(out, "update_gen", le64_get(sb->update_gen));
	print_number(out, "mount_gen", le64_get(sb->mount_gen));
	print_number(out, "log_gen", le64_get(sb->log_gen));
	print_number(out, "block_count", raw->geo.block_count);
	print_number(out, "page_size", raw->geo.page_size);
	print_number(out, "group_blocks", raw->geo.group_blocks);
	print_number(out, "group_count", raw->geo.group_count);
	print_number(out, "dw_start", raw->geo.dw_start);
	print_number(out, "dw_slots", raw->geo.dw_slots);
	print_number(out, "log_start", raw->geo.log_start);
	print_number(out, "log_bytes", raw->geo.log_bytes);
	print_uuid(out, "log_uuid", sb->log_uuid);
	if (raw->geo.log_external)
		fprintf(out, "%-14s%s\n", "log_path", (const char *)sb->log_path);
	print_number(out, "log_reached", le64_get(sb->log_reached));
	if (raw->geo.other.start)
		fprintf(out, "%-14s%" PRIu64 " %" PRIu64 "\n", "log_other", raw->geo.other.start,
			raw->geo.other.blocks);
	print_number(out, "groups_start", raw->geo.groups_start);
	print_number(out, "system_page", raw->geo.system_page);
	for (unsigned i = 0; i < INDEX_COUNT; i++)
		fprintf(out, "root %-9s%" PRIu64 "\n", raw_index_names[i], le64_get(sb->root[i]));
	print_number(out, "root_ino", le64_get(sb->root_ino));
	print_number(out, "created", le64_get(sb->created_sec));
}

/* ----------------------------------------------------------------- entries */

static void print_name(FILE *out, const uint8_t *name, size_t len)
{
	char text[TEXT_NAME_BYTES];

	text_name(text, name, len <= NAME_BYTES_MAX ? len : NAME_BYTES_MAX);
	fputs(text, out);
}

static void print_time(FILE *out, const char *name, const struct disk_time *time)
{
	fprintf(out, " %s %" PRId64 ".%09" PRIu32, name, (int64_t)le64_get(time->sec),
		le32_get(time->nsec));
}

static void entry_dirent(FILE *out, const struct raw_entry *e)
{
	struct disk_dirent dirent;
	uint64_t suffix = be64_get(e->key.bytes + 8);

	memcpy(&dirent, e->value, sizeof(dirent));
	fprintf(out, "dir %" PRIu64 " hash %#" PRIx64 ".%" PRIu64 " -> inode %" PRIu64 " type %u ",
		be64_get(e->key.bytes), suffix >> 7, suffix & 127, le64_get(dirent.child),
		dirent.type);
	print_name(out, e->value + sizeof(dirent), e->value_len - sizeof(dirent));
}

static void entry_inode(FILE *out, const struct raw_entry *e)
{
	struct disk_inode inode;

	memcpy(&inode, e->value, sizeof(inode));
	fprintf(out,
		"inode %" PRIu64 " mode %#" PRIo32 " nlink %" PRIu32 " uid %" PRIu32 " gid %" PRIu32
		" size %" PRIu64 " blocks %" PRIu64 " lob %" PRIu64 " inline %u",
		be64_get(e->key.bytes), le32_get(inode.mode), le32_get(inode.nlink),
		le32_get(inode.uid), le32_get(inode.gid), le64_get(inode.size),
		le64_get(inode.blocks), le64_get(inode.lob),
		(unsigned)(e->value_len - sizeof(inode)));
}

static void entry_xattr(FILE *out, const struct raw_entry *e)
{
	struct disk_xattr xattr;
	unsigned behind = e->value_len - (unsigned)sizeof(xattr);

	memcpy(&xattr, e->value, sizeof(xattr));
	fprintf(out, "inode %" PRIu64 " length %" PRIu32 " lob %" PRIu64 " ",
		be64_get(e->key.bytes), le32_get(xattr.value_len), le64_get(xattr.lob));
	print_name(out, e->value + sizeof(xattr),
		   xattr.name_len < behind ? xattr.name_len : behind);
}

static void entry_lob(FILE *out, const struct raw_entry *e)
{
	uint64_t last = be64_get(e->key.bytes + 8);
	struct disk_extent extent;

	memcpy(&extent, e->value, sizeof(extent));
	fprintf(out, "lob %" PRIu64 " file blocks %" PRIu64 "..%" PRIu64 " at block %" PRIu64 "%s",
		be64_get(e->key.bytes), last + 1 - le32_get(extent.length), last,
		le64_get(extent.start), extent.flags & EXTENT_UNWRITTEN ? " unwritten" : "");
}

static void entry_share(FILE *out, const struct raw_entry *e)
{
	uint64_t last = be64_get(e->key.bytes);
	struct disk_share share;

	memcpy(&share, e->value, sizeof(share));
	fprintf(out, "blocks %" PRIu64 "..%" PRIu64 " references %" PRIu32,
		last + 1 - le32_get(share.length), last, le32_get(share.references));
}

static void entry_purge(FILE *out, const struct raw_entry *e)
{
	static const char *const kinds[] = {"?", "orphan", "lob", "dead", "extents"};
	struct disk_purge purge;

	memcpy(&purge, e->value, sizeof(purge));
	fprintf(out,
		"purge %" PRIu64 " %s inode %" PRIu64 " lob %" PRIu64 " blocks [%" PRIu64
		", %" PRIu64 ") extents %" PRIu32,
		be64_get(e->key.bytes), kinds[purge.kind < array_count(kinds) ? purge.kind : 0],
		le64_get(purge.ino), le64_get(purge.lob), le64_get(purge.first),
		le64_get(purge.end), le32_get(purge.count));
}

static void entry_bytes(FILE *out, const struct raw_entry *e)
{
	char text[2 * KEY_BYTES_MAX + 1];

	text_hex(text, e->key.bytes, e->key.len);
	fprintf(out, "key %s, %u bytes", text, e->value_len);
}

void dump_entry(FILE *out, unsigned index, const struct raw_entry *e)
{
	static const struct {
		unsigned least;
		void (*print)(FILE *out, const struct raw_entry *e);
	} kinds[INDEX_COUNT] = {
		[INDEX_DIRENTS] = {sizeof(struct disk_dirent), entry_dirent},
		[INDEX_INODES] = {sizeof(struct disk_inode), entry_inode},
		[INDEX_XATTRS] = {sizeof(struct disk_xattr), entry_xattr},
		[INDEX_LOB] = {sizeof(struct disk_extent), entry_lob},
		[INDEX_SHARES] = {sizeof(struct disk_share), entry_share},
		[INDEX_PURGE] = {sizeof(struct disk_purge), entry_purge},
	};
	bool known = index < INDEX_COUNT && kinds[index].print &&
		     e->key.len == raw_key_bytes[index] && e->value_len >= kinds[index].least;

	(known ? kinds[index].print : entry_bytes)(out, e);
	fputc('\n', out);
}

void dump_inode_record(FILE *out, uint64_t ino, const struct raw_entry *e)
{
	struct disk_inode inode;

	dump_entry(out, INDEX_INODES, e);
	if (e->value_len < sizeof(inode))
		return;
	memcpy(&inode, e->value, sizeof(inode));
	fprintf(out,
		"inode %" PRIu64 " rdev %#" PRIx32 " flags %#" PRIx32 " parent %" PRIu64
		" change %" PRIu64 " projid %" PRIu32 " xattrs %" PRIu32 " entries %" PRIu64 "\n",
		ino, le32_get(inode.rdev), le32_get(inode.flags), le64_get(inode.parent),
		le64_get(inode.change), le32_get(inode.projid), le32_get(inode.xattr_count),
		le64_get(inode.entries));
	fprintf(out, "inode %" PRIu64 " dead [%" PRIu64 ", %" PRIu64 ") purge key %" PRIu64 "\n",
		ino, le64_get(inode.dead_first), le64_get(inode.dead_end),
		le64_get(inode.purge_key));
	fprintf(out, "inode %" PRIu64, ino);
	print_time(out, "atime", &inode.atime);
	print_time(out, "mtime", &inode.mtime);
	print_time(out, "ctime", &inode.ctime);
	print_time(out, "btime", &inode.btime);
	fputc('\n', out);
}

/* ------------------------------------------------------------------- pages */

static void print_fence(FILE *out, const char *name, const struct raw_key *key)
{
	char text[2 * KEY_BYTES_MAX + 1];

	text_hex(text, key->bytes, key->len);
	fprintf(out, " %s %s", name, key->len ? text : "-");
}

static void print_tree_page(FILE *out, const struct raw_volume *raw, const void *page)
{
	const struct disk_page *head = raw_head(page);
	unsigned slots = raw_slots(page);
	struct raw_key low, high;

	raw_low(page, &low);
	raw_high(page, &high);
	fprintf(out, "index %s level %u%s%s right %" PRIu64 " slots %u room %" PRIu32,
		raw_index_names[head->index], head->level,
		head->flags & PAGE_INCOMPLETE ? " incomplete" : "",
		head->flags & PAGE_DEAD ? " dead" : "", raw_right(page), slots,
		page_room(page, raw->geo.page_size));
	print_fence(out, "low", &low);
	print_fence(out, "high", &high);
	fputc('\n', out);
	for (unsigned slot = 0; slot < slots; slot++) {
		struct raw_entry entry;

		raw_entry(page, slot, &entry);
		fprintf(out, "%5u ", slot);
		if (head->level == 0) {
			dump_entry(out, head->index, &entry);
		} else {
			print_fence(out, "from", &entry.key);
			fprintf(out, " -> page %" PRIu64 "\n", raw_child(page, slot));
		}
	}
}

static void print_bitmap_page(FILE *out, const struct raw_volume *raw, const void *page)
{
	const struct disk_bitmap_page *bitmap = page;
	const uint8_t *bits = (const uint8_t *)(bitmap + 1);
	uint64_t first = raw->geo.groups_start +
			 (uint64_t)le32_get(bitmap->group) * raw->geo.group_blocks;
	uint32_t used = 0, count = raw->geo.group_blocks;

	for (uint32_t i = 0; i < count / 8; i++)
		used += (uint32_t)__builtin_popcount(bits[i]);
	fprintf(out, "group %" PRIu32 " used %" PRIu32 " of %" PRIu32 "\n", le32_get(bitmap->group),
		used, count);
	for (uint32_t from = 0, to; from < count; from = to) {
		bool set = bits[from / 8] >> (from % 8) & 1;

		for (to = from; to < count && (bits[to / 8] >> (to % 8) & 1) == set; to++)
			;
		if (set)
			fprintf(out, "used %" PRIu64 "..%" PRIu64 "\n", first + from,
				first + to - 1);
	}
}

static void print_system_page(FILE *out, const void *page)
{
	static const char *const names[] = {"inode", "lob", "purge", "txn"};
	const struct disk_system_page *system = page;

	for (unsigned i = 0; i < COUNTER_COUNT; i++)
		if (i < array_count(names))
			fprintf(out, "next %s %" PRIu64 "\n", names[i],
				le64_get(system->counter[i]));
		else if (le64_get(system->counter[i]))
			fprintf(out, "next %u %" PRIu64 "\n", i, le64_get(system->counter[i]));
}

void dump_page(FILE *out, const struct raw_volume *raw, uint64_t pageno, const void *page)
{
	const struct disk_page *head = page;
	const char *why = "good";
	int rc = page_verify(page, raw->geo.page_size, pageno, raw->tag, &why);

	fprintf(out, "page %" PRIu64 " type %u lsn %" PRIu64 " crc %#" PRIx32 ": %s%s%s\n",
		le64_get(head->pageno), head->type, le64_get(head->lsn), le32_get(head->crc),
		rc ? error_text(rc) : "", rc ? ": " : "", why);
	if (page_verify_structure(page, raw->geo.page_size, NULL))
		return;
	if (head->type == PAGE_TREE)
		print_tree_page(out, raw, page);
	else if (head->type == PAGE_BITMAP)
		print_bitmap_page(out, raw, page);
	else
		print_system_page(out, page);
}

/* --------------------------------------------------------------------- log */

static const char *record_name(uint8_t type)
{
	static const char *const names[REC_LIMIT] = {
		[REC_MARK] = "mark",
		[REC_PAD] = "pad",
		[REC_DATA] = "data",
		[REC_FREE_PAGE] = "free_page",
		[REC_LOG_OTHER] = "log_other",
		[REC_VOLUME_SIZE] = "volume_size",
		[REC_REQUEST] = "request",
		[REC_NONCE] = "nonce",
		[REC_PAGE_INIT] = "page_init",
		[REC_LOAD] = "load",
		[REC_INSERT] = "insert",
		[REC_UPDATE] = "update",
		[REC_PATCH] = "patch",
		[REC_DELETE] = "delete",
		[REC_SPLIT_LEFT] = "split_left",
		[REC_FLAGS] = "flags",
		[REC_FENCE] = "fence",
		[REC_BITS] = "bits",
		[REC_COUNTER] = "counter",
	};

	return type < REC_LIMIT && names[type] ? names[type] : "unknown";
}

void dump_log_record(FILE *out, const struct log_rec *record)
{
	uint64_t first;

	fprintf(out, "  %s", record_name(record->type));
	if (record->type == REC_MARK && record->len == 24)
		fprintf(out, " own %" PRIu64 " epoch %" PRIu64 " durable %" PRIu64,
			le64_get(*(const le64 *)record->body),
			le64_get(*(const le64 *)(record->body + 8)),
			le64_get(*(const le64 *)(record->body + 16)));
	else if ((record->type >= REC_PAGE_INIT || record->type == REC_FREE_PAGE) &&
		 varint_get(record->body, record->len, &first))
		fprintf(out, " page %" PRIu64, first);
	else if (record->type == REC_DATA && varint_get(record->body, record->len, &first))
		fprintf(out, " block %" PRIu64, first);
	fprintf(out, ", %zu bytes\n", record->len);
}
