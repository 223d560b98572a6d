/*
 * Power cuts between and inside the mini-transactions of structure changes:
 * at every recorded write and flush of a load that splits and merges, also
 * while recovering; by both protocols, and while they are switched.  Each state
 * must recover to a tree that passes its check and holds exactly a prefix of the
 * operations, no shorter than what had been made durable.
 */
#include "engine/base/message.h"
#include "engine/flush.h"
#include "engine/mtr.h"
#include "tests/lib/scratch.h"

#include <stdio.h>
#include <stdlib.h>

#define OPS_MAX 400u /* keys */
#define OPS_ALL 800u
#define INDEX INDEX_OVERLAY

/* Operation i inserts (or deletes) the key order[i]; its value is i. */
struct op {
	uint32_t key;
	bool delete;
	size_t durable_at; /* event from which on it must be found; SIZE_MAX: never synced */
};

/*
 * What is recorded: some inserts behind those that were there before, then deletions.
 * wide: records and separators so long that a few hundred of them fill the root, so
 * that a leaf's split is one of a cascade.
 */
struct load {
	const char *name;
	enum smo_mode mode;
	bool wide, switching;
	unsigned before, inserts, deletes;
	unsigned rarely;            /* syncs and write-backs powers of two rarer */
};

#define KEY_BYTES(wide) ((wide) ? KEY_BYTES_MAX : 8u)
#define VALUE_BYTES(wide) ((wide) ? 900u : 300u)

static struct op ops[OPS_ALL];
static unsigned op_count;
static const struct load *load;
static uint64_t states, completed;

static noreturn void fail(const char *what, size_t event, int mode, uint64_t seed)
{
	fprintf(stderr, "crash_tree: %s: %s: cut before event %zu, mode %d, seed %lu\n",
		load->name, what, event, mode, seed);
	abort();
}

static int apply(struct volume *v, unsigned i)
{
	uint8_t key[KEY_BYTES_MAX] = {0}, value[VALUE_BYTES(true)] = {0};
	size_t key_len = KEY_BYTES(load->wide);
	struct mtr *m;
	int rc = mtr_begin(v, 0, &m);

	if (rc)
		return rc;
	be64_put(key + key_len - 8, ops[i].key);
	value[0] = (uint8_t)i;
	value[1] = (uint8_t)(i >> 8);
	mtr_want_key(m, INDEX, key, key_len);
	do {
		rc = mtr_latch(m);
		if (rc)
			break;
		if (ops[i].delete)
			mtr_delete(m, INDEX, key, key_len);
		else
			mtr_put(m, INDEX, key, key_len, value, VALUE_BYTES(load->wide));
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	return rc;
}

/* Is the tree what the first n operations make? */
static bool is_prefix(const uint32_t *found, const bool *there, unsigned n)
{
	int last[OPS_MAX];

	for (unsigned k = 0; k < OPS_MAX; k++)
		last[k] = -1;
	for (unsigned i = 0; i < n; i++)
		last[ops[i].key] = ops[i].delete ? -1 : (int)i;
	for (unsigned k = 0; k < OPS_MAX; k++)
		if (there[k] != (last[k] >= 0) || (there[k] && found[k] != (uint32_t)last[k]))
			return false;
	return true;
}

static bool verify(struct volume *v, size_t event)
{
	uint32_t found[OPS_MAX];
	bool there[OPS_MAX] = {false};
	struct tree_cursor c;
	unsigned at_least = 0;
	int rc = tree_cursor_open(&c, &v->index[INDEX], NULL, 0);

	while (rc == 0 && (rc = tree_cursor_next(&c)) == 0) {
		uint64_t key = be64_get(c.key.bytes + c.key.len - 8);

		check(key < OPS_MAX);
		there[key] = true;
		found[key] = c.value[0] | (uint32_t)c.value[1] << 8;
	}
	tree_cursor_close(&c);
	if (rc != -BE_END)
		return false;
	for (unsigned i = 0; i < op_count; i++)
		if (ops[i].durable_at <= event)
			at_least = i + 1;
	for (unsigned n = op_count + 1; n-- > at_least;)
		if (is_prefix(found, there, n))
			return scratch_problems(v) == 0;
	return false;
}

static int open_state(struct device *dev, struct volume **out)
{
	struct volume_options options = {.cache_bytes = SCRATCH_CACHE, .no_background = true};

	return volume_open(out, dev, &options);
}

static void try_state(struct device *recorded, size_t event, enum dev_cut_mode mode, uint64_t seed,
		      bool again)
{
	struct device *dev;
	struct volume *v;
	bool varies;

	check(dev_record_state(recorded, event, mode, seed, &dev, &varies) == 0);
	if (!varies) {
		dev_close(dev);
		return;
	}
	states++;
	if (again)
		dev_record_start(dev);
	if (open_state(dev, &v))
		fail("does not open", event, mode, seed);
	completed += stat_read(&v->stats, STAT_recovery_splits_completed);
	if (!verify(v, event))
		fail("not a prefix, or not whole", event, mode, seed);
	if (!again) {
		volume_abandon(v);
		return;
	}
	/* INV: a recovery that is cut short is simply run again. */
	for (size_t cut = 0; cut <= dev_record_count(dev); cut += 1 + dev_record_count(dev) / 12) {
		struct device *second;
		struct volume *w;

		check(dev_record_state(dev, cut, CUT_TORN, seed + cut, &second, &varies) == 0);
		states++;
		if (open_state(second, &w))
			fail("does not open after a cut in recovery", event, mode, seed);
		if (!verify(w, event))
			fail("wrong after a cut in recovery", event, mode, seed);
		volume_abandon(w);
	}
	volume_abandon(v);
}

/*
 * Between two mini-transactions of one structure change, of which a latch may be held:
 * another thread makes the first durable, so that there are states without the second.
 */
static struct volume *recorded_volume;

static void sync_it(void *arg)
{
	check(volume_sync(arg) == 0);
}

static void sync_between(const char *point)
{
	struct os_thread thread;

	if (recorded_volume == NULL ||
	    (strcmp(point, "split:handover") != 0 && strcmp(point, "split:published") != 0 &&
	     strcmp(point, "classic:stepped") != 0))
		return;
	check(os_thread_start(&thread, "sync", sync_it, recorded_volume) == 0);
	os_thread_join(&thread);
}

static void add_op(struct volume *v, unsigned key, bool delete)
{
	ops[op_count] = (struct op){.key = key, .delete = delete, .durable_at = SIZE_MAX};
	check(apply(v, op_count++) == 0);
}

/* The volume stays open: it owns the device that remembers. */
static struct volume *record(struct device *dev, uint64_t seed)
{
	struct volume *v;
	bool there[OPS_MAX] = {false};

	check(open_state(dev, &v) == 0);
	volume_set_smo(v, load->mode);
	for (op_count = 0; op_count < load->before;) {
		there[op_count] = true;
		add_op(v, op_count, false);
	}
	check(volume_sync(v) == 0 && flush_everything(v->flusher) == 0);
	check(load->inserts == 0 || stat_read(&v->stats, STAT_tree_splits_internal) == 0);
	for (unsigned i = 0; i < op_count; i++)
		ops[i].durable_at = 0;
	dev_record_start(dev);
	recorded_volume = v;
	while (op_count < load->before + load->inserts + load->deletes) {
		bool delete = op_count >= load->before + load->inserts;
		unsigned key = (unsigned)(random_next(&seed) % OPS_MAX);

		if (load->wide)
			key = delete ? 2 * load->before - 1 - op_count : op_count;
		if (delete != there[key])
			continue;
		there[key] = !delete;
		if (load->switching && random_next(&seed) % 4 == 0)
			volume_set_smo(v, (enum smo_mode)(random_next(&seed) % SMO_MODE_COUNT));
		add_op(v, key, delete);
		if (random_next(&seed) % (8 << load->rarely) == 0) {
			check(volume_sync(v) == 0);
			ops[op_count - 1].durable_at = dev_record_count(dev);
		}
		if (random_next(&seed) % (24 << load->rarely) == 0)
			check(flush_until(v->flusher, log_next_lsn(v->log)) == 0);
	}
	dev_record_stop(dev);
	recorded_volume = NULL;
	check(!load->wide || load->deletes == 0 ||
	      stat_read(&v->stats, STAT_tree_root_lowerings) > 0);
	check(!load->wide || stat_read(&v->stats, STAT_tree_splits_internal) > 0);
	return v;
}

static void run(uint64_t seed)
{
	struct device *dev = scratch_format(SCRATCH_BYTES, SCRATCH_PAGE, SCRATCH_LOG);
	struct volume *recorded = record(dev, seed);
	size_t count = dev_record_count(dev);

	for (size_t event = 0; event <= count; event++) {
		for (enum dev_cut_mode mode = CUT_PREFIX; mode <= CUT_TORN; mode++)
			try_state(dev, event, mode, seed * 7919 + event,
				  event % 16 == 0 && mode == CUT_TORN);
	}
	volume_abandon(recorded);
}

int main(void)
{
	static const struct load loads[] = {
		{.name = "blink", .mode = SMO_BLINK, .inserts = 150, .deletes = 140},
		{.name = "index-latch", .mode = SMO_INDEX_LATCH, .inserts = 150, .deletes = 140},
		{.name = "switched", .switching = true, .inserts = 80, .deletes = 70},
		{.name = "cascade, blink", .mode = SMO_BLINK, .wide = true, .before = 320,
		 .inserts = 40},
		{.name = "cascade, index-latch", .mode = SMO_INDEX_LATCH, .wide = true,
		 .before = 320, .inserts = 40},
		{.name = "emptied, blink", .mode = SMO_BLINK, .wide = true, .before = 370,
		 .deletes = 320, .rarely = 3},
		{.name = "emptied, index-latch", .mode = SMO_INDEX_LATCH, .wide = true,
		 .before = 370, .deletes = 320, .rarely = 3},
	};
	unsigned scale = test_scale();

	message_quiet(LOG_CRIT);
	os_linux_set_point_handler(sync_between);
	for (uint64_t seed = 1; seed <= scale; seed++) {
		for (size_t i = 0; i < array_count(loads); i++) {
			load = &loads[i];
			run(seed);
		}
	}
	printf("crash_tree: %lu states, %lu splits completed by recovery\n", states, completed);
	check(completed > 0);
	return 0;
}
