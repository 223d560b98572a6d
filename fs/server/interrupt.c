/* A handler can reach nothing but a variable of the whole process. */
#include "fs/server/interrupt.h"

#include "engine/base/check.h"

#include <signal.h>

static volatile sig_atomic_t noted;

static void on_signal(int signal)
{
	(void)signal;
	noted = 1;
}

void interrupt_catch(void)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = on_signal};

	for (unsigned i = 0; i < array_count(signals); i++)
		sigaction(signals[i], &action, NULL);
}

bool interrupted(void)
{
	return noted != 0;
}
