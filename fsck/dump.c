/* `blinkfs dump`: see dump.h. */
#include "fsck/dump.h"

#include "fsck/borrow.h"
#include "fsck/dump_text.h"

#include "engine/base/error.h"
#include "engine/base/message.h"
#include "engine/flush.h"
#include "engine/log_device.h"
#include "log/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

enum { EXIT_FOUND = 0, EXIT_NOTHING = 1, EXIT_TROUBLE = 2 };

struct dump {
	FILE *out;
	struct raw_volume raw;
	const char *what; /* the argument of page, index, inode */
	const char *log_path;   /* -j */
	struct device *log_dev; /* of an external log; else NULL */
};

static int complain(const char *what, int rc)
{
	fprintf(stderr, "blinkfs dump: %s: %s\n", what, error_text(rc));
	return EXIT_NOTHING;
}

static bool parse_number(const char *text, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(text, &end, 0);
	return errno == 0 && end != text && *end == '\0' && text[0] != '-';
}

static int bad_argument(const char *text)
{
	fprintf(stderr, "blinkfs dump: not usable here: %s\n", text);
	return EXIT_TROUBLE;
}

/* ---------------------------------------------------------------- the kinds */

static int dump_what_super(struct dump *d)
{
	dump_super(d->out, &d->raw);
	return EXIT_FOUND;
}

static int print_mtr(void *arg, const struct log_mtr *mtr)
{
	struct log_cursor cursor = {mtr->records, mtr->records_bytes};
	struct dump *d = arg;
	struct log_rec record;
	int rc;

	fprintf(d->out, "mtr %" PRIu64 "..%" PRIu64 "\n", mtr->start, mtr->end);
	while ((rc = log_next_record(&cursor, &record)) > 0)
		dump_log_record(d->out, &record);
	return rc;
}

static int dump_what_log(struct dump *d)
{
	struct log_place place = {
		.dev = d->log_dev ? d->log_dev : d->raw.dev,
		.offset = d->raw.geo.log_start * BLOCK_SIZE,
		.size_bytes = d->raw.geo.log_bytes,
	};
	const struct checkpoint *checkpoint;
	struct log_scan_result found;
	struct log *log;
	int rc;

	memcpy(place.uuid, d->raw.sb.log_uuid, sizeof(place.uuid));
	rc = log_open(&log, &place, le64_get(d->raw.sb.log_gen), le64_get(d->raw.sb.mount_gen));
	if (rc)
		return complain("log", rc);
	checkpoint = log_found_checkpoint(log);
	fprintf(d->out,
		"checkpoint %" PRIu64 " marked %" PRIu64 " generation %" PRIu64 " sequence %" PRIu64
		"%s\n",
		checkpoint->lsn, checkpoint->marked_lsn, checkpoint->generation,
		checkpoint->sequence, checkpoint->mapped ? " mapped" : "");
	rc = log_scan(log, print_mtr, d, &found);
	if (!rc)
		fprintf(d->out, "end %" PRIu64 " marked %" PRIu64 "%s\n", found.end,
			found.marked_lsn, found.damaged ? " damaged" : "");
	log_close(log);
	return rc ? complain("log", rc) : EXIT_FOUND;
}

static int dump_what_page(struct dump *d)
{
	uint32_t page_size = d->raw.geo.page_size;
	uint64_t pageno;
	void *page;
	int rc;

	if (!parse_number(d->what, &pageno) || !raw_pageno_valid(&d->raw, pageno))
		return bad_argument(d->what);
	page = malloc(page_size);
	rc = page ? dev_read(d->raw.dev, page, page_size, pageno * BLOCK_SIZE) : -ENOMEM;
	if (!rc)
		dump_page(d->out, &d->raw, pageno, page);
	free(page);
	return rc ? complain(d->what, rc) : EXIT_FOUND;
}

/* Prints the entries from `from` on whose keys begin with its bytes; *count of them. */
static int print_entries(struct dump *d, unsigned index, const struct raw_key *from,
			 unsigned prefix, uint64_t *count)
{
	struct raw_cursor c;
	int rc = raw_cursor_open(&c, &d->raw, index, from);

	while (!rc && !(rc = raw_cursor_next(&c))) {
		if (memcmp(c.entry.key.bytes, from->bytes, prefix) != 0)
			break;
		dump_entry(d->out, index, &c.entry);
		++*count;
	}
	raw_cursor_close(&c);
	return rc == -BE_END ? 0 : rc;
}

static int dump_what_index(struct dump *d)
{
	const struct raw_key from = {0};
	uint64_t count = 0;
	int rc;

	for (unsigned i = 0; i < INDEX_COUNT; i++) {
		if (strcmp(d->what, raw_index_names[i]) != 0)
			continue;
		rc = print_entries(d, i, &from, 0, &count);
		return rc ? complain(d->what, rc) : EXIT_FOUND;
	}
	return bad_argument(d->what);
}

/* The record itself; *lob gets its contents. */
static int print_inode(struct dump *d, uint64_t ino, uint64_t *lob)
{
	struct raw_key key = {.len = KEY_INODE_BYTES};
	struct disk_inode inode;
	struct raw_cursor c;
	int rc;

	be64_put(key.bytes, ino);
	rc = raw_cursor_open(&c, &d->raw, INDEX_INODES, &key);
	if (!rc)
		rc = raw_cursor_next(&c);
	if (!rc && raw_key_compare(&c.entry.key, &key) != 0)
		rc = -BE_NOTFOUND;
	if (!rc) {
		dump_inode_record(d->out, ino, &c.entry);
		if (c.entry.value_len >= sizeof(inode)) {
			memcpy(&inode, c.entry.value, sizeof(inode));
			*lob = le64_get(inode.lob);
		}
	}
	raw_cursor_close(&c);
	return rc == -BE_END ? -BE_NOTFOUND : rc;
}

static int dump_what_inode(struct dump *d)
{
	struct raw_key key = {.len = KEY_XATTR_BYTES};
	uint64_t ino, lob = 0, count = 0;
	int rc;

	if (!parse_number(d->what, &ino))
		return bad_argument(d->what);
	rc = print_inode(d, ino, &lob);
	be64_put(key.bytes, ino);
	if (!rc)
		rc = print_entries(d, INDEX_XATTRS, &key, 8, &count);
	be64_put(key.bytes, lob);
	if (!rc && lob)
		rc = print_entries(d, INDEX_LOB, &key, 8, &count);
	return rc ? complain(d->what, rc) : EXIT_FOUND;
}

static const struct dump_kind {
	const char *name;
	bool takes_argument;
	int (*run)(struct dump *d);
} kinds[] = {
	{"super", false, dump_what_super}, {"log", false, dump_what_log},
	{"page", true, dump_what_page},    {"index", true, dump_what_index},
	{"inode", true, dump_what_inode},
};

/* ------------------------------------------------------------------ opening */

static int run_on(struct dump *d, struct device *dev, const struct dump_kind *kind,
		  const char *path)
{
	int rc = raw_open(&d->raw, dev);

	if (rc) {
		complain(path, rc);
		return EXIT_TROUBLE;
	}
	return kind->run(d);
}

/* As recovery would leave it, in memory. */
static int run_on_replayed(struct dump *d, struct device *dev, const struct dump_kind *kind,
			   const char *path)
{
	const struct volume_options options = {
		.read_only = true,
		.no_background = true,
		.ignore_damage = true,
		.log_dev = d->log_dev,
	};
	struct volume *volume;
	int rc = borrow_volume(&volume, dev, &options), exit_code;

	if (rc) {
		complain(path, rc);
		return EXIT_TROUBLE;
	}
	rc = flush_everything(volume->flusher);
	if (d->log_dev)
		d->log_dev = volume->log_dev;
	exit_code = rc ? complain(path, rc) : run_on(d, volume->dev, kind, path);
	volume_abandon(volume);
	return exit_code;
}

static int usage(FILE *to)
{
	fputs("Usage: blinkfs dump [-r] [-j LOG] super|log|page N|index NAME|inode N VOLUME\n"
	      "Shows structures of a volume, mounted or not, as they are on the medium.\n"
	      "  -r       replay the log in memory first\n"
	      "  -j LOG   where the external log is (default: where it was last)\n"
	      "Indexes:",
	      to);
	for (unsigned i = 0; i < INDEX_COUNT; i++)
		fprintf(to, " %s", raw_index_names[i]);
	fputc('\n', to);
	return to == stdout ? EXIT_FOUND : EXIT_TROUBLE;
}

/* The log of a volume whose log is external is needed for the log itself, and to replay it. */
static int open_log_device(struct dump *d, struct device *dev)
{
	const struct log_device_request request = {
		.path = d->log_path,
		.how = "-j LOG",
		.flags = DEV_READ_ONLY | DEV_NO_LOCK,
	};

	return log_device_open(&d->log_dev, dev, &request) ? EXIT_TROUBLE : EXIT_FOUND;
}

static int run_dump(struct dump *d, const struct dump_kind *kind, const char *path, bool replay)
{
	bool wants_log = replay || kind->run == dump_what_log || d->log_path;
	struct device *dev, *log_dev;
	int rc = dev_open_file(&dev, path, DEV_READ_ONLY | DEV_NO_LOCK, 0);

	if (rc) {
		complain(path, rc);
		return EXIT_TROUBLE;
	}
	rc = wants_log ? open_log_device(d, dev) : EXIT_FOUND;
	log_dev = d->log_dev;
	if (rc == EXIT_FOUND)
		rc = (replay ? run_on_replayed : run_on)(d, dev, kind, path);
	dev_close(log_dev);
	dev_close(dev);
	return rc;
}

int dump_main(int argc, char **argv)
{
	struct dump d = {.out = stdout};
	const struct dump_kind *kind = NULL;
	bool replay = false;
	int at = 1, rc;

	for (; at < argc && argv[at][0] == '-'; at++) {
		if (strcmp(argv[at], "-h") == 0 || strcmp(argv[at], "--help") == 0)
			return usage(stdout);
		if (strcmp(argv[at], "-r") == 0)
			replay = true;
		else if (strcmp(argv[at], "-j") == 0 && at + 1 < argc)
			d.log_path = argv[++at];
		else
			return usage(stderr);
	}
	for (unsigned i = 0; i < array_count(kinds) && at < argc; i++)
		if (strcmp(argv[at], kinds[i].name) == 0)
			kind = &kinds[i];
	if (!kind || argc - at != 2 + kind->takes_argument)
		return usage(stderr);
	d.what = kind->takes_argument ? argv[at + 1] : NULL;
	rc = run_dump(&d, kind, argv[argc - 1], replay);
	return fflush(stdout) != 0 ? EXIT_TROUBLE : rc;
}
