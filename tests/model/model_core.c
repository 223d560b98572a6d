/*
 * Random operations on the core against a filesystem in plain memory.
 *
 *	model_core [seed [operations [MiB of the volume]]]
 *
 * Each result must be the oracle's; a small volume may also say ENOSPC, but not
 * to what frees space, and then nothing may have changed.  Now and then the volume
 * is closed or just abandoned, and opened again.  After its death it must show the
 * oracle as it was after some prefix of the operations that reaches at least to
 * the last fsync.
 */
#include "engine/base/error.h"
#include "tests/lib/core_rig.h"
#include "tests/lib/scratch.h"
#include "tests/model/play.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LOG_MAX 4000u  /* operations between two syncs */
#define MAY_FILL_MIB 64u

struct model {
	struct play play; /* first; its oracle has all operations */
	struct rig rig;
	uint64_t seed;
	unsigned step;
	struct oracle *synced;        /* those before the last sync */
	struct oracle_op log[LOG_MAX]; /* those after it that succeeded */
	unsigned logged;
	unsigned full, crashes, prefixes;
};

static noreturn void fail(const struct model *m, const char *what, int64_t got, int64_t want)
{
	fprintf(stderr, "model_core: seed %" PRIu64 ", step %u: %s: got %" PRId64 ", want %" PRId64
		"\n", m->seed, m->step, what, got, want);
	abort();
}

static noreturn void play_failed(const struct play *play, const char *what, int64_t got,
				 int64_t want)
{
	fail((const struct model *)play, what, got, want);
}

static uint64_t below(struct model *m, uint64_t limit)
{
	return play_below(&m->play, limit);
}

/* --- nodes that go ------------------------------------------------------- */

static void drop_if_gone(struct model *m, uint32_t node)
{
	struct play *p = &m->play;
	struct core_attr attr;
	int rc;

	if (!node || !p->now->node[node] || p->now->node[node]->nlink || play_is_held(p, node))
		return;
	oracle_drop(p->now, node);
	if (below(m, 4) == 0) {
		rig_purge(&m->rig);
		rc = core_getattr(m->rig.core, VIEW_BASE, p->ino[node], &attr);
		if (rc != -ENOENT)
			fail(m, "inode after purge", rc, -ENOENT);
	}
}

static void hold(struct model *m)
{
	uint32_t let_go;

	if (play_hold(&m->play, &let_go))
		fail(m, "lookup", -EIO, 0);
	drop_if_gone(m, let_go);
}

static void compare_file(struct model *m)
{
	if (play_compare_file(&m->play))
		fail(m, "read", -EIO, 0);
}

static void compare_all(struct model *m)
{
	uint64_t got = play_digest(&m->play), want = oracle_digest(m->play.now);

	if (got != want)
		fail(m, "digest of the tree", (int64_t)got, (int64_t)want);
}

/* --- life cycle ---------------------------------------------------------- */

static void note_synced(struct model *m)
{
	oracle_free(m->synced);
	m->synced = oracle_copy(m->play.now);
	m->logged = 0;
}

static void sync_now(struct model *m)
{
	int rc = core_fsync(m->rig.core, VIEW_BASE, INO_ROOT, false);

	if (rc)
		fail(m, "fsync", rc, 0);
	note_synced(m);
}

static void check_volume(struct model *m)
{
	uint64_t problems = rig_problems(&m->rig);

	if (problems)
		fail(m, "volume_check", (int64_t)problems, 0);
}

static void drop_nameless(struct oracle *o)
{
	for (uint32_t i = 1; i < o->count; i++)
		if (o->node[i] && o->node[i]->nlink == 0)
			oracle_drop(o, i);
}

/* Which prefix of the operations survived?  The oracle goes back to it. */
static void find_prefix(struct model *m)
{
	uint64_t got = play_digest(&m->play);
	struct oracle *o = m->synced;
	unsigned applied = 0;

	while (oracle_digest(o) != got) {
		if (applied == m->logged)
			fail(m, "no prefix of the operations is what survived; since sync",
			     m->logged, 0);
		(void)oracle_apply(o, &m->log[applied++]);
	}
	/* Operations that leave no trace in the digest do not count. */
	m->prefixes += m->logged ? applied * 100 / m->logged : 100;
	drop_nameless(o);
	oracle_free(m->play.now);
	m->play.now = o;
	m->synced = oracle_copy(m->play.now);
	m->logged = 0;
}

static void reopen(struct model *m, bool crash)
{
	memset(m->play.held, 0, sizeof(m->play.held));
	if (!crash) {
		drop_nameless(m->play.now);
		rig_reopen(&m->rig, false);
		m->play.core = m->rig.core;
		compare_all(m);
		note_synced(m);
	} else {
		if (below(m, 2))
			sync_now(m);
		rig_reopen(&m->rig, true);
		m->play.core = m->rig.core;
		find_prefix(m);
		m->crashes++;
	}
	check_volume(m);
}

/* --- one step ------------------------------------------------------------ */

static void run_op(struct model *m, bool may_fill)
{
	struct play *p = &m->play;
	struct oracle_op op = play_choose(p);
	uint32_t count = p->now->count;
	uint64_t made = 0;
	uint32_t gone[2] = {0, 0};
	int want, got = play_do(p, &op, &made);

	if (got == -ENOSPC && may_fill && !play_frees_space(&op)) {
		m->full++;
		return;
	}
	if (op.kind == OP_UNLINK || op.kind == OP_RMDIR)
		gone[0] = p->now->node[op.node]->child[op.name];
	if (op.kind == OP_RENAME && !op.exchange)
		gone[1] = p->now->node[op.node2]->child[op.name2];
	want = oracle_apply(p->now, &op);
	if (got != want) {
		play_print(&op);
		fail(m, "result", got, want);
	}
	if (got)
		return;
	if (p->now->count > count)
		p->ino[count] = made;
	m->log[m->logged++] = op;
	drop_if_gone(m, gone[0]);
	drop_if_gone(m, gone[1]);
}

static void step(struct model *m, bool may_fill)
{
	uint64_t kind = below(m, 1000);

	if (kind < 3)
		reopen(m, false);
	else if (kind < 7)
		reopen(m, true);
	else if (kind < 20 || m->logged == LOG_MAX)
		sync_now(m);
	else if (kind < 30)
		rig_purge(&m->rig);
	else if (kind < 34)
		compare_all(m);
	else if (kind < 100)
		hold(m);
	else if (kind < 200)
		compare_file(m);
	else
		run_op(m, may_fill);
}

static void report_space(struct model *m)
{
	struct statvfs s;
	int rc = core_statfs(m->rig.core, VIEW_BASE, &s);

	if (rc)
		fail(m, "statfs", rc, 0);
	printf("%" PRIu64 " inodes, %" PRIu64 " of %" PRIu64 " blocks in use\n",
	       (uint64_t)(s.f_files - s.f_ffree), (uint64_t)(s.f_blocks - s.f_bfree),
	       (uint64_t)s.f_blocks);
}

static void set_root_mode(struct model *m)
{
	struct core_attr attr = rig_attr(&m->rig, INO_ROOT);

	m->play.now->node[0]->mode = attr.mode & 07777;
}

static uint32_t page_size(uint64_t seed, bool small_volume)
{
	static const uint32_t sizes[] = {65536, 4096, 16384, 4096};

	return small_volume ? 4096 : sizes[seed % array_count(sizes)];
}

static void run(uint64_t seed, uint64_t steps, uint64_t mib)
{
	struct model *m = calloc(1, sizeof(*m));
	bool may_fill = mib < MAY_FILL_MIB;

	if (!m)
		abort();
	m->seed = seed;
	printf("model_core: seed %" PRIu64 ", %" PRIu64 " steps, %" PRIu64 " MiB\n", seed, steps,
	       mib);
	fflush(stdout);
	rig_open(&m->rig, mib << 20, page_size(seed, may_fill), seed % 2);
	play_init(&m->play, m->rig.core, INO_ROOT, seed);
	m->play.whiteouts = true;
	m->play.fail = play_failed;
	set_root_mode(m);
	m->synced = oracle_copy(m->play.now);
	for (m->step = 0; m->step < steps && m->play.now->count < ORACLE_NODES_MAX - 1; m->step++)
		step(m, may_fill);
	compare_all(m);
	check_volume(m);
	report_space(m);
	rig_close(&m->rig);
	printf("%u nodes made, %u times full, %u crashes (%u%% of what was not synced survived)\n",
	       m->play.now->count, m->full, m->crashes, m->crashes ? m->prefixes / m->crashes : 0);
	oracle_free(m->play.now);
	oracle_free(m->synced);
	free(m);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		run(strtoull(argv[1], NULL, 0), argc > 2 ? strtoull(argv[2], NULL, 0) : 6000,
		    argc > 3 ? strtoull(argv[3], NULL, 0) : 96);
		return 0;
	}
	for (unsigned i = 0; i < test_scale(); i++) {
		run(2 * i + 1, 6000, 96); /* with background threads */
		run(2 * i + 2, 6000, 96); /* without */
		run(i + 5, 6000, 4);      /* fills up */
	}
	return 0;
}
