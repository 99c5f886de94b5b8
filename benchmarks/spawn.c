/* A tree to watch: spawn COUNT ACTIVE PERIOD_US; children that sleep, of which the first ACTIVE wake every period.
 *
 * Says "ready", and ends with all of them when its standard input does. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static void wake_often(long period_us)
{
    struct timespec pause = {.tv_sec = period_us / 1000000, .tv_nsec = period_us % 1000000 * 1000};
    for (;;)
        clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

int main(int count, char **arguments)
{
    if (count != 4)
        return 2;
    int children = atoi(arguments[1]), active = atoi(arguments[2]);
    long period_us = atol(arguments[3]);
    pid_t parent = getpid();
    signal(SIGCHLD, SIG_IGN);
    for (int i = 0; i < children; i++) {
        pid_t pid = fork();
        if (pid < 0)
            return 1;
        if (pid > 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) /* it ended before that was set */
            return 0;
        close(0);
        close(1);
        if (i < active)
            wake_often(period_us);
        for (;;)
            pause();
    }
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0)
        continue;
    return 0;
}
