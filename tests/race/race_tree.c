/*
 * The B-link index under concurrency.
 *
 * 1. Oracle: threads own disjoint keys that are neighbours in the tree, insert
 *    and delete them with searches and scans among them; every search and every
 *    scan must see exactly what its thread put, whatever others split and merge.
 * 2. Shrinking: a tall index is emptied by some threads while others search and scan
 *    what stays; nearly all pages come back.
 * 3. Forced interleavings: at named points one thread stops until another has
 *    done something, so that each window of the protocol is surely visited.
 */
#include "engine/mtr.h"
#include "engine/pool.h"
#include "engine/purge.h"
#include "tests/lib/scratch.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 8u
#define KEYS_PER_THREAD 400u
#define INDEX INDEX_OVERLAY

static struct volume *open_volume(void)
{
	return scratch_open(scratch_format(64u << 20, SCRATCH_PAGE, 2u << 20), true);
}

static void demand(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "race_tree: %s\n", what);
	abort();
}

static void make_key(uint8_t key[8], unsigned thread, unsigned i)
{
	be64_put(key, (uint64_t)i * THREADS + thread);
}

#define VALUE_BYTES 200u
#define LARGE_BYTES 900u /* few of them fill a page */

static void change_sized(struct volume *v, const uint8_t key[8], bool delete, uint8_t fill,
			 size_t len)
{
	uint8_t value[LARGE_BYTES];
	struct mtr *m;
	int rc = mtr_begin(v, 0, &m);

	demand(rc == 0, "mtr_begin");
	memset(value, fill, sizeof(value));
	mtr_want_key(m, INDEX, key, 8);
	do {
		rc = mtr_latch(m);
		if (rc)
			break;
		if (delete)
			mtr_delete(m, INDEX, key, 8);
		else
			mtr_put(m, INDEX, key, 8, value, len);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	demand(rc == 0, "commit");
}

static void change(struct volume *v, const uint8_t key[8], bool delete, uint8_t fill)
{
	change_sized(v, key, delete, fill, VALUE_BYTES);
}

static bool exists(struct volume *v, const uint8_t key[8], uint8_t fill)
{
	uint8_t value[VALUE_BYTES];
	size_t len;
	int rc = tree_get(&v->index[INDEX], key, 8, value, sizeof(value), &len);

	demand(rc == 0 || rc == -BE_NOTFOUND, "tree_get");
	if (rc)
		return false;
	demand(len == sizeof(value) && value[0] == fill && value[199] == fill, "value");
	return true;
}

/* ------------------------------------------------------------- 1. oracle */

struct worker {
	struct volume *v;
	unsigned number;
	uint64_t seed;
	unsigned rounds;
	bool switches;              /* turns the protocol over now and then */
	struct os_thread thread;
	bool there[KEYS_PER_THREAD];
};

/* Own keys are seen exactly once by a scan of everything, in either direction. */
static void scan(struct worker *w, bool backwards)
{
	struct tree *tree = &w->v->index[INDEX];
	bool seen[KEYS_PER_THREAD] = {false};
	struct tree_cursor c;
	uint64_t previous = 0;
	bool first = true;
	int rc = backwards ? tree_cursor_open_before(&c, tree, NULL, 0)
			   : tree_cursor_open(&c, tree, NULL, 0);

	while (rc == 0 &&
	       (rc = backwards ? tree_cursor_prev(&c) : tree_cursor_next(&c)) == 0) {
		uint64_t key = be64_get(c.key.bytes);

		demand(first || (backwards ? key < previous : key > previous), "scan is in order");
		first = false;
		previous = key;
		if (key % THREADS == w->number)
			seen[key / THREADS] = true;
	}
	tree_cursor_close(&c);
	demand(rc == -BE_END, "scan ends");
	demand(memcmp(seen, w->there, sizeof(seen)) == 0, "scan sees what exists");
}

/* The first entry from an own key on is not behind the first own one that exists. */
static void first(struct worker *w, unsigned from)
{
	unsigned end = from + 30 < KEYS_PER_THREAD ? from + 30 : KEYS_PER_THREAD - 1, i = from;
	uint8_t low[8], high[8], value[VALUE_BYTES];
	uint64_t key, own;
	struct key found;
	size_t len;
	int rc;

	make_key(low, w->number, from);
	make_key(high, w->number, end);
	while (i <= end && !w->there[i])
		i++;
	own = (uint64_t)i * THREADS + w->number;
	rc = tree_first(&w->v->index[INDEX], low, high, 8, &found, value, sizeof(value), &len);
	demand(rc == 0 || (rc == -BE_NOTFOUND && i > end), "there is one in the range");
	key = rc ? 0 : be64_get(found.bytes);
	demand(rc || (key >= be64_get(low) && (i > end ? key < be64_get(high) : key <= own)),
	       "the first one in the range");
}

static void work(void *arg)
{
	struct worker *w = arg;
	uint8_t key[8];

	for (unsigned r = 0; r < w->rounds; r++) {
		unsigned i = random_next(&w->seed) % KEYS_PER_THREAD;
		/* Phases of mostly inserting and mostly deleting: splits and merges. */
		bool grow = r / 500 % 2 == 0;

		if (w->switches && r % 50 == 0)
			volume_set_smo(w->v, (enum smo_mode)(r / 50 % SMO_MODE_COUNT));
		make_key(key, w->number, i);
		demand(exists(w->v, key, (uint8_t)i) == w->there[i], "search sees what exists");
		if (r % 8 == 0)
			first(w, i);
		if (w->there[i] != grow) {
			change(w->v, key, w->there[i], (uint8_t)i);
			w->there[i] = !w->there[i];
		}
		if (r % 200 == 199)
			scan(w, r % 400 == 399);
	}
}

/* mode SMO_MODE_COUNT: switched all the time */
static void oracle(uint64_t seed, enum smo_mode mode)
{
	static struct worker worker[THREADS];
	struct volume *v = open_volume();

	if (mode != SMO_MODE_COUNT)
		volume_set_smo(v, mode);
	for (unsigned t = 0; t < THREADS; t++) {
		worker[t] = (struct worker){.v = v, .number = t, .seed = seed + t,
					    .rounds = 2000 * test_scale(),
					    .switches = mode == SMO_MODE_COUNT && t == 0};
		demand(os_thread_start(&worker[t].thread, "work", work, &worker[t]) == 0, "thread");
	}
	for (unsigned t = 0; t < THREADS; t++)
		os_thread_join(&worker[t].thread);
	demand(stat_read(&v->stats, STAT_tree_splits_leaf) > 20, "pages were split");
	demand(stat_read(&v->stats, STAT_tree_merges) > 0, "pages were merged");
	demand(stat_read(&v->stats, STAT_tree_index_latch_x) == 0, "no index latch X");
	demand(mode != SMO_BLINK || stat_read(&v->stats, STAT_tree_index_latch_sx) == 0,
	       "no index latch SX");
	demand(mode != SMO_INDEX_LATCH ||
		       stat_read(&v->stats, STAT_tree_incomplete_completions) == 0,
	       "nothing incomplete");
	demand(scratch_problems(v) == 0, "check");
	demand(volume_close(v) == 0, "close");
}

/* ---------------------------------------------------------- 2. shrinking */

#define SHRINK_THREADS 3u
#define SHRINK_KEYS 10000u   /* times TEST_SCALE: 100 makes a million */
#define SHRINK_STAYS 4096u   /* every so manyth key */
#define PAGES_LEFT_MAX 12u   /* of thousands: each key that stays may keep a page */

struct shrinker {
	struct volume *v;
	unsigned number, keys;
	bool backwards;
	struct os_thread thread;
};

static _Atomic unsigned emptying;

/* Long keys with nothing in common make a tall tree. */
static size_t long_key(uint8_t key[KEY_BYTES_MAX], unsigned i)
{
	memset(key, 0, KEY_BYTES_MAX);
	be64_put(key, (uint64_t)i * 0x9e3779b97f4a7c15ull);
	be64_put(key + KEY_BYTES_MAX - 8, i);
	return KEY_BYTES_MAX;
}

static void change_long(struct volume *v, unsigned i, bool delete)
{
	uint8_t key[KEY_BYTES_MAX], value[160] = {0};
	size_t len = long_key(key, i);
	struct mtr *m;
	int rc = mtr_begin(v, 0, &m);

	demand(rc == 0, "mtr_begin");
	mtr_want_key(m, INDEX, key, len);
	do {
		rc = mtr_latch(m);
		if (rc)
			break;
		if (delete)
			mtr_delete(m, INDEX, key, len);
		else
			mtr_put(m, INDEX, key, len, value, sizeof(value));
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	demand(rc == 0, "commit");
}

static bool stays(unsigned i)
{
	return i % SHRINK_STAYS == 0;
}

static void fill(void *arg)
{
	struct shrinker *s = arg;

	for (unsigned i = s->number; i < s->keys; i += SHRINK_THREADS)
		change_long(s->v, i, false);
}

static void empty(void *arg)
{
	struct shrinker *s = arg;

	for (unsigned i = s->number; i < s->keys; i += SHRINK_THREADS)
		if (!stays(i))
			change_long(s->v, i, true);
	atomic_fetch_sub(&emptying, 1);
}

/* What stays is found, and seen exactly once by each scan. */
static void look(void *arg)
{
	struct shrinker *s = arg;
	struct tree *tree = &s->v->index[INDEX];
	uint8_t key[KEY_BYTES_MAX], value[8];
	size_t len;

	while (atomic_load(&emptying) > 0) {
		struct tree_cursor c;
		unsigned seen = 0, wanted = 0;
		int rc = s->backwards ? tree_cursor_open_before(&c, tree, NULL, 0)
				      : tree_cursor_open(&c, tree, NULL, 0);

		while (rc == 0 && (rc = s->backwards ? tree_cursor_prev(&c)
						     : tree_cursor_next(&c)) == 0)
			seen += stays((unsigned)be64_get(c.key.bytes + KEY_BYTES_MAX - 8));
		tree_cursor_close(&c);
		demand(rc == -BE_END, "scan ends");
		for (unsigned i = 0; i < s->keys; i += SHRINK_STAYS, wanted++)
			demand(tree_get(tree, key, long_key(key, i), value, sizeof(value),
					&len) == 0, "what stays is found");
		demand(seen == wanted, "what stays is seen exactly once");
	}
}

static unsigned root_level(struct volume *v)
{
	struct frame *root;
	unsigned level;

	demand(pool_take_tickets(v->pool, 1) == 0, "tickets");
	demand(pool_get(v->pool, v->index[INDEX].root, PAGE_TREE, INDEX, &root) == 0, "root");
	latch_s(&root->latch);
	level = tree_page(root->data)->head.level;
	unlatch_s(&root->latch);
	pool_put(root);
	pool_give_tickets(v->pool, 1);
	return level;
}

static void start(struct shrinker *s, unsigned count, void (*run)(void *))
{
	for (unsigned i = 0; i < count; i++)
		demand(os_thread_start(&s[i].thread, "shrink", run, &s[i]) == 0, "thread");
}

static void join(struct shrinker *s, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		os_thread_join(&s[i].thread);
}

static uint64_t tree_pages(struct volume *v)
{
	struct check_report report = {0};

	demand(tree_check(&v->index[INDEX], &report) == 0 && report.problems == 0, "tree_check");
	return report.pages;
}

static void shrink(enum smo_mode mode)
{
	unsigned keys = SHRINK_KEYS * test_scale();
	uint64_t bytes = (64u << 20) + keys * 600ull;
	struct volume *v = scratch_open(scratch_format(bytes, SCRATCH_PAGE, 4u << 20), true);
	struct shrinker change[SHRINK_THREADS], reader[2];

	volume_set_smo(v, mode);
	for (unsigned i = 0; i < SHRINK_THREADS; i++)
		change[i] = (struct shrinker){.v = v, .number = i, .keys = keys};
	for (unsigned i = 0; i < 2; i++)
		reader[i] = (struct shrinker){.v = v, .keys = keys, .backwards = i == 1};
	start(change, SHRINK_THREADS, fill);
	join(change, SHRINK_THREADS);
	demand(root_level(v) >= 2, "the tree is tall");
	demand(tree_pages(v) > keys / 20, "and broad");
	atomic_store(&emptying, SHRINK_THREADS);
	start(change, SHRINK_THREADS, empty);
	start(reader, 2, look);
	join(change, SHRINK_THREADS);
	join(reader, 2);
	demand(root_level(v) == 1, "the root is lowered");
	demand(stat_read(&v->stats, STAT_tree_root_lowerings) > 0, "lowered");
	demand(tree_pages(v) <= PAGES_LEFT_MAX + keys / SHRINK_STAYS, "pages come back");
	demand(scratch_problems(v) == 0, "check");
	demand(volume_close(v) == 0, "close");
}

/* ------------------------------------------- 3. forced interleavings */

/*
 * The thread `victim` stops at its first `point` until the main thread has run
 * `meanwhile`.
 */
static struct {
	const char *point;
	_Atomic int state;          /* 0 armed, 1 stopped there, 2 go on */
	struct waitq changed;
} gate;
static _Thread_local bool is_victim;

static void stop_at_gate(const char *name)
{
	int armed = 0;

	if (!is_victim || strcmp(name, gate.point) != 0 ||
	    !atomic_compare_exchange_strong(&gate.state, &armed, 1))
		return;
	while (atomic_load(&gate.state) != 2) {
		const struct os *os = os_current();
		uint32_t sequence = atomic_load(&gate.changed.sequence);

		if (atomic_load(&gate.state) != 2)
			os->wait(os, &gate.changed.sequence, sequence, 1000000);
	}
}

struct scene {
	struct volume *v;
	const char *point;
	enum smo_mode mode, then;   /* until it stops, and meanwhile */
	bool full;                  /* the root has no room for one more entry */
	bool tall;                  /* the root is on level 2 */
	void (*victim)(struct volume *v);
	void (*meanwhile)(struct volume *v);
	void (*after)(void);
	bool restarts;              /* somebody has to meet a DEAD page, and to notice */
	_Atomic bool done;
};

static void run_victim(void *arg)
{
	struct scene *scene = arg;

	is_victim = true;
	scene->victim(scene->v);
	atomic_store(&scene->done, true);
}

static unsigned extras; /* keys behind those that scenes know */

static bool root_is_full(struct volume *v)
{
	struct frame *root;
	bool full;

	demand(pool_take_tickets(v->pool, 1) == 0, "tickets");
	demand(pool_get(v->pool, v->index[INDEX].root, PAGE_TREE, INDEX, &root) == 0, "root");
	full = tree_page(root->data)->head.level > 0 &&
	       page_room(root->data, SCRATCH_PAGE) < page_cost(KEY_BYTES_MAX, sizeof(le64));
	pool_put(root);
	pool_give_tickets(v->pool, 1);
	return full;
}

static void play(struct scene *scene, const char *name)
{
	struct os_thread thread;
	uint8_t key[8];

	scene->v = open_volume();
	for (unsigned i = 0; i < 200; i++) {
		make_key(key, 0, i * 2);
		change(scene->v, key, false, (uint8_t)i);
	}
	for (extras = 0; (scene->full && !root_is_full(scene->v)) ||
			 (scene->tall && root_level(scene->v) < 2); extras++) {
		make_key(key, 0, 400 + extras);
		change_sized(scene->v, key, false, 0x11, LARGE_BYTES);
	}
	volume_set_smo(scene->v, scene->mode);
	gate.point = scene->point;
	atomic_store(&gate.state, 0);
	atomic_store(&scene->done, false);
	os_linux_set_point_handler(stop_at_gate);
	demand(os_thread_start(&thread, "victim", run_victim, scene) == 0, "thread");
	while (atomic_load(&gate.state) == 0 && !atomic_load(&scene->done))
		sched_yield();
	demand(atomic_load(&gate.state) == 1, name);
	volume_set_smo(scene->v, scene->then);
	scene->meanwhile(scene->v);
	atomic_store(&gate.state, 2);
	waitq_wake_all(&gate.changed);
	os_thread_join(&thread);
	os_linux_set_point_handler(NULL);
	if (scene->after)
		scene->after();
	demand(!scene->restarts || stat_read(&scene->v->stats, STAT_tree_restarts) > 0, name);
	demand(scratch_problems(scene->v) == 0, name);
	demand(volume_close(scene->v) == 0, name);
}

static void search_all(struct volume *v)
{
	uint8_t key[8];

	for (unsigned i = 0; i < 200; i++) {
		make_key(key, 0, i * 2);
		demand(exists(v, key, (uint8_t)i), "search during a structure change");
	}
}

static void insert_between(struct volume *v)
{
	uint8_t key[8];

	for (unsigned i = 0; i < 200; i++) {
		make_key(key, 0, i * 2 + 1);
		change(v, key, false, 0x77);
	}
}

static void insert_elsewhere(struct volume *v)
{
	uint8_t key[8];

	for (unsigned i = 0; i < 200; i++) {
		make_key(key, 1, i);
		change(v, key, false, 0x55);
	}
}

#define FIRST_LEAF 18u /* keys, as they were put */

static void insert_second(struct volume *v)
{
	uint8_t key[8];

	for (unsigned i = FIRST_LEAF + 2; i < 2 * FIRST_LEAF; i++) {
		make_key(key, 0, i * 2 + 1);
		change(v, key, false, 0x66);
	}
}

/* The first leaf becomes empty, and only the second is there to merge with. */
static void delete_first(struct volume *v)
{
	uint8_t key[8];

	for (unsigned i = 0; i < FIRST_LEAF; i++) {
		make_key(key, 0, i * 2);
		change(v, key, true, 0);
	}
}

static void delete_most(struct volume *v)
{
	uint8_t key[8];

	for (unsigned i = 0; i < 190; i++) {
		make_key(key, 0, i * 2);
		change(v, key, true, 0);
	}
}

/*
 * Another index splits, too, and so changes the same bitmap page, while the commit of
 * the first split has its LSN and has not copied its records yet.  What both have
 * changed cannot become durable before that.
 */
static struct {
	struct volume *v;
	_Atomic bool begun, done;
} syncer;

static void sync_everything(void *arg)
{
	(void)arg;
	atomic_store(&syncer.begun, true);
	demand(volume_sync(syncer.v) == 0, "sync");
	atomic_store(&syncer.done, true);
}

static struct os_thread syncer_thread;

static void split_other_index(struct volume *v)
{
	uint64_t splits = stat_read(&v->stats, STAT_tree_splits_leaf);
	uint8_t key[8], value[200] = {0};

	for (unsigned i = 0; stat_read(&v->stats, STAT_tree_splits_leaf) < splits + 2; i++) {
		struct mtr *m;
		int rc = mtr_begin(v, 0, &m);

		make_key(key, 2, i);
		demand(rc == 0, "mtr_begin");
		mtr_want_key(m, INDEX_TXN, key, 8);
		do {
			rc = mtr_latch(m);
			if (rc == 0)
				mtr_put(m, INDEX_TXN, key, 8, value, sizeof(value));
			rc = rc ? rc : mtr_commit(m);
		} while (rc == -BE_AGAIN);
		mtr_end(m);
		demand(rc == 0, "commit");
	}
	syncer.v = v;
	atomic_store(&syncer.begun, false);
	atomic_store(&syncer.done, false);
	demand(os_thread_start(&syncer_thread, "sync", sync_everything, NULL) == 0, "thread");
	while (!atomic_load(&syncer.begun))
		sched_yield();
	for (unsigned i = 0; i < 1000; i++)
		sched_yield();
	demand(!atomic_load(&syncer.done), "durable before it is copied");
}

static void join_syncer(void)
{
	os_thread_join(&syncer_thread);
	demand(atomic_load(&syncer.done), "durable in the end");
}

static void delete_extras(struct volume *v)
{
	uint8_t key[8];

	for (unsigned i = 0; i < extras; i++) {
		make_key(key, 0, 400 + i);
		change(v, key, true, 0);
	}
}

/* So many that the child of a lowered root has to split. */
static void insert_many(struct volume *v)
{
	uint8_t key[8];

	for (unsigned i = 0; i < 1000; i++) {
		make_key(key, 2, i);
		change_sized(v, key, false, 0x33, LARGE_BYTES);
	}
}

static void search_last(struct volume *v)
{
	uint8_t key[8];

	make_key(key, 0, 199 * 2);
	demand(exists(v, key, 199), "search during merges");
}

static void scan_stable_to(struct volume *v, bool backwards)
{
	struct tree *tree = &v->index[INDEX];
	struct tree_cursor c;
	uint8_t key[8], end[8];
	unsigned stable = 0;
	int rc = backwards ? tree_cursor_open_before(&c, tree, NULL, 0)
			   : tree_cursor_open(&c, tree, NULL, 0);

	make_key(key, 0, 190 * 2);
	make_key(end, 0, 200 * 2);
	while (rc == 0 && (rc = backwards ? tree_cursor_prev(&c) : tree_cursor_next(&c)) == 0)
		stable += memcmp(c.key.bytes, key, 8) >= 0 && memcmp(c.key.bytes, end, 8) < 0 &&
			  be64_get(c.key.bytes) % THREADS == 0;
	tree_cursor_close(&c);
	demand(rc == -BE_END && stable == 10, "each entry that stays is seen exactly once");
}

static void scan_stable(struct volume *v)
{
	scan_stable_to(v, false);
}

static void scan_stable_back(struct volume *v)
{
	scan_stable_to(v, true);
}

/* Each key from the one before it, which may be in another leaf: of thread 1, or as it was. */
static void find_nexts(struct volume *v)
{
	uint8_t low[8], high[8], value[VALUE_BYTES];
	struct key found;
	size_t len;

	for (unsigned i = 0; i < 199; i++) {
		int rc;

		make_key(low, 0, i * 2 + 1);
		make_key(high, 0, i * 2 + 2);
		rc = tree_first(&v->index[INDEX], low, high, 8, &found, value, sizeof(value), &len);
		demand(rc ? rc == -BE_NOTFOUND && i < 189
			  : be64_get(found.bytes) % THREADS == 1 || !memcmp(found.bytes, high, 8),
		       "the first of a range, two leaves of which change");
	}
}

static void interleavings(void)
{
	const enum smo_mode classic = SMO_INDEX_LATCH;
	struct scene scenes[] = {
		/* between the two phases of a split: searches, other inserts, deletions */
		{.point = "split:published", .victim = insert_between, .meanwhile = search_all,
		 .full = true},
		{.point = "split:published", .victim = insert_between,
		 .meanwhile = insert_elsewhere, .full = true},
		{.point = "split:published", .victim = insert_between, .meanwhile = delete_most,
		 .full = true},
		{.point = "split:published", .victim = insert_between, .meanwhile = scan_stable,
		 .full = true},
		/* in the commit of the first phase: the bitmap page is free for others again */
		{.point = "redo:bitmap_let_go", .victim = insert_between,
		 .meanwhile = split_other_index, .after = join_syncer},
		/* a neighbour would take the INCOMPLETE page in */
		{.point = "split:published", .victim = insert_second, .meanwhile = delete_first,
		 .full = true},
		/* the parent is remembered: it splits, its page dies, it is raised */
		{.point = "split:located", .victim = insert_between, .meanwhile = insert_elsewhere},
		{.point = "split:located", .victim = insert_between, .meanwhile = insert_elsewhere,
		 .full = true},
		{.point = "split:located", .victim = insert_between, .meanwhile = delete_most},
		{.point = "split:located", .victim = insert_between, .meanwhile = delete_most,
		 .full = true},
		/* before the parent is latched: its page splits, dies, is raised */
		{.point = "split:install", .victim = insert_between, .meanwhile = insert_elsewhere,
		 .full = true},
		{.point = "split:install", .victim = insert_between, .meanwhile = delete_most,
		 .full = true},
		/* a search between two pages: the child splits or dies */
		{.point = "tree:down", .victim = search_last, .meanwhile = insert_elsewhere},
		{.point = "tree:down", .victim = search_last, .meanwhile = delete_most},
		/* located, not yet latched */
		{.point = "mtr:located", .victim = insert_between, .meanwhile = insert_elsewhere},
		{.point = "mtr:located", .victim = insert_between, .meanwhile = delete_most},
		/* the root is about to be lowered: its child splits, or a search is on its way */
		{.point = "lower:pinned", .victim = delete_extras, .meanwhile = insert_elsewhere,
		 .tall = true},
		{.point = "lower:pinned", .victim = delete_extras, .meanwhile = insert_many,
		 .tall = true},
		{.point = "tree:down", .victim = search_last, .meanwhile = delete_extras,
		 .tall = true, .restarts = true},
		{.point = "split:located", .victim = insert_between, .meanwhile = delete_extras,
		 .tall = true},
		{.point = "mtr:split", .victim = insert_between, .meanwhile = delete_extras,
		 .tall = true},
		{.point = "cursor:previous_leaf", .victim = scan_stable_back,
		 .meanwhile = delete_extras, .tall = true},
		{.point = "lower:pinned", .victim = delete_extras, .meanwhile = search_all,
		 .tall = true, .mode = classic, .then = classic},
		{.point = "lower:pinned", .victim = delete_extras, .meanwhile = insert_many,
		 .tall = true, .mode = classic, .then = SMO_BLINK},
		{.point = "classic:step", .victim = insert_between, .meanwhile = delete_extras,
		 .tall = true, .mode = classic, .then = SMO_BLINK},
		/* the pages of a merge are pinned: one of them splits */
		{.point = "merge:pinned", .victim = delete_most, .meanwhile = insert_elsewhere},
		/* a cursor between two leaves */
		{.point = "cursor:next_leaf", .victim = scan_stable, .meanwhile = delete_most},
		{.point = "cursor:next_leaf", .victim = scan_stable, .meanwhile = insert_elsewhere},
		{.point = "cursor:previous_leaf", .victim = scan_stable_back,
		 .meanwhile = delete_most},
		{.point = "cursor:previous_leaf", .victim = scan_stable_back,
		 .meanwhile = insert_elsewhere},
		/* the first of a range, between two leaves */
		{.point = "tree:first_next", .victim = find_nexts, .meanwhile = delete_most},
		{.point = "tree:first_next", .victim = find_nexts, .meanwhile = insert_elsewhere},
		{.point = "tree:down", .victim = scan_stable_back, .meanwhile = delete_most},
		{.point = "tree:down", .victim = scan_stable_back, .meanwhile = insert_elsewhere},
		{.point = "split:published", .victim = insert_between,
		 .meanwhile = scan_stable_back, .full = true},
		/* the leaf to split is known, and let go: somebody else splits it, or empties it */
		{.point = "mtr:split", .victim = insert_between, .meanwhile = insert_elsewhere},
		{.point = "mtr:split", .victim = insert_between, .meanwhile = delete_most},
		/* classic: SX is held, searches go on */
		{.point = "classic:latched", .victim = insert_between, .meanwhile = search_all,
		 .mode = classic, .then = classic},
		{.point = "classic:step", .victim = insert_between, .meanwhile = search_all,
		 .mode = classic, .then = classic},
		/* the leaf to split is known, all is let go */
		{.point = "mtr:split", .victim = insert_between, .meanwhile = insert_elsewhere,
		 .mode = classic, .then = classic},
		{.point = "mtr:split", .victim = insert_between, .meanwhile = delete_most,
		 .mode = classic, .then = classic},
		/* a search whose child is not in the pool, or latched, has let go of the parent */
		{.point = "mtr:located", .victim = insert_between, .meanwhile = insert_elsewhere,
		 .mode = classic, .then = classic},
		{.point = "cursor:next_leaf", .victim = scan_stable, .meanwhile = delete_most,
		 .mode = classic, .then = classic},
		{.point = "cursor:previous_leaf", .victim = scan_stable_back,
		 .meanwhile = delete_most, .mode = classic, .then = classic},
		{.point = "cursor:previous_leaf", .victim = scan_stable_back,
		 .meanwhile = insert_elsewhere, .mode = classic, .then = classic},
		/* the other protocol meanwhile: what was planned is no longer so */
		{.point = "classic:step", .victim = insert_between, .meanwhile = insert_elsewhere,
		 .mode = classic, .then = SMO_BLINK},
		{.point = "classic:step", .victim = insert_between, .meanwhile = delete_most,
		 .mode = classic, .then = SMO_BLINK},
		{.point = "classic:stepped", .victim = insert_between,
		 .meanwhile = insert_elsewhere, .full = true, .mode = classic, .then = SMO_BLINK},
		{.point = "classic:stepped", .victim = insert_between, .meanwhile = search_all,
		 .full = true, .mode = classic, .then = classic},
		{.point = "merge:pinned", .victim = delete_most, .meanwhile = insert_elsewhere,
		 .mode = classic, .then = SMO_BLINK},
		/* a split is half done: the classic protocol meets the INCOMPLETE page */
		{.point = "split:published", .victim = insert_between, .meanwhile = search_all,
		 .full = true, .then = classic},
		{.point = "split:published", .victim = insert_between,
		 .meanwhile = insert_elsewhere, .full = true, .then = classic},
		{.point = "split:published", .victim = insert_between, .meanwhile = delete_most,
		 .full = true, .then = classic},
		{.point = "split:install", .victim = insert_between, .meanwhile = insert_elsewhere,
		 .full = true, .then = classic},
		{.point = "split:located", .victim = insert_between, .meanwhile = insert_elsewhere,
		 .full = true, .then = classic},
		{.point = "tree:down", .victim = search_last, .meanwhile = insert_elsewhere,
		 .then = classic},
		{.point = "tree:down", .victim = search_last, .meanwhile = delete_most,
		 .then = classic},
	};

	for (size_t i = 0; i < array_count(scenes); i++)
		play(&scenes[i], scenes[i].point);
}

int main(void)
{
	interleavings();
	for (unsigned mode = 0; mode < SMO_MODE_COUNT; mode++)
		shrink((enum smo_mode)mode);
	for (unsigned mode = 0; mode <= SMO_MODE_COUNT; mode++)
		oracle(1000 + mode, (enum smo_mode)mode);
	puts("race_tree: ok");
	return 0;
}
