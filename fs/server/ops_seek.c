/*
 * SEEK_DATA and SEEK_HOLE.  The kernel asks, but keeps what it has not written back to
 * itself: where the core sees a hole, or the end, there may be data.
 *
 *	INV-SEEK-1  a hole, or an end, is answered only after the kernel has written back
 *	            what it held there: who copies by these answers loses nothing that
 *	            write() had taken
 *
 * That is the notifier's work (INV-LOCK-2).  Where the core sees data the answer is
 * given at once; what the kernel drops of a hole is zeros.  A frozen mount takes no WRITE:
 * if the kernel holds any there, who asks waits for the thaw, and who asks after him.
 */
#include "fs/server/notify.h"
#include "fs/server/ops.h"
#include "fs/server/reply.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct seek_job {
	struct notifier_job job; /* first */
	fuse_req_t req;
	fuse_ino_t node;
	uint64_t offset;
	int whence;
};

static int seek(struct server *server, const struct seek_job *job, uint64_t *found)
{
	return core_seek(server->core, node_view(job->node), node_ino(job->node), job->offset,
			 job->whence, found);
}

static void answer(fuse_req_t req, int rc, uint64_t found)
{
	if (rc)
		reply_status(req, rc);
	else
		fuse_reply_lseek(req, (off_t)found);
}

/* Where the hole ends that the core sees at `first`; 0: with the file. */
static uint64_t end_of_hole(struct server *server, const struct seek_job *job, uint64_t first)
{
	uint64_t end = 0;
	int rc = core_seek(server->core, node_view(job->node), node_ino(job->node), first,
			   SEEK_DATA, &end);

	return rc ? 0 : end;
}

/*
 * Looks again at each hole that was found, when the kernel has written what it had in
 * it.  SEEK_HOLE may then see more data, and a hole behind that: there it is asked for
 * all that follows, so that two rounds are enough.
 */
static int seek_surely(struct server *server, const struct seek_job *job, uint64_t *found)
{
	bool wants_data = job->whence == SEEK_DATA;
	int rc = seek(server, job, found);

	for (unsigned round = 0; round < 2 && (rc == 0 || rc == -ENXIO); round++) {
		uint64_t first = wants_data || rc ? job->offset : *found, end = 0;

		if (rc == 0 && wants_data)
			end = *found;
		else if (rc == 0 && round == 0)
			end = end_of_hole(server, job, first);
		if (wants_data && rc == 0 && end == first)
			break;
		rc = notify_write_back(server, job->node, first, end ? end - first : 0);
		if (rc == 0)
			rc = seek(server, job, found);
		if (wants_data || rc || *found == first)
			break;
	}
	return rc;
}

static void run_seek_job(struct server *server, struct notifier_job *base, bool may_send)
{
	struct seek_job *job = (struct seek_job *)base;
	uint64_t found = 0;
	int rc = may_send ? seek_surely(server, job, &found) : seek(server, job, &found);

	answer(job->req, rc, found);
	free(job);
}

void op_lseek(fuse_req_t req, fuse_ino_t node, off_t offset, int whence, struct fuse_file_info *fi)
{
	struct seek_job *job, now = {{.run = run_seek_job}, req, node, (uint64_t)offset, whence};
	struct server *server = req_server(req);
	uint64_t found = 0;
	int rc = seek(server, &now, &found);

	(void)fi;
	if ((rc == 0 && whence == SEEK_DATA && found == now.offset) || (rc && rc != -ENXIO)) {
		answer(req, rc, found);
		return;
	}
	job = malloc(sizeof(*job));
	if (!job) {
		reply_status(req, -ENOMEM);
		return;
	}
	*job = now;
	notifier_hand_over(server->notifier, &job->job);
}
