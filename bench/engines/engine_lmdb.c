#ifdef HAVE_LMDB
#include "bench/engines/engines.h"

#include <lmdb.h>
#include <stdlib.h>
#include <string.h>

struct db {
	MDB_env *env;
	MDB_dbi dbi;
};

struct session {
	struct db *db;
	MDB_txn *read;      /* reset between uses, as LMDB recommends */
	MDB_cursor *cursor; /* of read */
};

static void demand(int rc, const char *what)
{
	if (rc)
		fail("lmdb", what, mdb_strerror(rc));
}

static void *open_env(const char *folder, uint64_t bytes)
{
	struct db *db = calloc(1, sizeof(*db));
	MDB_txn *txn;

	demand(mdb_env_create(&db->env), "create");
	demand(mdb_env_set_mapsize(db->env, bytes * 3 + (1024u << 20)), "mapsize");
	demand(mdb_env_set_maxreaders(db->env, 2 * THREADS_MOST), "maxreaders");
	demand(mdb_env_open(db->env, folder, MDB_NOSYNC | MDB_NOTLS, 0600), "open");
	demand(mdb_txn_begin(db->env, NULL, 0, &txn), "txn");
	demand(mdb_dbi_open(txn, NULL, MDB_CREATE, &db->dbi), "dbi");
	demand(mdb_txn_commit(txn), "commit");
	return db;
}

static void close_env(void *arg)
{
	struct db *db = arg;

	mdb_env_close(db->env);
	free(db);
}

static void *begin(void *arg)
{
	struct session *s = calloc(1, sizeof(*s));

	s->db = arg;
	demand(mdb_txn_begin(s->db->env, NULL, MDB_RDONLY, &s->read), "read txn");
	demand(mdb_cursor_open(s->read, s->db->dbi, &s->cursor), "cursor");
	mdb_txn_reset(s->read);
	return s;
}

static void end(void *session)
{
	struct session *s = session;

	mdb_cursor_close(s->cursor);
	mdb_txn_abort(s->read);
	free(s);
}

static MDB_val val(const void *bytes, size_t len)
{
	return (MDB_val){.mv_data = (void *)bytes, .mv_size = len};
}

static void put(void *session, const uint8_t *key, const void *value, size_t len)
{
	struct session *s = session;
	MDB_val k = val(key, KEY_BYTES), v = val(value, len);
	MDB_txn *txn;

	demand(mdb_txn_begin(s->db->env, NULL, 0, &txn), "txn");
	demand(mdb_put(txn, s->db->dbi, &k, &v, 0), "put");
	demand(mdb_txn_commit(txn), "commit");
}

static bool get(void *session, const uint8_t *key, void *value, size_t *len)
{
	struct session *s = session;
	MDB_val k = val(key, KEY_BYTES), v;
	int rc;

	demand(mdb_txn_renew(s->read), "renew");
	rc = mdb_get(s->read, s->db->dbi, &k, &v);
	if (rc == 0) {
		*len = v.mv_size;
		memcpy(value, v.mv_data, v.mv_size);
	} else if (rc != MDB_NOTFOUND) {
		demand(rc, "get");
	}
	mdb_txn_reset(s->read);
	return rc == 0;
}

static unsigned scan(void *session, const uint8_t *key, unsigned rows)
{
	struct session *s = session;
	MDB_val k = val(key, KEY_BYTES), v;
	unsigned count = 0;
	int rc;

	demand(mdb_txn_renew(s->read), "renew");
	demand(mdb_cursor_renew(s->read, s->cursor), "cursor");
	rc = mdb_cursor_get(s->cursor, &k, &v, MDB_SET_RANGE);
	while (rc == 0 && count < rows) {
		count++;
		rc = mdb_cursor_get(s->cursor, &k, &v, MDB_NEXT);
	}
	if (rc != MDB_NOTFOUND)
		demand(rc, "scan");
	mdb_txn_reset(s->read);
	return count;
}

const struct engine engine_lmdb = {
	.name = "lmdb",
	.setting = "MDB_NOSYNC: written at commit, never flushed; torn by a power cut",
	.open = open_env,
	.close = close_env,
	.begin = begin,
	.end = end,
	.put = put,
	.get = get,
	.scan = scan,
};
#endif
