/* PSS of trees of several processes, read in sweeps by a slow thread of its own on a budget.
 *
 * Reading costs about 8 ms a GiB and holds the target's map lock, so it is never done in a tick. PSS of several
 * processes only adds up when all were read at about the same time: a sweep counts only if memory stood still. */
#ifndef JUMPER_SHARING_H
#define JUMPER_SHARING_H

#include <pthread.h>

#include "members.h"

struct share {
    int pid;
    int64_t start, rss;
    uint64_t sets; /* whose it was when the sweep was asked for; bits */
    struct rollup_fields rollup;
    bool known;
};

struct sharing {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool started, stopped;
    struct share *wanted; /* under the lock */
    size_t wanted_count, wanted_capacity;
    struct share *done;   /* the last good sweep, sorted by pid; under the lock */
    size_t done_count;
    int64_t done_ns;
    int64_t wanted_ns, asked_ns; /* when `wanted` was filled, and when what became `done` was */
    unsigned sweep;       /* its number; 0: none yet */
    unsigned told;        /* the last one whose sums the sets were told */
    int64_t cpu_ns;
};

void sharing_open(struct sharing *sharing);
/* Tell the thread to end; it may be reading still. */
void sharing_end(struct sharing *sharing);
/* Wait until it has ended. */
void sharing_join(struct sharing *sharing);
void sharing_close(struct sharing *sharing);
/* Say whose PSS is of interest now, and take over what the last good sweep says of them. */
void sharing_exchange(struct sharing *sharing, struct set *sets[], size_t set_count);
int64_t sharing_cpu_ns(struct sharing *sharing);

#endif
