/*
 * .blinkfs/stats: every counter by its name, and the gauges of each part.
 * Numbers are written as integers, exact over 64 bits.
 */
#include "engine/archive.h"
#include "engine/pool.h"
#include "engine/purge.h"
#include "engine/space.h"
#include "fs/server/backup_serve.h"
#include "fs/server/control.h"
#include "fs/server/freeze.h"
#include "fs/server/scrub_serve.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>

static void add_number(cJSON *object, const char *name, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	cJSON_AddRawToObject(object, name, text);
}

static void add_volume(cJSON *root, struct volume *volume)
{
	cJSON *object = cJSON_AddObjectToObject(root, "volume");
	char uuid[2 * sizeof(volume->sb.uuid) + 1];
	char label[sizeof(volume->sb.label) + 1] = "";

	for (unsigned i = 0; i < sizeof(volume->sb.uuid); i++)
		snprintf(uuid + 2 * i, 3, "%02x", volume->sb.uuid[i]);
	memcpy(label, volume->sb.label, sizeof(volume->sb.label));
	cJSON_AddStringToObject(object, "uuid", uuid);
	cJSON_AddStringToObject(object, "label", label);
	add_number(object, "page_size", volume->geo.page_size);
	add_number(object, "block_count", volume->geo.block_count);
	cJSON_AddBoolToObject(object, "read_only", volume->options.read_only);
	cJSON_AddBoolToObject(object, "failed", atomic_load(&volume->failed));
	cJSON_AddBoolToObject(object, "corrupt", atomic_load(&volume->corrupt));
}

static void add_counters(cJSON *root, struct volume *volume)
{
	cJSON *object = cJSON_AddObjectToObject(root, "counters");

	for (int stat = 0; stat < STAT_COUNT; stat++)
		add_number(object, stat_name(stat), stat_read(&volume->stats, stat));
}

static void add_latch_waits(cJSON *root)
{
	cJSON *object = cJSON_AddObjectToObject(root, "latch_waits");

	for (int rank = 0; rank < RANK_COUNT; rank++)
		add_number(object, rank_name(rank), latch_wait_count(rank));
}

static void add_index(cJSON *root, struct volume *volume)
{
	cJSON *object = cJSON_AddObjectToObject(root, "index");

	cJSON_AddStringToObject(object, "smo", smo_mode_name(volume_smo(volume)));
}

static void add_pool(cJSON *root, struct volume *volume)
{
	cJSON *object = cJSON_AddObjectToObject(root, "pool");
	struct pool_counts counts;

	pool_count(volume->pool, &counts);
	add_number(object, "frames", counts.frames);
	add_number(object, "dirty", counts.dirty);
	add_number(object, "pinned", counts.pinned);
	add_number(object, "tickets_free", counts.tickets_free);
}

static void add_trim(cJSON *root, struct volume *volume)
{
	cJSON *object = cJSON_AddObjectToObject(root, "discard");
	struct space_trim_counts counts;

	space_trim_count(volume->space, &counts);
	cJSON_AddBoolToObject(object, "background", counts.background);
	add_number(object, "in_flight_blocks", counts.in_flight);
	add_number(object, "stale_blocks", counts.stale);
}

static void add_space(cJSON *root, struct volume *volume)
{
	cJSON *object = cJSON_AddObjectToObject(root, "space_blocks");
	struct space_counts counts;

	space_count(volume->space, &counts);
	add_number(object, "total", counts.total);
	add_number(object, "free", counts.free);
	add_number(object, "deferred", counts.deferred);
	add_number(object, "pinned", counts.pinned);
	add_number(object, "reserved", counts.reserved);
	add_number(object, "kept", counts.kept);
}

static void add_inodes(cJSON *root, struct core *core)
{
	cJSON *object = cJSON_AddObjectToObject(root, "inodes");
	uint64_t inodes, lookups;

	core_inode_counts(core, &inodes, &lookups);
	add_number(object, "in_memory", inodes);
	add_number(object, "lookups", lookups);
}

static void add_purge(cJSON *root, struct volume *volume)
{
	cJSON *object = cJSON_AddObjectToObject(root, "purge");

	add_number(object, "waiting", purge_lag(volume));
}

/* A volume opened read-only appends nothing. */
static void add_log(cJSON *root, struct volume *volume)
{
	cJSON *object = cJSON_AddObjectToObject(root, "log");

	add_number(object, "recovered_lsn", volume->recovered_lsn);
	if (volume->options.read_only || !volume->log)
		return;
	cJSON_AddStringToObject(object, "mode", log_mode_name(log_mode(volume->log)));
	add_number(object, "block_bytes", log_block_bytes(volume->log));
	add_number(object, "checkpoint_lsn", log_checkpoint_lsn(volume->log));
	add_number(object, "marked_lsn", log_marked_lsn(volume->log));
	add_number(object, "durable_lsn", log_durable_lsn(volume->log));
	add_number(object, "next_lsn", log_next_lsn(volume->log));
	add_number(object, "capacity", log_capacity(volume->log));
	cJSON_AddBoolToObject(object, "external", volume->geo.log_external);
	cJSON_AddBoolToObject(object, "scrub", volume->options.log_scrub);
	cJSON_AddBoolToObject(object, "dead", log_dead(volume->log));
}

/* Null where there is none. */
static void add_archive(cJSON *root, struct volume *volume)
{
	struct archive_status status;
	cJSON *object;

	if (!volume->archive) {
		cJSON_AddNullToObject(root, "archive");
		return;
	}
	archive_status(volume->archive, &status);
	object = cJSON_AddObjectToObject(root, "archive");
	cJSON_AddStringToObject(object, "dir", status.dir);
	cJSON_AddBoolToObject(object, "data", status.data);
	cJSON_AddBoolToObject(object, "paused", status.paused);
	add_number(object, "archived_lsn", status.archived_lsn);
	add_number(object, "gap_from", status.gap_from);
}

static void add_backup(cJSON *root, struct server *server)
{
	static const char *const states[] = {"idle", "running", "ended"};
	cJSON *object = cJSON_AddObjectToObject(root, "backup");
	struct blinkfs_backup_status status;

	backup_service_status(server->backup, &status);
	cJSON_AddStringToObject(object, "state", states[status.state]);
	add_number(object, "pages", status.pages);
	add_number(object, "blocks", status.blocks);
	add_number(object, "bytes", status.bytes);
	add_number(object, "lsn", status.lsn);
}

static void add_freeze(cJSON *root, struct server *server)
{
	cJSON *object = cJSON_AddObjectToObject(root, "freeze");
	struct freeze_state state;

	freeze_look(server->freeze, &state);
	cJSON_AddBoolToObject(object, "frozen", state.frozen);
	add_number(object, "requests_held", state.held);
}

static void add_scrub(cJSON *root, struct server *server)
{
	static const char *const states[] = {"idle", "running", "ended"};
	cJSON *object = cJSON_AddObjectToObject(root, "scrub");
	struct blinkfs_scrub_status status;

	scrub_service_status(server->scrub, &status);
	cJSON_AddStringToObject(object, "state", states[status.state]);
	add_number(object, "pages", status.pages);
	add_number(object, "blocks", status.blocks);
	add_number(object, "bytes", status.bytes);
	add_number(object, "bytes_passed", status.bytes_passed);
	add_number(object, "bytes_used", status.bytes_used);
	add_number(object, "skipped", status.skipped);
	add_number(object, "bad_pages", status.bad_pages);
	add_number(object, "bad_blocks", status.bad_blocks);
}

char *stats_json(struct server *server)
{
	struct volume *volume = core_volume(server->core);
	cJSON *root = cJSON_CreateObject();
	char *text;

	cJSON_AddStringToObject(root, "version", BLINKFS_VERSION);
	add_volume(root, volume);
	add_counters(root, volume);
	add_latch_waits(root);
	add_index(root, volume);
	add_pool(root, volume);
	add_space(root, volume);
	add_trim(root, volume);
	add_inodes(root, server->core);
	add_purge(root, volume);
	add_log(root, volume);
	add_archive(root, volume);
	add_backup(root, server);
	add_freeze(root, server);
	add_scrub(root, server);
	text = cJSON_Print(root);
	cJSON_Delete(root);
	return text;
}
