/* Start a command so that its high-water mark is its own, and so that whoever asked for it is its parent.
 *
 *     _spawn FD -- COMMAND [ARGUMENT ...]
 *
 * ru_maxrss starts at the peak of the process that forked (see shim.c). This program is small, and the command is
 * its child in memory only: CLONE_PARENT makes it a child of this program's own parent (clone(2)), which waits for
 * it, signals it and reaps it as if it had started it itself.
 *
 * FD gets one record of two 32-bit numbers in the machine's byte order: the command's pid, and errno where it could
 * not be executed (then that pid is dead, to be reaped). The command does not inherit FD. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WRONG_USE = 125, NOT_FOUND = 127, STACK_BYTES = 64 << 10 };

struct start {
    char **arguments;
    volatile int error; /* written by the child, in our memory */
};

static int run(void *argument)
{
    struct start *start = argument;
    execv(start->arguments[0], start->arguments);
    start->error = errno;
    _exit(NOT_FOUND);
}

int main(int argc, char **argv)
{
    static char stack[STACK_BYTES] __attribute__((aligned(16)));
    static const char usage[] = "_spawn: expected FD -- COMMAND...; jumper starts it so\n";
    char *end = NULL;
    long fd = argc >= 4 ? strtol(argv[1], &end, 10) : -1;
    if (argc < 4 || strcmp(argv[2], "--") != 0 || end == argv[1] || *end != '\0' ||
        fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0) {
        if (write(2, usage, sizeof usage - 1) < 0)
            return WRONG_USE;
        return WRONG_USE;
    }
    struct start start = {.arguments = argv + 3};
    int32_t record[2];
    record[0] = clone(run, stack + STACK_BYTES, CLONE_VM | CLONE_VFORK | CLONE_PARENT | SIGCHLD, &start);
    record[1] = record[0] < 0 ? errno : start.error;
    return write((int)fd, record, sizeof record) == sizeof record ? 0 : WRONG_USE;
}
