/* Reading files of /proc: kept descriptors with pread, else open and read. */
#ifndef JUMPER_PROCFILE_H
#define JUMPER_PROCFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A descriptor is not open, or shall never be kept (too many are, or it may not be read). */
enum { NOT_OPEN = -1, NEVER = -2 };
/* Reading failed for want of descriptors or memory: nothing is said about the process. */
enum { NO_ROOM = -2 };

struct procfs {
    int folder;    /* /proc */
    int kept;      /* descriptors that are kept */
    int most;      /* of them at most */
    char *long_text; /* for files of any length, grown as needed up to LONGEST */
    size_t long_size;
};

bool procfs_open(struct procfs *fs, int most_kept);
void procfs_close(struct procfs *fs);
/* Read PID/NAME into buffer; *fd is opened and kept while there is room. -1: gone or not readable; NO_ROOM. */
ssize_t procfs_read(struct procfs *fs, int pid, const char *name, int *fd, char *buffer, size_t size);
void procfs_forget(struct procfs *fs, int *fd);
/* Read a file of any length below /proc; the text is valid until the next call. NULL: cannot be read. */
const char *procfs_read_long(struct procfs *fs, const char *path, size_t *size);
/* Move a descriptor above 0, 1 and 2: a process that has those closed may fill them at any time. */
int above_standard(int fd);
/* Append the decimal digits of a number; returns the end. */
char *put_number(char *at, unsigned long value);

int64_t now_ns(void);
int64_t wall_ns(void);
int64_t thread_cpu_ns(void);
/* CPU clock of a process, dead threads included; UNKNOWN where it is gone. */
int64_t process_cpu_ns(int pid);

#endif
