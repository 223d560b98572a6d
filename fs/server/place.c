/*
 * The mount table is read from /proc/self/mounts; a dead mount cannot be asked.
 */
#include "fs/server/place.h"

#include "engine/base/message.h"

#include <errno.h>
#include <mntent.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOUNT_TYPE "fuse.blinkfs"
#define LINE_BYTES_MAX 16384 /* two paths and options, octal-escaped */

extern char **environ;

/* --- the mount table ----------------------------------------------------- */

/* The newest entry that `match` takes; what it returns is passed on. */
static char *find_mount(char *(*match)(const struct mntent *entry, const char *arg),
			const char *arg)
{
	FILE *table = setmntent("/proc/self/mounts", "re");
	char *line = malloc(LINE_BYTES_MAX), *found = NULL;
	struct mntent entry;

	while (table && line && getmntent_r(table, &entry, line, LINE_BYTES_MAX)) {
		char *now = match(&entry, arg);

		if (now) {
			free(found);
			found = now;
		}
	}
	free(line);
	if (table)
		endmntent(table);
	return found;
}

static char *type_at(const struct mntent *entry, const char *dir)
{
	return strcmp(entry->mnt_dir, dir) == 0 ? strdup(entry->mnt_type) : NULL;
}

static char *dir_of(const struct mntent *entry, const char *volume_path)
{
	bool ours = strcmp(entry->mnt_type, MOUNT_TYPE) == 0 &&
		    strcmp(entry->mnt_fsname, volume_path) == 0;

	return ours ? strdup(entry->mnt_dir) : NULL;
}

char *place_of_volume(const char *volume_path)
{
	return find_mount(dir_of, volume_path);
}

static bool is_our_mount(const char *dir)
{
	char *type = find_mount(type_at, dir);
	bool ours = type && strcmp(type, MOUNT_TYPE) == 0;

	free(type);
	return ours;
}

/* --- from a device ------------------------------------------------------- */

/* 36 35 98:0 /root /mount/point options [optional ...] - type source options */
static bool line_is_ours(const char *line, dev_t device)
{
	unsigned major, minor;
	const char *type = strstr(line, " - ");

	return sscanf(line, "%*d %*d %u:%u", &major, &minor) == 2 &&
	       makedev(major, minor) == device && type &&
	       strncmp(type + 3, "fuse.blinkfs ", 13) == 0;
}

bool place_is_volume(dev_t device)
{
	FILE *table = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t room = 0;
	bool found = false;

	while (table && !found && getline(&line, &room, table) > 0)
		found = line_is_ours(line, device);
	free(line);
	if (table)
		fclose(table);
	return found;
}

/* --- unmounting ---------------------------------------------------------- */

static int run_fusermount(const char *dir, bool detach)
{
	char *argv[] = {"fusermount3", "-u", "-q", detach ? "-z" : "--", (char *)dir, NULL};
	posix_spawnattr_t attr;
	sigset_t none;
	pid_t pid;
	int status, rc;

	rc = posix_spawnattr_init(&attr);
	if (rc)
		return -rc;
	sigemptyset(&none); /* the server blocks the signals that end it */
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	rc = posix_spawnp(&pid, argv[0], NULL, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	if (rc)
		return -rc;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EBUSY;
}

int place_unmount(const char *dir, bool detach)
{
	if (umount2(dir, UMOUNT_NOFOLLOW | (detach ? MNT_DETACH : 0)) == 0)
		return 0;
	return errno == EPERM ? run_fusermount(dir, detach) : -errno;
}

/* --- the directory ------------------------------------------------------- */

static int refuse(const char *dir, const char *why, int rc)
{
	message(LOG_ERR, "%s: %s", dir, why);
	return rc;
}

/* The kernel may answer stat() for a dead mount from memory, but not statvfs(). */
static int look_at(const char *dir, struct stat *st)
{
	struct statvfs figures;

	if (stat(dir, st) != 0)
		return -errno;
	if (is_our_mount(dir) && statvfs(dir, &figures) != 0)
		return -errno;
	return 0;
}

static int clear_dead_mount(const char *dir, struct stat *st)
{
	if (is_our_mount(dir) && place_unmount(dir, true) == 0 && look_at(dir, st) == 0) {
		message(LOG_NOTICE, "%s: cleared a mount whose server had died", dir);
		return 0;
	}
	message(LOG_ERR,
		"%s: a mount whose server has died is in the way; "
		"remove it with 'fusermount3 -u %s' or 'umount -l %s'",
		dir, dir, dir);
	return -ENOTCONN;
}

int place_prepare(char **dir)
{
	char *absolute = realpath(*dir, NULL);
	struct stat st;
	int rc;

	if (!absolute) {
		rc = -errno;
		return refuse(*dir,
			      rc == -ENOENT ? "mount directory does not exist" : strerror(-rc), rc);
	}
	free(*dir);
	*dir = absolute;
	rc = look_at(absolute, &st);
	if (rc == -ENOTCONN)
		rc = clear_dead_mount(absolute, &st);
	else if (rc)
		refuse(absolute, strerror(-rc), rc);
	if (rc)
		return rc;
	if (!S_ISDIR(st.st_mode))
		return refuse(absolute, "mount point is not a directory", -ENOTDIR);
	return 0;
}
