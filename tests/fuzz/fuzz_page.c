/*
 * Fuzzes pages: the input is a little program that changes one page by redo
 * records of any content and by overwriting bytes of it.
 *
 *	byte 0   page size: 4 KiB << (byte % 5); then commands:
 *	RAW      u8 type, u16 length, body: page_redo() with anything
 *	INSERT   u8 key length, key, u8 value length, value: into the right slot
 *	POKE     u16 offset, u8 mask: changes a byte and fixes the CRC
 *	MERGE    empties a leaf, widens it, loads all of it again
 *
 * Promised: a record that fails changes nothing (INV-PAGE-7), one that succeeds
 * leaves a page that page_verify() accepts (INV-PAGE-8); bytes that it accepts
 * can be read in every way; nothing leaves the page (ASan, exact heap blocks).
 *
 * With libFuzzer: make fuzz.  Else main() runs seeded inputs (fuzz_main.h).
 */
#include "engine/base/error.h"
#include "engine/page.h"
#include "tests/fuzz/fuzz_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGENO 40u
#define COMMANDS_MAX 4096u
static const uint8_t TAG[8] = "volume 1";

enum command { RAW, INSERT, POKE, MERGE, COMMAND_COUNT };

struct input {
	const uint8_t *next;
	size_t left;
};

static unsigned take(struct input *in)
{
	if (in->left == 0)
		return 0;
	in->left--;
	return *in->next++;
}

static unsigned take_u16(struct input *in)
{
	unsigned low = take(in);

	return low | take(in) << 8;
}

/* At most `len` bytes as a heap block of exactly their number. */
static uint8_t *take_block(struct input *in, size_t *len)
{
	uint8_t *block;

	if (*len > in->left)
		*len = in->left;
	block = malloc(*len ? *len : 1);
	memcpy(block, in->next, *len);
	in->next += *len;
	in->left -= *len;
	return block;
}

struct world {
	uint32_t size;
	uint8_t *page, *before;
};

static bool is_empty_internal(const uint8_t *page)
{
	const struct disk_tree_page *tree = tree_page(page);

	return tree->head.type == PAGE_TREE && tree->head.level > 0 &&
	       le16_get(tree->slot_count) == 0;
}

/* Reads all there is in a page that was accepted. */
static void read_tree(const struct world *w)
{
	unsigned count = le16_get(tree_page(w->page)->slot_count);
	uint32_t used = 0, load = 0;
	uint64_t sum = 0;
	struct key key;
	bool exact;

	for (unsigned slot = 0; slot < count; slot++) {
		struct page_entry entry;

		page_key(w->page, slot, &key);
		page_entry(w->page, slot, &entry);
		for (unsigned i = 0; i < entry.value_len; i++)
			sum += entry.value[i];
		check(page_covers(w->page, key.bytes, key.len));
		check(!page_is_left_of(w->page, key.bytes, key.len));
		check(page_lower_bound(w->page, key.bytes, key.len, &exact) == slot && exact);
		if (tree_page(w->page)->head.level > 0) {
			check(page_child_slot(w->page, key.bytes, key.len) == slot);
			sum += page_child(w->page, slot);
		}
		used += page_slot_bytes(w->page, slot);
		load += page_cost(key.len, entry.value_len);
	}
	check(sum <= UINT64_MAX); /* keeps the reads */
	check(used + page_room(w->page, w->size) == page_capacity(w->size));
	check(page_load_bytes(w->page) == load);
}

static void read_page(const struct world *w)
{
	if (tree_page(w->page)->head.type == PAGE_TREE)
		read_tree(w);
	else if (tree_page(w->page)->head.type == PAGE_BITMAP)
		check(page_bits_are(w->page, 0, GROUP_BLOCKS(w->size), false) ||
		      page_bits_are(w->page, 0, 1, page_bit(w->page, 0)));
}

static int redo(struct world *w, unsigned type, const uint8_t *body, size_t len)
{
	const char *why = NULL;
	int rc;

	memcpy(w->before, w->page, w->size);
	rc = page_redo(w->page, w->size, PAGENO, TAG, (uint8_t)type, body, len);
	if (rc != 0) {
		check(rc == -BE_FORMAT);
		check(memcmp(w->page, w->before, w->size) == 0);
		return rc;
	}
	rc = page_verify_structure(w->page, w->size, &why);
	check(rc == 0 || is_empty_internal(w->page));
	read_page(w);
	return 0;
}

/* ------------------------------------------------------------------ commands */

static void run_raw(struct world *w, struct input *in)
{
	unsigned type = REC_PAGE_INIT + take(in) % (REC_LIMIT - REC_PAGE_INIT + 1);
	size_t len = take_u16(in);
	uint8_t *body = take_block(in, &len);

	(void)redo(w, type, body, len);
	free(body);
}

/* INV-PAGE-6 */
static void run_insert(struct world *w, struct input *in)
{
	uint8_t body[512];
	size_t key_len = take(in) % (KEY_BYTES_MAX + 1), value_len;
	uint8_t *key = take_block(in, &key_len), *value;
	uint32_t room;
	bool exact;
	unsigned slot;
	int rc;

	value_len = take(in);
	if (tree_page(w->page)->head.type == PAGE_TREE && tree_page(w->page)->head.level > 0)
		value_len = sizeof(le64);
	value = take_block(in, &value_len);
	if (tree_page(w->page)->head.type != PAGE_TREE || is_empty_internal(w->page) ||
	    !page_covers(w->page, key, key_len))
		goto out;
	if (tree_page(w->page)->head.level > 0 && value_len != sizeof(le64))
		goto out;
	slot = page_lower_bound(w->page, key, key_len, &exact);
	room = page_room(w->page, w->size);
	rc = redo(w, REC_INSERT, body, redo_insert(body, slot, key, key_len, value, value_len));
	check((rc == 0) != exact || (rc != 0 && room < page_cost(key_len, value_len)));
out:
	free(value);
	free(key);
}

static void run_poke(struct world *w, struct input *in)
{
	unsigned offset = take_u16(in) % w->size;
	uint8_t mask = (uint8_t)take(in);

	memcpy(w->before, w->page, w->size);
	w->page[offset] ^= mask;
	page_seal(w->page, w->size);
	if (page_verify(w->page, w->size, PAGENO, TAG, NULL) == 0)
		read_page(w);
	else
		memcpy(w->page, w->before, w->size);
}

/* As in a merge: wider fences, and records that come with whole keys. */
static void run_merge(struct world *w)
{
	const struct disk_tree_page *tree = tree_page(w->page);
	struct key low = {0}, high = {0};
	uint8_t *body, head[80];
	size_t len, head_len;
	uint32_t load;

	if (tree->head.type != PAGE_TREE || tree->head.level > 0)
		return;
	body = malloc(BODY_BYTES_MAX(w->size));
	load = page_load_bytes(w->page);
	len = redo_load(body, w->page, 0, le16_get(tree->slot_count));
	check(len <= BODY_BYTES_MAX(w->size));
	head_len = redo_page_init(head, PAGE_TREE, tree->head.index, 0, 0, &low, &high, 0);
	check(redo(w, REC_PAGE_INIT, head, head_len) == 0);
	check((redo(w, REC_LOAD, body, len) == 0) == (load <= page_capacity(w->size)));
	free(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	struct world w = {.size = PAGE_SIZE_MIN << take(&in) % 5};
	struct key none = {0};
	uint8_t body[80];

	w.page = calloc(1, w.size);
	w.before = malloc(w.size);
	check(redo(&w, REC_PAGE_INIT, body,
		   redo_page_init(body, PAGE_TREE, INDEX_INODES, 0, 0, &none, &none, 0)) == 0);
	for (unsigned i = 0; i < COMMANDS_MAX && in.left > 0; i++) {
		switch (take(&in) % COMMAND_COUNT) {
		case RAW:
			run_raw(&w, &in);
			break;
		case INSERT:
			run_insert(&w, &in);
			break;
		case POKE:
			run_poke(&w, &in);
			break;
		case MERGE:
			run_merge(&w);
			break;
		}
	}
	free(w.before);
	free(w.page);
	return 0;
}

/* ---------------------------------------------- inputs without libFuzzer */

#ifndef BLINKFS_LIBFUZZER

#define INPUT_BYTES_MAX 65536u

struct writer {
	uint64_t state;
	uint8_t bytes[INPUT_BYTES_MAX];
	size_t len;
};

static uint64_t draw(struct writer *out) /* splitmix64 */
{
	uint64_t z = out->state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static unsigned below(struct writer *out, unsigned limit)
{
	return (unsigned)(draw(out) % limit);
}

static void put(struct writer *out, unsigned byte)
{
	out->bytes[out->len++] = (uint8_t)byte;
}

static struct key random_key(struct writer *out, unsigned len_max)
{
	struct key key = {.len = (uint8_t)(1 + below(out, len_max))};

	for (unsigned i = 0; i < key.len; i++)
		key.bytes[i] = (uint8_t)below(out, below(out, 2) ? 3 : 256);
	return key;
}

static size_t random_init(struct writer *out, uint8_t *body)
{
	struct key a = random_key(out, 6), b = random_key(out, 6), none = {0};
	bool bounded = below(out, 2);
	bool swap = key_compare(a.bytes, a.len, b.bytes, b.len) > 0;
	unsigned type = below(out, 8) ? PAGE_TREE : PAGE_BITMAP + below(out, 2);

	if (type != PAGE_TREE)
		return redo_page_init(body, (uint8_t)type, 0, 0, 0, &none, &none, 0);
	return redo_page_init(body, PAGE_TREE, 0, below(out, 4) == 0, 0, swap ? &b : &a,
			      bounded ? (swap ? &a : &b) : &none, bounded ? 48 : 0);
}

/* A body that may well fit the page. */
static size_t random_body(struct writer *out, unsigned type, uint8_t *body)
{
	struct key key = random_key(out, 4);
	unsigned slot = below(out, 12);
	le64 value = le64_make(draw(out));
	uint8_t long_value[300];

	memset(long_value, (int)key.len, sizeof(long_value));
	switch (type) {
	case REC_PAGE_INIT:
		return random_init(out, body);
	case REC_INSERT:
		return redo_insert(body, slot, key.bytes, key.len, &value, sizeof(value));
	case REC_UPDATE:
		return redo_update(body, slot, long_value, below(out, sizeof(long_value)));
	case REC_PATCH:
		return redo_patch(body, slot, below(out, 10), &value, below(out, 9));
	case REC_DELETE:
		return redo_delete(body, slot);
	case REC_SPLIT_LEFT:
		return redo_split_left(body, slot, &key, 48);
	case REC_FLAGS:
		return redo_flags(body, (uint8_t)below(out, 5));
	case REC_FENCE:
		return redo_fence(body, &key, 56);
	case REC_BITS:
		return redo_bits(body, below(out, 2), below(out, 64), below(out, 80));
	case REC_COUNTER:
		return redo_counter(body, below(out, 17), draw(out));
	default:
		return below(out, 100);
	}
}

static void put_raw(struct writer *out)
{
	uint8_t body[512];
	unsigned type = REC_LOAD + below(out, REC_LIMIT - REC_LOAD);
	size_t len;

	if (below(out, 40) == 0)
		type = REC_PAGE_INIT;
	for (size_t i = 0; i < sizeof(body); i++)
		body[i] = (uint8_t)below(out, below(out, 2) ? 4 : 256);
	len = random_body(out, type, body);
	if (below(out, 4) == 0 && len > 0)
		body[below(out, (unsigned)len)] = (uint8_t)draw(out);
	put(out, RAW);
	put(out, type - REC_PAGE_INIT);
	put(out, len & 0xff);
	put(out, (unsigned)(len >> 8));
	for (size_t i = 0; i < len; i++)
		put(out, body[i]);
}

static void put_insert(struct writer *out)
{
	struct key key = random_key(out, 8);
	unsigned len = below(out, 200);

	put(out, INSERT);
	put(out, key.len);
	for (unsigned i = 0; i < key.len; i++)
		put(out, key.bytes[i]);
	put(out, len);
	while (len-- > 0)
		put(out, (unsigned)draw(out));
}

/* Mostly in the head and the first slots, where it matters most. */
static void put_poke(struct writer *out)
{
	unsigned offset = below(out, 3) ? 4 + below(out, 160) : below(out, 65536);

	put(out, POKE);
	put(out, offset & 0xff);
	put(out, offset >> 8);
	put(out, 1u << below(out, 8));
}

static void make_input(struct writer *out, uint64_t seed)
{
	out->state = seed;
	out->len = 0;
	put(out, below(out, 5));
	for (unsigned i = 50 + below(out, 200); i > 0 && out->len + 1024 < INPUT_BYTES_MAX; i--) {
		unsigned dice = below(out, 20);

		if (dice < 8)
			put_insert(out);
		else if (dice < 14)
			put_raw(out);
		else if (dice < 19)
			put_poke(out);
		else
			put(out, MERGE);
	}
}

static size_t make_bytes(uint8_t *out, uint64_t seed)
{
	struct writer *writer = malloc(sizeof(*writer));
	size_t len;

	make_input(writer, seed);
	len = writer->len;
	check(len <= FUZZ_INPUT_MAX);
	memcpy(out, writer->bytes, len);
	free(writer);
	return len;
}

int main(int argc, char **argv)
{
	return fuzz_main("fuzz_page", 2000, make_bytes, argc, argv);
}

#endif
