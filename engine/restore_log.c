/* What the archive of the log adds to backups. */
#include "engine/restore_internal.h"

#include <errno.h>

int restore_log(struct restore *restore, const char *dir, lsn_t until)
{
	(void)restore, (void)dir, (void)until;
	return -EOPNOTSUPP;
}
