/* Preloaded into ovs-vswitchd where the kernel's bridge forwards for it (ld.so(8), LD_PRELOAD).
 *
 * Open vSwitch's userspace datapath reads every frame of every port through a packet socket. A
 * filter on that socket leaves out frames that the port sends (lib/netdev-linux.c). The bridge
 * forwards frames to a single host by Open vSwitch's own entries; see forwarding.py. So this
 * library replaces the filter by one that leaves Open vSwitch only what the bridge does not
 * forward. Without it every frame would be sent twice.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <sys/socket.h>

int setsockopt(int fd, int level, int name, const void *value, socklen_t length)
{
    static struct sock_filter broadcasts[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, SKF_AD_OFF + SKF_AD_PKTTYPE),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_BROADCAST, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0xffffffff),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    static const struct sock_fprog filter = {
        sizeof broadcasts / sizeof broadcasts[0],
        broadcasts,
    };
    int (*real)(int, int, int, const void *, socklen_t)
        = (int (*)(int, int, int, const void *, socklen_t)) dlsym(RTLD_NEXT, "setsockopt");
    if (level == SOL_SOCKET && name == SO_ATTACH_FILTER)
        return real(fd, level, name, &filter, sizeof filter);
    return real(fd, level, name, value, length);
}
