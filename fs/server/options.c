/*
 * Options are words of one table.  A word that nobody knows is refused: a
 * mistyped option must not silently change what is promised.
 */
#include "fs/server/options.h"

#include "engine/base/limits.h"
#include "engine/base/message.h"
#include "engine/base/os.h"
#include "engine/base/units.h"
#include "engine/tunables.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
	"usage: blinkfs [-f] [-o OPTION,...] VOLUME DIR   mount VOLUME on DIR\n"
	"       blinkfs dump ...                          look into a volume (blinkfs dump -h)\n"
	"       blinkfs sync DIR                          make all that was done there durable\n"
	"       blinkfs log-resize DIR SIZE               give its redo log another size\n"
	"       blinkfs trim DIR                          give its free space back to the device\n"
	"       blinkfs grow DIR [SIZE]                   make it larger\n"
	"       blinkfs freeze DIR | thaw DIR             let it stand still, to be copied\n"
	"       blinkfs scrub ...                         verify all its checksums (scrub -h)\n"
	"       blinkfs backup ...                        save a mounted volume (backup -h)\n"
	"       blinkfs restore ...                       make a volume of backups (restore -h)\n"
	"       blinkfs -h | -V                           this text; the version\n"
	"\n"
	"  -f                   stay in the foreground, messages on stderr\n"
	"  -o ro                read only: nothing at all is written to the volume\n"
	"  -o writeback=on|off  let the kernel gather small writes (default on)\n"
	"  -o allow_other       let other users in (default: only who mounts)\n"
	"  -o cache_size=SIZE   memory for metadata pages (default 256M)\n"
	"  -o inode_cache=N     inodes that are kept in memory (default 1000000; 0: no limit)\n"
	"  -o commit_interval=S seconds until all is durable without fsync (default 5)\n"
	"  -o log=PATH          where the external redo log is (default: where it was last)\n"
	"  -o log_scrub=on|off  overwrite what the redo log no longer needs (default off)\n"
	"  -o log_mode=auto|pwrite|direct|dsync|mapped   how the redo log is written\n"
	"  -o log_archive=DIR   keep everything that is written to the redo log in DIR\n"
	"  -o log_archive_data  and the file contents that it refers to\n"
	"  -o discard           give space that is freed back to the device\n"
	"  -o check_open        look at each open, for a volume's first immutable file\n"
	"  -o smo=blink|index-latch   how indexes are split and merged (default blink)\n"
	"  -o max_threads=N     requests handled at once, 1 to 512 (default 64)\n"
#define X(name, text) "  -o " #name "=on|off (default on): " text "\n"
#include "engine/tunables.def"
#undef X
	"  -o noatime|relatime|strictatime   access times (default relatime)\n"
	"  -o nodiratime        none of directories\n"
	"  -o dev|nodev|suid|nosuid|exec|noexec|sync|dirsync   as for mount(8)\n"
	"\n"
	"Unmount with: fusermount3 -u DIR (as root: umount DIR)\n";

/* What a word does to the options; value is behind '=', else NULL. */
typedef int (*option_fn)(struct server_options *options, const char *word, const char *value);

struct option_word {
	const char *word; /* a final '*' stands for any rest */
	bool has_value;
	option_fn apply;
};

/* --- what words do ------------------------------------------------------- */

static int append_word(char **list, const char *word)
{
	size_t old = *list ? strlen(*list) : 0;
	char *longer = realloc(*list, old + strlen(word) + 2);

	if (!longer)
		return -ENOMEM;
	if (old)
		longer[old++] = ',';
	strcpy(longer + old, word);
	*list = longer;
	return 0;
}

static int apply_kernel(struct server_options *options, const char *word, const char *value)
{
	(void)value;
	return append_word(&options->kernel, word);
}

/* Words for mount(8) and fstab readers, which may reach us all the same. */
static int apply_nothing(struct server_options *options, const char *word, const char *value)
{
	(void)options, (void)word, (void)value;
	return 0;
}

static int apply_ro(struct server_options *options, const char *word, const char *value)
{
	(void)word, (void)value;
	options->read_only = true;
	return 0;
}

static int apply_rw(struct server_options *options, const char *word, const char *value)
{
	(void)word, (void)value;
	options->read_only = false;
	return 0;
}

static int apply_allow_other(struct server_options *options, const char *word, const char *value)
{
	(void)word, (void)value;
	options->allow_other = true;
	return 0;
}

static int apply_remount(struct server_options *options, const char *word, const char *value)
{
	(void)word, (void)value;
	options->remount = true;
	return 0;
}

static int parse_on_off(const char *value, bool *on)
{
	*on = strcmp(value, "on") == 0;
	return *on || strcmp(value, "off") == 0 ? 0 : -EINVAL;
}

static int apply_writeback(struct server_options *options, const char *word, const char *value)
{
	(void)word;
	return parse_on_off(value, &options->writeback);
}

static int apply_tunable(struct server_options *options, const char *word, const char *value)
{
	char name[32];
	enum tunable tunable;
	bool on;

	snprintf(name, sizeof(name), "%.*s", (int)(value - 1 - word), word);
	tunable = tunable_find(name);
	check(tunable < TUNABLE_COUNT); /* the table of words is made of their names */
	if (parse_on_off(value, &on) != 0)
		return -EINVAL;
	if (on)
		options->tunables_off &= ~(1u << tunable);
	else
		options->tunables_off |= 1u << tunable;
	return 0;
}

static int apply_noatime(struct server_options *options, const char *word, const char *value)
{
	options->atime = ATIME_NONE;
	return apply_kernel(options, word, value);
}

static int apply_relatime(struct server_options *options, const char *word, const char *value)
{
	(void)word, (void)value;
	options->atime = ATIME_RELATIVE;
	return 0;
}

static int apply_strictatime(struct server_options *options, const char *word, const char *value)
{
	(void)word, (void)value;
	options->atime = ATIME_STRICT;
	return 0;
}

/* Not for libfuse, which does not know the word. */
static int apply_nodiratime(struct server_options *options, const char *word, const char *value)
{
	(void)word, (void)value;
	options->no_dir_atime = true;
	return 0;
}

static int apply_diratime(struct server_options *options, const char *word, const char *value)
{
	(void)word, (void)value;
	options->no_dir_atime = false;
	return 0;
}

static int apply_cache_size(struct server_options *options, const char *word, const char *value)
{
	(void)word;
	return size_parse(value, &options->cache_bytes) == 0 && options->cache_bytes ? 0 : -EINVAL;
}

static int parse_number(const char *value, unsigned long min, unsigned long max, unsigned long *out)
{
	char *end;

	errno = 0;
	*out = strtoul(value, &end, 10);
	if (errno || end == value || *end || *out < min || *out > max || *value == '-')
		return -EINVAL;
	return 0;
}

static int apply_inode_cache(struct server_options *options, const char *word, const char *value)
{
	unsigned long inodes;

	(void)word;
	if (parse_number(value, 0, ULONG_MAX, &inodes) != 0 || (inodes > 0 && inodes < 64))
		return -EINVAL;
	options->inode_cache = inodes;
	return 0;
}

static int apply_commit_interval(struct server_options *options, const char *word,
				 const char *value)
{
	unsigned long seconds;

	(void)word;
	if (parse_number(value, 1, 3600, &seconds) != 0)
		return -EINVAL;
	options->commit_interval_ns = seconds * 1000000000ull;
	return 0;
}

static int apply_log_mode(struct server_options *options, const char *word, const char *value)
{
	(void)word;
	return log_mode_parse(value, &options->log_mode) ? 0 : -EINVAL;
}

static int apply_log(struct server_options *options, const char *word, const char *value)
{
	(void)word;
	free(options->log_path);
	options->log_path = *value ? strdup(value) : NULL;
	if (!*value)
		return -EINVAL;
	return options->log_path ? 0 : -ENOMEM;
}

static int apply_log_scrub(struct server_options *options, const char *word, const char *value)
{
	(void)word;
	if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0)
		return -EINVAL;
	options->log_scrub = strcmp(value, "on") == 0;
	return 0;
}

static int apply_log_archive(struct server_options *options, const char *word, const char *value)
{
	(void)word;
	if (*value == '\0')
		return -EINVAL;
	free(options->archive_dir);
	options->archive_dir = strdup(value);
	return options->archive_dir ? 0 : -ENOMEM;
}

static int apply_log_archive_data(struct server_options *options, const char *word,
				  const char *value)
{
	(void)word, (void)value;
	options->archive_data = true;
	return 0;
}

static int apply_check_open(struct server_options *options, const char *word, const char *value)
{
	(void)word, (void)value;
	options->check_open = true;
	return 0;
}

static int apply_discard(struct server_options *options, const char *word, const char *value)
{
	(void)value;
	options->discard = strcmp(word, "discard") == 0;
	return 0;
}

static int apply_smo(struct server_options *options, const char *word, const char *value)
{
	(void)word;
	return smo_mode_parse(value, &options->smo) ? 0 : -EINVAL;
}

static int apply_max_threads(struct server_options *options, const char *word, const char *value)
{
	unsigned long threads;

	(void)word;
	if (parse_number(value, 1, THREADS_MAX / 2, &threads) != 0)
		return -EINVAL;
	options->max_threads = (unsigned)threads;
	return 0;
}

static const struct option_word words[] = {
	{"ro", false, apply_ro},
	{"rw", false, apply_rw},
	{"writeback", true, apply_writeback},
	{"allow_other", false, apply_allow_other},
	{"default_permissions", false, apply_nothing}, /* always on */
	{"cache_size", true, apply_cache_size},
	{"inode_cache", true, apply_inode_cache},
	{"commit_interval", true, apply_commit_interval},
	{"log", true, apply_log},
	{"log_mode", true, apply_log_mode},
	{"log_scrub", true, apply_log_scrub},
	{"log_archive", true, apply_log_archive},
	{"log_archive_data", false, apply_log_archive_data},
	{"discard", false, apply_discard},
	{"nodiscard", false, apply_discard},
	{"check_open", false, apply_check_open},
	{"smo", true, apply_smo},
	{"max_threads", true, apply_max_threads},
#define X(name, text) {#name, true, apply_tunable},
#include "engine/tunables.def"
#undef X
	{"noatime", false, apply_noatime},
	{"relatime", false, apply_relatime},
	{"strictatime", false, apply_strictatime},
	{"atime", false, apply_relatime},
	{"lazytime", false, apply_nothing}, /* always so */
	{"nodiratime", false, apply_nodiratime},
	{"diratime", false, apply_diratime},
	{"dev", false, apply_kernel},
	{"nodev", false, apply_kernel},
	{"suid", false, apply_kernel},
	{"nosuid", false, apply_kernel},
	{"exec", false, apply_kernel},
	{"noexec", false, apply_kernel},
	{"sync", false, apply_kernel},
	{"async", false, apply_kernel},
	{"dirsync", false, apply_kernel},
	{"remount", false, apply_remount},
	{"defaults", false, apply_nothing},
	{"auto", false, apply_nothing},
	{"noauto", false, apply_nothing},
	{"nofail", false, apply_nothing},
	{"_netdev", false, apply_nothing},
	{"user", false, apply_nothing},
	{"users", false, apply_nothing},
	{"nouser", false, apply_nothing},
	{"owner", false, apply_nothing},
	{"group", false, apply_nothing},
	/* What /proc/mounts shows, and mount -o remount repeats */
	{"user_id=*", false, apply_nothing},
	{"group_id=*", false, apply_nothing},
	{"max_read=*", false, apply_nothing},
	{"blksize=*", false, apply_nothing},
	{"user=*", false, apply_nothing},
	{"comment=*", false, apply_nothing},
	{"x-*", false, apply_nothing},
};

/* --- parsing ------------------------------------------------------------- */

static bool word_matches(const struct option_word *known, const char *word, const char **value)
{
	size_t len = strlen(known->word);

	*value = NULL;
	if (known->word[len - 1] == '*')
		return strncmp(known->word, word, len - 1) == 0;
	if (!known->has_value)
		return strcmp(known->word, word) == 0;
	if (strncmp(known->word, word, len) != 0 || word[len] != '=')
		return false;
	*value = word + len + 1;
	return true;
}

static int apply_word(struct server_options *options, const char *word)
{
	for (unsigned i = 0; i < array_count(words); i++) {
		const char *value;
		int rc;

		if (!word_matches(&words[i], word, &value))
			continue;
		rc = words[i].apply(options, word, value);
		if (rc == -EINVAL)
			message(LOG_ERR, "bad value in option '%s'", word);
		else if (rc)
			message(LOG_ERR, "%s", strerror(-rc));
		return rc;
	}
	message(LOG_ERR, "unknown option '%s'", word);
	return -EINVAL;
}

static int apply_list(struct server_options *options, const char *list)
{
	char *copy = strdup(list), *rest = copy, *word;
	int rc = copy ? 0 : -ENOMEM;

	while (!rc && (word = strsep(&rest, ",")) != NULL)
		if (*word)
			rc = apply_word(options, word);
	free(copy);
	return rc;
}

static enum options_verdict wrong_usage(const char *why)
{
	if (why)
		message(LOG_ERR, "%s", why);
	fputs("Try 'blinkfs -h'.\n", stderr);
	return OPTIONS_WRONG;
}

/* As mount(8) does for a filesystem of root's; libfuse alone would forbid both. */
static int set_defaults(struct server_options *options)
{
	*options = (struct server_options){
		.writeback = true,
		.max_threads = MAX_THREADS_DEFAULT,
		.inode_cache = INODE_CACHE_DEFAULT,
		.atime = ATIME_RELATIVE,
	};
	return geteuid() == 0 ? append_word(&options->kernel, "dev,suid") : 0;
}

static int set_paths(struct server_options *options, char **paths)
{
	options->volume_path = strdup(paths[0]);
	options->mount_dir = strdup(paths[1]);
	return options->volume_path && options->mount_dir ? 0 : -ENOMEM;
}

enum options_verdict options_parse(int argc, char **argv, struct server_options *options)
{
	int option;

	if (set_defaults(options) != 0)
		return wrong_usage("out of memory");
	while ((option = getopt(argc, argv, "fo:hV")) != -1) {
		switch (option) {
		case 'f':
			options->foreground = true;
			break;
		case 'o':
			if (apply_list(options, optarg) != 0)
				return OPTIONS_WRONG;
			break;
		case 'h':
			fputs(usage, stdout);
			return OPTIONS_DONE;
		case 'V':
			printf("blinkfs %s\n", BLINKFS_VERSION);
			return OPTIONS_DONE;
		default:
			return wrong_usage(NULL);
		}
	}
	if (argc - optind != 2)
		return wrong_usage(argc == optind ? "which volume, and where?"
						  : "expected a volume and a directory");
	return set_paths(options, argv + optind) == 0 ? OPTIONS_MOUNT
						      : wrong_usage("out of memory");
}

void options_free(struct server_options *options)
{
	free(options->volume_path);
	free(options->mount_dir);
	free(options->kernel);
	free(options->log_path);
	free(options->archive_dir);
}
