/* A collector in C: what a shared library must export so that jumper's native engine asks it at every tick.
 *
 * docs/collectors.md, "In C", says how one is built and named in a collectors.yaml. The interface is stable: what
 * changes it changes JUMPER_COLLECTOR_ABI too, and a library of another number is refused, not guessed at.
 *
 * All functions are called by one thread of the engine, which never holds Python's GIL and has a descriptor table of
 * its own: open files in setup, not before. A tick waits for collect, so read and return. Nothing may be printed, no
 * signal handled, no process ended. */
#ifndef JUMPER_COLLECTOR_H
#define JUMPER_COLLECTOR_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define JUMPER_COLLECTOR_ABI 1u

/* Whose row it is; a collector names those that it serves by their sum. */
enum jumper_level {
    JUMPER_PROCESS = 1, /* the target and its whole tree */
    JUMPER_USER = 2,    /* all processes of the user */
    JUMPER_SLURM = 4,   /* the processes of this Slurm job on this node */
    JUMPER_SYSTEM = 8   /* the whole machine */
};

enum jumper_kind {
    JUMPER_GAUGE = 0,  /* a value at an instant */
    JUMPER_COUNTER = 1 /* it only grows; rates are made when it is read */
};

struct jumper_column {
    const char *name; /* letters, digits and _, not beginning with a digit; nobody else's */
    const char *unit; /* such as "bytes", "ns", "1" */
    unsigned kind;
};

struct jumper_collector {
    unsigned abi;    /* JUMPER_COLLECTOR_ABI */
    unsigned levels; /* a sum of jumper_level */
    const char *name;
    const struct jumper_column *columns;
    size_t column_count;

    /* Called once for each series of rows (a level of a target), before its first collect. `config` is the text of
     * the entry's `config`, "" where it has none. Returns 0, or an errno; then `reason` may say more. NULL: nothing
     * to set up, the state is NULL. */
    int (*setup)(const char *config, unsigned level, void **state, char *reason, size_t reason_size);

    /* Called at every tick: fill `values`, one a column, all NaN before; NaN is null. `pids` are the processes of the
     * series, none for JUMPER_SYSTEM; any of them may have ended. Returns 0, or an errno: then the collector is
     * switched off for the rest of the run. */
    int (*collect)(void *state, unsigned level, const int *pids, size_t pid_count, double *values);

    /* Called once for each state that setup made. NULL: nothing to release. */
    void (*teardown)(void *state);
};

#if defined(__GNUC__)
#define JUMPER_EXPORT __attribute__((visibility("default")))
#else
#define JUMPER_EXPORT
#endif

/* The one symbol of the library; what it returns stays valid. */
JUMPER_EXPORT const struct jumper_collector *jumper_collector(void);

#ifdef __cplusplus
}
#endif

#endif
