/* Measures round trips: small packets at even times, each of which is answered.
 *
 *   probe ask --kind icmp|udp --from ADDRESS --to ADDRESS --sport N [--dport N] --payload BYTES
 *             --first NS --every NS --count N --drain NS [--tos BYTE]
 *   probe answer --port N
 *
 * `ask` is told the traffic's start (start.h). Its first packet is sent --first after that. After
 * the last one it waits for answers for --drain at most. For each packet it then writes a line
 * `NUMBER SENT_NS ANSWERED_NS`, in nanoseconds of CLOCK_REALTIME; 0 stands for no answer. A packet
 * is sent when it is handed to the kernel. It is answered when the kernel stamped the answer as it
 * came in (SO_TIMESTAMPNS in socket(7)), so the program may read it late.
 *
 * `answer` sends every datagram back, as UDP's echo service (RFC 862). ICMP's requests are answered
 * by the kernel. Answers have the TOS or traffic class of what they answer. IPv4 and IPv6 differ in `family_of` and in the numbers of ICMP's types alone.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/icmp6.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "start.h"

enum { MOST_BYTES = 1 << 16, BUFFER_BYTES = 1 << 22, HEADER_BYTES = 8 };

struct end {
    struct sockaddr_storage address;
    socklen_t length;
};

struct answers {
    int fd, is_raw, answer_type;
    uint16_t identifier;
    int64_t count, missing, *sent_ns, *answered_ns;
};

static char packet[MOST_BYTES];

static void fail(const char *what)
{
    fprintf(stderr, "probe: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void refuse(const char *what)
{
    fprintf(stderr, "probe: %s\n", what);
    exit(2);
}

static int64_t nanoseconds(struct timespec t)
{
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return nanoseconds(t);
}

static void sleep_until(int64_t at_ns)
{
    struct timespec t = { at_ns / 1000000000, at_ns % 1000000000 };

    while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

static struct end family_of(const char *address, int port)
{
    struct addrinfo wanted = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV }, *found;
    struct end end = { .length = 0 };
    char service[16];

    snprintf(service, sizeof service, "%d", port);
    if (address == NULL || getaddrinfo(address, service, &wanted, &found))
        refuse("an address is to be a number");
    memcpy(&end.address, found->ai_addr, found->ai_addrlen);
    end.length = found->ai_addrlen;
    freeaddrinfo(found);
    return end;
}

static void note(struct answers *all, const struct msghdr *message, ssize_t bytes)
{
    const char *at = packet;
    struct icmphdr icmp;
    uint32_t number;
    int64_t stamp_ns = 0;

    if (all->is_raw) {
        /* A raw socket of IPv4 also gives the packet's own header (raw(7)). */
        size_t header = all->answer_type == ICMP_ECHOREPLY ? 4 * (packet[0] & 15) : 0;

        if (bytes < (ssize_t) (header + HEADER_BYTES))
            return;
        memcpy(&icmp, packet + header, sizeof icmp);
        if (icmp.type != all->answer_type || ntohs(icmp.un.echo.id) != all->identifier)
            return;
        at += header + HEADER_BYTES;
        bytes -= header + HEADER_BYTES;
    }
    if (bytes < (ssize_t) sizeof number)
        return;
    memcpy(&number, at, sizeof number);
    number = ntohl(number);
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL;
         part = CMSG_NXTHDR((struct msghdr *) message, part))
        if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SO_TIMESTAMPNS) {
            struct timespec t;

            memcpy(&t, CMSG_DATA(part), sizeof t);
            stamp_ns = nanoseconds(t);
        }
    if (number >= all->count || all->answered_ns[number])
        return;
    all->answered_ns[number] = stamp_ns ? stamp_ns : now_ns();
    all->missing--;
}

/* A packet that the own queue drops (ENOBUFS) or a host refuses is lost, as one without an answer. */
static int is_loss(int error)
{
    return error == ENOBUFS || error == ECONNREFUSED || error == EHOSTUNREACH;
}

static void read_answers(struct answers *all)
{
    for (;;) {
        char room[256];
        struct iovec whole = { packet, sizeof packet };
        struct msghdr message = { .msg_iov = &whole, .msg_iovlen = 1,
                                  .msg_control = room, .msg_controllen = sizeof room };
        ssize_t bytes = recvmsg(all->fd, &message, MSG_DONTWAIT);

        if (bytes >= 0)
            note(all, &message, bytes);
        else if (errno == EAGAIN)
            return;
        else if (errno != EINTR && !is_loss(errno))
            fail("recvmsg");
    }
}

static uint16_t checksum(const char *data, size_t bytes)
{
    uint32_t sum = 0;
    uint16_t word;

    for (; bytes > 1; bytes -= 2, data += 2) {
        memcpy(&word, data, 2);
        sum += word;
    }
    if (bytes) {
        word = 0;
        memcpy(&word, data, 1);
        sum += word;
    }
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return ~sum;
}

static void send_one(struct answers *all, int64_t number, size_t payload)
{
    size_t header = all->is_raw ? HEADER_BYTES : 0;
    uint32_t in_order = htonl(number);

    memset(packet, 0, header + payload);
    memcpy(packet + header, &in_order, sizeof in_order);
    if (all->is_raw) {
        int is_4 = all->answer_type == ICMP_ECHOREPLY;
        struct icmphdr icmp = { .type = is_4 ? ICMP_ECHO : ICMP6_ECHO_REQUEST };

        icmp.un.echo.id = htons(all->identifier);
        icmp.un.echo.sequence = htons(number);
        memcpy(packet, &icmp, sizeof icmp);
        if (is_4) { /* The kernel adds ICMPv6's own. */
            icmp.checksum = checksum(packet, header + payload);
            memcpy(packet, &icmp, sizeof icmp);
        }
    }
    all->sent_ns[number] = now_ns();
    if (send(all->fd, packet, header + payload, 0) < 0 && !is_loss(errno))
        fail("send");
}

static int open_socket(int family, int is_raw)
{
    int protocol = !is_raw ? 0 : family == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6;
    int fd = socket(family, is_raw ? SOCK_RAW : SOCK_DGRAM, protocol);
    int one = 1, buffer = BUFFER_BYTES;

    if (fd < 0)
        fail("a socket");
    if (setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one))
        fail("SO_TIMESTAMPNS");
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer))
        fail("SO_RCVBUFFORCE");
    return fd;
}

/* Gives packets their TOS or traffic class, and reads it back. */
static void set_tos(int fd, int family, int tos)
{
    int level = family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
    int name = family == AF_INET ? IP_TOS : IPV6_TCLASS, shown = -1;
    socklen_t length = sizeof shown;

    if (setsockopt(fd, level, name, &tos, sizeof tos)
        || getsockopt(fd, level, name, &shown, &length))
        fail("--tos");
    if (shown != tos)
        refuse("the kernel has another --tos");
}

static void ask(struct answers *all, size_t payload, int64_t first_ns, int64_t every_ns,
                int64_t drain_ns)
{
    int64_t until_ns, start_ns = await_start_ns();

    if (start_ns < 0)
        refuse("it was not told when to start");
    for (int64_t number = 0; number < all->count; number++) {
        sleep_until(start_ns + first_ns + number * every_ns);
        read_answers(all);
        send_one(all, number, payload);
    }
    until_ns = now_ns() + drain_ns;
    while (all->missing && now_ns() < until_ns) {
        struct pollfd one = { all->fd, POLLIN, 0 };

        if (poll(&one, 1, (int) ((until_ns - now_ns()) / 1000000) + 1) < 0 && errno != EINTR)
            fail("poll");
        read_answers(all);
    }
    for (int64_t number = 0; number < all->count; number++)
        printf("%lld %lld %lld\n", (long long) number, (long long) all->sent_ns[number],
               (long long) all->answered_ns[number]);
}

static void answer(int port)
{
    struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    struct sockaddr_in any_4 = { .sin_family = AF_INET, .sin_port = htons(port) };
    struct end peer;
    char room[256];
    int only_4 = 0, fd = socket(AF_INET6, SOCK_DGRAM, 0), no = 0, one = 1;

    /* A socket of IPv6 takes both. A kernel may lack it, or have it turned off. */
    if (fd < 0 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no)
        || bind(fd, (struct sockaddr *) &any, sizeof any)) {
        only_4 = 1;
        fd = socket(AF_INET, SOCK_DGRAM, 0);
    }
    if (only_4 && (fd < 0 || bind(fd, (struct sockaddr *) &any_4, sizeof any_4)))
        fail("bind");
    if (setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &one, sizeof one)
        || (!only_4 && setsockopt(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, &one, sizeof one)))
        fail("IP_RECVTOS");
    if (write(STDOUT_FILENO, "ready\n", 6) != 6)
        fail("write");
    for (;;) {
        struct iovec whole = { packet, sizeof packet };
        struct msghdr message = { .msg_name = &peer.address, .msg_namelen = sizeof peer.address,
                                  .msg_iov = &whole, .msg_iovlen = 1,
                                  .msg_control = room, .msg_controllen = sizeof room };
        ssize_t bytes = recvmsg(fd, &message, 0);

        if (bytes < 0 && errno != EINTR && !is_loss(errno))
            fail("recvmsg");
        /* What is received of TOS or traffic class is what sendmsg takes of them (ip(7), ipv6(7)). */
        whole.iov_len = bytes;
        if (bytes >= 0)
            sendmsg(fd, &message, 0);
    }
}

int main(int count, char **words)
{
    static const struct option options[] = {
        { "kind", 1, 0, 'k' }, { "from", 1, 0, 'f' }, { "to", 1, 0, 't' }, { "sport", 1, 0, 's' },
        { "dport", 1, 0, 'd' }, { "payload", 1, 0, 'p' }, { "first", 1, 0, 'b' },
        { "every", 1, 0, 'e' }, { "count", 1, 0, 'n' }, { "drain", 1, 0, 'l' },
        { "port", 1, 0, 'o' }, { "tos", 1, 0, 'c' }, { 0 },
    };
    const char *kind = "", *from = NULL, *to = NULL;
    int64_t first_ns = 0, every_ns = 0, drain_ns = 0;
    int sport = 0, dport = 0, port = 0, tos = 0, option;
    size_t payload = 0;
    struct answers all = { .count = 0 };
    struct end own, other;

    if (count < 2)
        refuse("what is to be done: ask or answer");
    optind = 2;
    while ((option = getopt_long(count, words, "", options, NULL)) != -1)
        switch (option) {
        case 'k': kind = optarg; break;
        case 'f': from = optarg; break;
        case 't': to = optarg; break;
        case 's': sport = atoi(optarg); break;
        case 'd': dport = atoi(optarg); break;
        case 'p': payload = strtoul(optarg, NULL, 10); break;
        case 'b': first_ns = atoll(optarg); break;
        case 'e': every_ns = atoll(optarg); break;
        case 'n': all.count = atoll(optarg); break;
        case 'l': drain_ns = atoll(optarg); break;
        case 'o': port = atoi(optarg); break;
        case 'c': tos = atoi(optarg); break;
        default: return 2;
        }
    /* Else a sleep may end up to 50 us late (PR_SET_TIMERSLACK in prctl(2)). */
    if (prctl(PR_SET_TIMERSLACK, 1))
        fail("PR_SET_TIMERSLACK");
    if (!strcmp(words[1], "answer"))
        answer(port);
    if (payload < sizeof(uint32_t) || payload > sizeof packet - HEADER_BYTES)
        refuse("--payload is to be from 4 to 65528");
    all.is_raw = !strcmp(kind, "icmp");
    own = family_of(from, all.is_raw ? 0 : sport);
    other = family_of(to, all.is_raw ? 0 : dport);
    all.answer_type = own.address.ss_family == AF_INET ? ICMP_ECHOREPLY : ICMP6_ECHO_REPLY;
    all.identifier = sport;
    all.missing = all.count;
    all.sent_ns = calloc(all.count + 1, sizeof *all.sent_ns);
    all.answered_ns = calloc(all.count + 1, sizeof *all.answered_ns);
    if (all.sent_ns == NULL || all.answered_ns == NULL)
        fail("memory");
    all.fd = open_socket(own.address.ss_family, all.is_raw);
    if (tos)
        set_tos(all.fd, own.address.ss_family, tos);
    if (bind(all.fd, (struct sockaddr *) &own.address, own.length))
        fail("bind");
    if (connect(all.fd, (struct sockaddr *) &other.address, other.length))
        fail("connect");
    ask(&all, payload, first_ns, every_ns, drain_ns);
    return 0;
}
