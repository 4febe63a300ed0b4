/* Preloaded into iperf (ld.so(8), LD_PRELOAD). It lets the run set the start when all clients have
 * connected.
 *
 * iperf takes the time of its first write only on its command line (--txstart-time). On a slow or
 * busy machine no time chosen beforehand is late enough for all clients to connect. iperf's client
 * connects and then waits for that time by one call of clock_nanosleep(2), in Client::StartSynch.
 * Here that call first waits until the run tells the start, and then until that time.
 *
 * The client also sends the time of its command line, and the server waits for it before it reads.
 * That time no longer holds. So a server, whose OUTCAST_IPERF is `server`, reads at once.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "start.h"

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
    static int told;
    struct timespec start;
    const char *side = getenv("OUTCAST_IPERF");
    int (*real)(clockid_t, int, const struct timespec *, struct timespec *)
        = (int (*)(clockid_t, int, const struct timespec *, struct timespec *)) dlsym(
            RTLD_NEXT, "clock_nanosleep");

    if (clock != CLOCK_REALTIME || flags != TIMER_ABSTIME)
        return real(clock, flags, until, left);
    if (side != NULL && !strcmp(side, "server"))
        return 0;
    if (!told) {
        int64_t start_ns = await_start_ns();

        if (start_ns < 0) {
            fprintf(stderr, "iperf was not told when to start\n");
            _exit(1);
        }
        told = 1;
        start = (struct timespec) { start_ns / 1000000000, start_ns % 1000000000 };
        until = &start;
    }
    return real(clock, flags, until, left);
}
