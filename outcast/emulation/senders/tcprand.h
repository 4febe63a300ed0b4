/* Payloads of random sizes (section 4 of the TCPRand paper), on a connected TCP socket; used by
 * stream.c, and as a shared library by the traffic generator (outcast/emulation/generator/generator.py). */
#include <stdint.h>

struct tcprand;

/* rMin is `least`, or by Algorithm 1 where `adaptive` is SIGMA2,MU,NU_TAU,NU_OMEGA,THETA; NULL
 * where that is not five numbers. */
struct tcprand *tcprand_new(uint64_t seed, int least, const char *adaptive);
void tcprand_free(struct tcprand *);

/* Sets the socket's options, once it is connected. 0 or a negative error number. */
int tcprand_open(struct tcprand *, int fd);

/* Sends a batch of payloads, at most `left` bytes if that is not negative. The bytes sent, or a
 * negative error number; of a socket that does not block, -EAGAIN where it takes none now. */
int64_t tcprand_send(struct tcprand *, int fd, int64_t left);

/* The smallest and the largest rMin so far, and the number of writes; all 0 before the first. */
void tcprand_used(const struct tcprand *, int *from, int *to, int64_t *writes);
