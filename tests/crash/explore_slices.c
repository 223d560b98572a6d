/*
 * Many workloads, in slices that several processes take in turn.
 *
 * A slice that has ended well is a line in the progress file, so that a run which was
 * interrupted goes on where it was.  The first line says which workloads the numbers
 * meant; a file of other ones is refused.
 *
 *	worker: take a slice -> its workloads -> line -> next slice
 *	a failure, or a death: the parent shrinks it, and a new worker goes on behind it
 */
#include "tests/crash/explore.h"

#include "engine/base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLICE_WORKLOADS 250u
#define JOBS_MAX 64u
#define FAILURES_MAX 3u   /* more of them say no more */
#define STALL_SECONDS 900u /* one workload takes milliseconds */
#define SPEAK_NS 60000000000ull

struct slice {
	unsigned length;
	uint64_t from, to;
	bool done;      /* in an earlier run */
	bool failed;    /* so it gets no line */
};

struct worker {
	struct explore_place place;
	struct explore_totals totals;
	size_t slice;    /* SIZE_MAX: none */
	uint64_t next;   /* workload in it */
	pid_t pid;       /* [the parent's] 0: ended */
};

struct shared {
	_Atomic size_t next;
	_Atomic size_t ended;
	struct worker worker[JOBS_MAX];
	struct slice slice[];
};

struct slices {
	const struct explorer *x;
	const struct explore_slices *order;
	struct shared *shared;
	size_t count;
	int progress; /* file, or -1 */
	struct explore_totals earlier;
	uint64_t skipped; /* slices */
	uint64_t began_ns, spoke_ns;
	unsigned failures;
};

/* --------------------------------------------------------------- progress */

static void fingerprint(const struct slices *s, char *line, size_t room)
{
	snprintf(line, room, "operations %u setup %016" PRIx64 " log %d\n", explore_operations(),
		 explore_hash(explore_setup, strlen(explore_setup)), s->x->medium.log_mode);
}

static void mark_done(struct slices *s, unsigned length, uint64_t from, uint64_t to,
		      const uint64_t counts[4])
{
	for (size_t i = 0; i < s->count; i++) {
		struct slice *slice = &s->shared->slice[i];

		if (slice->length != length || slice->from != from || slice->to != to ||
		    slice->done)
			continue;
		slice->done = true;
		s->skipped++;
		s->earlier.workloads += counts[0];
		s->earlier.states += counts[1];
		s->earlier.distinct += counts[2];
		s->earlier.recovery_cuts += counts[3];
	}
}

static int read_progress(struct slices *s, const char *path)
{
	char line[256], expected[256];
	FILE *in = fopen(path, "r");
	bool first = true;

	fingerprint(s, expected, sizeof(expected));
	while (in && fgets(line, sizeof(line), in)) {
		uint64_t from, to, counts[4];
		unsigned length;

		if (first && strcmp(line, expected) != 0) {
			fprintf(stderr, "crash_explore: %s is about other workloads; remove it\n",
				path);
			fclose(in);
			return -EINVAL;
		}
		first = false;
		if (sscanf(line,
			   "%u %" SCNu64 " %" SCNu64 " workloads %" SCNu64 " states %" SCNu64
			   " distinct %" SCNu64 " recovery %" SCNu64,
			   &length, &from, &to, &counts[0], &counts[1], &counts[2],
			   &counts[3]) == 7)
			mark_done(s, length, from, to, counts);
	}
	if (in)
		fclose(in);
	s->progress = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
	if (s->progress < 0) {
		fprintf(stderr, "crash_explore: %s: %s\n", path, strerror(errno));
		return -errno;
	}
	if (first && write(s->progress, expected, strlen(expected)) < 0)
		return -errno;
	return 0;
}

static void write_line(const struct slices *s, const struct slice *slice,
		       const struct explore_totals *before, const struct explore_totals *now)
{
	char line[256];
	int len;

	if (s->progress < 0)
		return;
	len = snprintf(line, sizeof(line),
		       "%u %" PRIu64 " %" PRIu64 " workloads %" PRIu64 " states %" PRIu64
		       " distinct %" PRIu64 " recovery %" PRIu64 "\n",
		       slice->length, slice->from, slice->to, now->workloads - before->workloads,
		       now->states - before->states, now->distinct - before->distinct,
		       now->recovery_cuts - before->recovery_cuts);
	check(write(s->progress, line, (size_t)len) == len);
}

/* ---------------------------------------------------------------- workers */

/* Those in which every operation has something to do; alone, the others as well. */
static bool is_worth_it(unsigned length, const char *text)
{
	struct explore_model model;
	bool worth;

	if (length == 1)
		return true;
	check(explore_model_run(&model, text));
	worth = !model.fails;
	explore_model_free(&model);
	return worth;
}

/* false: a workload failed. */
static bool work_slice(struct slices *s, struct explorer *x, struct worker *worker)
{
	struct slice *slice = &s->shared->slice[worker->slice];

	/* The shortest ones are tried with every cut that there is. */
	x->thorough = s->x->thorough && slice->length == 1;
	while (worker->next < slice->to) {
		char text[EXPLORE_TEXT_MAX];

		explore_text(slice->length, worker->next++, text);
		alarm(STALL_SECONDS);
		if (is_worth_it(slice->length, text) && !explore_workload(x, text))
			return false;
	}
	return true;
}

static int work(struct slices *s, struct worker *worker)
{
	struct explorer x = *s->x;

	x.place = &worker->place;
	x.totals = &worker->totals;
	for (;;) {
		struct explore_totals before = worker->totals;

		if (worker->slice == SIZE_MAX) {
			size_t next = atomic_fetch_add(&s->shared->next, 1);

			if (next >= s->count)
				return 0;
			if (s->shared->slice[next].done)
				continue;
			worker->slice = next;
			worker->next = s->shared->slice[next].from;
		}
		if (!work_slice(s, &x, worker))
			return 1;
		if (!s->shared->slice[worker->slice].failed)
			write_line(s, &s->shared->slice[worker->slice], &before, &worker->totals);
		atomic_fetch_add(&s->shared->ended, 1);
		worker->slice = SIZE_MAX;
	}
}

static void start(struct slices *s, struct worker *worker)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	check(pid >= 0);
	if (pid == 0) {
		/* Whoever ends the parent means all of it. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(work(s, worker));
	}
	worker->pid = pid; /* in memory that the child sees as well */
}

/* ------------------------------------------------------------------ parent */

static void add_totals(struct explore_totals *sum, const struct explore_totals *part)
{
	sum->workloads += part->workloads;
	sum->states += part->states;
	sum->distinct += part->distinct;
	sum->recovery_cuts += part->recovery_cuts;
}

static void print_totals(const struct slices *s, const char *name)
{
	struct explore_totals sum = s->earlier;

	for (unsigned i = 0; i < s->order->jobs; i++)
		add_totals(&sum, &s->shared->worker[i].totals);
	printf("%s: %" PRIu64 " workloads, %" PRIu64 " states, %" PRIu64 " of them distinct, %"
	       PRIu64 " after a cut in recovery, %u failures\n",
	       name, sum.workloads, sum.states, sum.distinct, sum.recovery_cuts, s->failures);
	fflush(stdout);
}

static void speak(struct slices *s)
{
	uint64_t now = os_mono_ns();
	char text[64];

	if (now - s->spoke_ns < SPEAK_NS)
		return;
	s->spoke_ns = now;
	snprintf(text, sizeof(text), "%zu of %zu slices, %u s",
		 atomic_load(&s->shared->ended) + (size_t)s->skipped, s->count,
		 (unsigned)((now - s->began_ns) / 1000000000));
	print_totals(s, text);
}

static void judge_end(struct slices *s, struct worker *worker, int status)
{
	struct explorer x = *s->x;

	worker->pid = 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return;
	s->failures++;
	if (worker->slice != SIZE_MAX)
		s->shared->slice[worker->slice].failed = true;
	if (WIFSIGNALED(status))
		snprintf(worker->place.what, sizeof(worker->place.what), "the program dies: %s",
			 strsignal(WTERMSIG(status)));
	x.place = &worker->place;
	explore_shrink(&x, s->order->program);
	if (s->failures < FAILURES_MAX)
		start(s, worker);
}

static void supervise(struct slices *s)
{
	unsigned running = s->order->jobs;

	for (unsigned i = 0; i < s->order->jobs; i++) {
		s->shared->worker[i].slice = SIZE_MAX;
		start(s, &s->shared->worker[i]);
	}
	while (running > 0) {
		int status;
		pid_t pid = waitpid(-1, &status, WNOHANG);

		check(pid >= 0);
		if (pid == 0) {
			usleep(20000);
			speak(s);
		}
		for (unsigned i = 0; pid > 0 && i < s->order->jobs; i++) {
			struct worker *worker = &s->shared->worker[i];

			if (worker->pid != pid)
				continue;
			judge_end(s, worker, status);
			running -= worker->pid == 0;
			break;
		}
	}
}

static size_t count_slices(const struct explore_slices *order)
{
	size_t count = 0;

	for (unsigned i = 0; i < order->parts; i++)
		count += (order->part[i].to - order->part[i].from + SLICE_WORKLOADS - 1) /
			 SLICE_WORKLOADS;
	return count;
}

static void fill_slices(struct slices *s)
{
	struct slice *slice = s->shared->slice;

	for (unsigned i = 0; i < s->order->parts; i++) {
		const struct explore_part *part = &s->order->part[i];

		for (uint64_t from = part->from; from < part->to; from += SLICE_WORKLOADS) {
			uint64_t left = part->to - from;

			*slice++ = (struct slice){
				.length = part->length,
				.from = from,
				.to = from + (left < SLICE_WORKLOADS ? left : SLICE_WORKLOADS),
			};
		}
	}
}

int explore_slices_run(const struct explorer *x, const struct explore_slices *order)
{
	struct slices s = {.x = x, .order = order, .count = count_slices(order), .progress = -1};
	size_t bytes = sizeof(*s.shared) + s.count * sizeof(s.shared->slice[0]);

	check(order->jobs > 0 && order->jobs <= JOBS_MAX);
	s.shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(s.shared != MAP_FAILED);
	s.began_ns = s.spoke_ns = os_mono_ns();
	fill_slices(&s);
	if (order->progress_path && read_progress(&s, order->progress_path))
		return 1;
	supervise(&s);
	print_totals(&s, x->medium.pmem ? "crash_explore, mapped log"
			 : x->medium.log_mode == LOG_MODE_DSYNC ? "crash_explore, dsync log"
								: "crash_explore");
	if (s.progress >= 0)
		close(s.progress);
	munmap(s.shared, bytes);
	return s.failures > 0;
}
