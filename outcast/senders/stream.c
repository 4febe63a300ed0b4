/* One TCP flow, where iperf cannot send it: payloads of random sizes, and Multipath TCP.
 *
 *   stream send --from ADDRESS:PORT --to ADDRESS:PORT --start EPOCH_NS
 *               (--duration NS | --bytes N) --congestion-control NAME [--pacing-rate BYTES_PER_S]
 *               [--mptcp] [--seed N (--min-payload N | --adaptive SIGMA2,MU,NU_TAU,NU_OMEGA,THETA)]
 *   stream receive --port N --congestion-control NAME [--mptcp]
 *
 * The sender connects at once, holds back until its start, and ends when the receiver has read all
 * and closed. Its last line is `BYTES bytes in WRITES writes, smallest payload LEAST to MOST`.
 *
 * TCPRand (section 4 of its paper) draws every payload's size from [rMin, MSS]. On an unmodified
 * kernel a segment of its own is a write with MSG_EOR, without Nagle's algorithm and without
 * segmentation offloads. Sizes are drawn a few segments ahead of the wire: TCP_NOTSENT_LOWAT keeps
 * the kernel from taking more than it can send soon.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <linux/tcp.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

enum { BLOCK = 128 * 1024, MOST_CONNECTIONS = 4096 };
enum { FIXED_BATCH = 32, ADAPTIVE_BATCH = 4, MOST_BATCH = FIXED_BATCH };

struct adaptive {
    double sigma2, mu, nu_tau, nu_omega, theta;
};

/* What is known of CUBIC's epoch from the socket: its window after the last loss (alpha, which
 * TCP_INFO has as ssthresh), and from it the window before (Wmax). */
struct epoch {
    double alpha, w_max;
};

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

/* Algorithm 1 of the TCPRand paper: rMin for a window, in bytes. */
int min_payload(double cwnd, struct epoch epoch, struct adaptive by, int mss)
{
    double growth = epoch.w_max - epoch.alpha;
    double tau = epoch.w_max - growth / by.nu_tau;
    double omega = epoch.w_max + growth / by.nu_omega;
    double x, phi;

    if (growth <= 0 || cwnd < tau || cwnd > omega)
        return mss;
    x = (cwnd - epoch.alpha) / growth;
    phi = 0.5 * (1 + erf((x - by.mu) / sqrt(2 * by.sigma2)));
    return (int) fmin(mss, fmax(mss * (1 - phi), by.theta));
}

/* A new loss shows as another ssthresh. CUBIC sets it to 717/1024 of the window, and takes as its
 * maximum less than that window where it had not reached the one before: fast convergence
 * (net/ipv4/tcp_cubic.c, cubictcp_recalc_ssthresh). */
struct epoch after(struct epoch epoch, uint32_t ssthresh)
{
    const double beta = 717.0 / 1024;
    double lost_at = ssthresh / beta;

    if (ssthresh >= 0x7fffffff || ssthresh == epoch.alpha)
        return epoch;
    epoch.w_max = lost_at < epoch.w_max ? lost_at * (1 + beta) / 2 : lost_at;
    epoch.alpha = ssthresh;
    return epoch;
}

/* splitmix64; Steele, Lea, Flood 2014. */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* Uniform in [least, most]. */
int payload(uint64_t *state, int least, int most)
{
    return least + (int) ((unsigned __int128) draw(state) * (unsigned) (most - least + 1) >> 64);
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

static struct sockaddr_in address(char *text)
{
    struct sockaddr_in found = { .sin_family = AF_INET };
    char *colon = strchr(text, ':');

    if (colon == NULL)
        refuse("an address is to be ADDRESS:PORT");
    *colon = 0;
    found.sin_port = htons(atoi(colon + 1));
    if (inet_pton(AF_INET, text, &found.sin_addr) != 1)
        refuse("an address is to be in dotted decimals");
    return found;
}

static int open_socket(int mptcp, const char *control)
{
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, mptcp ? IPPROTO_MPTCP : IPPROTO_TCP);

    if (fd < 0)
        fail("a socket");
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one))
        fail("SO_REUSEADDR");
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control, strlen(control)))
        fail(control);
    return fd;
}

static void send_all(int fd, int64_t end_ns, int64_t bytes, int early, uint64_t seed,
                     int least, const struct adaptive *by)
{
    struct epoch epoch = { 0, 0 };
    struct iovec parts[MOST_BATCH];
    struct mmsghdr messages[MOST_BATCH];
    struct tcp_info info;
    socklen_t length = sizeof info;
    int batch = by != NULL ? ADAPTIVE_BATCH : FIXED_BATCH;
    int from = BLOCK, to = 0, sent, i;
    int64_t total = 0, writes = 0;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length))
        fail("TCP_INFO");
    int mss = info.tcpi_snd_mss;
    int is_random = least || by != NULL;
    int unsent = 2 * batch * mss;
    int one = 1;
    if (is_random && (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one)
                      || setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent)))
        fail("TCP_NODELAY, TCP_NOTSENT_LOWAT");
    while ((bytes < 0 || total < bytes) && (end_ns < 0 || now_ns() < end_ns)) {
        if (!is_random) {
            int64_t wanted = bytes < 0 || bytes - total > BLOCK ? BLOCK : bytes - total;
            ssize_t done = send(fd, block, wanted, MSG_NOSIGNAL);

            if (done < 0)
                fail("sending");
            total += done;
            writes++;
            continue;
        }
        if (by != NULL) {
            if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length))
                fail("TCP_INFO");
            epoch = after(epoch, info.tcpi_snd_ssthresh);
            least = min_payload(info.tcpi_snd_cwnd, epoch, *by, mss);
        }
        int low = least < mss ? least : mss;
        int64_t planned = total;
        memset(messages, 0, sizeof messages);
        for (i = 0; i < batch && (bytes < 0 || planned < bytes); i++) {
            int64_t size = payload(&seed, low, mss);

            if (bytes >= 0 && size > bytes - planned)
                size = bytes - planned;
            planned += size;
            parts[i] = (struct iovec) { block, size };
            messages[i].msg_hdr = (struct msghdr) {
                .msg_iov = &parts[i], .msg_iovlen = 1, .msg_flags = MSG_EOR
            };
        }
        sent = sendmmsg(fd, messages, i, MSG_EOR | MSG_NOSIGNAL);
        if (sent < 0)
            fail("sending");
        for (i = 0; i < sent; i++)
            total += messages[i].msg_len;
        writes += sent;
        from = low < from ? low : from;
        to = low > to ? low : to;
    }
    if (shutdown(fd, SHUT_WR))
        fail("shutdown");
    while (recv(fd, block, sizeof block, 0) > 0)
        ;
    printf("%lld bytes in %lld writes", (long long) total + early, (long long) writes + early);
    if (is_random)
        printf(", smallest payload %d to %d", from, to);
    printf("\n");
}

static void stop(int number)
{
    (void) number;
    _exit(0);
}

static void receive(int fd, int port)
{
    static struct pollfd ends[MOST_CONNECTIONS];
    struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(port) };
    int count = 1, i;

    signal(SIGINT, stop);
    if (bind(fd, (struct sockaddr *) &any, sizeof any) || listen(fd, MOST_CONNECTIONS))
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
        if (ends[0].revents && count < MOST_CONNECTIONS) {
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
        { "min-payload", 1, 0, 'p' }, { "adaptive", 1, 0, 'a' }, { "port", 1, 0, 'o' }, { 0 },
    };
    struct sockaddr_in from = { 0 }, to = { 0 };
    struct adaptive by;
    const char *control = NULL;
    int64_t start_ns = 0, duration_ns = -1, bytes = -1;
    uint64_t seed = 0, rate = 0;
    int mptcp = 0, early = 0, least = 0, is_adaptive = 0, port = 0, option;

    if (count < 2)
        refuse("what is to be done: send or receive");
    optind = 2;
    while ((option = getopt_long(count, words, "", options, NULL)) != -1)
        switch (option) {
        case 'f': from = address(optarg); break;
        case 't': to = address(optarg); break;
        case 's': start_ns = atoll(optarg); break;
        case 'd': duration_ns = atoll(optarg); break;
        case 'n': bytes = atoll(optarg); break;
        case 'c': control = optarg; break;
        case 'r': rate = strtoull(optarg, NULL, 10); break;
        case 'm': mptcp = 1; break;
        case 'e': seed = strtoull(optarg, NULL, 10); break;
        case 'p': least = atoi(optarg); break;
        case 'o': port = atoi(optarg); break;
        case 'a':
            is_adaptive = 1;
            if (sscanf(optarg, "%lf,%lf,%lf,%lf,%lf", &by.sigma2, &by.mu, &by.nu_tau,
                       &by.nu_omega, &by.theta) != 5)
                refuse("--adaptive takes five numbers");
            break;
        default: return 2;
        }
    if (control == NULL)
        refuse("--congestion-control is missing");
    int fd = open_socket(mptcp, control);
    if (!strcmp(words[1], "receive"))
        receive(fd, port);
    if (rate && setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate))
        fail("SO_MAX_PACING_RATE");
    if (bind(fd, (struct sockaddr *) &from, sizeof from))
        fail("bind");
    if (connect(fd, (struct sockaddr *) &to, sizeof to))
        fail("connect");
    if (mptcp) {
        /* The further connections are made once the first has carried data. */
        if (send(fd, block, 1, MSG_NOSIGNAL) != 1)
            fail("sending");
        if (bytes > 0)
            bytes--;
        early = 1;
    }
    sleep_until(start_ns);
    send_all(fd, duration_ns < 0 ? -1 : start_ns + duration_ns, bytes, early, seed, least,
             is_adaptive ? &by : NULL);
    return 0;
}
