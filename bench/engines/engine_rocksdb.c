#ifdef HAVE_ROCKSDB
#include "bench/engines/engines.h"

#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct db {
	rocksdb_t *rocks;
	rocksdb_options_t *options;
	rocksdb_writeoptions_t *write;
	rocksdb_readoptions_t *read;
};

static void demand(const char *error, const char *what)
{
	if (error)
		fail("rocksdb", what, error);
}

static void *open_db(const char *folder, uint64_t bytes)
{
	struct db *db = calloc(1, sizeof(*db));
	rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
	rocksdb_cache_t *cache = rocksdb_cache_create_lru(bytes + (64u << 20));
	char *error = NULL;

	db->options = rocksdb_options_create();
	rocksdb_options_set_create_if_missing(db->options, 1);
	rocksdb_options_set_compression(db->options, rocksdb_no_compression);
	rocksdb_options_set_manual_wal_flush(db->options, 1);
	rocksdb_options_increase_parallelism(db->options, 2);
	rocksdb_block_based_options_set_block_cache(table, cache);
	rocksdb_block_based_options_set_filter_policy(table,
						      rocksdb_filterpolicy_create_bloom(10));
	rocksdb_options_set_block_based_table_factory(db->options, table);
	db->write = rocksdb_writeoptions_create();
	rocksdb_writeoptions_set_sync(db->write, 0);
	db->read = rocksdb_readoptions_create();
	db->rocks = rocksdb_open(db->options, folder, &error);
	demand(error, "open");
	rocksdb_cache_destroy(cache);
	rocksdb_block_based_options_destroy(table);
	return db;
}

static void close_db(void *arg)
{
	struct db *db = arg;

	rocksdb_close(db->rocks);
	rocksdb_readoptions_destroy(db->read);
	rocksdb_writeoptions_destroy(db->write);
	rocksdb_options_destroy(db->options);
	free(db);
}

static void *begin(void *db)
{
	return db;
}

static void end(void *session)
{
	(void)session;
}

static void put(void *session, const uint8_t *key, const void *value, size_t len)
{
	struct db *db = session;
	char *error = NULL;

	rocksdb_put(db->rocks, db->write, (const char *)key, KEY_BYTES, value, len, &error);
	demand(error, "put");
}

static bool get(void *session, const uint8_t *key, void *value, size_t *len)
{
	struct db *db = session;
	char *error = NULL;
	const char *bytes;
	rocksdb_pinnableslice_t *found =
		rocksdb_get_pinned(db->rocks, db->read, (const char *)key, KEY_BYTES, &error);

	demand(error, "get");
	if (!found)
		return false;
	bytes = rocksdb_pinnableslice_value(found, len);
	memcpy(value, bytes, *len);
	rocksdb_pinnableslice_destroy(found);
	return true;
}

static unsigned scan(void *session, const uint8_t *key, unsigned rows)
{
	struct db *db = session;
	rocksdb_iterator_t *it = rocksdb_create_iterator(db->rocks, db->read);
	unsigned count = 0;
	size_t len;

	rocksdb_iter_seek(it, (const char *)key, KEY_BYTES);
	for (; count < rows && rocksdb_iter_valid(it); rocksdb_iter_next(it))
		count += rocksdb_iter_value(it, &len) != NULL;
	rocksdb_iter_destroy(it);
	return count;
}

const struct engine engine_rocksdb = {
	.name = "rocksdb",
	.setting = "WAL in its buffer (manual_wal_flush), written with the memtable, never flushed",
	.open = open_db,
	.close = close_db,
	.begin = begin,
	.end = end,
	.put = put,
	.get = get,
	.scan = scan,
};
#endif
