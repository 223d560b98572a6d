/*
 * Modes pwrite and direct: the group is written, then the device is flushed, and
 * with it all data.  A group that is one piece costs the same two system calls as
 * a program that writes and syncs by itself; one that goes round the end of the
 * log or of the buffer is one batch.
 *
 * Write and flush as one linked submission to io_uring was measured and is not
 * here: the flush then runs in another thread of the kernel, which costs more
 * than the system call that is saved.
 */
#include "log/medium.h"

#include "engine/base/os.h"

static int commit(struct log_medium *medium, struct dev_request *pieces, size_t count)
{
	struct device *to = medium->lane ? medium->lane : medium->dev;
	int err = count == 1 ? dev_write(to, pieces[0].buf, pieces[0].len, pieces[0].offset)
			     : dev_batch(to, pieces, count);

	if (err)
		return err;
	os_point("log:written");
	return dev_flush(medium->dev);
}

const struct log_medium_ops log_medium_flushed = {.commit = commit};
