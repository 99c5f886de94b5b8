/* The thread of an engine: its descriptors, its schedule, the requests that it answers. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "state.h"

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1U << 1)
#endif

/* After a tick, this part of its time passes before the next: where ticks take longer than the interval, whoever waits
 * for the lock would wait for ever. */
#define REST 4
enum { SPARE_DESCRIPTORS = 64, REST_OF_SHARED = 4 };

static bool own_descriptors(void)
{
    if (syscall(SYS_close_range, 0U, ~0U, CLOSE_RANGE_UNSHARE) != 0)
        return false;
    for (int i = 0; i < 3; i++) /* what is written to 0, 1 and 2 by mistake must not land in a segment */
        if (open("/dev/null", O_RDWR | O_CLOEXEC) < 0)
            break;
    return true;
}

static int most_kept(bool private_table)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 0;
    int64_t soft = limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > 1 << 20 ? 1 << 20 : (int64_t)limit.rlim_cur;
    if (!private_table) /* every one is missing in the process that we are a guest of */
        soft /= REST_OF_SHARED;
    return soft > 2 * SPARE_DESCRIPTORS ? (int)(soft - SPARE_DESCRIPTORS) : 0;
}

static void admit_root(struct engine *engine, struct set *set)
{
    set->fresh = false;
    struct process *root = table_add(&engine->table, set->root);
    if (root != NULL)
        set_admit(set, root, now_ns());
    engine->alive[set->bit] = root != NULL;
}

void admit_roots(struct engine *engine)
{
    for (size_t i = 0; i < engine->used_count; i++)
        if (engine->used[i]->fresh)
            admit_root(engine, engine->used[i]);
}

static void remove_set(struct engine *engine, int bit)
{
    if (bit < 0 || bit >= MOST_SETS)
        return;
    for (size_t i = 0; i < engine->used_count; i++)
        if (engine->used[i]->bit == bit) {
            set_free(engine->used[i]);
            engine->used[i] = engine->used[--engine->used_count];
            break;
        }
    collectors_release(&engine->collectors, bit);
    for (size_t i = 0; i < engine->table.count; i++) /* nobody's any more: let go of at the next sweep */
        if (engine->table.order[i]->sets == 0)
            engine->table.order[i]->gone = true;
    table_sweep(&engine->table);
    engine->alive[bit] = false;
}

static void finish_set(struct engine *engine, struct request *request)
{
    request->result = -1;
    for (size_t i = 0; i < engine->used_count && request->result < 0; i++)
        if (engine->used[i]->bit == request->number) {
            take_row(engine, engine->used[i]);
            memcpy(request->most, engine->used[i]->most, sizeof request->most);
            remove_set(engine, request->number);
            request->result = 0;
        }
}

/* Under the lock. */
static void obey(struct engine *engine, int64_t *due)
{
    struct request *request = &engine->request;
    switch (request->kind) {
    case ADD:
        admit_roots(engine);
        break;
    case REMOVE:
        remove_set(engine, request->number);
        break;
    case FINISH:
        finish_set(engine, request);
        break;
    case EXCLUDE:
        if (engine->forks.exclude_count < MOST_OWN)
            engine->forks.exclude[engine->forks.exclude_count++] = request->number;
        break;
    case GO:
        engine->going = true;
        take_tick(engine);
        *due = now_ns() + engine->settings.interval_ns;
        break;
    case TICK:
        for (size_t i = 0; request->number && i < engine->table.count; i++)
            engine->table.order[i]->clock_ns = UNKNOWN;
        take_tick(engine);
        break;
    case FLUSH:
        take_tick(engine);
        store_rows(engine, now_ns(), wall_ns(), true);
        break;
    case STOP:
        engine->stopped = true;
        break;
    case NONE:
        break;
    }
    bool fewer = request->kind == REMOVE || request->kind == FINISH || request->kind == EXCLUDE;
    if (engine->going && !fewer)
        engine->next_look = now_ns();
    engine->requested = false;
    engine->done = true;
    pthread_cond_broadcast(&engine->answered);
}

void *engine_thread(void *argument)
{
    struct engine *engine = argument;
    prctl(PR_SET_NAME, "jumper-engine"); /* so that top and Dask's balance tell it from the process's own threads */
    bool private_table = own_descriptors();
    int64_t due = INT64_MAX, rested = 0;
    pthread_mutex_lock(&engine->lock);
    engine->next_look = INT64_MAX;
    engine->statistics.private_table = private_table;
    bool ready = table_open(&engine->table, most_kept(private_table));
    const struct rows *system = &engine->rows[STREAM_SYSTEM];
    ready &= node_open(&engine->node, (int)(system->columns - system->extra) - 1 - NODE_COLUMNS);
    if (ready && engine->settings.segment[0] != '\0') {
        ready = segment_open(&engine->segment, engine->settings.segment, engine->settings.cap);
        engine->statistics.error = engine->segment.error;
        if (ready)
            segment_block(&engine->segment, BLOCK_SCHEMA, engine->settings.schema, engine->settings.schema_size,
                          now_ns(), wall_ns());
    }
    forks_open(&engine->forks);
    engine->statistics.running = ready;
    engine->done = true;
    pthread_cond_broadcast(&engine->answered);
    while (ready && !engine->stopped) {
        int64_t next_tick = due > rested ? due : rested, now = now_ns();
        int64_t until = next_tick < engine->next_look ? next_tick : engine->next_look;
        engine->sleeps_until = until;
        if (engine->requested) {
            obey(engine, &due);
            engine->rested_cpu = thread_cpu_ns();
        } else if (now >= next_tick) {
            int64_t late = now - due, skipped = late / engine->settings.interval_ns;
            engine->statistics.late_ns = late;
            engine->statistics.missed += skipped;
            due += engine->settings.interval_ns * (skipped + 1);
            take_tick(engine);
            engine->next_look = now_ns();
            rested = engine->next_look + (engine->next_look - now) / REST;
        } else if (now >= engine->next_look) {
            look_around(engine);
        } else if (until == INT64_MAX) {
            pthread_cond_wait(&engine->wake, &engine->lock);
        } else {
            struct timespec t = timespec_of(until);
            pthread_cond_timedwait(&engine->wake, &engine->lock, &t);
        }
    }
    if (ready) {
        if (engine->going)
            take_tick(engine);
        store_rows(engine, now_ns(), wall_ns(), true);
    }
    segment_close(&engine->segment);
    engine->statistics.size = engine->segment.size;
    engine->statistics.dropped = engine->segment.dropped;
    engine->statistics.error = engine->segment.error;
    engine->statistics.running = false;
    sharing_end(&engine->sharing);
    for (size_t i = 0; i < engine->used_count; i++)
        set_free(engine->used[i]);
    engine->used_count = 0;
    collectors_close(&engine->collectors);
    forks_close(&engine->forks);
    node_close(&engine->node);
    table_close(&engine->table);
    if (engine->lock_fd >= 0)
        close(engine->lock_fd);
    engine->ended = true;
    pthread_cond_broadcast(&engine->answered);
    pthread_cond_broadcast(&engine->rows_came);
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}
