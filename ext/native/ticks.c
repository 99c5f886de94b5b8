/* What the engine's thread does at a tick and between two: rows taken, queued, written. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state.h"

/* Looks for new processes between ticks: while there are young ones, and else; and what they may cost. */
#define YOUNG_LOOK_NS INT64_C(20000000)
#define QUIET_LOOK_NS INT64_C(50000000)
/* A look, its wake-up included, is followed by so many times its cost of rest: 0.2 % of a core, 0.05 % while nothing
 * is young. The few looks that a new tree's root has come on top: a tree of some ten milliseconds has no others. */
#define YOUNG_REST 500
#define QUIET_REST 2000
#define LOCK_RETRY_NS INT64_C(10000000000)
enum { MOST_QUEUED = 8 << 20, MOST_TEXT = 4 << 20, MOST_HELD = 64 << 10 };

static bool holds_node(struct engine *engine, int64_t now)
{
    if (!engine->settings.node) { /* somebody else may take it now */
        if (engine->lock_fd >= 0)
            close(engine->lock_fd);
        engine->lock_fd = NOT_OPEN;
        engine->lock_next = 0;
        return false;
    }
    if (engine->settings.node_lock[0] == '\0' || engine->lock_fd >= 0)
        return true;
    if (now < engine->lock_next)
        return false;
    engine->lock_next = now + LOCK_RETRY_NS;
    int fd = above_standard(open(engine->settings.node_lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fd < 0 || fcntl(fd, F_SETLK, &lock) != 0) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    engine->lock_fd = fd;
    return true;
}

static void add_monitor_row(struct engine *engine, int64_t mono, int64_t pss)
{
    struct statistics *s = &engine->statistics;
    int64_t cpu = thread_cpu_ns() + pss, rss = UNKNOWN, shared;
    if (!engine->settings.in_target) {
        struct timespec t;
        char text[256];
        int once = NEVER;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        cpu = t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
        ssize_t got = procfs_read(&engine->table.fs, getpid(), "statm", &once, text, sizeof text);
        rss = got > 0 && parse_statm(text, (size_t)got, &rss, &shared) ? rss * engine->table.page : UNKNOWN;
    }
    s->cpu_ns = cpu;
    s->pss_cpu_ns = pss;
    s->dropped = engine->segment.dropped;
    s->rows_lost = 0;
    for (int stream = 1; stream <= STREAMS; stream++)
        s->rows_lost += engine->rows[stream].lost;
    int64_t row[] = {mono, getpid(), cpu, rss, s->ticks, s->missed, s->late_ns, pss,
                     s->dropped + s->queue_lost + s->rows_lost};
    rows_add(&engine->rows[STREAM_MONITOR], row, sizeof row / sizeof *row);
}

/* Under the lock. A reader that does not come loses the rows that there is no room for, counted. */
static void enqueue(struct engine *engine, int stream, const struct rows *rows)
{
    size_t width = (2 + rows->columns) * sizeof(int64_t);
    for (size_t i = 0; i < rows->count; i++) {
        if (engine->queue_size + width > engine->queue_capacity) {
            size_t capacity = engine->queue_capacity ? engine->queue_capacity * 2 : 1 << 16;
            char *grown = capacity <= MOST_QUEUED ? realloc(engine->queue, capacity) : NULL;
            if (grown == NULL || engine->queue_size + width > capacity) {
                engine->statistics.queue_lost++;
                if (grown != NULL) {
                    engine->queue = grown;
                    engine->queue_capacity = capacity;
                }
                continue;
            }
            engine->queue = grown;
            engine->queue_capacity = capacity;
        }
        int64_t head[] = {stream, (int64_t)rows->columns};
        memcpy(engine->queue + engine->queue_size, head, sizeof head);
        memcpy(engine->queue + engine->queue_size + sizeof head, rows->values + i * rows->columns,
               rows->columns * sizeof(int64_t));
        engine->queue_size += width;
    }
}

/* Bytes of rows that are not written yet. */
static size_t held(const struct engine *engine)
{
    size_t sum = 0;
    for (int stream = 1; stream <= STREAMS; stream++)
        sum += engine->rows[stream].count * engine->rows[stream].columns * sizeof(int64_t);
    return sum;
}

/* Under the lock. */
void store_rows(struct engine *engine, int64_t mono, int64_t wall, bool now)
{
    if (engine->settings.segment[0] != '\0') {
        if (engine->text_size > 0) {
            segment_block(&engine->segment, BLOCK_TEXT, engine->text, engine->text_size, mono, wall);
            engine->text_size = 0;
        }
        if (now || mono - engine->flushed >= engine->settings.flush_ns || held(engine) >= MOST_HELD) {
            engine->flushed = mono;
            for (int stream = 1; stream <= STREAMS; stream++) {
                struct rows *rows = &engine->rows[stream];
                segment_rows(&engine->segment, stream, rows->values, rows->count, rows->columns, mono, wall);
                rows->count = 0;
            }
            segment_flush(&engine->segment);
        }
    } else {
        for (int stream = 1; stream <= STREAMS; stream++)
            engine->rows[stream].count = 0;
    }
    engine->statistics.size = engine->segment.size;
    engine->statistics.error = engine->segment.error;
    engine->statistics.dropped = engine->segment.dropped;
}

/* Under the lock. Text records are kept for the next block; false where there is no room. */
bool keep_text(struct engine *engine, const char *lines, size_t size)
{
    bool fits = engine->text_size + size <= MOST_TEXT && !engine->ended;
    if (fits && engine->text_size + size > engine->text_capacity) {
        size_t capacity = engine->text_capacity ? engine->text_capacity : 4096;
        while (capacity < engine->text_size + size)
            capacity *= 2;
        char *grown = realloc(engine->text, capacity);
        fits = grown != NULL;
        if (fits) {
            engine->text = grown;
            engine->text_capacity = capacity;
        }
    }
    if (fits) {
        memcpy(engine->text + engine->text_size, lines, size);
        engine->text_size += size;
    } else {
        engine->segment.dropped++;
    }
    return fits;
}

/* Let C collectors fill their part of the row that was added last, where one was added. */
static void extend(struct engine *engine, int stream, const struct set *set, size_t before)
{
    struct rows *rows = &engine->rows[stream];
    if (rows->extra > 0 && rows->count > before)
        collectors_collect(&engine->collectors, stream, set, engine->settings.interval_ns,
                           rows->values + rows->count * rows->columns - rows->extra);
}

/* Under the lock, like all that touches the sets. */
void take_tick(struct engine *engine)
{
    int64_t own = thread_cpu_ns(), mono = now_ns(), wall = wall_ns();
    size_t before[STREAMS + 1];
    for (int stream = 1; stream <= STREAMS; stream++)
        before[stream] = engine->rows[stream].count;
    admit_roots(engine);
    forks_look(&engine->forks, &engine->table, engine->used, engine->used_count, mono);
    table_read(&engine->table, mono);
    int64_t pss = sharing_cpu_ns(&engine->sharing);
    int64_t inside = engine->settings.in_target ? own + pss : 0;
    for (size_t i = 0; i < engine->used_count; i++)
        set_settle(engine->used[i]);
    sharing_exchange(&engine->sharing, engine->used, engine->used_count);
    for (size_t i = 0; i < engine->used_count; i++) {
        struct reading reading;
        set_take(engine->used[i], &reading);
        int stream = engine->used[i]->stream;
        size_t rows = engine->rows[stream].count;
        rows_add_set(engine->rows, engine->used[i], &reading, mono, inside);
        extend(engine, stream, engine->used[i], rows);
        engine->alive[engine->used[i]->bit] = engine->used[i]->count > 0;
    }
    table_sweep(&engine->table);
    if (holds_node(engine, mono)) {
        node_read(&engine->node, &engine->table.fs);
        rows_add_node(engine->rows, &engine->node, mono);
        extend(engine, STREAM_SYSTEM, NULL, before[STREAM_SYSTEM]);
    }
    if (engine->settings.thread_pid > 0)
        rows_add_threads(engine->rows, &engine->table.fs, engine->settings.thread_pid, mono);
    char line[MOST_EVENT];
    for (size_t size; (size = collectors_event(&engine->collectors, mono, wall, line, sizeof line)) > 0;)
        if (engine->settings.segment[0] != '\0')
            keep_text(engine, line, size);
    engine->statistics.ticks++;
    engine->statistics.processes = (int64_t)engine->table.count;
    engine->statistics.kept_descriptors = engine->table.fs.kept;
    engine->statistics.refused = engine->table.refused;
    engine->statistics.scans = (int64_t)engine->forks.scans;
    engine->statistics.looks = (int64_t)engine->forks.looks;
    add_monitor_row(engine, mono, pss);
    if (engine->settings.queue)
        for (int stream = 1; stream <= STREAMS; stream++) {
            struct rows fresh = engine->rows[stream];
            fresh.count -= before[stream];
            if (fresh.count == 0)
                continue;
            fresh.values += before[stream] * fresh.columns;
            enqueue(engine, stream, &fresh);
        }
    pthread_cond_broadcast(&engine->rows_came);
    store_rows(engine, mono, wall, false);
    engine->rested_cpu = thread_cpu_ns();
}

/* Under the lock. */
void take_row(struct engine *engine, struct set *set)
{
    int64_t own = thread_cpu_ns(), mono = now_ns();
    admit_roots(engine); /* of all: a new process is looked at once, and by then its parent has to be known */
    forks_look(&engine->forks, &engine->table, engine->used, engine->used_count, mono);
    for (size_t i = 0; i < set->count; i++) {
        struct process *process = set->members[i].process;
        process->gone = process->gone || !process_read(&engine->table, process, mono, true);
    }
    set_settle(set);
    struct reading reading;
    for (size_t i = 0; i < engine->used_count; i++) /* what was found for the others may be gone at their next look */
        if (engine->used[i]->grown)
            set_measure(engine->used[i], &reading);
    set_take(set, &reading);
    size_t rows = engine->rows[set->stream].count;
    int64_t inside = engine->settings.in_target ? own + sharing_cpu_ns(&engine->sharing) : 0;
    rows_add_set(engine->rows, set, &reading, mono, inside);
    extend(engine, set->stream, set, rows);
}

void look_around(struct engine *engine)
{
    int64_t now = now_ns(), next = INT64_MAX, roots = INT64_MAX;
    admit_roots(engine);
    if (engine->forks.cheap)
        forks_look(&engine->forks, &engine->table, engine->used, engine->used_count, now);
    for (size_t i = 0; i < engine->used_count; i++) {
        int64_t due = set_look_early(engine->used[i], &engine->table, now, &roots);
        next = due < next ? due : next;
    }
    bool young = next != INT64_MAX;
    int64_t before = engine->rested_cpu;
    engine->rested_cpu = thread_cpu_ns();
    int64_t rested = now + (engine->rested_cpu - before) * (young ? YOUNG_REST : QUIET_REST);
    if (engine->forks.cheap) {
        int64_t regular = now + (young ? YOUNG_LOOK_NS : QUIET_LOOK_NS);
        next = regular < next ? regular : next;
    }
    next = next < rested ? rested : next;
    engine->next_look = next < roots ? next : roots;
}
