/*
 * See bus.h.  A handler can reach nothing but a variable of the whole process.  It is
 * called by the instruction itself, which was copying to or from the log: its thread is
 * not within malloc() or syslog(), so they can be used.
 */
#include "fs/server/bus.h"

#include "engine/base/message.h"
#include "fs/server/serve.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static const char *volume_path;

static void on_signal(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	/* Nothing else is mapped from a file but programs. */
	if (info->si_code == BUS_ADRERR || info->si_code == BUS_MCEERR_AR) {
		message(LOG_CRIT, "%s: the mapped redo log cannot be reached: its medium fails, or "
			"its file was made shorter; stopped, as by kill -9 (mount it again with "
			"-o log_mode=pwrite, or run fsck.blinkfs)", volume_path);
		_exit(EXIT_DAMAGED);
	}
	/* Ours: it comes again when the handler is gone, and ends the program. */
}

void bus_catch(const char *volume)
{
	struct sigaction action = {
		.sa_sigaction = on_signal,
		.sa_flags = SA_SIGINFO | (int)SA_RESETHAND,
	};

	volume_path = volume;
	sigaction(SIGBUS, &action, NULL);
}
