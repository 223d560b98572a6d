/*
 * See medium.h.  A request lasts from submission to completion:
 *
 *	submitted --(a part of it may be seen)--> time passes --> applied --> returned
 *
 * While time passes other fibers run; whoever changes the buffer meanwhile changes
 * what is written.
 */
#include "tests/sim/medium.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define SECTOR 512u
#define IN_FLIGHT_MAX 4096u

/* A write that has returned and is not durable. */
struct written {
	uint64_t offset;
	size_t len;
	uint64_t number;
	bool doomed; /* INV-MEDIUM-2 */
	uint8_t *bytes;
};

struct medium {
	struct sim *sim;
	struct medium *other;    /* joined with it, or NULL */
	uint64_t size_bytes;
	uint8_t *seen, *durable;
	struct written *written; /* in the order of their return */
	size_t written_count, written_room;
	uint64_t number;         /* of the next one */
	struct dev_request *in_flight[IN_FLIGHT_MAX];
	size_t in_flight_count;
	struct medium_faults faults;
	struct medium_seen counts;
	bool ideal, cut;
	bool any_doomed;
};

struct handle {
	struct device dev;
	struct medium *medium;
};

static struct medium *of(struct device *dev)
{
	return ((struct handle *)dev)->medium;
}

/* --- what is stored ---------------------------------------------------------------- */

static void note_written(struct medium *m, const void *bytes, size_t len, uint64_t offset)
{
	struct written *w;

	if (m->written_count == m->written_room) {
		m->written_room = m->written_room ? 2 * m->written_room : 256;
		m->written = realloc(m->written, m->written_room * sizeof(*m->written));
		check(m->written);
	}
	w = &m->written[m->written_count++];
	*w = (struct written){.offset = offset, .len = len, .number = m->number++};
	w->bytes = malloc(len);
	check(w->bytes);
	memcpy(w->bytes, bytes, len);
}

static void store(struct medium *m, const void *bytes, size_t len, uint64_t offset)
{
	if (len == 0)
		return;
	memcpy(m->seen + offset, bytes, len);
	note_written(m, bytes, len, offset);
}

/* Any of the sectors, each piece for itself. */
static void store_some(struct medium *m, const struct dev_request *r)
{
	const uint8_t *bytes = r->buf;

	for (size_t at = 0; at < r->len;) {
		size_t len = SECTOR - (r->offset + at) % SECTOR;

		len = len < r->len - at ? len : r->len - at;
		if (sim_below(m->sim, 2))
			store(m, bytes + at, len, r->offset + at);
		at += len;
	}
}

static bool overlap(const struct written *a, const struct written *b)
{
	return a->offset < b->offset + b->len && b->offset < a->offset + a->len;
}

/* What lies below something that is durable can never come back. */
static void drop_doomed_below(struct medium *m, size_t end)
{
	for (size_t i = 0; i < end; i++)
		if (m->written[i].doomed && overlap(&m->written[i], &m->written[end]))
			m->written[i].len = 0;
}

static void forget_empty(struct medium *m)
{
	size_t kept = 0;

	for (size_t i = 0; i < m->written_count; i++) {
		if (m->written[i].len)
			m->written[kept++] = m->written[i];
		else
			free(m->written[i].bytes);
	}
	m->written_count = kept;
}

static void make_durable(struct medium *m, uint64_t below)
{
	for (size_t i = 0; i < m->written_count; i++) {
		struct written *w = &m->written[i];

		if (w->number >= below || w->doomed)
			continue;
		memcpy(m->durable + w->offset, w->bytes, w->len);
		if (m->any_doomed)
			drop_doomed_below(m, i);
		w->len = 0;
	}
	forget_empty(m);
}

static void doom(struct medium *m, uint64_t below)
{
	m->any_doomed = true;
	for (size_t i = 0; i < m->written_count; i++)
		if (m->written[i].number < below)
			m->written[i].doomed = true;
}

/* --- the power ----------------------------------------------------------------------- */

enum survivors { ALL, NONE, SOME_WRITES, SOME_SECTORS, SURVIVORS };

static void survive(struct medium *m, const struct written *w, enum survivors who)
{
	if (who == NONE || (who == SOME_WRITES && sim_below(m->sim, 2)))
		return;
	for (size_t at = 0; at < w->len;) {
		size_t len = SECTOR - (w->offset + at) % SECTOR;

		len = len < w->len - at ? len : w->len - at;
		if (who != SOME_SECTORS || sim_below(m->sim, 2))
			memcpy(m->durable + w->offset + at, w->bytes + at, len);
		at += len;
	}
}

static void cut_one(struct medium *m)
{
	enum survivors who = (enum survivors)sim_below(m->sim, SURVIVORS);

	m->cut = true;
	sim_trace(m->sim, 0xc07 + who);
	for (size_t i = 0; i < m->in_flight_count; i++)
		store_some(m, m->in_flight[i]);
	for (size_t i = 0; i < m->written_count; i++)
		survive(m, &m->written[i], who);
	for (size_t i = 0; i < m->written_count; i++) {
		struct written *w = &m->written[i];

		memcpy(m->seen + w->offset, m->durable + w->offset, w->len);
		free(w->bytes);
	}
	m->written_count = 0;
	m->any_doomed = false;
}

void medium_cut(struct medium *m)
{
	if (m->cut)
		return;
	cut_one(m);
	if (m->other)
		cut_one(m->other);
}

bool medium_is_cut(const struct medium *m)
{
	return m->cut;
}

/* --- requests -------------------------------------------------------------------------- */

static bool fails(struct medium *m, uint64_t once_in)
{
	return !m->ideal && sim_once_in(m->sim, once_in);
}

/* Counts it; the cut may come here. */
static void begin(struct medium *m, uint64_t what, uint64_t where)
{
	sim_trace(m->sim, what + (where << 4));
	m->counts.requests++;
	if (!m->ideal && m->faults.cut && --m->faults.cut == 0)
		medium_cut(m);
}

static void pass_time(struct medium *m, uint64_t usual_ns)
{
	uint64_t ns = usual_ns / 4 + sim_below(m->sim, usual_ns);

	if (m->ideal)
		return;
	if (sim_once_in(m->sim, 200))
		ns *= 1 + sim_below(m->sim, 300);
	sim_sleep(m->sim, ns);
}

static void flip_a_bit(struct medium *m, uint8_t *bytes, size_t len)
{
	uint64_t bit = sim_below(m->sim, 8 * (uint64_t)len);

	bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	m->counts.flips++;
}

static int end_read(struct medium *m, void *buf, size_t len, uint64_t offset)
{
	if (m->cut)
		return -EIO;
	if (fails(m, m->faults.read_error)) {
		m->counts.read_errors++;
		memset(buf, 0xa5, len);
		return -EIO;
	}
	memcpy(buf, m->seen + offset, len);
	if (fails(m, m->faults.flip))
		flip_a_bit(m, buf, len);
	return 0;
}

/* A short write: any of its sectors, and an error, as device.h says. */
static int end_write(struct medium *m, const struct dev_request *r)
{
	if (m->cut)
		return -EIO;
	if (fails(m, m->faults.write_error)) {
		m->counts.write_errors++;
		store_some(m, r);
		return -EIO;
	}
	sim_trace(m->sim, XXH3_64bits(r->buf, r->len));
	store(m, r->buf, r->len, r->offset);
	return 0;
}

static void fly(struct medium *m, struct dev_request *r)
{
	check(m->in_flight_count < IN_FLIGHT_MAX);
	m->in_flight[m->in_flight_count++] = r;
	/* Part of it may be there early. */
	if (!m->ideal && !m->cut && sim_below(m->sim, 8) == 0)
		store_some(m, r);
}

static void land(struct medium *m, const struct dev_request *r)
{
	size_t i = 0;

	while (m->in_flight[i] != r)
		i++;
	m->in_flight[i] = m->in_flight[--m->in_flight_count];
}

#define READ_NS 60000u
#define WRITE_NS 40000u
#define FLUSH_NS 400000u

static int medium_read(struct device *dev, void *buf, size_t len, uint64_t offset)
{
	struct medium *m = of(dev);

	begin(m, 1, offset);
	pass_time(m, READ_NS);
	return end_read(m, buf, len, offset);
}

static int medium_write(struct device *dev, const void *buf, size_t len, uint64_t offset)
{
	struct medium *m = of(dev);
	struct dev_request r = {.buf = (void *)buf, .len = len, .offset = offset};
	int rc;

	begin(m, 2, offset);
	fly(m, &r);
	pass_time(m, WRITE_NS);
	land(m, &r);
	rc = end_write(m, &r);
	return rc;
}

/* They end in any order, in a few crowds. */
static int medium_batch(struct device *dev, struct dev_request *requests, size_t count)
{
	struct medium *m = of(dev);
	size_t left = count, *open = malloc(count * sizeof(*open));
	int first = 0;

	check(open);
	for (size_t i = 0; i < count; i++) {
		open[i] = i;
		begin(m, 3 + requests[i].is_write, requests[i].offset);
		if (requests[i].is_write)
			fly(m, &requests[i]);
	}
	while (left > 0) {
		size_t crowd = m->ideal ? left : 1 + sim_below(m->sim, left);

		pass_time(m, WRITE_NS);
		for (; crowd > 0; crowd--) {
			size_t n = m->ideal ? left - 1 : sim_below(m->sim, left);
			struct dev_request *r = &requests[open[n]];

			open[n] = open[--left];
			if (r->is_write)
				land(m, r);
			r->result = r->is_write ? end_write(m, r)
						: end_read(m, r->buf, r->len, r->offset);
			first = first ? first : r->result;
		}
	}
	free(open);
	return first;
}

static int medium_flush(struct device *dev)
{
	struct medium *m = of(dev);
	uint64_t below = m->number;

	begin(m, 5, below);
	pass_time(m, FLUSH_NS);
	if (m->cut)
		return -EIO;
	if (fails(m, m->faults.flush_error)) {
		m->counts.flush_errors++;
		doom(m, below);
		return -EIO;
	}
	if (!m->faults.lies)
		make_durable(m, below);
	return 0;
}

static void medium_close(struct device *dev)
{
	free(dev);
}

static const struct device_ops medium_ops = {
	.read = medium_read,
	.write = medium_write,
	.batch = medium_batch,
	.flush = medium_flush,
	.close = medium_close,
};

/* --- life cycle -------------------------------------------------------------------------- */

struct medium *medium_new(struct sim *sim, uint64_t size_bytes)
{
	struct medium *m = calloc(1, sizeof(*m));

	check(m);
	m->sim = sim;
	m->size_bytes = size_bytes;
	m->seen = calloc(1, size_bytes);
	m->durable = calloc(1, size_bytes);
	check(m->seen && m->durable);
	return m;
}

void medium_free(struct medium *m)
{
	for (size_t i = 0; i < m->written_count; i++)
		free(m->written[i].bytes);
	free(m->written);
	free(m->seen);
	free(m->durable);
	free(m);
}

struct device *medium_open(struct medium *m)
{
	struct handle *handle = calloc(1, sizeof(*handle));

	check(handle && m->in_flight_count == 0);
	handle->dev.ops = &medium_ops;
	handle->dev.size_bytes = m->size_bytes;
	handle->medium = m;
	snprintf(handle->dev.path, sizeof(handle->dev.path), "medium");
	m->cut = false;
	m->counts = (struct medium_seen){0};
	return &handle->dev;
}

void medium_join(struct medium *m, struct medium *other)
{
	m->other = other;
	other->other = m;
}

void medium_be_ideal(struct medium *m, bool ideal)
{
	m->ideal = ideal;
	if (m->other)
		m->other->ideal = ideal;
}

void medium_set_faults(struct medium *m, const struct medium_faults *faults)
{
	m->faults = *faults;
	if (!m->other)
		return;
	m->other->faults = *faults;
	if (sim_below(m->sim, 2)) /* only one of them counts */
		m->faults.cut = 0;
	else
		m->other->faults.cut = 0;
}

struct medium_seen medium_seen(const struct medium *m)
{
	struct medium_seen seen = m->counts;

	if (!m->other)
		return seen;
	seen.requests += m->other->counts.requests;
	seen.read_errors += m->other->counts.read_errors;
	seen.write_errors += m->other->counts.write_errors;
	seen.flush_errors += m->other->counts.flush_errors;
	seen.flips += m->other->counts.flips;
	return seen;
}
