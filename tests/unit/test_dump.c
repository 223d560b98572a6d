/*
 * blinkfs dump: each kind of structure is shown, exit codes, volumes in use.
 */
#include "engine/page.h"
#include "fsck/dump.h"
#include "fsck/dump_text.h"
#include "tests/lib/fsck_world.h"
#include "tests/lib/scratch.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A world in a file, and what dump said last. */
struct file {
	struct world world;
	struct image image;
	char path[SCRATCH_PATH_BYTES];
	char text[200000];
};

static struct file *file_make(bool crashed)
{
	struct file *f = calloc(1, sizeof(*f));

	cr_assert_not_null(f);
	(crashed ? world_make_crashed : world_make)(&f->world);
	image_open(&f->image, f->world.dev);
	world_save(&f->world, f->path);
	return f;
}

static void file_free(struct file *f)
{
	unlink(f->path);
	world_free(&f->world);
	free(f);
}

/* Runs `dump ARGUMENTS... path` with stdout in f->text; NULL ends the arguments. */
static int dump(struct file *f, const char *a, const char *b, const char *c)
{
	const char *given[] = {a, b, c, f->path};
	char *argv[6] = {"dump"};
	int argc = 1, saved = dup(STDOUT_FILENO), rc;
	FILE *out = tmpfile();

	for (size_t i = 0; i < array_count(given); i++)
		if (given[i])
			argv[argc++] = (char *)(uintptr_t)given[i];
	cr_assert(saved >= 0 && out);
	fflush(stdout);
	dup2(fileno(out), STDOUT_FILENO);
	rc = dump_main(argc, argv);
	fflush(stdout);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	rewind(out);
	f->text[fread(f->text, 1, sizeof(f->text) - 1, out)] = '\0';
	fclose(out);
	return rc;
}

static void expect(const struct file *f, const char *text)
{
	cr_assert(strstr(f->text, text), "'%s' is not in:\n%s", text, f->text);
}

Test(dump, super)
{
	struct file *f = file_make(false);

	cr_assert_eq(dump(f, "super", NULL, NULL), 0);
	expect(f, "page_size     4096\n");
	expect(f, "state         clean\n");
	expect(f, "root overlay ");
	file_free(f);
}

Test(dump, log_of_a_crash)
{
	struct file *f = file_make(true);

	cr_assert_eq(dump(f, "log", NULL, NULL), 0);
	expect(f, "checkpoint ");
	expect(f, "\nmtr ");
	expect(f, "\n  insert page ");
	expect(f, "\n  bits page ");
	expect(f, "\n  mark own ");
	expect(f, "\nend ");
	file_free(f);
}

Test(dump, indexes)
{
	struct file *f = file_make(false);

	cr_assert_eq(dump(f, "index", "dirents", NULL), 0);
	expect(f, "type 8 \"small\"\n");
	expect(f, "\"a file with number 199\"\n");
	cr_assert_eq(dump(f, "index", "inodes", NULL), 0);
	expect(f, "inode 1 mode 040755 nlink 4 ");
	cr_assert_eq(dump(f, "index", "xattrs", NULL), 0);
	expect(f, "\"user.long\"\n");
	cr_assert_eq(dump(f, "index", "lob", NULL), 0);
	expect(f, "file blocks 1000..1001 at block ");
	cr_assert_eq(dump(f, "index", "purge", NULL), 0);
	expect(f, " orphan inode ");
	cr_assert_eq(dump(f, "index", "shares", NULL), 0);
	cr_assert_str_empty(f->text);
	file_free(f);
}

Test(dump, inode)
{
	struct file *f = file_make(false);
	char number[32];

	snprintf(number, sizeof(number), "%llu", (unsigned long long)f->world.small);
	cr_assert_eq(dump(f, "inode", number, NULL), 0);
	expect(f, " size 5 ");
	expect(f, " mtime ");
	expect(f, "\"user.short\"\n");
	snprintf(number, sizeof(number), "0x%llx", (unsigned long long)f->world.sparse);
	cr_assert_eq(dump(f, "inode", number, NULL), 0);
	expect(f, "file blocks 2000..2001");
	cr_assert_eq(dump(f, "inode", "900", NULL), 1);
	file_free(f);
}

Test(dump, pages)
{
	struct file *f = file_make(false);
	const struct geometry *geo = &f->image.raw.geo;
	char number[32];

	snprintf(number, sizeof(number), "%llu", (unsigned long long)geo->system_page);
	cr_assert_eq(dump(f, "page", number, NULL), 0);
	expect(f, ": good\n");
	expect(f, "next inode ");
	snprintf(number, sizeof(number), "%llu", (unsigned long long)geo->groups_start);
	cr_assert_eq(dump(f, "page", number, NULL), 0);
	expect(f, "group 0 used ");
	snprintf(number, sizeof(number), "%llu",
		 (unsigned long long)le64_get(f->image.raw.sb.root[INDEX_INODES]));
	cr_assert_eq(dump(f, "page", number, NULL), 0);
	expect(f, "index inodes level 1 ");
	expect(f, " -> page ");
	file_free(f);
}

/* A page that does not verify is shown as far as it can be decoded. */
Test(dump, broken_page)
{
	struct file *f = file_make(false);
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	image_load(&f->image, le64_get(f->image.raw.sb.root[INDEX_INODES]));
	f->image.page[20] ^= 1;
	dump_page(out, &f->image.raw, f->image.pageno, f->image.page);
	memset(f->image.page + 32, 0xff, 200);
	dump_page(out, &f->image.raw, f->image.pageno, f->image.page);
	fclose(out);
	cr_assert(strstr(text, "checksum mismatch"));
	cr_assert(strstr(text, "index inodes level 1"));
	free(text);
	file_free(f);
}

Test(dump, replays_on_request)
{
	struct file *f = file_make(true);

	cr_assert_eq(dump(f, "index", "dirents", NULL), 0);
	cr_assert_null(strstr(f->text, "\"small\""));
	cr_assert_eq(dump(f, "-r", "index", "dirents"), 0);
	expect(f, "\"small\"");
	file_free(f);
}

Test(dump, volume_in_use)
{
	struct file *f = file_make(false);
	struct device *dev;

	cr_assert_eq(dev_open_file(&dev, f->path, 0, 0), 0);
	cr_assert_eq(dump(f, "index", "dirents", NULL), 0);
	expect(f, "\"small\"");
	dev_close(dev);
	file_free(f);
}

Test(dump, usage)
{
	struct file *f = file_make(false);

	cr_assert_eq(dump(f, NULL, NULL, NULL), 2);
	cr_assert_eq(dump(f, "nothing", NULL, NULL), 2);
	cr_assert_eq(dump(f, "index", NULL, NULL), 2);
	cr_assert_eq(dump(f, "index", "nothing", NULL), 2);
	cr_assert_eq(dump(f, "page", "7x", NULL), 2);
	cr_assert_eq(dump(f, "page", "0", NULL), 2);
	cr_assert_eq(dump(f, "-x", "super", NULL), 2);
	cr_assert_eq(dump(f, "-h", NULL, NULL), 0);
	expect(f, "Usage: ");
	unlink(f->path);
	cr_assert_eq(dump(f, "super", NULL, NULL), 2);
	file_free(f);
}
