/*
 * Mode mapped: the log buffer is the log.  An append stores its bytes where they
 * belong, so they survive the death of the process at once; a commit makes them
 * survive a power cut as well.
 *
 * Any line of the open group, and of the one in flight, may reach the medium at
 * any time and in any order, as the CPU's caches or the kernel's write-back see
 * fit.  Hence two differences in what the scan may meet, both in INV-LOG-5:
 * a mark can be there although the group before it is torn, so it is what the
 * mark *says* that counts; and a group has no greatest length.
 *
 * A group still ends at a block boundary: where pages or sectors are written
 * back as a whole, one that is durable is never changed again.
 */
#include "log/medium.h"

#include "engine/base/os.h"

/*
 * On a byte-addressable medium: the log by its cache lines, data by a flush if
 * any was written.  Elsewhere one flush writes back both.
 */
static int commit(struct log_medium *medium, struct dev_request *pieces, size_t count)
{
	os_point("log:written");
	if (!medium->map.byte_addressable)
		return dev_flush(medium->dev);
	for (size_t i = 0; i < count; i++)
		dev_persist(medium->dev, &medium->map, pieces[i].buf, pieces[i].len);
	os_point("log:persisted");
	return dev_flush_written(medium->dev);
}

const struct log_medium_ops log_medium_mapped = {.commit = commit};
