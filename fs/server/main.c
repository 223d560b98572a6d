/*
 * blinkfs: mounts a volume.
 *
 *	blinkfs [-f] [-o OPTION,...] VOLUME DIR
 *	blinkfs dump ...
 *	blinkfs sync DIR
 *	blinkfs log-resize DIR SIZE
 *	blinkfs trim ... DIR
 *	blinkfs grow DIR [SIZE]
 *	blinkfs freeze DIR
 *	blinkfs thaw DIR
 *	blinkfs backup ... DIR FILE
 *	blinkfs restore ... FILE... VOLUME
 *	blinkfs scrub ... DIR
 *
 * What can be found wrong is found before the fork, in the order in which a
 * user would correct it.
 */
#include "engine/base/message.h"
#include "fs/server/backup.h"
#include "fs/server/command.h"
#include "fs/server/place.h"
#include "fs/server/scrub.h"
#include "fs/server/serve.h"
#include "fs/server/session.h"
#include "fs/server/sync.h"
#include "fsck/dump.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int make_absolute(char **path)
{
	char *absolute = realpath(*path, NULL);

	if (!absolute) {
		message(LOG_ERR, "%s: %s", *path, strerror(errno));
		return -errno;
	}
	free(*path);
	*path = absolute;
	return 0;
}

static int mount_volume(const struct server_options *options)
{
	struct daemon daemon = {.is_child = true, .pipe = -1};
	int exit_code = EXIT_NOT_MOUNTED;

	if (!options->foreground && daemon_start(&daemon, &exit_code) != 0) {
		message(LOG_ERR, "cannot start the server: %s", strerror(errno));
		return EXIT_NOT_MOUNTED;
	}
	if (!daemon.is_child)
		return exit_code;
	if (!options->foreground && chdir("/") != 0)
		return EXIT_NOT_MOUNTED;
	return serve_volume(options, &daemon);
}

static int run(struct server_options *options)
{
	if (options->remount)
		return session_remount(options) ? EXIT_NOT_MOUNTED : EXIT_DONE;
	if (make_absolute(&options->volume_path) ||
	    (options->log_path && make_absolute(&options->log_path)) ||
	    (options->archive_dir && make_absolute(&options->archive_dir)) ||
	    place_prepare(&options->mount_dir))
		return EXIT_NOT_MOUNTED;
	if (options->archive_data && !options->archive_dir) {
		message(LOG_ERR, "log_archive_data needs log_archive=DIR");
		return EXIT_NOT_MOUNTED;
	}
	return mount_volume(options);
}

static const struct {
	const char *word;
	int (*main)(int argc, char **argv);
} commands[] = {
	{"dump", dump_main},     {"sync", sync_main},       {"log-resize", log_resize_main},
	{"trim", trim_main},     {"grow", grow_main},       {"freeze", freeze_main},
	{"thaw", thaw_main},     {"backup", backup_main},   {"restore", restore_main},
	{"scrub", scrub_main},
};

int main(int argc, char **argv)
{
	struct server_options options = {0};
	int exit_code = EXIT_NOT_MOUNTED;

	message_init("blinkfs", false);
	for (unsigned i = 0; argc > 1 && i < array_count(commands); i++)
		if (strcmp(argv[1], commands[i].word) == 0)
			return commands[i].main(argc - 1, argv + 1);
	switch (options_parse(argc, argv, &options)) {
	case OPTIONS_DONE:
		exit_code = EXIT_DONE;
		break;
	case OPTIONS_WRONG:
		break;
	case OPTIONS_MOUNT:
		exit_code = run(&options);
		break;
	}
	options_free(&options);
	return exit_code;
}
