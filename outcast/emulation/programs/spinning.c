/* Preloaded into programs in the virtual engine (ld.so(8), LD_PRELOAD). It lets virtual time pass
 * for a program that waits by reading the clock in a loop, as iperf3 does between two messages.
 *
 * The guest's clock stands still while a program computes, and a reading costs a nanosecond. So such
 * a loop would need a million readings for each millisecond. After MANY readings less than NEAR_NS
 * apart, each further one first sleeps for STEP_NS. Any other wait of the program ends that.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define MANY 1000
#define NEAR_NS 1000
#define STEP_NS 50000

static __thread int64_t last_ns;
static __thread unsigned readings;

static int64_t now_ns(void)
{
    struct timespec now;

    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
}

static void count_reading(void)
{
    const struct timespec step = {0, STEP_NS};
    int64_t t_ns = now_ns();

    readings = t_ns - last_ns > NEAR_NS ? 0 : readings + 1;
    if (readings >= MANY) {
        syscall(SYS_nanosleep, &step, NULL);
        t_ns = now_ns();
    }
    last_ns = t_ns;
}

int clock_gettime(clockid_t clock, struct timespec *to)
{
    /* The other clocks count the CPU's time, which does not pass here. */
    if (clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_RAW
        || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_MONOTONIC_COARSE
        || clock == CLOCK_BOOTTIME)
        count_reading();
    return (int) syscall(SYS_clock_gettime, clock, to);
}

int gettimeofday(struct timeval *restrict to, void *restrict zone)
{
    count_reading();
    return (int) syscall(SYS_gettimeofday, to, zone);
}

time_t time(time_t *to)
{
    struct timespec now;

    count_reading();
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
    if (to != NULL)
        *to = now.tv_sec;
    return now.tv_sec;
}
