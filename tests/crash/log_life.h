/*
 * Power cuts under the log: a random workload over a log of 64 KiB that goes round
 * several times, cut at its writes and flushes, in every mode of the recording
 * device.
 *
 * After each cut, a scan must find
 *	- the appended mtrs from the checkpoint on, without a gap, byte for byte
 *	- at least everything that log_flush() had reported durable
 *	- the data that an mtr refers to, where a mark says so; where data is missing
 *	  the log ends, behind all that was reported durable
 *	- marks that say no more than was surely durable, and cover what log_mark()
 *	  had reported
 *	- no damage
 * Then the log lives on, as after a recovery: it is cut at the end or at the
 * start of a group above the newest mark, new mtrs are appended whose bytes end
 * exactly where the old tail goes on, and the power is cut again.  Nothing of
 * the old tail may come back.
 * At last single bits below the newest mark are flipped: that is damage.
 *
 * In mapped mode all that was appended is there after the mere death of the
 * process, at any time.
 */
#ifndef BLINKFS_TESTS_LOG_LIFE_H
#define BLINKFS_TESTS_LOG_LIFE_H

#include "log/log.h"

struct life_kind {
	const char *name;
	enum log_mode mode;
	uint32_t block;
	bool pmem; /* byte-addressable */
};

/* Ends the program when anything is wrong. */
void life_run(const struct life_kind *kind, uint64_t workload);

#endif
