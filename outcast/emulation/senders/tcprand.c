/* See tcprand.h.
 *
 * TCPRand draws every payload's size from [rMin, MSS]. On an unmodified kernel a write with MSG_EOR
 * becomes a segment of its own, if Nagle's algorithm and segmentation offloads are off. Sizes are
 * drawn a few segments ahead of the wire, because TCP_NOTSENT_LOWAT keeps the kernel from taking
 * more than it can send soon.
 */
#define _GNU_SOURCE
#include "tcprand.h"

#include <errno.h>
#include <linux/tcp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <netinet/in.h>

enum { MOST_PAYLOAD = 64 * 1024 };
enum { FIXED_BATCH = 32, ADAPTIVE_BATCH = 4, MOST_BATCH = FIXED_BATCH };

struct adaptive {
    double sigma2, mu, nu_tau, nu_omega, theta;
};

/* CUBIC's epoch, from what the socket shows: the window after the last loss (alpha, which is
 * ssthresh in TCP_INFO), and the window before that loss (Wmax), which follows from it. */
struct epoch {
    double alpha, w_max;
};

struct tcprand {
    uint64_t seed;
    int is_adaptive, least, batch, mss;
    struct adaptive by;
    struct epoch epoch;
    /* The rest of a payload of which the kernel has taken the beginning. */
    int rest;
    int from, to;
    int64_t writes;
};

static char zeros[MOST_PAYLOAD];

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

/* A new loss shows as another ssthresh. CUBIC sets it to 717/1024 of the window. If the window had
 * not reached the maximum before, CUBIC takes less than the window as its new maximum: fast
 * convergence (net/ipv4/tcp_cubic.c, cubictcp_recalc_ssthresh). */
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

struct tcprand *tcprand_new(uint64_t seed, int least, const char *adaptive)
{
    struct tcprand *made = calloc(1, sizeof *made);

    if (made == NULL)
        return NULL;
    made->seed = seed;
    made->least = least;
    made->is_adaptive = adaptive != NULL;
    made->batch = made->is_adaptive ? ADAPTIVE_BATCH : FIXED_BATCH;
    if (adaptive != NULL
        && sscanf(adaptive, "%lf,%lf,%lf,%lf,%lf", &made->by.sigma2, &made->by.mu,
                  &made->by.nu_tau, &made->by.nu_omega, &made->by.theta) != 5) {
        free(made);
        return NULL;
    }
    return made;
}

void tcprand_free(struct tcprand *it)
{
    free(it);
}

int tcprand_open(struct tcprand *it, int fd)
{
    struct tcp_info info;
    socklen_t length = sizeof info;
    int one = 1, unsent;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length))
        return -errno;
    it->mss = info.tcpi_snd_mss < MOST_PAYLOAD ? (int) info.tcpi_snd_mss : MOST_PAYLOAD;
    unsent = 2 * it->batch * it->mss;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one)
        || setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent))
        return -errno;
    return 0;
}

int64_t tcprand_send(struct tcprand *it, int fd, int64_t left)
{
    struct iovec parts[MOST_BATCH];
    struct mmsghdr messages[MOST_BATCH];
    struct tcp_info info;
    socklen_t length = sizeof info;
    int64_t planned = 0, total = 0;
    int low, sent, count, i;

    if (it->is_adaptive) {
        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length))
            return -errno;
        it->epoch = after(it->epoch, info.tcpi_snd_ssthresh);
        it->least = min_payload(info.tcpi_snd_cwnd, it->epoch, it->by, it->mss);
    }
    low = it->least < it->mss ? it->least : it->mss;
    memset(messages, 0, sizeof messages);
    for (count = 0; count < it->batch && (left < 0 || planned < left); count++) {
        int64_t size = count == 0 && it->rest ? it->rest : payload(&it->seed, low, it->mss);

        if (left >= 0 && size > left - planned)
            size = left - planned;
        planned += size;
        parts[count] = (struct iovec) { zeros, size };
        messages[count].msg_hdr = (struct msghdr) { .msg_iov = &parts[count], .msg_iovlen = 1 };
    }
    sent = sendmmsg(fd, messages, count, MSG_EOR | MSG_NOSIGNAL);
    if (sent < 0)
        return -errno;
    for (i = 0; i < sent; i++)
        total += messages[i].msg_len;
    if (sent > 0)
        it->rest = (int) (parts[sent - 1].iov_len - messages[sent - 1].msg_len);
    it->from = it->writes == 0 || low < it->from ? low : it->from;
    it->to = low > it->to ? low : it->to;
    it->writes += sent;
    return total;
}

void tcprand_used(const struct tcprand *it, int *from, int *to, int64_t *writes)
{
    *from = it->from;
    *to = it->to;
    *writes = it->writes;
}
