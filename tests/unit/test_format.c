/*
 * Formatting and the superblock: geometry over sizes and page sizes, contents
 * of a new volume, INV-SB-1 at each step of an update, hostile superblocks.
 */
#include "engine/base/crc32c.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/volume.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

#define MIB (1ull << 20)

static struct format_params params_of(uint64_t size_bytes, uint32_t page_size)
{
	struct format_params params = {.size_bytes = size_bytes, .page_size = page_size};

	memset(params.uuid, 0x5a, sizeof(params.uuid));
	memset(params.hash_seed, 0x77, sizeof(params.hash_seed));
	strcpy(params.label, "test");
	return params;
}

static struct device *new_volume(uint64_t size_bytes, uint32_t page_size, struct geometry *geo)
{
	struct format_params params = params_of(size_bytes, page_size);
	struct device *dev;

	cr_assert_eq(dev_open_memory(&dev, size_bytes), 0);
	cr_assert_eq(volume_format(dev, &params, geo), 0);
	return dev;
}

static void seal(struct disk_superblock *sb)
{
	sb->crc = le32_make(0);
	sb->crc = le32_make(crc32c(0, sb, sizeof(*sb)));
}

/* --- geometry ------------------------------------------------------------ */

/* Every block belongs to one region at most, and all regions lie inside. */
static void judge_geometry(const struct geometry *geo, uint64_t size_bytes)
{
	uint64_t groups_end = geo->block_count - 1;
	uint64_t last_group = geo->groups_start +
			      (uint64_t)(geo->group_count - 1) * geo->group_blocks;

	cr_assert_eq(geo->block_count, size_bytes / BLOCK_SIZE);
	cr_assert_geq(geo->dw_start, 1);
	cr_assert_leq(geo->dw_start + (uint64_t)geo->dw_slots * geo->page_blocks, geo->log_start);
	cr_assert_leq(geo->log_start + geo->log_bytes / BLOCK_SIZE, geo->groups_start);
	cr_assert_eq(geo->groups_start % geo->page_blocks, 0);
	cr_assert_eq(geo->group_blocks, GROUP_BLOCKS(geo->page_size));
	cr_assert_leq(last_group + geo->page_blocks, groups_end);
	/* What a short last group would waste, had it been left out. */
	cr_assert_lt(groups_end - last_group, geo->group_blocks + 8ull * geo->page_blocks);
	cr_assert_geq(geo->log_bytes, LOG_BYTES_MIN);
	cr_assert_leq(geo->log_bytes, LOG_BYTES_DEFAULT);
}

Test(format, geometry_over_sizes)
{
	static const uint64_t sizes[] = {
		3 * MIB, 3 * MIB + 1, 5 * MIB, 17 * MIB, 64 * MIB, 129 * MIB, 130 * MIB, 131 * MIB,
		513 * MIB, 1024 * MIB, 4096 * MIB, 1024 * 1024 * MIB, 64ull * 1024 * 1024 * MIB,
	};
	struct device dev = {0};

	for (uint32_t page_size = PAGE_SIZE_MIN; page_size <= PAGE_SIZE_MAX; page_size *= 2) {
		for (unsigned i = 0; i < array_count(sizes); i++) {
			struct format_params params = params_of(sizes[i], page_size);
			struct geometry geo;
			int rc;

			dev.size_bytes = sizes[i];
			params.dry_run = true;
			rc = volume_format(&dev, &params, &geo);
			if (rc == -BE_TOOSMALL)
				cr_assert_lt(sizes[i], 4 * MIB * (page_size / PAGE_SIZE_MIN));
			else
				cr_assert_eq(rc, 0);
			if (rc == 0)
				judge_geometry(&geo, sizes[i]);
		}
	}
}

/* Around the sizes at which a group begins or ends, block by block. */
Test(format, geometry_at_group_borders)
{
	struct device dev = {0};
	struct format_params params = params_of(200 * MIB, 4096);
	struct geometry geo;
	uint64_t border;

	params.log_bytes = LOG_BYTES_MIN;
	params.dry_run = true;
	dev.size_bytes = params.size_bytes;
	cr_assert_eq(volume_format(&dev, &params, &geo), 0);
	border = (geo.groups_start + geo.group_blocks) * BLOCK_SIZE;
	for (uint64_t size = border - 20 * BLOCK_SIZE; size < border + 40 * BLOCK_SIZE;
	     size += BLOCK_SIZE) {
		dev.size_bytes = params.size_bytes = size;
		cr_assert_eq(volume_format(&dev, &params, &geo), 0);
		cr_assert_geq(geo.group_count, 1);
		judge_geometry(&geo, size);
	}
}

Test(format, refuses_what_does_not_fit)
{
	static const uint32_t bad_pages[] = {1, 512, 2048, 5000, 12288, 131072};
	struct format_params params = params_of(64 * MIB, 0);
	struct device *dev;
	struct geometry geo;

	cr_assert_eq(dev_open_memory(&dev, 64 * MIB), 0);
	for (unsigned i = 0; i < array_count(bad_pages); i++) {
		params.page_size = bad_pages[i];
		cr_expect_eq(volume_format(dev, &params, &geo), -EINVAL);
	}
	params.page_size = 4096;
	params.log_bytes = LOG_BYTES_MIN - 1;
	cr_expect_eq(volume_format(dev, &params, &geo), -EINVAL);
	params.log_bytes = 64 * MIB;
	cr_expect_eq(volume_format(dev, &params, &geo), -EINVAL);
	params.log_bytes = UINT64_MAX;
	cr_expect_eq(volume_format(dev, &params, &geo), -EINVAL);
	params.log_bytes = 0;
	for (uint64_t size = 0; size < 3 * MIB / 4; size += 50000) {
		params.size_bytes = size;
		cr_expect_eq(volume_format(dev, &params, &geo), -BE_TOOSMALL, "%lu", size);
	}
	params.size_bytes = 64 * MIB + 1;
	cr_expect_eq(volume_format(dev, &params, &geo), -EINVAL);
	dev_close(dev);
}

/* --- a new volume -------------------------------------------------------- */

static void judge_page(struct device *dev, const struct disk_superblock *sb, uint64_t pageno,
		       void *page)
{
	uint32_t page_size = le32_get(sb->page_size);
	const char *why = "";

	cr_assert_eq(dev_read(dev, page, page_size, pageno * BLOCK_SIZE), 0);
	cr_assert_eq(page_verify(page, page_size, pageno, sb->uuid, &why), 0, "%s", why);
	cr_assert_leq(page_lsn(page), LSN_FIRST);
}

Test(format, pages_of_a_new_volume)
{
	for (uint32_t page_size = PAGE_SIZE_MIN; page_size <= PAGE_SIZE_MAX; page_size *= 2) {
		struct geometry geo;
		struct device *dev = new_volume(300 * MIB, page_size, &geo);
		void *page = malloc(page_size);
		struct disk_superblock sb;

		cr_assert_eq(superblock_read(dev, &sb, NULL), 0);
		for (uint32_t group = 0; group < geo.group_count; group++) {
			uint64_t used = (group ? 1 : 2 + INDEX_COUNT) * geo.page_blocks;

			judge_page(dev, &sb, geo.groups_start + group * geo.group_blocks, page);
			cr_assert(page_bits_are(page, 0, used, true));
			cr_assert(page_bits_are(page, used, geo.group_blocks - used, false));
		}
		judge_page(dev, &sb, geo.system_page, page);
		cr_assert_eq(le64_get(((struct disk_system_page *)page)->counter[COUNTER_INO]),
			     INO_FIRST_FREE);
		for (unsigned i = 0; i < INDEX_COUNT; i++) {
			judge_page(dev, &sb, le64_get(sb.root[i]), page);
			cr_assert_eq(le16_get(tree_page(page)->slot_count), i == INDEX_INODES);
			cr_assert_eq(tree_page(page)->head.index, i);
		}
		free(page);
		dev_close(dev);
	}
}

/* Old page copies must not be taken for ours when the UUID is kept. */
Test(format, doublewrite_area_is_cleared)
{
	struct geometry geo;
	struct device *dev = new_volume(16 * MIB, 4096, &geo);
	struct format_params params = params_of(16 * MIB, 4096);
	uint8_t block[BLOCK_SIZE];

	memset(block, 0xee, sizeof(block));
	cr_assert_eq(dev_write(dev, block, sizeof(block), geo.dw_start * BLOCK_SIZE), 0);
	cr_assert_eq(volume_format(dev, &params, NULL), 0);
	cr_assert_eq(dev_read(dev, block, sizeof(block), geo.dw_start * BLOCK_SIZE), 0);
	for (unsigned i = 0; i < sizeof(block); i++)
		cr_assert_eq(block[i], 0);
	dev_close(dev);
}

/* The volume in `state`, if there is one, is whole, and new unless old is still allowed. */
static void judge_cut(struct device *state, const uint8_t new_uuid[16], bool old_allowed)
{
	struct disk_superblock sb;
	uint8_t page[4096];

	if (superblock_read(state, &sb, NULL) != 0)
		return;
	if (memcmp(sb.uuid, new_uuid, sizeof(sb.uuid)) == 0)
		judge_page(state, &sb, le64_get(sb.root[INDEX_INODES]), page);
	else
		cr_assert(old_allowed);
}

/* A cut at any time while formatting leaves no volume, or the whole of it. */
Test(format, crash_while_formatting)
{
	struct geometry geo;
	struct device *dev = new_volume(3 * MIB, 4096, &geo);
	struct format_params params = params_of(3 * MIB, 4096);
	bool flushed = false; /* from then on the old volume must not be found */

	memset(params.uuid, 0xa5, sizeof(params.uuid));
	dev_record_start(dev);
	cr_assert_eq(volume_format(dev, &params, NULL), 0);
	dev_record_stop(dev);
	for (size_t event = 0; event <= dev_record_count(dev); event++) {
		size_t undecided = dev_record_undecided(dev, event);

		for (enum dev_cut_mode mode = CUT_PREFIX; mode <= CUT_TORN; mode++) {
			for (uint64_t seed = 0; seed <= undecided; seed++) {
				struct device *state;
				bool varies;

				cr_assert_eq(dev_record_state(dev, event, mode, seed, &state,
							      &varies), 0);
				judge_cut(state, params.uuid, !flushed);
				dev_close(state);
			}
		}
		if (event < dev_record_count(dev) && dev_record_is_flush(dev, event))
			flushed = true;
	}
	dev_close(dev);
}

/* --- the superblock ------------------------------------------------------ */

static void put_block(struct device *dev, uint64_t block, const void *bytes)
{
	cr_assert_eq(dev_write(dev, bytes, BLOCK_SIZE, block * BLOCK_SIZE), 0);
}

Test(superblock, copy_rescues)
{
	struct geometry geo;
	struct device *dev = new_volume(16 * MIB, 4096, &geo);
	struct disk_superblock sb, again;
	uint8_t zeros[BLOCK_SIZE] = {0};
	bool used_copy;

	cr_assert_eq(superblock_read(dev, &sb, &used_copy), 0);
	cr_assert_not(used_copy);
	put_block(dev, 0, zeros);
	cr_assert_eq(superblock_read(dev, &again, &used_copy), 0);
	cr_assert(used_copy);
	cr_assert_arr_eq((char *)&sb, (char *)&again, sizeof(sb));
	put_block(dev, geo.block_count - 1, zeros);
	cr_assert_eq(superblock_read(dev, &again, &used_copy), -BE_NOVOLUME);
	dev_close(dev);
}

/* The volume ends before the device does: the remains of block 0 say where. */
Test(superblock, copy_of_a_volume_smaller_than_its_device)
{
	struct format_params params = params_of(16 * MIB, 4096);
	struct disk_superblock sb;
	struct device *dev;
	uint8_t torn[BLOCK_SIZE];
	bool used_copy;

	cr_assert_eq(dev_open_memory(&dev, 20 * MIB), 0);
	cr_assert_eq(volume_format(dev, &params, NULL), 0);
	cr_assert_eq(dev_read(dev, torn, sizeof(torn), 0), 0);
	torn[3000] ^= 1;
	put_block(dev, 0, torn);
	cr_assert_eq(superblock_read(dev, &sb, &used_copy), 0);
	cr_assert(used_copy);
	dev_close(dev);
}

/* A former, larger volume must not come back when our block 0 breaks. */
Test(superblock, stale_copy_is_removed)
{
	struct geometry geo;
	struct device *dev = new_volume(20 * MIB, 4096, &geo);
	struct format_params params = params_of(16 * MIB, 4096);
	struct disk_superblock sb;
	uint8_t zeros[BLOCK_SIZE] = {0};

	cr_assert_eq(volume_format(dev, &params, NULL), 0);
	put_block(dev, 0, zeros);
	cr_assert_eq(superblock_read(dev, &sb, NULL), -BE_NOVOLUME);
	dev_close(dev);
}

/* INV-SB-1: at each cut of an update, and torn in any way, one of the two states is read. */
Test(superblock, update_is_atomic)
{
	struct geometry geo;
	struct device *dev = new_volume(3 * MIB, 4096, &geo);
	struct disk_superblock sb;

	cr_assert_eq(superblock_read(dev, &sb, NULL), 0);
	memset(sb.label, 'n', 20);
	sb.hash_seed[15] = 0; /* another sector would differ as well */
	memset(sb.reserved, 0x11, sizeof(sb.reserved));
	dev_record_start(dev);
	cr_assert_eq(superblock_write(dev, &sb), 0);
	dev_record_stop(dev);
	for (size_t event = 0; event <= dev_record_count(dev); event++) {
		for (unsigned seed = 0; seed < 60; seed++) {
			enum dev_cut_mode mode = seed ? CUT_TORN : CUT_PREFIX;
			struct disk_superblock read;
			struct device *state;
			bool varies;

			cr_assert_eq(dev_record_state(dev, event, mode, seed, &state, &varies), 0);
			cr_assert_eq(superblock_read(state, &read, NULL), 0);
			cr_assert(memcmp(read.label, "test", 5) == 0 ||
				  memcmp(read.label, sb.label, sizeof(sb.label)) == 0);
			if (event == dev_record_count(dev))
				cr_assert_eq(memcmp(&read, &sb, sizeof(sb)), 0);
			dev_close(state);
		}
	}
	dev_close(dev);
}

static void update_and_cut(struct device *dev)
{
	struct disk_superblock sb;
	uint64_t before;

	cr_assert_eq(superblock_read(dev, &sb, NULL), 0);
	before = le64_get(sb.update_gen);
	memset(sb.reserved, 0x22, sizeof(sb.reserved));
	dev_record_start(dev);
	cr_assert_eq(superblock_write(dev, &sb), 0);
	dev_record_stop(dev);
	for (size_t event = 0; event <= dev_record_count(dev); event++) {
		for (unsigned seed = 0; seed < 20; seed++) {
			struct disk_superblock read;
			struct device *state;
			bool varies;

			cr_assert_eq(dev_record_state(dev, event, seed ? CUT_TORN : CUT_PREFIX,
						      seed, &state, &varies), 0);
			cr_assert_eq(superblock_read(state, &read, NULL), 0);
			cr_assert_geq(le64_get(read.update_gen), before);
			dev_close(state);
		}
	}
}

/* The same of an update that finds what a cut of the one before has left: none goes back. */
Test(superblock, update_after_a_cut_is_atomic)
{
	struct device *dev = new_volume(3 * MIB, 4096, NULL);
	struct disk_superblock sb;

	cr_assert_eq(superblock_read(dev, &sb, NULL), 0);
	memset(sb.reserved, 0x11, sizeof(sb.reserved));
	dev_record_start(dev);
	cr_assert_eq(superblock_write(dev, &sb), 0);
	dev_record_stop(dev);
	for (size_t event = 0; event <= dev_record_count(dev); event++) {
		for (unsigned seed = 0; seed < 20; seed++) {
			struct device *state;
			bool varies;

			cr_assert_eq(dev_record_state(dev, event, seed ? CUT_TORN : CUT_PREFIX,
						      seed, &state, &varies), 0);
			update_and_cut(state);
			dev_close(state);
		}
	}
	dev_close(dev);
}

Test(superblock, versions_and_features)
{
	struct geometry geo;
	struct device *dev = new_volume(16 * MIB, 4096, &geo);
	struct disk_superblock sb, other, read;

	cr_assert_eq(superblock_read(dev, &sb, NULL), 0);
	other = sb;
	other.version = le32_make(FORMAT_VERSION + 1);
	seal(&other);
	put_block(dev, 0, &other);
	cr_assert_eq(superblock_read(dev, &read, NULL), -BE_VERSION);
	other = sb;
	other.incompat = le64_make(1ull << 63);
	seal(&other);
	put_block(dev, 0, &other);
	cr_assert_eq(superblock_read(dev, &read, NULL), -BE_VERSION);
	other = sb;
	other.compat = le64_make(1ull << 63);
	seal(&other);
	put_block(dev, 0, &other);
	cr_assert_eq(superblock_read(dev, &read, NULL), 0);
	other = sb;
	other.ro_compat = le64_make(RO_COMPAT_KNOWN);
	seal(&other);
	put_block(dev, 0, &other);
	cr_assert_eq(superblock_read(dev, &read, NULL), 0);
	other.ro_compat = le64_make(1ull << 63);
	seal(&other);
	put_block(dev, 0, &other);
	cr_assert_eq(superblock_read(dev, &read, NULL), -BE_VERSION);
	dev->read_only = true;
	cr_assert_eq(superblock_read(dev, &read, NULL), 0);
	dev->read_only = false;
	dev_close(dev);
}

Test(superblock, truncated_device)
{
	struct geometry geo;
	struct device *dev = new_volume(16 * MIB, 4096, &geo), *shorter;
	struct disk_superblock sb, read;

	cr_assert_eq(superblock_read(dev, &sb, NULL), 0);
	cr_assert_eq(dev_open_memory(&shorter, 8 * MIB), 0);
	put_block(shorter, 0, &sb);
	cr_assert_eq(superblock_read(shorter, &read, NULL), -BE_TRUNCATED);
	dev_close(shorter);
	cr_assert_eq(dev_open_memory(&shorter, 100), 0);
	cr_assert_eq(superblock_read(shorter, &read, NULL), -BE_NOVOLUME);
	dev_close(shorter);
	dev_close(dev);
}

/* --- hostile superblocks ------------------------------------------------- */

static void judge_decoded(const struct geometry *geo)
{
	uint64_t end = geo->block_count - 1;
	uint64_t last = geo->groups_start + (uint64_t)(geo->group_count - 1) * geo->group_blocks;

	cr_assert_leq(geo->dw_start + (uint64_t)geo->dw_slots * geo->page_blocks, geo->home_start);
	cr_assert_leq(geo->home_start, geo->groups_start);
	if (geo->log_external)
		cr_assert_eq(geo->log_start, 0);
	else if (geo->log_start >= geo->groups_start)
		cr_assert(geometry_is_in_group(geo, geo->log_start, geo->log_bytes / BLOCK_SIZE));
	else
		cr_assert(geo->log_start >= geo->home_start &&
			  geo->log_start + geo->log_bytes / BLOCK_SIZE <= geo->groups_start);
	cr_assert_lt(geo->groups_start, end);
	cr_assert_leq(last + geo->page_blocks, end);
	cr_assert_leq(geo->system_page + (1 + INDEX_COUNT) * geo->page_blocks, end);
}

static const uint64_t extremes[] = {
	0, 1, 2, 255, 4095, 4096, 65536, 1u << 31, UINT32_MAX, 1ull << 32, 1ull << 50, 1ull << 51,
	INT64_MAX, 1ull << 63, UINT64_MAX - 4095, UINT64_MAX,
};

/* Each field of the geometry with each extreme value, resealed: refused, or harmless. */
Test(superblock, crafted_fields)
{
	struct geometry geo;
	struct device *dev = new_volume(16 * MIB, 4096, &geo);
	struct disk_superblock sb, crafted;

	cr_assert_eq(superblock_read(dev, &sb, NULL), 0);
	for (size_t at = 0; at + 8 <= offsetof(struct disk_superblock, reserved); at += 4) {
		for (unsigned i = 0; i < array_count(extremes); i++) {
			for (unsigned width = 4; width <= 8; width += 4) {
				crafted = sb;
				memcpy((uint8_t *)&crafted + at, &extremes[i], width);
				if (geometry_decode(&crafted, &geo) == 0)
					judge_decoded(&geo);
			}
		}
	}
	dev_close(dev);
}

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 20;
}

/* Random bytes of both copies change, with and without a matching checksum. */
Test(superblock, mutations_never_crash)
{
	struct geometry geo;
	struct device *dev = new_volume(3 * MIB, 4096, &geo);
	struct disk_superblock sb, mutant, read;
	uint64_t random = 1;

	cr_assert_eq(superblock_read(dev, &sb, NULL), 0);
	for (unsigned round = 0; round < 20000; round++) {
		unsigned changes = 1 + next_random(&random) % 4;

		mutant = sb;
		while (changes-- > 0)
			((uint8_t *)&mutant)[next_random(&random) % 328] =
				(uint8_t)next_random(&random);
		if (round % 4)
			seal(&mutant);
		put_block(dev, round % 2 ? 0 : geo.block_count - 1, &mutant);
		if (superblock_read(dev, &read, NULL) == 0) {
			struct geometry decoded;

			cr_assert_eq(geometry_decode(&read, &decoded), 0);
			judge_decoded(&decoded);
			cr_assert_leq(decoded.block_count * BLOCK_SIZE, dev->size_bytes);
		}
	}
	dev_close(dev);
}

/* --- sizes --------------------------------------------------------------- */

Test(units, parse)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{"0", 0}, {"4096", 4096}, {"16K", 16384}, {"16k", 16384}, {"256M", 256 * MIB},
		{"4GiB", 4096 * MIB}, {"1.5T", 1536 * 1024 * MIB}, {"0.5M", MIB / 2}, {"7B", 7},
		{"18446744073709551615", UINT64_MAX}, {"15.5E", 31ull << 59},
	};
	static const char *const bad[] = {
		"", "K", "-1", "+1", " 1", "1 K", "1X", "1KK", "1.5", "1.", ".5M", "1iB", "16384P",
		"18446744073709551616", "99999999999999999999999", "16E", "0x10",
	};
	uint64_t bytes;

	for (unsigned i = 0; i < array_count(good); i++) {
		cr_expect_eq(size_parse(good[i].text, &bytes), 0, "%s", good[i].text);
		cr_expect_eq(bytes, good[i].bytes, "%s: %lu", good[i].text, bytes);
	}
	for (unsigned i = 0; i < array_count(bad); i++)
		cr_expect_neq(size_parse(bad[i], &bytes), 0, "%s", bad[i]);
}

Test(units, text)
{
	char text[SIZE_TEXT_BYTES];

	cr_expect_str_eq(size_text(0, text), "0 bytes");
	cr_expect_str_eq(size_text(1023, text), "1023 bytes");
	cr_expect_str_eq(size_text(16384, text), "16 KiB");
	cr_expect_str_eq(size_text(1536 * MIB, text), "1.5 GiB");
	cr_expect_str_eq(size_text(UINT64_MAX, text), "15.9 EiB");
}
