/* Sends a TCP flow that iperf cannot send, and receives many flows at once.
 *
 *   stream send --from ADDRESS:PORT --to ADDRESS:PORT [--start EPOCH_NS]
 *               (--duration NS | --bytes N) --congestion-control NAME [--pacing-rate BYTES_PER_S]
 *               [--tos N] [--mptcp] [--seed N (--min-payload N | --adaptive SIGMA2,MU,NU_TAU,NU_OMEGA,THETA)]
 *   stream receive --port N --congestion-control NAME [--mptcp] [--ipv6]
 *
 * An IPv6 address stands in brackets, as [fd00::1]:5001.
 *
 * The sender connects at once and waits for its start. If --start does not give it, the sender is
 * told once it has connected (start.h). It ends when the receiver has read all and closed. Its last
 * line is `BYTES bytes in WRITES writes, smallest payload LEAST to MOST`.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <linux/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "start.h"
#include "tcprand.h"

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

enum { BLOCK = 128 * 1024, MOST_CONNECTIONS = 20000, BACKLOG = 4096, OTHER_FILES = 16 };

static char block[BLOCK];

static void fail(const char *what)
{
    fprintf(stderr, "stream: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void refuse(const char *what)
{
    fprintf(stderr, "stream: %s\n", what);
    exit(2);
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void sleep_until(int64_t at_ns)
{
    struct timespec t = { at_ns / 1000000000, at_ns % 1000000000 };

    while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

union end {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

static socklen_t length_of(const union end *end)
{
    return end->any.sa_family == AF_INET6 ? sizeof end->in6 : sizeof end->in;
}

static union end address(char *text)
{
    union end found = { .in = { .sin_family = AF_INET } };
    char *colon = strrchr(text, ':');
    int known;

    if (colon == NULL)
        refuse("an address is to be ADDRESS:PORT");
    *colon = 0;
    if (*text == '[' && colon[-1] == ']') {
        colon[-1] = 0;
        found.in6 = (struct sockaddr_in6) { .sin6_family = AF_INET6 };
        found.in6.sin6_port = htons(atoi(colon + 1));
        known = inet_pton(AF_INET6, text + 1, &found.in6.sin6_addr);
    } else {
        found.in.sin_port = htons(atoi(colon + 1));
        known = inet_pton(AF_INET, text, &found.in.sin_addr);
    }
    if (known != 1)
        refuse("an address is to be in dotted decimals, or in brackets");
    return found;
}

static int open_socket(int family, int mptcp, const char *control)
{
    int one = 1, fd = socket(family, SOCK_STREAM, mptcp ? IPPROTO_MPTCP : IPPROTO_TCP);

    if (fd < 0)
        fail("a socket");
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one))
        fail("SO_REUSEADDR");
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control, strlen(control)))
        fail(control);
    return fd;
}

static void send_all(int fd, int64_t end_ns, int64_t bytes, int early, struct tcprand *random)
{
    int64_t total = 0, writes = 0;
    int from, to, error = random != NULL ? tcprand_open(random, fd) : 0;

    if (error) {
        errno = -error;
        fail("TCP_INFO, TCP_NODELAY, TCP_NOTSENT_LOWAT");
    }
    while ((bytes < 0 || total < bytes) && (end_ns < 0 || now_ns() < end_ns)) {
        int64_t left = bytes < 0 ? -1 : bytes - total, done;

        if (random != NULL) {
            done = tcprand_send(random, fd, left);
            if (done < 0)
                errno = (int) -done;
        } else {
            done = send(fd, block, left < 0 || left > BLOCK ? BLOCK : left, MSG_NOSIGNAL);
            writes++;
        }
        if (done < 0)
            fail("sending");
        total += done;
    }
    if (shutdown(fd, SHUT_WR))
        fail("shutdown");
    while (recv(fd, block, sizeof block, 0) > 0)
        ;
    if (random != NULL)
        tcprand_used(random, &from, &to, &writes);
    printf("%lld bytes in %lld writes", (long long) total + early, (long long) writes + early);
    if (random != NULL)
        printf(", smallest payload %d to %d", from, to);
    printf("\n");
}

static void stop(int number)
{
    (void) number;
    _exit(0);
}

static void receive(int fd, int family, int port)
{
    static struct pollfd ends[1 + MOST_CONNECTIONS];
    struct rlimit files = { MOST_CONNECTIONS + OTHER_FILES, MOST_CONNECTIONS + OTHER_FILES };
    union end any = { .in = { .sin_family = AF_INET, .sin_port = htons(port) } };
    int count = 1, i;

    if (family == AF_INET6)
        any.in6 = (struct sockaddr_in6) { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    signal(SIGINT, stop);
    /* Without the right to raise it, accept says when there are too many. */
    (void) setrlimit(RLIMIT_NOFILE, &files);
    if (bind(fd, &any.any, length_of(&any)) || listen(fd, BACKLOG))
        fail("listening");
    ends[0] = (struct pollfd) { fd, POLLIN, 0 };
    for (;;) {
        if (poll(ends, count, -1) < 0)
            fail("poll");
        for (i = count - 1; i > 0; i--) {
            if (!ends[i].revents)
                continue;
            ssize_t taken = recv(ends[i].fd, block, sizeof block, MSG_DONTWAIT);
            if (taken == 0 || (taken < 0 && errno != EAGAIN)) {
                close(ends[i].fd);
                ends[i] = ends[--count];
            }
        }
        if (ends[0].revents && count <= MOST_CONNECTIONS) {
            int accepted = accept(fd, NULL, NULL);

            if (accepted < 0)
                fail("accept");
            ends[count++] = (struct pollfd) { accepted, POLLIN, 0 };
        }
    }
}

int main(int count, char **words)
{
    static const struct option options[] = {
        { "from", 1, 0, 'f' }, { "to", 1, 0, 't' }, { "start", 1, 0, 's' },
        { "duration", 1, 0, 'd' }, { "bytes", 1, 0, 'n' }, { "congestion-control", 1, 0, 'c' },
        { "pacing-rate", 1, 0, 'r' }, { "mptcp", 0, 0, 'm' }, { "seed", 1, 0, 'e' },
        { "min-payload", 1, 0, 'p' }, { "adaptive", 1, 0, 'a' }, { "port", 1, 0, 'o' },
        { "ipv6", 0, 0, '6' }, { "tos", 1, 0, 'q' }, { 0 },
    };
    union end from = { 0 }, to = { 0 };
    struct tcprand *random = NULL;
    const char *control = NULL, *adaptive = NULL;
    int64_t start_ns = 0, duration_ns = -1, bytes = -1;
    uint64_t seed = 0, rate = 0;
    int mptcp = 0, early = 0, least = 0, port = 0, family = AF_INET, tos = 0, option;

    if (count < 2)
        refuse("what is to be done: send or receive");
    optind = 2;
    while ((option = getopt_long(count, words, "", options, NULL)) != -1)
        switch (option) {
        case 'f': from = address(optarg); family = from.any.sa_family; break;
        case '6': family = AF_INET6; break;
        case 't': to = address(optarg); break;
        case 's': start_ns = atoll(optarg); break;
        case 'd': duration_ns = atoll(optarg); break;
        case 'n': bytes = atoll(optarg); break;
        case 'c': control = optarg; break;
        case 'r': rate = strtoull(optarg, NULL, 10); break;
        case 'm': mptcp = 1; break;
        case 'e': seed = strtoull(optarg, NULL, 10); break;
        case 'p': least = atoi(optarg); break;
        case 'q': tos = atoi(optarg); break;
        case 'o': port = atoi(optarg); break;
        case 'a': adaptive = optarg; break;
        default: return 2;
        }
    if (control == NULL)
        refuse("--congestion-control is missing");
    if (least || adaptive != NULL) {
        random = tcprand_new(seed, least, adaptive);
        if (random == NULL)
            refuse("--adaptive takes five numbers");
    }
    int fd = open_socket(family, mptcp, control);
    if (!strcmp(words[1], "receive"))
        receive(fd, family, port);
    if (rate && setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate))
        fail("SO_MAX_PACING_RATE");
    if (tos && (family == AF_INET6
                    ? setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &tos, sizeof tos)
                    : setsockopt(fd, IPPROTO_IP, IP_TOS, &tos, sizeof tos)))
        fail("IP_TOS");
    if (bind(fd, &from.any, length_of(&from)))
        fail("bind");
    if (connect(fd, &to.any, length_of(&to)))
        fail("connect");
    if (mptcp) {
        /* The kernel makes the further connections once the first has carried data. */
        if (send(fd, block, 1, MSG_NOSIGNAL) != 1)
            fail("sending");
        if (bytes > 0)
            bytes--;
        early = 1;
    }
    if (!start_ns && (start_ns = await_start_ns()) < 0)
        refuse("it was not told when to start");
    sleep_until(start_ns);
    send_all(fd, duration_ns < 0 ? -1 : start_ns + duration_ns, bytes, early, random);
    return 0;
}
