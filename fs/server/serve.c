/*
 *	lock and open the volume -> core -> mount -> serve -> core -> volume
 *
 * How a mount ends:
 *
 *	umount           the kernel writes back all that it holds, then lets the
 *	                 connection go; the workers return
 *	SIGTERM, SIGINT, a thread of its own unmounts while the workers serve on, so
 *	SIGHUP           that what the kernel holds still arrives.  When files are
 *	                 open: write back, detach, wait until it is quiet, stop;
 *	                 those who still have files open get errors
 *	connection lost  as umount, without the kernel's writing back
 *
 * In each case everything is durable and the volume marked clean when the
 * process ends with exit code 0.
 */
#include "fs/server/bus.h"
#include "fs/server/serve.h"

#include "engine/base/error.h"
#include "engine/base/message.h"
#include "engine/log_device.h"
#include "fs/server/backup_serve.h"
#include "fs/server/control.h"
#include "fs/server/freeze.h"
#include "fs/server/notify.h"
#include "fs/server/place.h"
#include "fs/server/rawops.h"
#include "fs/server/readahead.h"
#include "fs/server/scrub_serve.h"
#include "fs/server/session.h"
#include "fs/server/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* ---------------------------------------------------------------- signals */

/* Waits for a signal that ends the mount. */
struct stopper {
	struct server *server;
	pthread_t thread;
	_Atomic bool served; /* the mount has ended by itself: the signal is ours */
};

static void stop_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGHUP);
}

/* Threads inherit the mask: only the stopper takes these signals. */
static void block_signals(void)
{
	sigset_t set;

	stop_signals(&set);
	sigaddset(&set, SIGUSR1); /* workers let it in (worker.c) */
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* What the kernel holds of file contents comes to the workers. */
static void write_back(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (syncfs(fd) != 0)
		message(LOG_WARNING, "%s: %s", dir, strerror(errno));
	close(fd);
}

static void end_mount(struct server *server)
{
	const char *dir = server->options->mount_dir;

	(void)freeze_off(server->freeze); /* the kernel has to get rid of what it holds */
	if (place_unmount(dir, false) == 0)
		return; /* the workers see the connection go */
	write_back(dir);
	message(LOG_NOTICE, "%s: detached while files are open", dir);
	if (place_unmount(dir, true) != 0)
		message(LOG_WARNING, "%s: could not be unmounted", dir);
	notifier_settle(server->notifier);
	workers_settle(server->workers);
	workers_stop(server->workers);
}

static void *stopper_main(void *arg)
{
	struct stopper *stopper = arg;
	sigset_t set;
	int signal;

	stop_signals(&set);
	pthread_setname_np(pthread_self(), "blinkfs-stopper");
	if (sigwait(&set, &signal) == 0 && !atomic_load(&stopper->served)) {
		message(LOG_INFO, "%s: unmounting on %s", stopper->server->options->mount_dir,
			strsignal(signal));
		end_mount(stopper->server);
	}
	return NULL;
}

static int stopper_start(struct stopper *stopper)
{
	return -pthread_create(&stopper->thread, NULL, stopper_main, stopper);
}

static void stopper_end(struct stopper *stopper)
{
	atomic_store(&stopper->served, true);
	pthread_kill(stopper->thread, SIGTERM);
	pthread_join(stopper->thread, NULL);
}

/* ----------------------------------------------------------------- volume */

static int explain(const char *path, int rc)
{
	message(LOG_ERR, "%s: %s", path, error_text(rc));
	return rc;
}

/* A server that has just been unmounted may still be closing the volume: bounded wait. */
static int wait_for_volume(struct device **dev, const char *path, unsigned flags)
{
	char *dir = place_of_volume(path);
	int rc;

	if (dir) {
		message(LOG_ERR, "%s: already mounted on %s", path, dir);
		free(dir);
		return -BE_BUSY;
	}
	rc = dev_open_file(dev, path, flags, LOCK_WAIT_SILENT_NS);
	if (rc == -BE_BUSY) {
		message(LOG_NOTICE, "%s: in use; waiting up to %llu s for it", path,
			LOCK_WAIT_NS / 1000000000ull);
		rc = dev_open_file(dev, path, flags, LOCK_WAIT_NS - LOCK_WAIT_SILENT_NS);
	}
	return rc ? explain(path, rc) : 0;
}

static int open_device(const struct server_options *options, struct device **dev)
{
	unsigned flags = options->read_only ? DEV_READ_ONLY | DEV_SHARED_LOCK : 0;
	const char *path = options->volume_path;
	int rc = dev_open_file(dev, path, flags, 0);

	if (rc == -BE_BUSY)
		return wait_for_volume(dev, path, flags);
	if (rc == -EINVAL || rc == -EISDIR)
		message(LOG_ERR, "%s: neither a regular file nor a block device", path);
	else if (rc)
		explain(path, rc);
	return rc;
}

/* An external log waits for its last user as the volume does. */
static int open_log_device(const struct server_options *options, struct device *dev,
			   struct device **log_dev)
{
	const struct log_device_request request = {
		.path = options->log_path,
		.how = "-o log=PATH",
		.flags = options->read_only ? DEV_READ_ONLY | DEV_SHARED_LOCK : 0,
		.wait_ns = LOCK_WAIT_NS,
	};

	return log_device_open(log_dev, dev, &request);
}

/* Has volume_open() told this one? */
static bool explained_by_volume(int rc)
{
	return rc == -BE_NOVOLUME || rc == -BE_VERSION || rc == -BE_TRUNCATED ||
	       rc == -BE_DAMAGE || rc == -BE_NOLOG || rc == -BE_OLDLOG || rc == -EOPNOTSUPP;
}

static int open_volume(struct server *server)
{
	const struct server_options *options = server->options;
	struct volume_options volume_options = {
		.read_only = options->read_only,
		.cache_bytes = options->cache_bytes,
		.commit_interval_ns = options->commit_interval_ns,
		.log_mode = options->log_mode,
		.log_path = options->log_path,
		.log_scrub = options->log_scrub,
		.archive_dir = options->archive_dir,
		.archive_data = options->archive_data,
		.discard = options->discard,
		.smo = options->smo,
		.tunables_off = options->tunables_off,
	};
	struct device *dev = NULL;
	int rc = open_device(options, &dev);

	if (rc)
		return rc;
	rc = open_log_device(options, dev, &volume_options.log_dev);
	if (rc) {
		dev_close(dev);
		return rc;
	}
	rc = volume_open(&server->volume, dev, &volume_options);
	if (rc) {
		dev_close(volume_options.log_dev);
		dev_close(dev);
		return explained_by_volume(rc) ? rc : explain(options->volume_path, rc);
	}
	rc = core_open(&server->core, server->volume);
	if (!rc)
		server->answers_open =
			server->options->check_open || core_flags_used(server->core);
	return rc ? explain(options->volume_path, rc) : 0;
}

static int close_volume(struct server *server)
{
	int rc = 0;

	core_close(server->core);
	if (server->volume)
		rc = volume_close(server->volume);
	if (rc)
		message(LOG_ERR, "%s: could not be closed cleanly: %s",
			server->options->volume_path, error_text(rc));
	return rc;
}

/* ------------------------------------------------------------------ serve */

struct live {
	struct daemon *daemon;
	const struct server *server;
};

static void mount_is_live(void *arg)
{
	const struct live *live = arg;
	const struct volume *volume = live->server->volume;

	readahead_raise(live->server->options->mount_dir);
	daemon_live(live->daemon);
	if (!volume->options.read_only)
		message(LOG_INFO, "%s: redo log%s%s: mode %s, blocks of %u bytes",
			volume->dev->path, volume->geo.log_external ? " on " : "",
			volume->geo.log_external ? volume->log_dev->path : "",
			log_mode_name(log_mode(volume->log)), log_block_bytes(volume->log));
}

static void work_on(struct server *server, const struct fuse_buf *request)
{
	if (!rawops_serve(server, request->mem, request->size))
		fuse_session_process_buf(server->session, request);
}

static void serve_request(void *arg, const struct fuse_buf *request)
{
	freeze_serve(((struct server *)arg)->freeze, request);
}

static int serve(struct server *server)
{
	struct stopper stopper = {.server = server};
	int rc = workers_create(&server->workers, server->session, server->options->max_threads,
				serve_request, server);

	if (!rc)
		rc = stopper_start(&stopper);
	if (rc)
		return explain(server->options->mount_dir, rc);
	rc = workers_run(server->workers);
	freeze_end(server->freeze);
	stopper_end(&stopper);
	return rc ? explain(server->options->mount_dir, rc) : 0;
}

int serve_volume(const struct server_options *options, struct daemon *daemon)
{
	struct live live = {.daemon = daemon};
	struct server server = {
		.options = options,
		.on_live = mount_is_live,
		.on_live_arg = &live,
	};
	int rc, close_rc;

	live.server = &server;
	block_signals();
	bus_catch(options->volume_path);
	rc = open_volume(&server);
	if (!rc)
		rc = control_open(&server.control);
	if (!rc)
		rc = backup_service_open(&server.backup, server.volume);
	if (!rc)
		rc = freeze_open(&server.freeze, &server, work_on);
	if (!rc)
		rc = notifier_open(&server.notifier, &server);
	if (!rc)
		rc = scrub_service_open(&server.scrub, server.volume);
	if (!rc)
		core_limit_inodes(server.core, options->inode_cache, notifier_prune,
				  server.notifier);
	if (!rc)
		rc = session_mount(&server);
	if (!rc)
		rc = serve(&server);
	notifier_stop(server.notifier);
	session_close(&server);
	workers_free(server.workers);
	freeze_close(server.freeze);
	scrub_service_close(server.scrub);
	backup_service_close(server.backup);
	control_close(server.control);
	close_rc = close_volume(&server);
	notifier_free(server.notifier);

	if (rc == -BE_DAMAGE)
		return EXIT_DAMAGED;
	return rc || close_rc ? EXIT_NOT_MOUNTED : EXIT_DONE;
}
