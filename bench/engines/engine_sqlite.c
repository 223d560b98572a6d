#ifdef HAVE_SQLITE
#include "bench/engines/engines.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct db {
	char path[4096];
	uint64_t cache_kib;
};

struct session {
	sqlite3 *sqlite;
	sqlite3_stmt *put, *get, *scan;
};

static void demand(struct session *s, bool ok, const char *what)
{
	if (!ok)
		fail("sqlite", what, sqlite3_errmsg(s->sqlite));
}

static void run(struct session *s, const char *sql)
{
	demand(s, sqlite3_exec(s->sqlite, sql, NULL, NULL, NULL) == SQLITE_OK, sql);
}

static void prepare(struct session *s, const char *sql, sqlite3_stmt **out)
{
	demand(s, sqlite3_prepare_v2(s->sqlite, sql, -1, out, NULL) == SQLITE_OK, sql);
}

static struct session *connect_to(struct db *db)
{
	struct session *s = calloc(1, sizeof(*s));
	char sql[64];

	demand(s, sqlite3_open(db->path, &s->sqlite) == SQLITE_OK, "open");
	sqlite3_busy_timeout(s->sqlite, 60000);
	run(s, "PRAGMA page_size = 16384");
	run(s, "PRAGMA journal_mode = WAL");
	run(s, "PRAGMA synchronous = OFF");
	snprintf(sql, sizeof(sql), "PRAGMA cache_size = -%llu", (unsigned long long)db->cache_kib);
	run(s, sql);
	run(s, "CREATE TABLE IF NOT EXISTS rows(k BLOB PRIMARY KEY, v BLOB) WITHOUT ROWID");
	return s;
}

static void disconnect(struct session *s)
{
	sqlite3_finalize(s->put);
	sqlite3_finalize(s->get);
	sqlite3_finalize(s->scan);
	demand(s, sqlite3_close(s->sqlite) == SQLITE_OK, "close");
	free(s);
}

static void *open_db(const char *folder, uint64_t bytes)
{
	struct db *db = calloc(1, sizeof(*db));

	snprintf(db->path, sizeof(db->path), "%s/rows.sqlite", folder);
	db->cache_kib = (bytes + (64u << 20)) / 1024;
	disconnect(connect_to(db));
	return db;
}

static void close_db(void *db)
{
	free(db);
}

static void *begin(void *db)
{
	struct session *s = connect_to(db);

	prepare(s, "INSERT OR REPLACE INTO rows VALUES(?, ?)", &s->put);
	prepare(s, "SELECT v FROM rows WHERE k = ?", &s->get);
	prepare(s, "SELECT v FROM rows WHERE k >= ? ORDER BY k", &s->scan);
	return s;
}

static void end(void *session)
{
	disconnect(session);
}

static void put(void *session, const uint8_t *key, const void *value, size_t len)
{
	struct session *s = session;

	sqlite3_bind_blob(s->put, 1, key, KEY_BYTES, SQLITE_STATIC);
	sqlite3_bind_blob(s->put, 2, value, (int)len, SQLITE_STATIC);
	demand(s, sqlite3_step(s->put) == SQLITE_DONE, "put");
	sqlite3_reset(s->put);
}

static bool get(void *session, const uint8_t *key, void *value, size_t *len)
{
	struct session *s = session;
	int rc;

	sqlite3_bind_blob(s->get, 1, key, KEY_BYTES, SQLITE_STATIC);
	rc = sqlite3_step(s->get);
	demand(s, rc == SQLITE_ROW || rc == SQLITE_DONE, "get");
	if (rc == SQLITE_ROW) {
		*len = (size_t)sqlite3_column_bytes(s->get, 0);
		memcpy(value, sqlite3_column_blob(s->get, 0), *len);
	}
	sqlite3_reset(s->get);
	return rc == SQLITE_ROW;
}

static unsigned scan(void *session, const uint8_t *key, unsigned rows)
{
	struct session *s = session;
	unsigned count = 0;

	sqlite3_bind_blob(s->scan, 1, key, KEY_BYTES, SQLITE_STATIC);
	while (count < rows && sqlite3_step(s->scan) == SQLITE_ROW)
		count += sqlite3_column_blob(s->scan, 0) != NULL;
	sqlite3_reset(s->scan);
	return count;
}

const struct engine engine_sqlite = {
	.name = "sqlite",
	.setting = "WAL, synchronous = OFF: written at commit, never flushed",
	.open = open_db,
	.close = close_db,
	.begin = begin,
	.end = end,
	.put = put,
	.get = get,
	.scan = scan,
};
#endif
