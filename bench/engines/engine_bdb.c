#ifdef HAVE_BDB
#include "bench/engines/engines.h"

#include <sys/types.h>

#include <db.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES 16384u
#define LOG_BUFFER_BYTES (16u << 20)

struct bdb {
	DB_ENV *env;
	DB *db;
};

static void demand(int rc, const char *what)
{
	if (rc)
		fail("berkeleydb", what, db_strerror(rc));
}

static void *open_env(const char *folder, uint64_t bytes)
{
	struct bdb *b = calloc(1, sizeof(*b));
	uint64_t cache = bytes * 2 + (256u << 20);

	demand(db_env_create(&b->env, 0), "create");
	demand(b->env->set_cachesize(b->env, (uint32_t)(cache >> 30),
				     (uint32_t)(cache & ((1u << 30) - 1)), 1), "cache");
	demand(b->env->set_lg_bsize(b->env, LOG_BUFFER_BYTES), "log buffer");
	demand(b->env->set_lg_max(b->env, 4 * LOG_BUFFER_BYTES + (64u << 20)), "log size");
	demand(b->env->set_lk_detect(b->env, DB_LOCK_DEFAULT), "deadlock detection");
	demand(b->env->set_lk_max_locks(b->env, 100000), "locks");
	demand(b->env->set_lk_max_objects(b->env, 100000), "locks");
	demand(b->env->set_flags(b->env, DB_TXN_NOSYNC, 1), "nosync");
	demand(b->env->log_set_config(b->env, DB_LOG_AUTO_REMOVE, 1), "log removal");
	demand(b->env->open(b->env, folder, DB_CREATE | DB_INIT_MPOOL | DB_INIT_LOG | DB_INIT_LOCK |
			    DB_INIT_TXN | DB_THREAD | DB_PRIVATE, 0600), "open");
	demand(db_create(&b->db, b->env, 0), "db");
	demand(b->db->set_pagesize(b->db, PAGE_BYTES), "page size");
	demand(b->db->open(b->db, NULL, "rows", NULL, DB_BTREE,
			   DB_CREATE | DB_AUTO_COMMIT | DB_THREAD, 0600), "db open");
	return b;
}

static void close_env(void *arg)
{
	struct bdb *b = arg;

	demand(b->db->close(b->db, 0), "db close");
	demand(b->env->close(b->env, 0), "close");
	free(b);
}

static void *begin(void *db)
{
	return db;
}

static void end(void *session)
{
	(void)session;
}

static DBT dbt(const void *bytes, size_t len)
{
	return (DBT){.data = (void *)bytes, .size = (uint32_t)len, .ulen = (uint32_t)len,
		     .flags = DB_DBT_USERMEM};
}

static void put(void *session, const uint8_t *key, const void *value, size_t len)
{
	struct bdb *b = session;
	DBT k = dbt(key, KEY_BYTES), v = dbt(value, len);
	int rc;

	do {
		rc = b->db->put(b->db, NULL, &k, &v, DB_AUTO_COMMIT);
	} while (rc == DB_LOCK_DEADLOCK);
	demand(rc, "put");
}

static bool get(void *session, const uint8_t *key, void *value, size_t *len)
{
	struct bdb *b = session;
	DBT k = dbt(key, KEY_BYTES), v = dbt(value, VALUE_MOST);
	int rc;

	do {
		rc = b->db->get(b->db, NULL, &k, &v, 0);
	} while (rc == DB_LOCK_DEADLOCK);
	if (rc == DB_NOTFOUND)
		return false;
	demand(rc, "get");
	*len = v.size;
	return true;
}

static unsigned scan(void *session, const uint8_t *key, unsigned rows)
{
	struct bdb *b = session;
	uint8_t at[KEY_BYTES], value[VALUE_MOST];
	DBT k = dbt(at, KEY_BYTES), v = dbt(value, sizeof(value));
	unsigned count = 0;
	DBC *cursor;
	int rc;

	memcpy(at, key, KEY_BYTES);
	demand(b->db->cursor(b->db, NULL, &cursor, DB_READ_COMMITTED), "cursor");
	rc = cursor->get(cursor, &k, &v, DB_SET_RANGE);
	while (rc == 0 && count < rows) {
		count++;
		rc = cursor->get(cursor, &k, &v, DB_NEXT);
	}
	if (rc != DB_NOTFOUND && rc != DB_LOCK_DEADLOCK)
		demand(rc, "scan");
	demand(cursor->close(cursor), "cursor");
	return count;
}

const struct engine engine_bdb = {
	.name = "berkeleydb",
	.setting = "DB_TXN_NOSYNC: log in a buffer of 16 MiB, written when that is full",
	.open = open_env,
	.close = close_env,
	.begin = begin,
	.end = end,
	.put = put,
	.get = get,
	.scan = scan,
};
#endif
