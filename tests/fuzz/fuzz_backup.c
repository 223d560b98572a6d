/*
 * Fuzzes what comes back from elsewhere: a full backup, an incremental one, and the log
 * archive with file data.  Bytes of them are changed, the checksums put right again or
 * not, files cut short; then a volume is restored from all of it.
 *
 * What is promised:
 *
 *	refused    nothing can be mounted afterwards
 *	restored   it is a volume; how good a one, image_use.h finds out
 *
 * The input is a list of edits of 6 bytes: u16 which part (of those that base_make()
 * found), u16 offset in it, u8 how, u8 value.
 *
 *	how & 1   a bit is flipped, else the byte is replaced
 *	how & 2   (one in four with 4) the checksum stays as it is
 *	how & 8   (one in four with 16) of a page the page's own checksum stays as it is
 *	how >= 250   the file ends here
 *
 * With libFuzzer: make fuzz.  Else main() runs seeded inputs (fuzz_main.h).
 */
#include "engine/archive_dir.h"
#include "engine/backup.h"
#include "engine/base/crc32c.h"
#include "engine/base/error.h"
#include "engine/base/fileio.h"
#include "engine/base/message.h"
#include "engine/page.h"
#include "engine/restore.h"
#include "log/log_internal.h"
#include "tests/fuzz/fuzz_main.h"
#include "tests/fuzz/image_use.h"
#include "tests/lib/core_rig.h"
#include "tests/lib/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define EDIT_BYTES 6u
#define EDITS_MAX 64u
#define VOLUME_BYTES (8u << 20)
#define TARGET_BYTES (48u << 20) /* as far as a hostile backup can make the target grow */
#define PAGE 4096u
#define FILES_MAX 16u
#define PARTS_MAX 4096u
#define HEADER_USED 256u         /* the rest of these is reserved */

/* The first two are the backups, the others lie in the directory. */
struct file {
	char name[ARCHIVE_NAME_BYTES + 8];
	int fd;
	uint8_t *good, *bytes;   /* as it was made, as it is now */
	size_t good_len, len;
	bool changed;
};

enum kind { HEADER, CHUNK, BLOCKS, SUPER, ARCHIVE, MTR, DATA };

struct part {
	struct file *file;
	enum kind kind;
	size_t at, len;
	size_t chunk;            /* of BLOCKS and SUPER: where the chunk's head is */
	uint64_t generation;     /* of an MTR */
};

struct base {
	char dir[256];
	struct file file[FILES_MAX];
	unsigned files;
	struct part part[PARTS_MAX];
	unsigned parts;
};

static struct base *base;

/* ------------------------------------------------------------------ the volume */

static void write_some(struct rig *rig, uint64_t ino, uint64_t offset, size_t len)
{
	uint8_t buf[40000];

	rig_fill(buf, len, ino + offset);
	check(rig_write(rig, ino, offset, buf, len) == 0);
}

/* Names as image_use.c knows some of them. */
static void make_some(struct rig *rig, const char *suffix, unsigned files)
{
	char name[64];
	uint64_t ino, dir;

	snprintf(name, sizeof(name), "dir%s", suffix);
	dir = rig_dir(rig, INO_ROOT, name);
	snprintf(name, sizeof(name), "small%s", suffix);
	ino = rig_file(rig, INO_ROOT, name);
	check(dir && ino && rig_write(rig, ino, 0, "hello", 5) == 0);
	check(core_setxattr(rig->core, VIEW_BASE, ino, "user.long", name, 20, 0) == 0);
	snprintf(name, sizeof(name), "big%s", suffix);
	ino = rig_file(rig, INO_ROOT, name);
	write_some(rig, ino, 0, 40000);
	write_some(rig, ino, 100000, 5000);
	for (unsigned i = 0; i < files; i++) {
		snprintf(name, sizeof(name), "a name that takes some room in its leaf %u", i);
		check(rig_file(rig, dir, name) != 0);
	}
	check(rig_truncate(rig, ino, 20000) == 0);
}

static void remove_some(struct rig *rig, const char *suffix, unsigned files)
{
	struct core_attr attr;
	char name[64];

	snprintf(name, sizeof(name), "dir%s", suffix);
	check(rig_lookup(rig, INO_ROOT, name, &attr) == 0);
	for (unsigned i = 0; i < files; i++) {
		snprintf(name, sizeof(name), "a name that takes some room in its leaf %u", i);
		check(rig_unlink(rig, attr.ino, name) == 0);
	}
	rig_purge(rig);
}

static void backup(struct rig *rig, struct file *file, const struct file *before)
{
	struct backup_params params = {.fd = memfd_create("backup", MFD_CLOEXEC)};
	struct backup_progress done;
	struct disk_backup_header head;

	check(params.fd >= 0);
	if (before) {
		check(backup_header_read(before->fd, "backup", &head) == 0);
		params.since = le64_get(head.lsn);
		memcpy(params.base_id, head.id, sizeof(params.base_id));
	}
	check(backup_run(rig->volume, &params, &done) == 0);
	file->fd = params.fd;
	snprintf(file->name, sizeof(file->name), before ? "incremental" : "full");
}

/* ------------------------------------------------------------- files and parts */

static void load(struct file *file)
{
	off_t len = lseek(file->fd, 0, SEEK_END);

	check(len > 0);
	file->good_len = file->len = (size_t)len;
	file->good = malloc(file->len);
	file->bytes = malloc(file->len);
	check(file->good && file->bytes);
	check(file_read_at(file->fd, file->good, file->len, 0) == 0);
	memcpy(file->bytes, file->good, file->len);
}

/* Only what is of the input: what is not changed stays open and as it is. */
static void store(struct file *file)
{
	check(ftruncate(file->fd, 0) == 0);
	check(file_write_at(file->fd, file->bytes, file->len, 0) == 0);
}

static struct part *add_part(struct file *file, enum kind kind, size_t at, size_t len)
{
	struct part *part = &base->part[base->parts];

	check(base->parts < PARTS_MAX);
	base->parts++;
	*part = (struct part){.file = file, .kind = kind, .at = at, .len = len};
	return part;
}

static void find_chunks(struct file *file)
{
	size_t at = BACKUP_HEADER_BYTES;

	add_part(file, HEADER, 0, HEADER_USED);
	while (at < file->len) {
		const struct disk_backup_chunk *chunk = (const void *)(file->good + at);
		uint32_t type = le32_get(chunk->type), count = le32_get(chunk->count);
		size_t data = at + sizeof(*chunk);

		add_part(file, CHUNK, at, sizeof(*chunk));
		if (type == BACKUP_SUPER)
			add_part(file, SUPER, data, sizeof(struct disk_superblock))->chunk = at;
		for (uint32_t i = 0; type != BACKUP_SUPER && type != BACKUP_END && i < count; i++)
			add_part(file, BLOCKS, data + (size_t)i * BLOCK_SIZE, BLOCK_SIZE)->chunk =
				at;
		at = data + (type == BACKUP_END ? 0 : (size_t)count * BLOCK_SIZE);
	}
}

static void find_mtrs(struct file *file)
{
	const struct disk_archive_header *head = (const void *)file->good;
	uint64_t generation = le64_get(head->generation);
	lsn_t first = le64_get(head->first);
	size_t at = ARCHIVE_HEADER_BYTES;
	struct log_mtr mtr;

	add_part(file, ARCHIVE, 0, HEADER_USED);
	if (strstr(file->name, ".data")) {
		if (file->len > at)
			add_part(file, DATA, at, file->len - at);
		return;
	}
	while (log_parse(generation, first + at - ARCHIVE_HEADER_BYTES, file->good + at,
			 file->len - at, &mtr)) {
		if (mtr.records_bytes)
			add_part(file, MTR, at, mtr.records_bytes)->generation = generation;
		at += mtr.end - mtr.start;
	}
}

static void load_archive(void)
{
	struct dirent *entry;
	DIR *dir = opendir(base->dir);

	check(dir != NULL);
	while ((entry = readdir(dir)) != NULL) {
		struct file *file = &base->file[base->files];

		if (entry->d_name[0] == '.')
			continue;
		check(base->files < FILES_MAX && strlen(entry->d_name) < sizeof(file->name));
		base->files++;
		memcpy(file->name, entry->d_name, strlen(entry->d_name) + 1);
		file->fd = openat(dirfd(dir), file->name, O_RDWR | O_CLOEXEC);
		check(file->fd >= 0);
		load(file);
	}
	closedir(dir);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct file *)a)->name, ((const struct file *)b)->name);
}

static void remove_dir(void)
{
	char path[sizeof(base->dir) + sizeof(base->file[0].name) + 1];

	for (unsigned i = 2; i < base->files; i++) {
		snprintf(path, sizeof(path), "%s/%s", base->dir, base->file[i].name);
		unlink(path);
	}
	rmdir(base->dir);
}

/*
 * The log between and behind the backups: changes of pages that are freed, of files, a
 * mount that ended and one that died.
 */
static void base_make(void)
{
	const char *tmp = getenv("TMPDIR");
	struct rig rig;

	base = calloc(1, sizeof(*base));
	check(base != NULL);
	snprintf(base->dir, sizeof(base->dir), "%.200s/blinkfs-fuzz.XXXXXX", tmp ? tmp : "/tmp");
	check(mkdtemp(base->dir) != NULL);
	rig_open_archived(&rig, VOLUME_BYTES, PAGE, false, base->dir);
	make_some(&rig, "", 60);
	backup(&rig, &base->file[0], NULL);
	make_some(&rig, "2", 60);
	backup(&rig, &base->file[1], &base->file[0]);
	remove_some(&rig, "2", 60);
	rig_reopen(&rig, false);
	make_some(&rig, "3", 30);
	check(volume_sync(rig.volume) == 0);
	rig_reopen(&rig, true);
	remove_some(&rig, "3", 30);
	rig_close(&rig);
	base->files = 2;
	load(&base->file[0]);
	load(&base->file[1]);
	load_archive();
	atexit(remove_dir);
	qsort(base->file + 2, base->files - 2, sizeof(base->file[0]), by_name);
	for (unsigned i = 0; i < base->files; i++)
		i < 2 ? find_chunks(&base->file[i]) : find_mtrs(&base->file[i]);
	check(base->files >= 6 && base->parts > 100);
}

/* ----------------------------------------------------------------------- edits */

static void change(uint8_t *at, uint8_t how, uint8_t value)
{
	*at = how & 1 ? *at ^ (uint8_t)(1u << value % 8) : value;
}

/* The CRC of [at, at + len), in which it stands itself. */
static void seal(uint8_t *at, size_t len, size_t crc_offset)
{
	le32 crc = le32_make(0);

	memcpy(at + crc_offset, &crc, sizeof(crc));
	crc = le32_make(crc32c(0, at, len));
	memcpy(at + crc_offset, &crc, sizeof(crc));
}

static void seal_chunk(struct file *file, size_t at)
{
	struct disk_backup_chunk *head = (void *)(file->bytes + at);
	size_t len = (size_t)le32_get(head->count) * BLOCK_SIZE;

	/* The count may have been changed as well. */
	if (len <= file->len - at - sizeof(*head) && le32_get(head->type) != BACKUP_END)
		head->payload_crc = le32_make(crc32c(0, file->bytes + at + sizeof(*head), len));
	seal(file->bytes + at, sizeof(*head), offsetof(struct disk_backup_chunk, crc));
}

static void put_right(const struct part *part, uint8_t how, bool was_page)
{
	struct file *file = part->file;
	uint8_t *at = file->bytes + part->at;
	le32 crc;

	switch (part->kind) {
	case HEADER:
		seal(at, BACKUP_HEADER_BYTES, offsetof(struct disk_backup_header, crc));
		break;
	case ARCHIVE:
		seal(at, ARCHIVE_HEADER_BYTES, offsetof(struct disk_archive_header, crc));
		break;
	case CHUNK:
		seal_chunk(file, part->at);
		break;
	case BLOCKS:
		if (was_page && (how & 24) != 24)
			page_seal(at, PAGE);
		seal_chunk(file, part->chunk);
		break;
	case SUPER:
		seal_chunk(file, part->chunk);
		break;
	case MTR:
		crc = le32_make(log_records_crc(part->generation, at, part->len));
		memcpy(at + part->len + 1, &crc, sizeof(crc));
		break;
	case DATA:
		break;
	}
}

static bool is_page(const struct part *part)
{
	const uint8_t *bytes = part->file->bytes + part->at;
	struct disk_page copy;

	if (part->kind != BLOCKS)
		return false;
	memcpy(&copy, bytes, sizeof(copy));
	return page_verify(bytes, PAGE, le64_get(copy.pageno), copy.tag, NULL) == 0;
}

static void edit(const uint8_t *in)
{
	const struct part *part = &base->part[(unsigned)(in[0] | in[1] << 8) % base->parts];
	size_t offset = (size_t)(in[2] | in[3] << 8) % part->len;
	struct file *file = part->file;
	bool was_page;

	if (part->at + part->len + MTR_TRAILER_BYTES > file->len && file->len < file->good_len)
		return; /* cut off already */
	file->changed = true;
	if (in[4] >= 250) {
		file->len = part->at + offset;
		return;
	}
	was_page = is_page(part);
	change(file->bytes + part->at + offset, in[4], in[5]);
	if ((in[4] & 6) != 6)
		put_right(part, in[4], was_page);
}

static void undo(void)
{
	for (unsigned i = 0; i < base->files; i++) {
		struct file *file = &base->file[i];

		if (!file->changed)
			continue;
		memcpy(file->bytes, file->good, file->good_len);
		file->len = file->good_len;
		file->changed = false;
		store(file);
	}
}

/* --------------------------------------------------------------------- restore */

static int restore_all(struct device *dev)
{
	struct restore *restore;
	lsn_t lsn;
	int rc = restore_begin(&restore, dev);

	check(rc == 0);
	for (unsigned i = 0; i < 2 && rc == 0; i++)
		rc = restore_apply(restore, base->file[i].fd, base->file[i].name);
	if (rc == 0)
		rc = restore_log(restore, base->dir, UINT64_MAX);
	if (rc == 0)
		rc = restore_finish(restore, &lsn);
	restore_end(restore);
	return rc;
}

struct copy {
	struct device *restored, *cut;
	uint64_t size_bytes;
};

static struct device *make_copy(void *arg)
{
	struct copy *copy = arg;

	dev_close(copy->cut);
	check(dev_record_cut(copy->restored, 0, &copy->cut) == 0);
	return scratch_keep_file(copy->cut, copy->size_bytes);
}

static void use_restored(struct device *inner, uint64_t size_bytes, const char *only)
{
	struct copy copy = {.restored = inner, .size_bytes = size_bytes};
	struct disk_superblock sb;

	check(superblock_read(inner, &sb, NULL) == 0);
	dev_record_start(inner);
	image_use_all(make_copy, &copy, only);
	dev_close(copy.cut);
}

/* true: restored. */
static bool run(const char *only)
{
	struct device *inner, *dev;
	struct disk_superblock sb;
	uint64_t size_bytes;
	int rc;

	for (unsigned i = 0; i < 2; i++)
		(void)!backup_verify(base->file[i].fd, base->file[i].name);
	check(dev_open_memory(&inner, TARGET_BYTES) == 0);
	dev = scratch_keep_file(inner, VOLUME_BYTES);
	rc = restore_all(dev);
	size_bytes = dev->size_bytes;
	if (rc)
		check(superblock_read(dev, &sb, NULL) == -BE_NOVOLUME);
	dev_close(dev);
	if (rc == 0)
		use_restored(inner, size_bytes, only);
	dev_close(inner);
	return rc == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!base) {
		message_quiet(getenv("FUZZ_VERBOSE") ? LOG_INFO : LOG_EMERG);
		base_make();
		check(run(NULL)); /* as they are */
	}
	for (unsigned i = 0; i < EDITS_MAX && (i + 1) * EDIT_BYTES <= size; i++)
		edit(data + i * EDIT_BYTES);
	for (unsigned i = 0; i < base->files; i++)
		if (base->file[i].changed)
			store(&base->file[i]);
	run(image_use_chosen(data, size));
	undo();
	return 0;
}

#ifndef BLINKFS_LIBFUZZER

/* Few edits: headers and heads of chunks as often as what they describe. */
static size_t make_input(uint8_t *out, uint64_t seed)
{
	uint64_t state = seed;
	size_t edits = 1 + random_next(&state) % 3;

	for (size_t i = 0; i < edits * EDIT_BYTES; i++)
		out[i] = (uint8_t)random_next(&state);
	for (size_t i = 0; i < edits * EDIT_BYTES; i += EDIT_BYTES) {
		unsigned offset = (unsigned)random_next(&state) % 160;

		if (random_next(&state) % 2)
			continue;
		out[i + 2] = (uint8_t)offset;
		out[i + 3] = 0;
	}
	return edits * EDIT_BYTES;
}

int main(int argc, char **argv)
{
	return fuzz_main("fuzz_backup", 100, make_input, argc, argv);
}

#endif
