/* Payloads of random sizes (section 4 of the TCPRand paper) on a connected TCP socket. stream.c
 * uses them, and so does the traffic generator, as a shared library
 * (outcast/emulation/generator/generator.py). */
#include <stdint.h>

struct tcprand;

/* rMin is `least`. If `adaptive` is SIGMA2,MU,NU_TAU,NU_OMEGA,THETA, it follows Algorithm 1
 * instead. Returns NULL if `adaptive` is not five numbers. */
struct tcprand *tcprand_new(uint64_t seed, int least, const char *adaptive);
void tcprand_free(struct tcprand *);

/* Sets the options of a connected socket. Returns 0 or a negative error number. */
int tcprand_open(struct tcprand *, int fd);

/* Sends a batch of payloads, at most `left` bytes if that is not negative. Returns the bytes sent
 * or a negative error number: -EAGAIN if a socket that does not block takes none now. */
int64_t tcprand_send(struct tcprand *, int fd, int64_t left);

/* Gets the smallest and the largest rMin so far, and the number of writes; 0 before the first. */
void tcprand_used(const struct tcprand *, int *from, int *to, int64_t *writes);
