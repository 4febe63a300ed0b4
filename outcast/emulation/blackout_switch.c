/* The synthetic blackout (section 4.3 of the Outcast paper): forwards frames between a switch
 * port's link and the switch. In ON periods it drops everything that comes in from the link.
 *
 *   blackout_switch LINK SWITCH DROPS ON_NS OFF_MEAN_NS SEED RESULT
 *
 * LINK and SWITCH are interfaces. If ON_NS is 0, an ON period lasts until DROPS packets have been
 * dropped. Otherwise it lasts ON_NS, whether or not a packet comes. The time from an ON period's
 * end to the next one's beginning is exponential with a mean of OFF_MEAN_NS. The first OFF period
 * begins with the first TCP segment that carries data, so that nothing disturbs connecting and
 * probing.
 *
 * From SIGUSR1 on it drops nothing, because what comes after the flows' end shows what was lost
 * before. It says `ready` and forwards until SIGTERM. Then it writes RESULT: packets taken in and
 * dropped, frames lost in its own sockets, and the beginning, end and drops of every ON period, on
 * the common clock. There is one process for each direction; on the way back it drops nothing.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <math.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FRAME_BYTES = 65536, BUFFER_BYTES = 64 * 1024 * 1024, WAKE_US = 200000 };

struct period {
    int64_t begin_ns, end_ns;
    long drops;
};

static volatile sig_atomic_t stopped, over;
static uint64_t random_state;
static struct period *periods;
static size_t period_count;

static void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static void stop(int signal_number)
{
    if (signal_number == SIGUSR1)
        over = 1;
    else
        stopped = 1;
}

/* SplitMix64 (Steele, Lea and Flood 2014). */
static uint64_t next_random(void)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static int64_t exponential_ns(double mean_ns)
{
    double uniform = ((next_random() >> 11) + 0.5) / 9007199254740992.0; /* 2^53 */
    return (int64_t) (-log(uniform) * mean_ns);
}

static void note(int64_t begin_ns, int64_t end_ns, long drops)
{
    if ((period_count & (period_count + 1)) == 0) {
        periods = realloc(periods, (2 * period_count + 2) * sizeof *periods);
        if (!periods)
            die("memory");
    }
    periods[period_count++] = (struct period) { begin_ns, end_ns, drops };
}

static int open_port(const char *name)
{
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET,
        .sll_protocol = htons(ETH_P_ALL),
        .sll_ifindex = (int) if_nametoindex(name),
    };
    const int on = 1, size = BUFFER_BYTES;
    const struct timeval wake = { 0, WAKE_US };
    int fd = socket(AF_PACKET, SOCK_RAW, 0);
    if (fd < 0 || address.sll_ifindex == 0)
        die(name);
    if (setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on)
        || setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on)
        || setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size)
        || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wake, sizeof wake)
        || bind(fd, (struct sockaddr *) &address, sizeof address))
        die(name);
    return fd;
}

/* Takes a frame and the time at which the kernel got it. Returns its length, or -1 if none came. */
static ssize_t receive(int fd, unsigned char *frame, int64_t *stamp_ns)
{
    union {
        char bytes[CMSG_SPACE(sizeof(struct timespec))];
        struct cmsghdr aligned;
    } control;
    struct iovec part = { frame, FRAME_BYTES };
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof control,
    };
    ssize_t length = recvmsg(fd, &message, 0);
    if (length < 0) {
        if (errno != EINTR && errno != EAGAIN)
            die("receiving");
        return -1;
    }
    for (struct cmsghdr *each = CMSG_FIRSTHDR(&message); each; each = CMSG_NXTHDR(&message, each)) {
        struct timespec stamp;
        if (each->cmsg_level == SOL_SOCKET && each->cmsg_type == SO_TIMESTAMPNS) {
            memcpy(&stamp, CMSG_DATA(each), sizeof stamp);
            *stamp_ns = stamp.tv_sec * 1000000000LL + stamp.tv_nsec;
        }
    }
    return length;
}

/* A full queue at the port drops the frame, as it drops frames of the switch itself. */
static void forward(int fd, const unsigned char *frame, size_t length)
{
    if (send(fd, frame, length, 0) < 0 && errno != ENOBUFS && errno != EINTR)
        die("sending");
}

static unsigned field(const unsigned char *at)
{
    return (unsigned) at[0] << 8 | at[1];
}

static int is_ipv6(const unsigned char *frame)
{
    return field(frame + 12) == ETHERTYPE_IPV6;
}

/* Whether the run captures a packet; reports of groups, to ff02::16, it does not. */
static int is_ip(const unsigned char *frame, size_t length)
{
    if (is_ipv6(frame))
        return length >= 54 && memcmp(frame, "\x33\x33\0\0\0\x16", 6);
    return length >= 34 && field(frame + 12) == ETHERTYPE_IP;
}

static int carries_tcp_data(const unsigned char *frame, size_t length)
{
    const unsigned char *ip = frame + 14;
    int six = is_ipv6(frame);
    size_t header = six ? 40 : 4u * (ip[0] & 15);
    size_t whole = six ? field(ip + 4) + header : field(ip + 2);
    if (ip[six ? 6 : 9] != IPPROTO_TCP || length < 14 + header + 20)
        return 0;
    return whole > header + 4u * (ip[header + 12] >> 4);
}

static unsigned long lost_frames(int fd)
{
    struct tpacket_stats seen = { 0 };
    socklen_t size = sizeof seen;
    if (getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &seen, &size))
        die("counters");
    return seen.tp_drops;
}

static void write_result(const char *file, long packets, long dropped, unsigned long lost)
{
    FILE *stream = fopen(file, "w");
    if (!stream)
        die(file);
    fprintf(stream, "{\"packets\": %ld, \"dropped\": %ld, \"lost\": %lu, \"periods\": [", packets,
            dropped, lost);
    for (size_t n = 0; n < period_count; n++)
        fprintf(stream, "%s[%lld, %lld, %ld]", n ? ", " : "", (long long) periods[n].begin_ns,
                (long long) periods[n].end_ns, periods[n].drops);
    fprintf(stream, "]}\n");
    if (fclose(stream))
        die(file);
}

int main(int count, char **words)
{
    static unsigned char frame[FRAME_BYTES];
    if (count != 8) {
        fprintf(stderr, "usage: LINK SWITCH DROPS ON_NS OFF_MEAN_NS SEED RESULT\n");
        return 2;
    }
    const int link = open_port(words[1]), inside = open_port(words[2]);
    const long drops = atol(words[3]);
    const int64_t on_ns = atoll(words[4]);
    const double off_mean_ns = atof(words[5]);
    int64_t now_ns = 0;
    random_state = strtoull(words[6], NULL, 10);

    /* SA_RESTART is not set, because a signal must end the waiting. */
    const struct sigaction action = { .sa_handler = stop };
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    const pid_t back = fork();
    if (back < 0)
        die("fork");
    if (back == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (!stopped) {
            ssize_t length = receive(inside, frame, &now_ns);
            if (length > 0)
                forward(link, frame, (size_t) length);
        }
        return lost_frames(inside) != 0;
    }
    printf("ready\n");
    fflush(stdout);

    long packets = 0, dropped = 0, in_period = 0;
    int64_t next_on_ns = -1, began_ns = 0;
    while (!stopped) {
        int drop = 0;
        ssize_t length = receive(link, frame, &now_ns);
        if (length < 0)
            continue;
        packets += is_ip(frame, (size_t) length);
        if (!over && is_ip(frame, (size_t) length)) {
            if (next_on_ns < 0 && carries_tcp_data(frame, (size_t) length))
                next_on_ns = now_ns + exponential_ns(off_mean_ns);
            if (on_ns) {
                while (next_on_ns >= 0 && now_ns >= next_on_ns + on_ns) {
                    note(next_on_ns, next_on_ns + on_ns, in_period);
                    in_period = 0;
                    next_on_ns += on_ns + exponential_ns(off_mean_ns);
                }
                drop = next_on_ns >= 0 && now_ns >= next_on_ns;
                in_period += drop;
            } else if (next_on_ns >= 0 && (in_period || now_ns >= next_on_ns)) {
                drop = 1;
                if (in_period++ == 0)
                    began_ns = now_ns;
                if (in_period == drops) {
                    note(began_ns, now_ns, in_period);
                    in_period = 0;
                    next_on_ns = now_ns + exponential_ns(off_mean_ns);
                }
            }
        }
        dropped += drop;
        if (!drop)
            forward(inside, frame, (size_t) length);
    }
    if (in_period)
        note(on_ns ? next_on_ns : began_ns, now_ns, in_period);
    int status = 0;
    kill(back, SIGTERM);
    if (waitpid(back, &status, 0) != back || status)
        status = 1;
    write_result(words[7], packets, dropped, lost_frames(link) + (unsigned long) status);
    return 0;
}
