/*
 * Load on a mount whose server is killed, and the judgement of what is left.
 *
 *	kill9_load run DIR ROUND SEED THREADS PID MS MANIFEST
 *		Threads, each with a directory DIR/rROUND/tN of its own, go through the
 *		steps of tests/lib/load_model.h until process PID has been killed after
 *		MS milliseconds.  MANIFEST tells how far they got.
 *	kill9_load verify DIR ROUND MANIFEST DIGESTS
 *		Each directory must be as it was after some step between the last one
 *		that an fsync made durable and the last one begun: a prefix of what was
 *		done, whole.  No thread may have lost a step that had ended before a step
 *		of another began that is there.  DIGESTS keeps what was found; the round
 *		before must not have changed since.
 *
 * An fsync of any file makes durable what all threads had finished before.  The
 * file `log` of each thread is kept open and only grows, by records, so its data
 * reach the server when its own fsync, or the kernel, sends them.
 *
 * A thread of its own removes the trees of older rounds, so that servers die in
 * the middle of that, too.
 *
 * Exit code 0: as promised; 1: not, and the output says what.
 */
#include "tests/lib/load_model.h"
#include "tests/lib/load_seen.h"

#include "tests/lib/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define THREADS 16u
#define PAGE 4096u
#define HANG_SECONDS 120u  /* nothing that the load does may take so long */
#define LOG_SYNC_EVERY 16u /* records, times laziness */
#define ROUNDS_KEPT 2      /* this one and the one before */
#define ROUND_PATH_MAX 16u  /* relative to DIR */
#define THREAD_PATH_MAX 32u

/* When a step was begun and had ended, counted over all threads. */
struct stamp {
	uint64_t begin, end;
};

struct worker {
	pthread_t thread;
	unsigned number;
	uint64_t seed;
	struct load load;
	int dir, log, orphan;
	struct stamp *stamp;  /* one a step */
	uint64_t stamps_room;
	_Atomic uint64_t begun, done, durable;  /* steps */
	_Atomic uint64_t log_begun, log_durable; /* bytes */
};

static struct worker workers[THREADS];
static unsigned worker_count;
static _Atomic bool killed;
static _Atomic unsigned complaints;
static _Atomic uint64_t clock_ticks;

static uint64_t seed_of(uint64_t seed, unsigned thread)
{
	uint64_t state = seed * 1000 + thread;

	return random_next(&state);
}

/* In every other round little is synced: much may be lost then, but never from the middle. */
static unsigned laziness_of(uint64_t seed)
{
	static const unsigned laziness[] = {1, 40, 5, 100000};

	return laziness[seed % 4];
}

/* --- running steps ----------------------------------------------------------- */

/* A mapping of a file whose server has died faults. */
static _Thread_local sigjmp_buf fault;

static void on_fault(int number)
{
	(void)number;
	siglongjmp(fault, 1);
}

static int write_all(int fd, const uint8_t *data, size_t len, uint64_t offset)
{
	while (len > 0) {
		ssize_t n = pwrite(fd, data, len, (off_t)offset);

		if (n < 0)
			return -1;
		data += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

static int write_mapped(int fd, const struct step *step)
{
	size_t skip = step->offset % PAGE, len = skip + step->len;
	uint8_t *map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			    (off_t)(step->offset - skip));
	int faulted;

	if (map == MAP_FAILED)
		return -1;
	faulted = sigsetjmp(fault, 1);
	if (!faulted)
		memcpy(map + skip, step->data, step->len);
	munmap(map, len);
	errno = EFAULT;
	return faulted ? -1 : 0;
}

/* What steps do to the contents and xattrs of an open file. */
static int change_file(struct worker *w, int fd, const char *path, const struct step *step)
{
	char xattr[16];

	snprintf(xattr, sizeof(xattr), "user.k%u", step->xattr);
	switch (step->kind) {
	case STEP_WRITE:
	case STEP_WRITE_DIRECT:
		return write_all(fd, step->data, step->len, step->offset);
	case STEP_WRITE_MAPPED:
		return write_mapped(fd, step);
	case STEP_TRUNCATE:
		return ftruncate(fd, (off_t)step->offset);
	case STEP_SETXATTR:
		return fsetxattr(fd, xattr, step->data, step->len, 0);
	case STEP_REMOVEXATTR:
		return fremovexattr(fd, xattr);
	case STEP_ORPHAN:
		if (unlinkat(w->dir, path, 0) != 0)
			return -1;
		if (w->orphan >= 0)
			close(w->orphan);
		w->orphan = dup(fd);
		return write_all(fd, step->data, step->len, 1000);
	default:
		return 0; /* created by open */
	}
}

static int file_step(struct worker *w, const char *path, const struct step *step)
{
	int flags = O_RDWR;
	int fd, rc;

	if (step->kind == STEP_CREATE)
		flags |= O_CREAT | O_EXCL;
	if (step->kind == STEP_WRITE_DIRECT)
		flags |= O_DIRECT;
	fd = openat(w->dir, path, flags, 0644);
	if (fd < 0)
		return -1;
	rc = change_file(w, fd, path, step);
	if (rc == 0 && step->sync)
		rc = fsync(fd);
	if (close(fd) != 0) /* which sends what is dirty */
		rc = -1;
	return rc;
}

static int name_step(struct worker *w, const char *path, const struct step *step)
{
	char to[LOAD_PATH_MAX], target[LOAD_TARGET_MAX];
	int rc = 0;

	load_path(step->b, to);
	switch (step->kind) {
	case STEP_RENAME:
		rc = renameat(w->dir, path, w->dir, to);
		break;
	case STEP_LINK:
		rc = linkat(w->dir, path, w->dir, to, 0);
		break;
	case STEP_UNLINK:
		rc = unlinkat(w->dir, path, 0);
		break;
	case STEP_MKDIR:
		rc = mkdirat(w->dir, path, 0755);
		break;
	case STEP_RMDIR:
		rc = unlinkat(w->dir, path, AT_REMOVEDIR);
		break;
	default:
		load_target(step->target, target);
		rc = symlinkat(target, w->dir, path);
	}
	if (rc == 0 && step->sync)
		rc = fsync(w->dir);
	return rc;
}

static int run_step(struct worker *w, const struct step *step)
{
	char path[LOAD_PATH_MAX];

	load_path(step->a, path);
	switch (step->kind) {
	case STEP_RENAME:
	case STEP_LINK:
	case STEP_UNLINK:
	case STEP_MKDIR:
	case STEP_RMDIR:
	case STEP_SYMLINK:
		return name_step(w, path, step);
	default:
		return file_step(w, path, step);
	}
}

/* --- what is durable ---------------------------------------------------------- */

static void look_around(uint64_t done[THREADS])
{
	for (unsigned i = 0; i < worker_count; i++)
		done[i] = atomic_load(&workers[i].done);
}

static void raise_to(_Atomic uint64_t *value, uint64_t to)
{
	uint64_t now = atomic_load(value);

	while (now < to && !atomic_compare_exchange_weak(value, &now, to))
		;
}

static void all_durable(const uint64_t done[THREADS])
{
	for (unsigned i = 0; i < worker_count; i++)
		raise_to(&workers[i].durable, done[i]);
}

/* --- threads ------------------------------------------------------------------- */

static void complain(const struct worker *w, const char *what, const char *path)
{
	if (atomic_load(&killed))
		return;
	fprintf(stderr, "thread %u: %s %s: %s, and nobody was killed\n", w->number, what, path,
		strerror(errno));
	atomic_fetch_add(&complaints, 1);
}

static int append_record(struct worker *w)
{
	uint64_t number = atomic_load(&w->log_begun) / RECORD_BYTES, done[THREADS];
	char record[RECORD_BYTES + 1];

	load_record(w->seed, number, record);
	atomic_store(&w->log_begun, (number + 1) * RECORD_BYTES);
	if (write(w->log, record, RECORD_BYTES) != RECORD_BYTES)
		return -1;
	if (number % (LOG_SYNC_EVERY * w->load.laziness) != 0)
		return 0;
	look_around(done);
	if (fdatasync(w->log) != 0)
		return -1;
	atomic_store(&w->log_durable, (number + 1) * RECORD_BYTES);
	all_durable(done);
	return 0;
}

static struct stamp *new_stamp(struct worker *w, uint64_t step)
{
	if (step == w->stamps_room) {
		w->stamps_room = w->stamps_room ? w->stamps_room * 2 : 1024;
		w->stamp = realloc(w->stamp, w->stamps_room * sizeof(*w->stamp));
		if (!w->stamp)
			abort();
	}
	w->stamp[step] = (struct stamp){atomic_fetch_add(&clock_ticks, 1), UINT64_MAX};
	return &w->stamp[step];
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint64_t done[THREADS];
	struct stamp *stamp;
	struct step step;

	for (;;) {
		char path[LOAD_PATH_MAX];

		if (atomic_load(&w->begun) % 3 == 0 && append_record(w) != 0) {
			complain(w, "append to", "log");
			break;
		}
		load_next(&w->load, &step);
		load_path(step.a, path);
		stamp = new_stamp(w, atomic_fetch_add(&w->begun, 1));
		look_around(done);
		done[w->number]++; /* this step comes before its own fsync */
		if (run_step(w, &step) != 0) {
			complain(w, load_step_name(step.kind), path);
			break;
		}
		stamp->end = atomic_fetch_add(&clock_ticks, 1);
		load_apply(&w->load, &step);
		if (step.sync)
			all_durable(done);
		atomic_fetch_add(&w->done, 1);
	}
	if (w->orphan >= 0)
		close(w->orphan);
	close(w->log);
	close(w->dir);
	return NULL;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

struct janitor {
	pthread_t thread;
	int below; /* rounds */
};

static int remove_rounds(const struct janitor *janitor)
{
	DIR *stream = opendir(".");
	struct dirent *entry;
	int rc = stream ? 0 : -1;

	while (rc == 0 && (entry = readdir(stream)) != NULL) {
		if (entry->d_name[0] == 'r' && atoi(entry->d_name + 1) < janitor->below)
			rc = nftw(entry->d_name, remove_one, 32, FTW_DEPTH | FTW_PHYS);
	}
	if (stream)
		closedir(stream);
	return rc;
}

static void *clean_up(void *arg)
{
	const struct worker nobody = {.number = THREADS};

	if (remove_rounds(arg) != 0)
		complain(&nobody, "removing", "old rounds");
	return NULL;
}

/* --- run -------------------------------------------------------------------------- */

static int prepare_worker(unsigned number, const char *round_dir, uint64_t seed)
{
	struct worker *w = &workers[number];
	char path[THREAD_PATH_MAX];

	w->number = number;
	w->seed = seed_of(seed, number);
	w->orphan = -1;
	load_init(&w->load, w->seed, laziness_of(seed));
	snprintf(path, sizeof(path), "%s/t%u", round_dir, number);
	if (mkdir(path, 0755) != 0 || (w->dir = open(path, O_RDONLY | O_DIRECTORY)) < 0)
		return -1;
	w->log = openat(w->dir, "log", O_WRONLY | O_APPEND | O_CREAT | O_EXCL, 0644);
	if (w->log < 0)
		return -1;
	return fsync(w->dir);
}

/* The last durable step and all later ones. */
static uint64_t first_stamped(uint64_t durable)
{
	return durable > 0 ? durable - 1 : 0;
}

static int write_manifest(const char *path, int round, uint64_t seed)
{
	FILE *out = fopen(path, "w");

	if (!out)
		return -1;
	fprintf(out, "%d %llu %u\n", round, (unsigned long long)seed, worker_count);
	for (unsigned i = 0; i < worker_count; i++) {
		struct worker *w = &workers[i];

		fprintf(out, "%llu %llu %llu %llu\n", (unsigned long long)w->durable,
			(unsigned long long)w->begun, (unsigned long long)w->log_durable,
			(unsigned long long)w->log_begun);
		for (uint64_t k = first_stamped(w->durable); k < w->begun; k++)
			fprintf(out, "%llu %llu\n", (unsigned long long)w->stamp[k].begin,
				(unsigned long long)w->stamp[k].end);
	}
	return fclose(out);
}

static void pause_ms(unsigned ms)
{
	struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l};

	nanosleep(&time, NULL);
}

static int run(char **argv)
{
	int round = atoi(argv[3]);
	uint64_t seed = strtoull(argv[4], NULL, 10);
	pid_t server = (pid_t)atoi(argv[6]);
	struct janitor janitor = {.below = round - ROUNDS_KEPT + 1};
	const struct sigaction action = {.sa_handler = on_fault};
	char dir[ROUND_PATH_MAX];

	worker_count = (unsigned)atoi(argv[5]);
	if (worker_count == 0 || worker_count > THREADS)
		return fprintf(stderr, "1 to %u threads\n", THREADS), 1;
	sigaction(SIGBUS, &action, NULL);
	alarm(HANG_SECONDS);
	snprintf(dir, sizeof(dir), "r%d", round);
	if (chdir(argv[2]) != 0 || mkdir(dir, 0755) != 0)
		return perror(dir), 1;
	for (unsigned i = 0; i < worker_count; i++)
		if (prepare_worker(i, dir, seed) != 0)
			return perror(dir), 1;
	for (unsigned i = 0; i < worker_count; i++)
		pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	pthread_create(&janitor.thread, NULL, clean_up, &janitor);

	pause_ms((unsigned)atoi(argv[7]));
	atomic_store(&killed, true);
	kill(server, SIGKILL);
	pthread_join(janitor.thread, NULL);
	for (unsigned i = 0; i < worker_count; i++) {
		pthread_join(workers[i].thread, NULL);
		load_free(&workers[i].load);
	}
	if (write_manifest(argv[8], round, seed) != 0)
		return perror(argv[8]), 1;
	return atomic_load(&complaints) > 0;
}

/* --- verify -------------------------------------------------------------------------- */

/* What a thread was promised, and what was found of it. */
struct promise {
	uint64_t seed;         /* of the thread */
	unsigned laziness;
	uint64_t durable, begun, log_durable, log_begun;
	struct stamp *stamp;   /* from first_stamped() on */
	uint64_t least, most;  /* steps after which the directory looks like this */
};

/* Walks to the state after `target` steps; *pending becomes the step after it. */
static void walk(struct load *load, const struct promise *promise, uint64_t target,
		 struct step *pending)
{
	load_init(load, promise->seed, promise->laziness);
	load_next(load, pending);
	for (uint64_t i = 0; i < target; i++) {
		load_apply(load, pending);
		load_next(load, pending);
	}
}

static void advance(struct load *load, struct step *step)
{
	load_apply(load, step);
	load_next(load, step);
}

static uint64_t nearest_state(const struct seen *seen, const struct promise *promise)
{
	FILE *nowhere = fopen("/dev/null", "w");
	unsigned fewest = UINT32_MAX;
	uint64_t nearest = promise->durable;
	struct load load;
	struct step step;

	walk(&load, promise, promise->durable, &step);
	for (uint64_t k = promise->durable; k <= promise->begun; k++) {
		unsigned differences = seen_differs(seen, &load, NULL, "log", nowhere);

		if (differences < fewest) {
			fewest = differences;
			nearest = k;
		}
		advance(&load, &step);
	}
	load_free(&load);
	fclose(nowhere);
	return nearest;
}

static void explain(const struct seen *seen, const struct promise *promise)
{
	uint64_t nearest = nearest_state(seen, promise);
	struct load load;
	struct step step;
	char path[LOAD_PATH_MAX];

	walk(&load, promise, nearest, &step);
	fprintf(stderr, "  durable: %llu steps, begun: %llu; the state after %llu is nearest:\n",
		(unsigned long long)promise->durable, (unsigned long long)promise->begun,
		(unsigned long long)nearest);
	seen_differs(seen, &load, NULL, "log", stderr);
	load_path(step.a, path);
	fprintf(stderr, "  next would be: %s %s, offset or size %llu, %zu bytes\n",
		load_step_name(step.kind), path, (unsigned long long)step.offset, step.len);
	load_free(&load);
}

/* Is what was found the state after steps that are allowed?  After which? */
static bool is_a_prefix(const struct seen *seen, struct promise *promise)
{
	struct load load;
	struct step step;

	promise->least = UINT64_MAX;
	walk(&load, promise, promise->durable, &step);
	for (uint64_t k = promise->durable; k <= promise->begun; k++) {
		bool same = seen_differs(seen, &load, NULL, "log", NULL) == 0;

		if (!same && k < promise->begun && load_is_partial(&step))
			same = seen_differs(seen, &load, &step, "log", NULL) == 0;
		if (same) {
			if (promise->least == UINT64_MAX)
				promise->least = k;
			promise->most = k;
		}
		advance(&load, &step);
	}
	load_free(&load);
	if (promise->least == UINT64_MAX) {
		explain(seen, promise);
		return false;
	}
	printf("%llu steps durable, %llu begun, found as after %llu\n",
	       (unsigned long long)promise->durable, (unsigned long long)promise->begun,
	       (unsigned long long)promise->most);
	return true;
}

static bool log_is_whole(const struct seen *seen, const struct promise *promise)
{
	const struct seen_entry *log = seen_find(seen, "log");

	if (!log || log->size < promise->log_durable || log->size > promise->log_begun ||
	    (log->size % RECORD_BYTES && log->size % PAGE)) {
		fprintf(stderr, "  log: %zu bytes; durable were %llu, written %llu\n",
			log ? log->size : 0, (unsigned long long)promise->log_durable,
			(unsigned long long)promise->log_begun);
		return false;
	}
	for (size_t at = 0; at < log->size; at += RECORD_BYTES) {
		char record[RECORD_BYTES + 1];
		size_t len = log->size - at < RECORD_BYTES ? log->size - at : RECORD_BYTES;

		load_record(promise->seed, at / RECORD_BYTES, record);
		if (memcmp(log->bytes + at, record, len) != 0) {
			fprintf(stderr, "  log: the record at %zu is not the one written\n", at);
			return false;
		}
	}
	return true;
}

static bool verify_thread(int round, unsigned thread, struct promise *promise, FILE *digests)
{
	char dir[THREAD_PATH_MAX];
	struct seen seen;
	bool good;

	snprintf(dir, sizeof(dir), "r%d/t%u", round, thread);
	if (seen_read(&seen, dir) != 0)
		return false;
	fprintf(digests, "%d %u %llx\n", round, thread, (unsigned long long)seen_digest(&seen));
	good = is_a_prefix(&seen, promise) && log_is_whole(&seen, promise);
	if (!good)
		fprintf(stderr, "  in %s\n", dir);
	seen_free(&seen);
	return good;
}

/* Order is kept: what had ended before something began that is there is there as well. */
static bool order_is_kept(const struct promise *lost, const struct promise *found)
{
	const struct stamp *first_lost, *last_found;

	if (lost->most == lost->begun || found->least == 0)
		return true;
	first_lost = &lost->stamp[lost->most - first_stamped(lost->durable)];
	last_found = &found->stamp[found->least - 1 - first_stamped(found->durable)];
	if (first_lost->end > last_found->begin)
		return true;
	fprintf(stderr, "  a step is lost (%llu), one that began after its end (%llu) is there\n",
		(unsigned long long)lost->most, (unsigned long long)found->least - 1);
	return false;
}

/* The round before has been found good; nobody has touched it since. */
static bool unchanged(const char *digests, int round)
{
	FILE *in = fopen(digests, "r");
	unsigned long long digest;
	bool good = true;
	unsigned thread;
	int of_round;

	if (!in)
		return true; /* there was none */
	while (fscanf(in, "%d %u %llx", &of_round, &thread, &digest) == 3) {
		char path[THREAD_PATH_MAX];
		struct seen seen;

		if (of_round != round)
			continue;
		snprintf(path, sizeof(path), "r%d/t%u", of_round, thread);
		if (seen_read(&seen, path) != 0) {
			good = false;
			continue;
		}
		if (seen_digest(&seen) != digest) {
			fprintf(stderr, "  %s was verified before and has changed\n", path);
			good = false;
		}
		seen_free(&seen);
	}
	fclose(in);
	return good;
}

static bool read_promise(FILE *manifest, struct promise *promise)
{
	unsigned long long n[4];
	uint64_t first, count;

	if (fscanf(manifest, "%llu %llu %llu %llu", &n[0], &n[1], &n[2], &n[3]) != 4)
		return false;
	promise->durable = n[0];
	promise->begun = n[1];
	promise->log_durable = n[2];
	promise->log_begun = n[3];
	first = first_stamped(promise->durable);
	count = promise->begun - first;
	promise->stamp = calloc(count + 1, sizeof(*promise->stamp));
	for (uint64_t i = 0; promise->stamp && i < count; i++) {
		if (fscanf(manifest, "%llu %llu", &n[0], &n[1]) != 2)
			return false;
		promise->stamp[i] = (struct stamp){n[0], n[1]};
	}
	return promise->stamp != NULL;
}

static int verify_round(FILE *manifest, FILE *digests)
{
	struct promise promise[THREADS] = {0};
	unsigned long long seed;
	unsigned threads;
	int round;
	bool good = true;

	if (fscanf(manifest, "%d %llu %u", &round, &seed, &threads) != 3 || threads > THREADS)
		return fputs("no manifest\n", stderr), 1;
	for (unsigned i = 0; i < threads; i++) {
		promise[i].seed = seed_of(seed, i);
		promise[i].laziness = laziness_of(seed);
		if (!read_promise(manifest, &promise[i]))
			return fputs("half a manifest\n", stderr), 1;
		good &= verify_thread(round, i, &promise[i], digests);
	}
	for (unsigned i = 0; good && i < threads; i++)
		for (unsigned k = 0; k < threads; k++)
			good &= order_is_kept(&promise[i], &promise[k]);
	for (unsigned i = 0; i < threads; i++)
		free(promise[i].stamp);
	return !good;
}

static int verify(char **argv)
{
	FILE *manifest = fopen(argv[4], "r"), *digests;
	int round = atoi(argv[3]), rc;

	if (!manifest)
		return perror(argv[4]), 1;
	if (chdir(argv[2]) != 0)
		return perror(argv[2]), 1;
	rc = !unchanged(argv[5], round - 1);
	digests = fopen(argv[5], "a");
	if (!digests)
		return perror(argv[5]), 1;
	rc |= verify_round(manifest, digests);
	fclose(manifest);
	return fclose(digests) == 0 ? rc : 1;
}

int main(int argc, char **argv)
{
	if (argc == 9 && strcmp(argv[1], "run") == 0)
		return run(argv);
	if (argc == 6 && strcmp(argv[1], "verify") == 0)
		return verify(argv);
	fputs("usage: kill9_load run DIR ROUND SEED THREADS PID MS MANIFEST\n"
	      "       kill9_load verify DIR ROUND MANIFEST DIGESTS\n", stderr);
	return 1;
}
