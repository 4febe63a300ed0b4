/* Preloaded into ovs-vswitchd where its userspace datapath serves (ld.so(8), LD_PRELOAD).
 *
 * The userspace datapath hands a batch of packets to a port by one sendmmsg(2). When the port's
 * qdisc drops one of them, sendmmsg stops there; Open vSwitch offers that packet a second time
 * and, when it is refused again, throws away the rest of the batch, which the qdisc never sees
 * (lib/netdev-linux.c, netdev_linux_sock_batch_send). That makes one drop into several in a row
 * and lets the qdisc's counter disagree with the packets on the wire. Here every packet is
 * offered exactly once, as a switch does.
 *
 * All ports share one packet socket, and queued packets count against its buffer; with the usual
 * 208 KiB, a long queue at one port would block all others. So packet sockets get larger ones.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>

static const int BUFFER_BYTES = 64 << 20;

int socket(int domain, int type, int protocol)
{
    int (*real)(int, int, int) = (int (*)(int, int, int)) dlsym(RTLD_NEXT, "socket");
    int fd = real(domain, type, protocol);
    if (fd >= 0 && domain == AF_PACKET) {
        int saved = errno;
        setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &BUFFER_BYTES, sizeof BUFFER_BYTES);
        setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &BUFFER_BYTES, sizeof BUFFER_BYTES);
        errno = saved;
    }
    return fd;
}

int sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags)
{
    unsigned int i;
    for (i = 0; i < count; i++) {
        ssize_t sent = sendmsg(fd, &messages[i].msg_hdr, flags);
        if (sent < 0 && errno != ENOBUFS)
            return i > 0 ? (int) i : -1;
        messages[i].msg_len = sent < 0 ? 0 : (unsigned int) sent;
    }
    return (int) count;
}
