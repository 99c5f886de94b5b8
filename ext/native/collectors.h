/* Collectors in C: shared libraries of users, loaded and called by the engine's thread, each failing alone. */
#ifndef JUMPER_COLLECTORS_H
#define JUMPER_COLLECTORS_H

#include "jumper_collector.h"
#include "members.h"

enum { MOST_COLLECTORS = 16, MOST_REASON = 256, MOST_EVENT = 4096 };

struct collector {
    char *path, *config;
    char *name, *origin; /* as they stand in JSON text */
    unsigned levels;     /* what it was said to serve and to fill; what it says itself must be the same */
    size_t columns;
    const struct jumper_collector *code; /* NULL: not loaded yet */
    void *states[MOST_SETS + 1];         /* by the bit of the set; the last one is the machine's */
    bool ready[MOST_SETS + 1];
    int slow;
    bool off, told;
    char reason[MOST_REASON];
};

struct collectors {
    struct collector *all[MOST_COLLECTORS];
    size_t count, pid_capacity;
    int *pids;
};

/* Note a library, to be loaded at its first tick; false where there are too many or there is no memory. */
bool collectors_add(struct collectors *collectors, const struct collector *wanted);
/* How many values they add to a row of a stream. */
size_t collectors_width(const struct collectors *collectors, int stream);
/* Fill those values as the bits of doubles, UNKNOWN where there is none. `set` is NULL for the machine. */
void collectors_collect(struct collectors *collectors, int stream, const struct set *set, int64_t interval_ns,
                        int64_t *values);
/* Write the event of one that was switched off since, a line of JSON; 0: none was. */
size_t collectors_event(struct collectors *collectors, int64_t mono, int64_t wall, char *line, size_t size);
/* A set is no more: tear down what belongs to it. */
void collectors_release(struct collectors *collectors, int bit);
/* Tear down all, in the thread that set it up. The libraries stay loaded: their code may have threads. */
void collectors_close(struct collectors *collectors);
void collectors_free(struct collectors *collectors);

#endif
