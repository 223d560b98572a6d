/*
 * What of an insert cannot be done by two threads at once, in a build with LATCH=timed.
 *
 * One thread inserts, alone, so that nobody waits and every tick that a latch is held is
 * work.  A latch is *global* if each insert takes it in a way that shuts others out:
 *
 *	log        log_reserve, log_append, log_unreserve; the log's own thread, too
 *	flush list a page becomes dirty; the flusher, too
 *	free list  of frames: a new page wants one
 *	page pool  of the free space: a new page wants one (RANK_LEAF: inserts take no other)
 *	free map   of a group, X: the page pool is refilled (RANK_SPACE)
 *	bitmap     of a group, X: the new page's bits; groups are few
 *	root       X: an entry for a page of the level below; at two levels and more it is rare
 *	index      X; S shuts nobody out
 *
 * Latches of shards and of pages below the root belong to a few keys or pages each: two
 * inserts meet there by chance only, and the share of time that they are held is divided
 * by their number.  All threads' holds are counted, the work of background threads too.
 * The time of an insert is the processor's: what else the machine does is left out, as
 * it is of the holds.
 *
 *	serial_fraction   held time of global latches / time of an insert
 *	bound_20          1 / (s + (1 - s) / 20): Amdahl, with 20 cores
 *	serial_fraction_lines, bound_20_lines
 *	                  the same with what it costs that cores pass a cache line on that
 *	                  each insert writes: the words of global latches, also when they
 *	                  are taken S, the root's pins, tickets.  Their number is counted,
 *	                  what one costs is measured with two threads that do nothing else.
 */
#include "bench/blink/blink.h"

#include "engine/base/latch.h"
#include "engine/pool.h"

#ifdef LATCH_TIMED

#include <stdlib.h>
#include <string.h>

#define CORES 20.0
#define POOL_SHARD_COUNT 256.0
#define LINE_ROUNDS 2000000u
#define RUNS 5u

/* Ticks of global latches, one by one, and the words that are written. */
struct serial {
	double log, flush_list, free_list, page_pool, map, bitmap, root, index, shards, parents;
	double total; /* ticks of the inserting thread */
	double per_ns; /* ticks */
	double lines; /* writes to words that all inserts write */
};

static double minus(const struct latch_time *a, const struct latch_time *b)
{
	return (double)(a->ticks - b->ticks);
}

static double times(const struct latch_time *a, const struct latch_time *b)
{
	return (double)(a->count - b->count);
}

/* Number of pages on level 1: two inserts meet in one of them by chance. */
static double parents_of(const struct set *set, struct volume *volume)
{
	return 1.0 + (double)set->leaves / 500.0 +
	       (double)stat_read(&volume->stats, STAT_tree_splits_internal);
}

struct snapshot {
	struct latch_times own, all;
	uint64_t clock, mono_ns, cpu_ns; /* the same moment; of the inserting thread */
};

static void snap(struct snapshot *s)
{
	struct timespec cpu;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
	s->cpu_ns = (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec;
	s->mono_ns = os_mono_ns();
	latch_times_own(&s->own);
	latch_times_all(&s->all);
	s->clock = latch_clock();
}

/* The one thread looks at the clocks before its first operation and after its last. */
static struct {
	struct snapshot before, after;
} current;

static int timed_insert(const struct load *load, struct volume *volume, uint64_t number,
			uint64_t *random)
{
	if (number == 0)
		snap(&current.before);
	if (load_insert(load, volume, number, random) != 1)
		return 0;
	if (number + 1 == load->operations)
		snap(&current.after);
	return 1;
}

static void evaluate(const struct set *set, struct volume *volume, unsigned levels, double mtrs,
		     struct serial *serial)
{
	const struct snapshot *a = &current.after, *b = &current.before;
	const struct latch_time(*x)[LATCH_SUBS] = a->own.x, (*x0)[LATCH_SUBS] = b->own.x;
	const struct latch_time(*s)[LATCH_SUBS] = a->own.s, (*s0)[LATCH_SUBS] = b->own.s;
	unsigned root = levels - 1;
	double root_visits = times(&s[RANK_PAGE][root], &s0[RANK_PAGE][root]) +
			     times(&x[RANK_PAGE][root], &x0[RANK_PAGE][root]);

	*serial = (struct serial){
		.log = minus(&a->all.x[RANK_LOG][0], &b->all.x[RANK_LOG][0]),
		.flush_list = minus(&a->all.x[RANK_FLUSHLIST][0], &b->all.x[RANK_FLUSHLIST][0]),
		.free_list = minus(&x[RANK_POOL][1], &x0[RANK_POOL][1]),
		.page_pool = minus(&x[RANK_LEAF][0], &x0[RANK_LEAF][0]),
		.map = minus(&a->all.x[RANK_SPACE][0], &b->all.x[RANK_SPACE][0]),
		.bitmap = minus(&x[RANK_BITMAP][0], &x0[RANK_BITMAP][0]),
		.root = minus(&x[RANK_PAGE][root], &x0[RANK_PAGE][root]),
		.index = minus(&x[RANK_INDEX][0], &x0[RANK_INDEX][0]),
		.shards = minus(&x[RANK_POOL][0], &x0[RANK_POOL][0]) / POOL_SHARD_COUNT,
		.parents = root > 1 ? minus(&x[RANK_PAGE][1], &x0[RANK_PAGE][1]) /
					      parents_of(set, volume) : 0,
		.per_ns = (double)(a->clock - b->clock) / (double)(a->mono_ns - b->mono_ns),
	};
	serial->total = (double)(a->cpu_ns - b->cpu_ns) * serial->per_ns;
	/*
	 * Taking and leaving a latch writes its word twice; the root is found in its shard,
	 * pinned, latched, and let go: six.  Tickets are taken and given back by each mtr.
	 */
	serial->lines = 2 * (times(&x[RANK_LOG][0], &x0[RANK_LOG][0]) +
			     times(&x[RANK_FLUSHLIST][0], &x0[RANK_FLUSHLIST][0]) +
			     times(&x[RANK_POOL][1], &x0[RANK_POOL][1]) +
			     times(&x[RANK_LEAF][0], &x0[RANK_LEAF][0]) +
			     times(&x[RANK_BITMAP][0], &x0[RANK_BITMAP][0]) +
			     times(&s[RANK_INDEX][0], &s0[RANK_INDEX][0])) +
			6 * root_visits + 2 * mtrs;
}

static double sum(const struct serial *s)
{
	return s->log + s->flush_list + s->free_list + s->page_pool + s->map + s->bitmap +
	       s->root + s->index + s->shards + s->parents;
}

static unsigned levels_of(struct volume *volume)
{
	struct frame *root;
	unsigned levels;

	demand(pool_get(volume->pool, volume->index[BENCH_INDEX].root, PAGE_TREE, BENCH_INDEX,
			&root), "root");
	levels = tree_page(root->data)->head.level + 1u;
	pool_put(root);
	return levels < LATCH_SUBS ? levels : LATCH_SUBS;
}

static void run_once(const struct set *set, struct serial *serial)
{
	struct volume *volume = set_open(set, SMO_BLINK, 0);
	struct load load = {.do_one = timed_insert, .set = set, .operations = set->inserts,
			    .threads = 1};
	struct run_result result;
	int64_t rows;

	load_run(&load, volume, &result, &rows);
	evaluate(set, volume, levels_of(volume), (double)result.stats[STAT_mtr_commits], serial);
	set_check(volume, set->rows + (uint64_t)rows);
	volume_abandon(volume);
}

/* ------------------------------------------------------ cost of a line */

static _Alignas(64) _Atomic uint64_t line;

static void write_line(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < LINE_ROUNDS; i++)
		atomic_fetch_add(&line, 1);
}

/* Ticks between two writes to one word by two threads that do nothing else. */
static double line_ticks(void)
{
	double best = 0;

	for (unsigned i = 0; i < RUNS; i++) {
		uint64_t start = latch_clock();
		struct os_thread other;
		double ticks;

		demand(os_thread_start(&other, "line", write_line, NULL), "thread");
		write_line(NULL);
		os_thread_join(&other);
		ticks = (double)(latch_clock() - start) / (2.0 * LINE_ROUNDS);
		best = i == 0 || ticks < best ? ticks : best;
	}
	return best;
}

/* What the two looks at the clock of each hold cost the inserting thread. */
static double clock_ticks(void)
{
	uint64_t start = latch_clock(), sink = 0;

	for (unsigned i = 0; i < LINE_ROUNDS; i++)
		sink += latch_clock();
	return (double)(latch_clock() - start + (sink == 1)) / LINE_ROUNDS;
}

static double bound(double fraction)
{
	return 1 / (fraction + (1 - fraction) / CORES);
}

static int by_fraction(const void *a, const void *b)
{
	const struct serial *x = a, *y = b;
	double fx = sum(x) / x->total, fy = sum(y) / y->total;

	return (fx > fy) - (fx < fy);
}

bool serial_measure(const struct set *set, FILE *out)
{
	struct serial serial[RUNS], *s = &serial[RUNS / 2];
	double per_ns, fraction, lines, line_cost = line_ticks();

	for (unsigned i = 0; i < RUNS; i++)
		run_once(set, &serial[i]);
	qsort(serial, RUNS, sizeof(serial[0]), by_fraction);
	per_ns = s->per_ns * (double)set->inserts;
	fraction = sum(s) / s->total;
	lines = fraction + s->lines * line_cost / s->total;
	fprintf(out, "insert_ns %.0f\n", s->total / per_ns);
	fprintf(out, "held_log_ns %.1f\nheld_flush_list_ns %.1f\nheld_free_list_ns %.1f\n"
		"held_page_pool_ns %.1f\nheld_map_ns %.1f\nheld_bitmap_ns %.1f\nheld_root_ns %.1f\n"
		"held_index_ns %.1f\nheld_shards_ns %.1f\nheld_parents_ns %.1f\n",
		s->log / per_ns, s->flush_list / per_ns, s->free_list / per_ns,
		s->page_pool / per_ns, s->map / per_ns, s->bitmap / per_ns, s->root / per_ns,
		s->index / per_ns, s->shards / per_ns, s->parents / per_ns);
	fprintf(out, "lines_per_insert %.1f\nline_ns %.1f\nclock_ns %.1f\n",
		s->lines / (double)set->inserts, line_cost / per_ns * (double)set->inserts,
		clock_ticks() / per_ns * (double)set->inserts);
	fprintf(out, "serial_fraction %.4f\nbound_20 %.2f\n", fraction, bound(fraction));
	fprintf(out, "serial_fraction_lines %.4f\nbound_20_lines %.2f\n", lines, bound(lines));
	return true;
}

#else

bool serial_measure(const struct set *set, FILE *out)
{
	(void)set;
	(void)out;
	return false;
}

#endif
