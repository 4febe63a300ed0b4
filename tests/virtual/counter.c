/* What programs find in the processor's time stamp counter. Every line is `name number...`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define WHOLE_SECONDS 0x2000000

static sigjmp_buf back;

static void caught(int number)
{
    siglongjmp(back, number);
}

static int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int64_t rdtsc(void)
{
    uint64_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high) : "0"(~0UL), "1"(~0UL));
    return (int64_t)(high << 32 | low);
}

static int64_t rdtscp(uint64_t *processor)
{
    uint64_t low, high;
    __asm__ volatile("rdtscp" : "=a"(low), "=d"(high), "=c"(*processor) : "0"(~0UL), "1"(~0UL), "2"(~0UL));
    return (int64_t)(high << 32 | low);
}

static void around_a_sleep(const char *who)
{
    uint64_t processor;
    int64_t clock = clock_ns(), first = rdtsc(), second = rdtscp(&processor);
    nanosleep(&(struct timespec){0, 10000000}, NULL);
    int64_t slept = clock_ns() - clock;
    printf("%s %ld %ld %ld %ld %ld\n", who, first - clock, second - clock, slept,
           rdtsc() - first, rdtscp(&processor) - second);
    printf("processor %ld\n", (long)processor);
}

static void *in_a_thread(void *unused)
{
    around_a_sleep("thread");
    return unused;
}

/* Runs bytes that end where a page ends, or go on in the next one; what they return less the clock. */
static long run(const char *bytes, size_t size, size_t in_first, int has_second)
{
    char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *code = pages + PAGE - in_first;
    memcpy(code, bytes, size);
    if (!has_second)
        munmap(pages + PAGE, PAGE);
    mprotect(pages, PAGE, PROT_EXEC);
    int number = sigsetjmp(back, 1);
    if (number)
        return -number;
    return (uint32_t)((uint64_t(*)(void))code)() - (uint32_t)clock_ns();
}

int main(int count, char **words)
{
    signal(SIGSEGV, caught);
    setbuf(stdout, NULL);
    around_a_sleep(count > 1 ? words[1] : "first");
    if (count > 1)
        return 0;
    if (fork() == 0) {
        around_a_sleep("forked");
        execl("/proc/self/exe", words[0], "executed", NULL);
    }
    wait(NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, in_a_thread, NULL);
    pthread_join(thread, NULL);

    printf("plain %ld\n", run("\x0f\x31\xc3", 3, 3, 1));
    printf("split %ld\n", run("\x0f\x31\xc3", 3, 1, 1));
    printf("split %ld\n", run("\x0f\x01\xf9\xc3", 4, 2, 1));
    printf("prefixed %ld\n", run("\xf3\x66\x2e\x48\x0f\x31\xc3", 7, 7, 1));
    printf("last %ld\n", run("\xeb\x01\xc3\x0f\x31\xeb\xfb", 7, 7, 0));
    printf("halt %ld\n", run("\xf4\xc3", 2, 2, 1));
    printf("halt %ld\n", run("\x2e\xf4", 2, 2, 0));
    printf("too-long %ld\n", run("\x2e\x2e\x2e\x2e\x2e\x2e\x2e\x2e\x2e\x2e\x2e\x2e\x2e\x2e\x0f\x31\xc3", 17, 17, 1));

    personality(personality(-1) | WHOLE_SECONDS);
    int64_t began = rdtsc();
    while (rdtsc() - began < 1000000)
        ;
    printf("spun %ld\n", clock_ns() - began);
    return 0;
}
