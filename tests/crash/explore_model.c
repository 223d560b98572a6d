/*
 * The model's side: statements of script.h on the oracle, and the oracle's tree as the
 * text that core_snapshot() gives.
 *
 * Names are single capital letters, or "user.x" for attributes, so that the oracle's
 * numbers are theirs.
 *
 * What may be seen is a list of states, one for each step that a crash must not divide.
 * All operations are one step but copy, of which each whole block may be one (each
 * piece of a core_copy() is atomic, not the whole).
 */
#include "tests/crash/explore.h"

#include "engine/base/crc32c.h"
#include "engine/base/limits.h"
#include "tests/lib/script.h"
#include "tests/model/oracle.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#define ENTRY_BYTES 32u /* what a name adds to the size of its directory */

uint64_t explore_hash(const void *bytes, size_t len)
{
	return XXH3_64bits(bytes, len);
}

/* ------------------------------------------------------------------ names */

static const char *const xattr_names[ORACLE_XATTRS_MAX] = {"user.a", "user.b", "user.c", "user.d"};

static bool is_name(char letter)
{
	return letter >= 'A' && letter <= 'Z';
}

static uint32_t name_number(char letter)
{
	check(is_name(letter));
	return (uint32_t)(letter - 'A');
}

static bool is_path(const char *path)
{
	while (is_name(path[0]) && path[1] == '/')
		path += 2;
	return is_name(path[0]) && path[1] == '\0';
}

static int find_parent(const struct oracle *o, const char *path, uint32_t *dir, uint32_t *name)
{
	*dir = 0;
	for (; path[1] == '/'; path += 2) {
		uint32_t child = o->node[*dir]->child[name_number(path[0])];

		if (!child)
			return -ENOENT;
		if (o->node[child]->type != S_IFDIR)
			return -ENOTDIR;
		*dir = child;
	}
	*name = name_number(path[0]);
	return 0;
}

static int find(const struct oracle *o, const char *path, uint32_t *node)
{
	uint32_t dir, name;
	int rc;

	*node = 0;
	if (strcmp(path, ".") == 0)
		return 0;
	rc = find_parent(o, path, &dir, &name);
	if (rc)
		return rc;
	*node = o->node[dir]->child[name];
	return *node ? 0 : -ENOENT;
}

/* ------------------------------------------------------------ the model */

struct world {
	struct oracle *oracle;
	char *target[EXPLORE_STATES_MAX]; /* of symlinks: the oracle's seed is the index */
	uint64_t targets;
	struct explore_model *model;
};

struct lines {
	char *line[ORACLE_NAMES * 4];
	size_t count, len;
};

static uint32_t xattrs_crc(const struct oracle_node *n)
{
	static uint8_t value[XATTR_VALUE_MAX];
	uint32_t sum = 0;

	for (unsigned i = 0; i < ORACLE_XATTRS_MAX; i++) {
		const struct oracle_xattr *x = &n->xattr[i];

		if (!x->exists)
			continue;
		oracle_fill(value, x->len, x->seed);
		sum += crc32c(crc32c(0, xattr_names[i], strlen(xattr_names[i])), value, x->len);
	}
	return sum;
}

static uint64_t size_of(const struct oracle_node *n)
{
	uint64_t names = 0;

	if (n->type != S_IFDIR)
		return n->size;
	for (unsigned i = 0; i < ORACLE_NAMES; i++)
		names += n->child[i] != 0;
	return names * ENTRY_BYTES;
}

static void describe(const struct world *w, uint32_t node, const char *path, struct lines *lines)
{
	const struct oracle_node *n = w->oracle->node[node];
	uint32_t crc = n->type == S_IFREG && n->size > 0 ? crc32c(0, n->bytes, n->size) : 0;
	char **line = &lines->line[lines->count++];

	check(lines->count <= array_count(lines->line));
	check(asprintf(line, "%s %o nlink %u size %" PRIu64 " xattrs %08x crc %08x %s\n", path,
		       n->type | n->mode, n->nlink, size_of(n), xattrs_crc(n), crc,
		       n->type == S_IFLNK ? w->target[n->seed] : "") > 0);
	lines->len += strlen(*line);
	for (unsigned i = 0; n->type == S_IFDIR && i < ORACLE_NAMES; i++) {
		char child[256];

		if (!n->child[i])
			continue;
		snprintf(child, sizeof(child), "%s/%c", path, (char)('A' + i));
		describe(w, n->child[i], child, lines);
	}
}

static int line_order(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static char *snapshot(const struct world *w)
{
	struct lines lines = {0};
	char *text, *at;

	describe(w, 0, ".", &lines);
	qsort(lines.line, lines.count, sizeof(*lines.line), line_order);
	text = at = malloc(lines.len + 1);
	check(text != NULL);
	for (size_t i = 0; i < lines.count; i++) {
		at = stpcpy(at, lines.line[i]);
		free(lines.line[i]);
	}
	return text;
}

static void note_state(struct world *w)
{
	struct explore_model *model = w->model;
	char *text;

	if (!model)
		return;
	text = snapshot(w);
	check(model->count < EXPLORE_STATES_MAX);
	model->state[model->count].text = text;
	model->state[model->count++].hash = explore_hash(text, strlen(text));
}

/* ------------------------------------------------------------- statements */

struct words {
	char verb[16], p[64], q[64];
	uint64_t a, b, c;
};

static const struct verb {
	const char *name;
	enum oracle_kind kind;
	bool of_parent; /* p is a name to be made, removed or moved */
	bool has_q;
} verbs[] = {
	{"create", OP_CREATE, true, false},       {"mkdir", OP_MKDIR, true, false},
	{"symlink", OP_SYMLINK, true, true},      {"link", OP_LINK, false, true},
	{"unlink", OP_UNLINK, true, false},       {"rmdir", OP_RMDIR, true, false},
	{"rename", OP_RENAME, true, true},        {"exchange", OP_RENAME, true, true},
	{"write", OP_WRITE, false, false},        {"append", OP_APPEND, false, false},
	{"trunc", OP_TRUNCATE, false, false},     {"falloc", OP_ALLOCATE, false, false},
	{"fallock", OP_ALLOCATE, false, false},   {"punch", OP_PUNCH, false, false},
	{"zero", OP_ZERO, false, false},          {"setx", OP_SETXATTR, false, true},
	{"rmx", OP_REMOVEXATTR, false, true},     {"chmod", OP_CHMOD, false, false},
	{"copy", OP_COPY, false, true},           {"tmplink", OP_CREATE, true, false},
};

static const struct verb *find_verb(const char *name)
{
	for (size_t i = 0; i < array_count(verbs); i++)
		if (strcmp(verbs[i].name, name) == 0)
			return &verbs[i];
	return NULL;
}

static bool parse(const char *statement, struct words *w, const struct verb **verb)
{
	int at = 0;

	*w = (struct words){0};
	if (sscanf(statement, "%15s %63s %n", w->verb, w->p, &at) < 1)
		return false;
	*verb = find_verb(w->verb);
	statement += at;
	if (*verb && (*verb)->has_q) {
		if (sscanf(statement, "%63s %n", w->q, &at) != 1)
			return false;
		statement += at;
	}
	if (*verb && (*verb)->kind == OP_CHMOD)
		sscanf(statement, "%" SCNo64, &w->a);
	else
		sscanf(statement, "%" SCNu64 " %" SCNu64 " %" SCNu64, &w->a, &w->b, &w->c);
	return true;
}

/* ORACLE_XATTRS_MAX: not one of them. */
static uint32_t xattr_number(const char *name)
{
	uint32_t i = 0;

	while (i < ORACLE_XATTRS_MAX && strcmp(xattr_names[i], name) != 0)
		i++;
	return i;
}

/* Names that the model knows, and bytes that it has room for. */
static bool is_known(const struct verb *verb, const struct words *w)
{
	if (!is_path(w->p) && !(strcmp(w->p, ".") == 0 && !verb->of_parent))
		return false;
	switch (verb->kind) {
	case OP_SETXATTR: case OP_REMOVEXATTR:
		return xattr_number(w->q) < ORACLE_XATTRS_MAX && w->a <= XATTR_VALUE_MAX;
	case OP_LINK: case OP_RENAME: case OP_COPY:
		return is_path(w->q);
	case OP_SYMLINK:
		return true;
	case OP_APPEND:
		return w->a <= ORACLE_FILE_BYTES_MAX / 4;
	default:
		return w->a <= ORACLE_FILE_BYTES_MAX / 4 && w->b <= ORACLE_FILE_BYTES_MAX / 4;
	}
}

/* Numbers in the order of the statement's kind. */
static void set_numbers(struct world *world, const struct words *w, struct oracle_op *op)
{
	op->offset = w->a;
	op->len = w->b;
	op->seed = w->c;
	op->mode = op->kind == OP_MKDIR ? 0755 : op->kind == OP_CHMOD ? (uint32_t)w->a : 0644;
	op->exchange = w->verb[0] == 'e';
	op->keep_size = strcmp(w->verb, "fallock") == 0;
	if (op->kind == OP_APPEND || op->kind == OP_SETXATTR) {
		op->len = w->a;
		op->seed = w->b;
	}
	if (op->kind == OP_SETXATTR || op->kind == OP_REMOVEXATTR)
		op->name = xattr_number(w->q);
	if (op->kind == OP_TRUNCATE)
		op->len = w->a;
	if (op->kind != OP_SYMLINK)
		return;
	check(world->targets < array_count(world->target));
	op->len = strlen(w->q);
	op->seed = world->targets;
	world->target[world->targets++] = strdup(w->q);
}

static int set_nodes(const struct oracle *o, const struct verb *verb, const struct words *w,
		     struct oracle_op *op)
{
	int rc = verb->of_parent ? find_parent(o, w->p, &op->node, &op->name)
				 : find(o, w->p, &op->node);

	if (rc)
		return rc;
	switch (op->kind) {
	case OP_RENAME:
		return find_parent(o, w->q, &op->node2, &op->name2);
	case OP_LINK:
		op->node2 = op->node;
		return find_parent(o, w->q, &op->node, &op->name);
	case OP_COPY:
		op->node2 = op->node;
		return find(o, w->q, &op->node);
	default:
		return 0;
	}
}

/* Each whole block may be there without those behind it. */
static int copy(struct world *w, struct oracle_op *op)
{
	uint64_t size = w->oracle->node[op->node2]->size;
	int rc = 0;

	if (w->oracle->node[op->node2]->type != S_IFREG)
		size = 1; /* the oracle says what is wrong */
	for (uint64_t at = 0; at < size && rc == 0; at += BLOCK_SIZE) {
		op->offset = op->offset2 = at;
		op->len = size - at < BLOCK_SIZE ? size - at : BLOCK_SIZE;
		rc = oracle_apply(w->oracle, op);
		if (rc == 0 && at + BLOCK_SIZE < size)
			note_state(w);
	}
	return rc;
}

static int make_written(struct world *w, struct oracle_op *op, const struct words *words)
{
	int rc = oracle_apply(w->oracle, op);

	if (rc)
		return rc;
	*op = (struct oracle_op){.kind = OP_WRITE, .node = w->oracle->count - 1, .len = words->a,
				 .seed = words->b};
	return oracle_apply(w->oracle, op);
}

/* Syncs and the like, which change nothing that can be seen. */
static bool run_sync(const struct world *w, const char *statement, const struct words *words,
		     int *rc)
{
	static const char *const others[] = {"purge", "writeback", "checkpoint", "advance",
					     "lap"};
	uint32_t node;
	bool known = script_is_sync(statement);

	for (size_t i = 0; i < array_count(others); i++)
		known = known || strcmp(words->verb, others[i]) == 0;
	if (!known || strcmp(words->verb, "lap") == 0)
		return known;
	if (words->p[0] && !is_path(words->p) && strcmp(words->p, ".") != 0)
		return false;
	if (words->p[0])
		*rc = find(w->oracle, words->p, &node);
	return true;
}

/* false: unknown to the model. */
static bool run_statement(struct world *w, const char *statement, int *rc)
{
	const struct verb *verb;
	struct words words;
	struct oracle_op op;

	*rc = 0;
	if (!parse(statement, &words, &verb))
		return false;
	if (!verb)
		return run_sync(w, statement, &words, rc);
	if (!is_known(verb, &words))
		return false;
	op = (struct oracle_op){.kind = verb->kind};
	*rc = set_nodes(w->oracle, verb, &words, &op);
	if (*rc)
		return true;
	set_numbers(w, &words, &op);
	if (op.kind == OP_COPY)
		*rc = copy(w, &op);
	else if (words.verb[0] == 't' && op.kind == OP_CREATE)
		*rc = make_written(w, &op, &words);
	else
		*rc = oracle_apply(w->oracle, &op);
	return true;
}

static bool run_script(struct world *w, const char *text)
{
	struct explore_model *model = w->model;
	struct script script;
	bool known = true;

	script_parse(&script, text);
	for (unsigned i = 0; i < script.count && known; i++) {
		int rc;

		known = run_statement(w, script.statement[i], &rc);
		if (!model)
			continue;
		if (rc == 0 && !script_is_sync(script.statement[i]))
			note_state(w);
		model->result[i] = rc;
		model->reached[i] = model->count - 1;
		model->statements = i + 1;
		model->fails = model->fails || rc != 0;
	}
	script_free(&script);
	return known;
}

bool explore_model_run(struct explore_model *model, const char *text)
{
	struct world w = {.oracle = oracle_new()};
	bool known;

	*model = (struct explore_model){0};
	check(run_script(&w, explore_setup));
	w.model = model;
	note_state(&w);
	known = run_script(&w, text);
	for (uint64_t i = 0; i < w.targets; i++)
		free(w.target[i]);
	oracle_free(w.oracle);
	return known;
}

void explore_model_free(struct explore_model *model)
{
	for (unsigned i = 0; i < model->count; i++)
		free(model->state[i].text);
}
