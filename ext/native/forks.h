/* Has anything forked? A cheap look at the last pid, probed at the start, and scans of /proc. */
#ifndef JUMPER_FORKS_H
#define JUMPER_FORKS_H

#include "members.h"

enum { MOST_ABSENT = 4096, MOST_OWN = 1024 };

struct forks {
    bool cheap;     /* the last pid is of our own pid namespace, and moves */
    int64_t last;   /* last pid seen; -1: none yet */
    int64_t next_scan;
    int load_fd;
    int absent[MOST_ABSENT]; /* counted, but not in /proc yet, or without an environment of their own, or children of such */
    unsigned char tries[MOST_ABSENT];
    size_t absent_count;
    int exclude[MOST_OWN]; /* the monitor's own processes */
    size_t exclude_count;
    unsigned char *strangers; /* a bit a pid: old processes that no set wanted; NULL: none noted */
    uint64_t scans, looks;
};

void forks_open(struct forks *forks);
void forks_close(struct forks *forks);
/* Find new members of all sets and let them in; returns how many. */
size_t forks_look(struct forks *forks, struct table *table, struct set *sets[], size_t set_count, int64_t now);
/* Whether a look at this time scans everything. */
bool forks_scan_due(const struct forks *forks, int64_t now);
/* The next look scans everything. */
void forks_scan_next(struct forks *forks);
/* The next look finds the children of a process that has just been added: at the pids from its own on where these are
 * few, else by a scan. */
void forks_look_from(struct forks *forks, int pid);

#endif
