/*
 * Mode dsync: a write of the log is durable by itself, and says nothing about
 * data.  Data that was written since the last flush gets one of its own, beside
 * the write; when there is none, a commit is one write.
 *
 *	crash during a commit    recovery does
 *	log there, data not      finds the group behind the newest mark, verifies its
 *	                         data, and cuts before the first mtr that lacks some
 *	data there, log not      nothing refers to the data
 */
#include "log/medium.h"

#include "engine/base/os.h"

static int commit(struct log_medium *medium, struct dev_request *pieces, size_t count)
{
	int err = dev_write_beside_flush(medium->lane, pieces, count);

	if (!err)
		os_point("log:written");
	return err;
}

const struct log_medium_ops log_medium_dsync = {.commit = commit};
