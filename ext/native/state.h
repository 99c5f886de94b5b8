/* The state of an engine, shared by its three files: the thread (engine.c), what a tick does (ticks.c), and what
 * everybody else asks of it (requests.c). */
#ifndef JUMPER_STATE_H
#define JUMPER_STATE_H

#include <pthread.h>
#include <time.h>

#include "engine.h"
#include "rows.h"

enum request_kind { NONE, ADD, REMOVE, FINISH, EXCLUDE, GO, TICK, FLUSH, STOP };

struct request {
    enum request_kind kind;
    int number, result;
    int64_t most[MOST_WIDTH]; /* FINISH: what is answered */
};

struct engine {
    struct settings settings;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake, answered, rows_came;
    int owner; /* the process that started the thread: a fork has no thread */
    bool started, joining, going, stopped, ended;
    struct request request; /* under the lock; one at a time */
    bool asking, requested, done; /* asking: somebody's request is not answered, or its answer not taken */
    char *text; /* under the lock */
    size_t text_size, text_capacity;
    char *queue; /* under the lock */
    size_t queue_size, queue_capacity;
    struct statistics statistics; /* under the lock */
    bool alive[MOST_SETS]; /* under the lock */
    struct set sets[MOST_SETS]; /* under the lock; others than the thread only enter one, or read */
    struct set *used[MOST_SETS];
    size_t used_count;
    struct forks forks; /* under the lock */
    int64_t next_look, sleeps_until; /* under the lock */

    /* from here on: of the thread alone */
    struct table table;
    struct sharing sharing;
    struct node node;
    struct segment segment;
    struct collectors collectors;
    int lock_fd;
    int64_t lock_next, flushed;
    int64_t rested_cpu; /* CPU of the thread when it last went to rest */
    struct rows rows[STREAMS + 1];
};

/* The body of the thread. */
void *engine_thread(void *engine);
/* Take one tick. Under the lock, like all that touches the sets. */
void take_tick(struct engine *engine);
/* Take a row of one set, outside of the ticks. Under the lock. */
void take_row(struct engine *engine, struct set *set);
/* Read the roots of the sets that were entered since. Under the lock. */
void admit_roots(struct engine *engine);
/* Look for new processes and read the young; sets when to look again. Under the lock. */
void look_around(struct engine *engine);
/* Write what is held, at once or when it is due. Under the lock. */
void store_rows(struct engine *engine, int64_t mono, int64_t wall, bool now);
/* Hold text records for the next write; false where there is no room. Under the lock. */
bool keep_text(struct engine *engine, const char *lines, size_t size);

static inline struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

#endif
