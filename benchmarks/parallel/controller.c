/*
 * Keeps the clocks of guests together that run with time-travel=ext (linux/um_timetravel.h), and
 * carries the frames between two of them. Unlike other controllers it lets guests run at the same
 * time: a guest may run up to the earliest time at which another one's frame could reach it
 * (conservative simulation after Chandy, Misra and Bryant, with the link's delay as look-ahead).
 *
 * controller SOCKET GUESTS DELAY_NS messages|memory|turns LINK_FD...
 *
 * `memory` is the protocol's shared memory, and every guest has one of its own here, because each has
 * its own time up to which it may run. With `turns` one guest runs at a time. Ends by printing what
 * it counted from the time COUNT_FROM_NS on.
 */
#define _GNU_SOURCE
#include <errno.h>
#include "linux/um_timetravel.h"	/* the kernel's own; libc's may be too old */
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MOST 16
#define NEVER INT64_MAX
#define FRAME 9440
#define REQUESTED UM_TIMETRAVEL_SCHEDSHM_FLAGS_REQ_RUN
#define CHECK(ok) do { if (!(ok)) { fprintf(stderr, "controller: line %d: %s: %s\n", __LINE__, #ok, strerror(errno)); exit(1); } } while (0)

struct frame { struct frame *next; int size; int64_t arrival; char data[]; };
struct guest {
	int fd, link;
	bool running, ended;
	int64_t request, since;			/* next event if it waits; time it was let run at */
	struct frame *first, **last;
	struct um_timetravel_schedshm *memory;
	long ops[10], runs, frames;
};
static struct guest guests[MOST];
static int count, by_memory, by_turns;
static int64_t delay, from = 0;
static long together, alone, sent;
static uint32_t sequence;

static void put(struct guest *g, uint32_t op, uint32_t seq, int64_t time, const int *fds)
{
	struct um_timetravel_msg msg = { .op = op, .seq = seq, .time = time };
	struct iovec part = { &msg, sizeof(msg) };
	union { char bytes[CMSG_SPACE(2 * sizeof(int))]; struct cmsghdr align; } control = {};
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };

	if (fds) {
		header.msg_control = control.bytes;
		header.msg_controllen = sizeof(control.bytes);
		struct cmsghdr *c = CMSG_FIRSTHDR(&header);
		c->cmsg_level = SOL_SOCKET; c->cmsg_type = SCM_RIGHTS; c->cmsg_len = CMSG_LEN(2 * sizeof(int));
		memcpy(CMSG_DATA(c), fds, 2 * sizeof(int));
	}
	sent++;
	if (sendmsg(g->fd, &header, MSG_NOSIGNAL) != sizeof(msg))
		g->ended = true;
}

/* Takes what a guest has sent; the other end of its link is the guest beside it. */
static void drain(struct guest *g)
{
	static char data[FRAME];
	struct guest *to = &guests[(g - guests) ^ 1];
	ssize_t size;

	while ((size = recv(g->link, data, sizeof(data), MSG_DONTWAIT)) > 8) {
		struct frame *f = malloc(sizeof(*f) + size);
		f->next = NULL; f->size = size; memcpy(&f->arrival, data, 8); memcpy(f->data, data, size);
		*to->last = f; to->last = &f->next;
		g->frames++;
	}
}

static int64_t due(struct guest *g)
{
	int64_t next = g->request;
	if (g->ended) return NEVER;
	if (g->first && g->first->arrival < next) next = g->first->arrival;
	return next;
}

static int64_t plus(int64_t a, int64_t b) { return a > NEVER - b ? NEVER : a + b; }

static void grant(void)
{
	for (int i = 0; i < count; i++) {
		struct guest *g = &guests[i];
		int64_t others = NEVER, mine = due(g), until;
		bool other_runs = false;

		if (g->running || g->ended || mine == NEVER) continue;
		for (int j = 0; j < count; j++) {
			struct guest *o = &guests[j];
			int64_t bound = o->ended ? NEVER : o->running ? o->since : due(o);
			if (j == i) continue;
			if (bound < others) others = bound;
			other_runs |= o->running && !o->ended;
		}
		if (by_turns && (other_runs || mine > others)) continue;
		until = by_turns ? (others > mine ? others : mine + 1) : plus(others, delay);
		/* What it sends itself may be answered. */
		if (plus(mine, 2 * delay) < until) until = plus(mine, 2 * delay);
		if (mine >= until) continue;
		uint32_t frames = 0;
		while (g->first && g->first->arrival < until) {
			struct frame *f = g->first;
			CHECK(send(g->link, f->data, f->size, 0) == f->size);
			if (!(g->first = f->next)) g->last = &g->first;
			free(f); frames++;
		}
		g->running = true; g->since = mine; g->request = NEVER;
		if (mine >= from) { g->runs++; if (other_runs) together++; else alone++; }
		if (g->memory) {
			g->memory->free_until = until;
			g->memory->current_time = mine;
		} else {
			put(g, UM_TIMETRAVEL_FREE_UNTIL, ++sequence, until, NULL);
		}
		put(g, UM_TIMETRAVEL_RUN, frames, mine, NULL);
	}
}

static void share(struct guest *g, int id, uint32_t seq)
{
	int fds[2] = { memfd_create("schedule", 0), 2 };
	size_t size = sizeof(*g->memory) + (id + 2) * sizeof(union um_timetravel_schedshm_client);

	CHECK(fds[0] >= 0 && !ftruncate(fds[0], size));
	g->memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	CHECK(g->memory != MAP_FAILED);
	g->memory->version = UM_TIMETRAVEL_SCHEDSHM_VERSION;
	g->memory->len = size;
	g->memory->running_id = id;
	g->memory->max_clients = id + 2;
	put(g, UM_TIMETRAVEL_ACK, seq, id, fds);
	close(fds[0]);
}

static void handle(struct guest *g)
{
	struct um_timetravel_msg msg;
	int id = g - guests + 1;

	if (read(g->fd, &msg, sizeof(msg)) != sizeof(msg)) {
		drain(g);
		g->ended = true;
		g->running = false;
		return;
	}
	if (g->since >= from) g->ops[msg.op]++;
	switch (msg.op) {
	case UM_TIMETRAVEL_ACK:
		return;
	case UM_TIMETRAVEL_START:
		if (by_memory) { share(g, id, msg.seq); return; }
		put(g, UM_TIMETRAVEL_ACK, msg.seq, 0, NULL);
		return;
	case UM_TIMETRAVEL_REQUEST:
		g->request = msg.time;
		break;
	case UM_TIMETRAVEL_WAIT:
		drain(g);
		g->running = false;
		if (g->memory) {
			if (g->memory->clients[id].flags & REQUESTED) g->request = g->memory->clients[id].req_time;
			return;
		}
		break;
	case UM_TIMETRAVEL_GET:
	case UM_TIMETRAVEL_GET_TOD:
		put(g, UM_TIMETRAVEL_ACK, msg.seq, g->since, NULL);
		return;
	}
	put(g, UM_TIMETRAVEL_ACK, msg.seq, 0, NULL);
}

int main(int argc, char **argv)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct pollfd polled[2 * MOST];
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), left;

	CHECK(argc >= 5);
	strncpy(address.sun_path, argv[1], sizeof(address.sun_path) - 1);
	count = atoi(argv[2]);
	delay = atoll(argv[3]);
	by_turns = !strcmp(argv[4], "turns");
	by_memory = by_turns || !strcmp(argv[4], "memory");
	if (getenv("COUNT_FROM_NS")) from = atoll(getenv("COUNT_FROM_NS"));
	CHECK(!bind(listener, (struct sockaddr *)&address, sizeof(address)) && !listen(listener, MOST));
	for (int i = 0; i < count; i++) {
		struct um_timetravel_msg msg;
		int fd = accept(listener, NULL, NULL);
		/* Its first message has its number. */
		CHECK(fd >= 0 && read(fd, &msg, sizeof(msg)) == sizeof(msg) && msg.op == UM_TIMETRAVEL_START);
		struct guest *g = &guests[msg.time];
		g->fd = fd; g->running = true; g->request = NEVER; g->last = &g->first;
		g->link = atoi(argv[5 + msg.time]);
		if (by_memory) share(g, msg.time + 1, msg.seq); else put(g, UM_TIMETRAVEL_ACK, msg.seq, 0, NULL);
	}
	do {
		left = 0;
		for (int i = 0; i < count; i++) {
			polled[2 * i] = (struct pollfd){ .fd = guests[i].ended ? -1 : guests[i].fd, .events = POLLIN };
			polled[2 * i + 1] = (struct pollfd){ .fd = guests[i].ended ? -1 : guests[i].link, .events = POLLIN };
		}
		CHECK(poll(polled, 2 * count, -1) > 0);
		for (int i = 0; i < count; i++)
			if (polled[2 * i].revents) handle(&guests[i]);
			else if (polled[2 * i + 1].revents & POLLIN) drain(&guests[i]);
		grant();
		for (int i = 0; i < count; i++) left += !guests[i].ended;
		bool any = false;
		for (int i = 0; i < count; i++) any |= guests[i].running;
		if (left && !any) { fprintf(stderr, "controller: nobody has anything to do\n"); return 3; }
	} while (left);
	struct rusage r;
	getrusage(RUSAGE_SELF, &r);
	printf("{\"runs\": [");
	for (int i = 0; i < count; i++) printf("%s%ld", i ? ", " : "", guests[i].runs);
	printf("], \"frames\": [");
	for (int i = 0; i < count; i++) printf("%s%ld", i ? ", " : "", guests[i].frames);
	printf("], \"while_another_ran\": %ld, \"alone\": %ld, \"received\": {", together, alone);
	static const char *names[10] = { "ACK", "START", "REQUEST", "WAIT", "GET", "UPDATE", "RUN", "FREE_UNTIL", "GET_TOD", "BROADCAST" };
	for (int op = 0, comma = 0; op < 10; op++) {
		long sum = 0;
		for (int i = 0; i < count; i++) sum += guests[i].ops[op];
		if (sum) printf("%s\"%s\": %ld", comma++ ? ", " : "", names[op], sum);
	}
	printf("}, \"sent_since_boot\": %ld, \"cpu_s\": %.3f, \"switches\": %ld}\n", sent,
	       r.ru_utime.tv_sec + r.ru_stime.tv_sec + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6, r.ru_nvcsw + r.ru_nivcsw);
	return 0;
}
