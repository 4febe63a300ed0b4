/* How a connected sender learns when to begin.
 *
 * It says `ready` in a line of its standard output, where iperf may have written part of another
 * line. Then the start comes on its standard input: a line in decimal, in nanoseconds of the common
 * clock (CLOCK_REALTIME).
 */
#ifndef OUTCAST_START_H
#define OUTCAST_START_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

/* Waits for the start and returns it; -1 if the input ends before. */
static inline int64_t await_start_ns(void)
{
    static const char ready[] = "\nready\n";
    char line[32];
    size_t length = 0;

    if (write(STDOUT_FILENO, ready, sizeof ready - 1) != sizeof ready - 1)
        return -1;
    while (length < sizeof line - 1) {
        ssize_t got = read(STDIN_FILENO, line + length, 1);

        if (got < 0 && errno == EINTR)
            continue;
        if (got != 1)
            return -1;
        if (line[length] == '\n') {
            line[length] = 0;
            return atoll(line);
        }
        length++;
    }
    return -1;
}

#endif
