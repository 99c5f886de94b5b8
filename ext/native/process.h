/* Processes that are watched, each read once a pass, parents before their children. */
#ifndef JUMPER_PROCESS_H
#define JUMPER_PROCESS_H

#include "parse.h"
#include "procfile.h"

/* cpu, user, system in ns; then the six counters of /proc/PID/io */
enum { WIDTH = 9, CPU_PARTS = 3 };
/* More processes than this are not watched; what is left out is counted. */
enum { MOST_PROCESSES = 200000 };

struct process {
    int pid, ppid, session;
    int64_t start;
    char state;
    uint64_t stack;
    int64_t threads, rss, anon, hwm, hwm_told, swap, minflt, cminflt;
    int64_t marked_minflt, marked_rss; /* when VmHWM was read last: what was touched later is unseen */
    int64_t faults, shown_rss, statm_faults, statm_shown, statm_ns; /* now, and when statm was read last */
    int64_t own[WIDTH], dead[CPU_PARTS];
    int64_t clock_ns, status_ns;
    bool gone, is_self, io_known;
    uint64_t sets;    /* it is a member of, a bit each */
    unsigned passes;
    int stat_fd, statm_fd, io_fd;
    struct rollup_fields rollup;
    unsigned sweep;   /* of the rollup; 0: none */
};

struct table {
    struct process **slots; /* open addressing by pid */
    struct process **order; /* parents first: by start time, then pid */
    size_t capacity, count, order_capacity;
    bool unsorted;
    int64_t refused;
    struct procfs fs;
    int64_t tick_ns, page;
};

bool table_open(struct table *table, int most_kept);
void table_close(struct table *table);
struct process *table_find(const struct table *table, int pid);
/* Begin to watch a process; NULL where it is gone (or there is no room). */
struct process *table_add(struct table *table, int pid);
/* Read every process once. Sets `gone`. */
void table_read(struct table *table, int64_t now);
/* Read one process, unless it did not run since the last time; false where it is gone. `full`: also what is not read
 * every time. */
bool process_read(struct table *table, struct process *process, int64_t now, bool full);
/* Forget processes that are gone and that no set uses any more. */
void table_sweep(struct table *table);

#endif
