/* A tree to watch: spawn COUNT ACTIVE PERIOD_US; children that sleep, of which the first ACTIVE wake every period,
 * and all wake once for each byte on its standard input, which is answered when they have.
 *
 * Says "ready", and ends with all of them when its standard input does. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct shared {
    atomic_int round, woken;
};

static void call_futex(atomic_int *word, int operation, int value)
{
    syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

static void wake_often(long period_us)
{
    struct timespec pause = {.tv_sec = period_us / 1000000, .tv_nsec = period_us % 1000000 * 1000};
    for (;;)
        clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

static void wake_when_told(struct shared *shared)
{
    for (int seen = 0;;) {
        call_futex(&shared->round, FUTEX_WAIT, seen);
        int now = atomic_load(&shared->round);
        if (now == seen)
            continue;
        seen = now;
        atomic_fetch_add(&shared->woken, 1);
    }
}

int main(int count, char **arguments)
{
    if (count != 4)
        return 2;
    int children = atoi(arguments[1]), active = atoi(arguments[2]);
    long period_us = atol(arguments[3]);
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    signal(SIGCHLD, SIG_IGN);
    for (int i = 0; i < children; i++) {
        pid_t pid = fork();
        if (pid < 0)
            return 1;
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(0);
            close(1);
            if (i < active)
                wake_often(period_us);
            wake_when_told(shared);
        }
    }
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {
        atomic_store(&shared->woken, 0);
        atomic_fetch_add(&shared->round, 1);
        call_futex(&shared->round, FUTEX_WAKE, INT_MAX);
        while (atomic_load(&shared->woken) < children - active)
            usleep(50);
        if (write(1, &byte, 1) != 1)
            break;
    }
    return 0;
}
