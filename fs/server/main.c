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

int main(int argc, char **argv)
{
	struct server_options options = {0};
	int exit_code = EXIT_NOT_MOUNTED;

	message_init("blinkfs", false);
	if (argc > 1 && strcmp(argv[1], "dump") == 0)
		return dump_main(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "sync") == 0)
		return sync_main(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "log-resize") == 0)
		return log_resize_main(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "trim") == 0)
		return trim_main(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "grow") == 0)
		return grow_main(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "freeze") == 0)
		return freeze_main(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "thaw") == 0)
		return thaw_main(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "backup") == 0)
		return backup_main(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "restore") == 0)
		return restore_main(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "scrub") == 0)
		return scrub_main(argc - 1, argv + 1);
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
