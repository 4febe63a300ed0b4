/*
 * What it costs that two processes wait for one another: round trips, by messages over a Unix
 * socket, by a futex in shared memory, or by looking at shared memory over and over; on one core or
 * on two. Times are of the clock, processor time is of both processes.
 *
 * gcc -O2 -o wakeups wakeups.c && ./wakeups 20000
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum way { SOCKET, FUTEX, LOOKING };

static atomic_int *turn;
static int ends[2];

static void pin(int core)
{
	cpu_set_t cores;

	CPU_ZERO(&cores);
	CPU_SET(core, &cores);
	sched_setaffinity(0, sizeof(cores), &cores);
}

static void hand_over(enum way way, int me)
{
	char message[16] = { 0 };

	if (way == SOCKET && write(ends[me], message, sizeof(message)) != sizeof(message))
		exit(1);
	if (way != SOCKET)
		atomic_store(turn, !me);
	if (way == FUTEX)
		syscall(SYS_futex, turn, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void await(enum way way, int me)
{
	char message[16];

	if (way == SOCKET && read(ends[me], message, sizeof(message)) != sizeof(message))
		exit(1);
	while (way != SOCKET && atomic_load(turn) != me)
		if (way == FUTEX)
			syscall(SYS_futex, turn, FUTEX_WAIT, !me, NULL, NULL, 0);
}

static double now_us(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(int cores, enum way way, const char *name, int count)
{
	double *took = calloc(count, sizeof(*took)), before;
	struct rusage used;
	pid_t child;

	atomic_store(turn, 0);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		exit(1);
	fflush(stdout);
	child = fork();
	if (!child) {
		pid_t other = fork();

		pin(other ? 0 : cores - 1);
		for (int i = 0; i < count; i++) {
			if (other) {
				before = now_us();
				hand_over(way, 0);
				await(way, 0);
				took[i] = now_us() - before;
			} else {
				await(way, 1);
				hand_over(way, 1);
			}
		}
		if (!other)
			exit(0);
		wait(NULL);
		qsort(took, count, sizeof(*took), compare);
		printf("%d core%s, %s: median %.2f us, ", cores, cores > 1 ? "s" : "", name, took[count / 2]);
		fflush(stdout);
		exit(0);
	}
	wait4(child, NULL, 0, &used);
	printf("processor time %.2f us, context switches %.2f\n",
	       (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 / count +
	       (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / count,
	       (double)(used.ru_nvcsw + used.ru_nivcsw) / count);
	close(ends[0]);
	close(ends[1]);
	free(took);
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 20000;

	turn = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (int cores = 1; cores <= 2; cores++) {
		measure(cores, SOCKET, "a message over a socket", count);
		measure(cores, FUTEX, "a futex", count);
	}
	measure(2, LOOKING, "looking at memory over and over", count);
	return 0;
}
