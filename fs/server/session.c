/*
 * libfuse mounts: as root by itself, else through fusermount3.
 */
#include "fs/server/session.h"

#include "engine/base/message.h"
#include "fs/server/rawinit.h"
#include "fs/server/sync.h"

#include <errno.h>
#include <fuse_log.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

static void log_of_libfuse(enum fuse_log_level level, const char *format, va_list args)
{
	char text[512];
	size_t len;

	vsnprintf(text, sizeof(text), format, args);
	len = strlen(text);
	while (len > 0 && text[len - 1] == '\n')
		text[--len] = '\0';
	if (len > 0)
		message((int)level, "%s", text); /* the levels are syslog's */
}

/* One "-o" list.  The volume's path is what /proc/mounts shows as source. */
static int session_args(const struct server_options *options, struct fuse_args *args)
{
	char *list = NULL, *source = NULL;
	int failed;

	if (asprintf(&source, "fsname=%s", options->volume_path) < 0)
		return -ENOMEM;
	failed = fuse_opt_add_opt(&list, "subtype=blinkfs,default_permissions") ||
		 fuse_opt_add_opt_escaped(&list, source) ||
		 (options->kernel && fuse_opt_add_opt(&list, options->kernel)) ||
		 (options->read_only && fuse_opt_add_opt(&list, "ro")) ||
		 (options->allow_other && fuse_opt_add_opt(&list, "allow_other")) ||
		 fuse_opt_add_arg(args, "blinkfs") || fuse_opt_add_arg(args, "-o") ||
		 fuse_opt_add_arg(args, list);
	free(source);
	free(list);
	return failed ? -ENOMEM : 0;
}

int session_mount(struct server *server)
{
	const struct server_options *options = server->options;
	struct fuse_args args = {0};
	int rc;

	fuse_set_log_func(log_of_libfuse);
	if (access("/dev/fuse", F_OK) != 0) {
		message(LOG_ERR,
			"the kernel offers no FUSE (/dev/fuse is missing); "
			"try 'modprobe fuse'");
		return -ENODEV;
	}
	rc = session_args(options, &args);
	if (rc)
		goto out;
	server->session = fuse_session_new(&args, &server_ops, sizeof(server_ops), server);
	if (!server->session) {
		rc = -EINVAL; /* libfuse has said why */
		goto out;
	}
	if (fuse_session_mount(server->session, options->mount_dir) != 0) {
		message(LOG_ERR, "%s: could not mount there", options->mount_dir);
		rc = -EPERM;
		goto out;
	}
	rc = fuse_session_custom_io(server->session, &raw_io, fuse_session_fd(server->session));
out:
	fuse_opt_free_args(&args);
	return rc;
}

void session_close(struct server *server)
{
	if (!server->session)
		return;
	fuse_session_unmount(server->session);
	fuse_session_destroy(server->session);
	server->session = NULL;
}

/* ---------------------------------------------------------------- remount */

static const struct {
	const char *word;
	unsigned long set, clear;
} mount_flags[] = {
	{"nodev", MS_NODEV, 0},           {"dev", 0, MS_NODEV},
	{"nosuid", MS_NOSUID, 0},         {"suid", 0, MS_NOSUID},
	{"noexec", MS_NOEXEC, 0},         {"exec", 0, MS_NOEXEC},
	{"sync", MS_SYNCHRONOUS, 0},      {"async", 0, MS_SYNCHRONOUS},
	{"dirsync", MS_DIRSYNC, 0},       {"noatime", MS_NOATIME, 0},
};

static void apply_flag(const char *word, unsigned long *flags)
{
	for (unsigned i = 0; i < array_count(mount_flags); i++)
		if (strcmp(mount_flags[i].word, word) == 0)
			*flags = (*flags & ~mount_flags[i].clear) | mount_flags[i].set;
}

int session_remount(const struct server_options *options)
{
	unsigned long flags = MS_REMOUNT | (options->read_only ? MS_RDONLY : 0);
	char *copy = strdup(options->kernel ? options->kernel : ""), *rest = copy, *word;

	if (!copy)
		return -ENOMEM;
	while ((word = strsep(&rest, ",")) != NULL)
		apply_flag(word, &flags);
	free(copy);
	if (mount("none", options->mount_dir, NULL, flags, NULL) != 0) {
		message(LOG_ERR, "%s: cannot remount: %s", options->mount_dir, strerror(errno));
		return -errno;
	}
	/* The kernel hands over what it holds, and does not tell us that it was the last. */
	return options->read_only && sync_directory(options->mount_dir) ? -EIO : 0;
}
