/* Reading files of /proc: see procfile.h. */
#define _GNU_SOURCE
#include "procfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "parse.h"

enum { FIRST_SIZE = 1 << 16, LONGEST = 16 << 20 };

static int64_t clock_ns(clockid_t id)
{
    struct timespec t;
    return clock_gettime(id, &t) == 0 ? t.tv_sec * INT64_C(1000000000) + t.tv_nsec : UNKNOWN;
}

int64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
int64_t wall_ns(void) { return clock_ns(CLOCK_REALTIME); }
int64_t thread_cpu_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

/* The id of a process's clock: ~pid in the upper bits, CPUCLOCK_SCHED (include/linux/posix-timers.h). */
int64_t process_cpu_ns(int pid) { return clock_ns((clockid_t)((~(unsigned)pid << 3) | 2)); }

int above_standard(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(fd);
    return moved;
}

char *put_number(char *at, unsigned long value)
{
    char digits[24];
    int count = 0;
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    while (count)
        *at++ = digits[--count];
    *at = '\0';
    return at;
}

bool procfs_open(struct procfs *fs, int most_kept)
{
    *fs = (struct procfs){.most = most_kept};
    fs->folder = above_standard(open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    fs->long_text = malloc(FIRST_SIZE);
    fs->long_size = FIRST_SIZE;
    return fs->folder >= 0 && fs->long_text != NULL;
}

void procfs_close(struct procfs *fs)
{
    if (fs->folder >= 0)
        close(fs->folder);
    free(fs->long_text);
    *fs = (struct procfs){.folder = NOT_OPEN};
}

void procfs_forget(struct procfs *fs, int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        fs->kept--;
    }
    *fd = NOT_OPEN;
}

static bool short_of_room(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM; }

ssize_t procfs_read(struct procfs *fs, int pid, const char *name, int *fd, char *buffer, size_t size)
{
    if (*fd >= 0) {
        ssize_t got = pread(*fd, buffer, size, 0);
        if (fs->kept > fs->most)
            procfs_forget(fs, fd);
        return got;
    }
    char path[64];
    char *at = put_number(path, (unsigned long)pid);
    *at++ = '/';
    strncpy(at, name, (size_t)(path + sizeof path - at) - 1);
    path[sizeof path - 1] = '\0';
    int opened = above_standard(openat(fs->folder, path, O_RDONLY | O_CLOEXEC));
    if (opened < 0) {
        if (errno == EACCES || errno == EPERM)
            *fd = NEVER;
        if (errno == EMFILE) /* the limit was lowered, or somebody needs them more */
            fs->most = fs->kept / 2;
        return short_of_room(errno) ? NO_ROOM : -1;
    }
    ssize_t got = pread(opened, buffer, size, 0);
    if (*fd == NOT_OPEN && fs->kept < fs->most && got > 0) {
        *fd = opened;
        fs->kept++;
    } else {
        close(opened);
    }
    return got;
}

const char *procfs_read_long(struct procfs *fs, const char *path, size_t *size)
{
    int fd = openat(fs->folder, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    size_t filled = 0;
    for (;;) {
        if (filled == fs->long_size) {
            char *grown = fs->long_size < LONGEST ? realloc(fs->long_text, fs->long_size * 2) : NULL;
            if (grown == NULL)
                break;
            fs->long_text = grown;
            fs->long_size *= 2;
        }
        ssize_t got = read(fd, fs->long_text + filled, fs->long_size - filled);
        if (got <= 0)
            break;
        filled += (size_t)got;
    }
    close(fd);
    *size = filled;
    return filled ? fs->long_text : NULL;
}
