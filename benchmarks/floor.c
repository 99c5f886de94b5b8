/* What a tick cannot cost less than: a bare loop that reads the files of a tree and does nothing with them.
 *
 * floor PID KEPT reads stat, statm and io and the CPU clock of PID and its children; KEPT descriptors are kept and
 * read by pread, what goes past them is opened, read and closed. Commands on standard input, answers as lines:
 * "hot PASSES" gives the CPU ns of the passes, back to back; "at INTERVAL_NS TICKS" gives for each tick of an absolute
 * schedule its lateness, the time since the one before, and its CPU, in ns; an empty line ends the answer. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { FILES = 3, MOST = 100000, NOT_KEPT = -1 };

static const char *const NAMES[FILES] = {"stat", "statm", "io"};
static int pids[MOST], fds[MOST][FILES], count, folder;

static int64_t clock_of(clockid_t id)
{
    struct timespec t;
    return clock_gettime(id, &t) == 0 ? t.tv_sec * INT64_C(1000000000) + t.tv_nsec : 0;
}

static int open_file(int pid, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "%d/%s", pid, name);
    return openat(folder, path, O_RDONLY | O_CLOEXEC);
}

static void find(int root)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", root, root);
    FILE *file = fopen(path, "r");
    pids[count++] = root;
    while (file != NULL && count < MOST && fscanf(file, "%d", &pids[count]) == 1)
        count++;
    if (file != NULL)
        fclose(file);
}

static void pass(void)
{
    char text[1024];
    for (int i = 0; i < count; i++) {
        clock_of((clockid_t)((~(unsigned)pids[i] << 3) | 2));
        for (int f = 0; f < FILES; f++) {
            int fd = fds[i][f] != NOT_KEPT ? fds[i][f] : open_file(pids[i], NAMES[f]);
            if (pread(fd, text, sizeof text, 0) <= 0)
                exit(1); /* gone: what is measured is not what was asked for */
            if (fds[i][f] == NOT_KEPT)
                close(fd);
        }
    }
}

static void hot(long passes)
{
    int64_t began = clock_of(CLOCK_THREAD_CPUTIME_ID);
    for (long i = 0; i < passes; i++)
        pass();
    printf("%lld\n\n", (long long)(clock_of(CLOCK_THREAD_CPUTIME_ID) - began));
}

static void scheduled(long interval_ns, long ticks)
{
    int64_t *found = calloc((size_t)ticks, 3 * sizeof *found), due = clock_of(CLOCK_MONOTONIC) + interval_ns, last = 0;
    for (long i = 0; found != NULL && i < ticks; i++, due += interval_ns) {
        struct timespec until = {.tv_sec = due / 1000000000, .tv_nsec = due % 1000000000};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        int64_t now = clock_of(CLOCK_MONOTONIC), began = clock_of(CLOCK_THREAD_CPUTIME_ID);
        pass();
        int64_t tick[] = {now - due, last ? now - last : interval_ns, clock_of(CLOCK_THREAD_CPUTIME_ID) - began};
        memcpy(found + 3 * i, tick, sizeof tick);
        last = now;
    }
    for (long i = 0; found != NULL && i < ticks; i++)
        printf("%lld %lld %lld\n", (long long)found[3 * i], (long long)found[3 * i + 1], (long long)found[3 * i + 2]);
    puts("");
    free(found);
}

int main(int number, char **arguments)
{
    if (number != 3)
        return 2;
    int kept = atoi(arguments[2]);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    folder = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    find(atoi(arguments[1]));
    for (int i = 0; i < count; i++)
        for (int f = 0; f < FILES; f++)
            fds[i][f] = kept-- > 0 ? open_file(pids[i], NAMES[f]) : NOT_KEPT;
    printf("%d\n\n", count);
    fflush(stdout);
    char word[16];
    long first, second;
    while (scanf("%15s", word) == 1) {
        if (strcmp(word, "hot") == 0 && scanf("%ld", &first) == 1)
            hot(first);
        else if (strcmp(word, "at") == 0 && scanf("%ld %ld", &first, &second) == 2)
            scheduled(first, second);
        else
            return 2;
        fflush(stdout);
    }
    return 0;
}
