/* The native engine: see engine.h. */
#define _GNU_SOURCE
#include "engine.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "rows.h"

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1U << 1)
#endif

/* Looks for new processes between ticks: while there are young ones, and else; and what they may cost. */
#define YOUNG_LOOK_NS INT64_C(20000000)
#define QUIET_LOOK_NS INT64_C(50000000)
#define LOOK_BUDGET 500 /* a look is followed by so many times its cost of rest */
#define SHORTEST_NS INT64_C(100000) /* no interval is shorter */
/* After a tick, this part of its time passes before the next: where ticks take longer than the interval, whoever waits
 * for the lock would wait for ever. */
#define REST 4
#define LOCK_RETRY_NS INT64_C(10000000000)
enum { MOST_QUEUED = 8 << 20, MOST_TEXT = 4 << 20, MOST_HELD = 64 << 10, SPARE_DESCRIPTORS = 64, REST_OF_SHARED = 4 };

enum request_kind { NONE, ADD, REMOVE, EXCLUDE, GO, TICK, FLUSH, STOP };

struct request {
    enum request_kind kind;
    struct set set;
    int number, result;
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

    /* from here on: of the thread alone */
    struct table table;
    struct forks forks;
    struct sharing sharing;
    struct node node;
    struct segment segment;
    struct collectors collectors;
    struct set sets[MOST_SETS];
    struct set *used[MOST_SETS];
    size_t used_count;
    int lock_fd;
    int64_t lock_next, flushed, own_cpu;
    struct rows rows[STREAMS + 1];
};

static struct timespec at(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

/* ---- of the thread -------------------------------------------------------------------------------------- */

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

static bool holds_node(struct engine *engine, int64_t now)
{
    if (!engine->settings.node)
        return false;
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
    int64_t cpu = engine->own_cpu + pss, rss = UNKNOWN, shared;
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
    int64_t row[] = {mono, getpid(), cpu, rss, s->ticks, s->missed, s->late_ns, pss, s->dropped + s->queue_lost};
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
static void store(struct engine *engine, int64_t mono, int64_t wall, bool now)
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
static bool keep_text(struct engine *engine, const char *lines, size_t size)
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
static void tick(struct engine *engine)
{
    int64_t began = thread_cpu_ns(), mono = now_ns(), wall = wall_ns();
    size_t before[STREAMS + 1];
    for (int stream = 1; stream <= STREAMS; stream++)
        before[stream] = engine->rows[stream].count;
    forks_look(&engine->forks, &engine->table, engine->used, engine->used_count, mono);
    table_read(&engine->table, mono, false);
    int64_t pss = sharing_cpu_ns(&engine->sharing);
    int64_t inside = engine->settings.in_target ? engine->own_cpu + pss : 0;
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
    engine->own_cpu += thread_cpu_ns() - began;
    add_monitor_row(engine, mono, pss);
    began = thread_cpu_ns();
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
    store(engine, mono, wall, false);
    engine->own_cpu += thread_cpu_ns() - began;
}

/* Look for new processes and read the young; returns when to look again. */
static int64_t look(struct engine *engine)
{
    int64_t began = thread_cpu_ns(), now = now_ns(), next = INT64_MAX;
    if (engine->forks.cheap)
        forks_look(&engine->forks, &engine->table, engine->used, engine->used_count, now);
    for (size_t i = 0; i < engine->used_count; i++) {
        int64_t due = set_look_early(engine->used[i], &engine->table, now);
        next = due < next ? due : next;
    }
    bool young = next != INT64_MAX;
    int64_t cost = thread_cpu_ns() - began;
    engine->own_cpu += cost;
    if (engine->forks.cheap) {
        int64_t regular = now + (young ? YOUNG_LOOK_NS : QUIET_LOOK_NS);
        next = regular < next ? regular : next;
    }
    return next != INT64_MAX && next < now + cost * LOOK_BUDGET ? now + cost * LOOK_BUDGET : next;
}

static int add_set(struct engine *engine, struct set *wanted)
{
    if (engine->used_count == MOST_SETS)
        return -1;
    int bit = 0;
    while (engine->sets[bit].stream != 0)
        bit++;
    struct set *set = &engine->sets[bit];
    *set = *wanted;
    set->bit = bit;
    set->longest_step = engine->settings.interval_ns;
    engine->alive[bit] = true;
    if (set->kind == TREE) {
        struct process *root = table_add(&engine->table, set->root);
        if (root != NULL)
            set_admit(set, root, now_ns());
        engine->alive[bit] = root != NULL;
    }
    engine->used[engine->used_count++] = set;
    forks_scan_next(&engine->forks);
    return bit;
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

/* Under the lock. */
static void obey(struct engine *engine, int64_t *due)
{
    struct request *request = &engine->request;
    switch (request->kind) {
    case ADD:
        request->result = add_set(engine, &request->set);
        break;
    case REMOVE:
        remove_set(engine, request->number);
        break;
    case EXCLUDE:
        if (engine->forks.exclude_count < MOST_EXCLUDED)
            engine->forks.exclude[engine->forks.exclude_count++] = request->number;
        break;
    case GO:
        engine->going = true;
        tick(engine);
        *due = now_ns() + engine->settings.interval_ns;
        break;
    case TICK:
        for (size_t i = 0; request->number && i < engine->table.count; i++)
            engine->table.order[i]->clock_ns = UNKNOWN;
        tick(engine);
        break;
    case FLUSH:
        tick(engine);
        store(engine, now_ns(), wall_ns(), true);
        break;
    case STOP:
        engine->stopped = true;
        break;
    case NONE:
        break;
    }
    engine->requested = false;
    engine->done = true;
    pthread_cond_broadcast(&engine->answered);
}

static void *run(void *argument)
{
    struct engine *engine = argument;
    bool private_table = own_descriptors();
    int64_t due = INT64_MAX, rested = 0, next_look = INT64_MAX;
    pthread_mutex_lock(&engine->lock);
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
        int64_t until = next_tick < next_look ? next_tick : next_look;
        if (engine->requested) {
            obey(engine, &due);
            next_look = engine->going ? now : INT64_MAX;
        } else if (now >= next_tick) {
            int64_t late = now - due, skipped = late / engine->settings.interval_ns;
            engine->statistics.late_ns = late;
            engine->statistics.missed += skipped;
            due += engine->settings.interval_ns * (skipped + 1);
            tick(engine);
            next_look = now_ns();
            rested = next_look + (next_look - now) / REST;
        } else if (now >= next_look) {
            next_look = look(engine);
        } else if (until == INT64_MAX) {
            pthread_cond_wait(&engine->wake, &engine->lock);
        } else {
            struct timespec t = at(until);
            pthread_cond_timedwait(&engine->wake, &engine->lock, &t);
        }
    }
    if (ready) {
        if (engine->going)
            tick(engine);
        store(engine, now_ns(), wall_ns(), true);
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

/* ---- of everybody else ---------------------------------------------------------------------------------- */

static bool ours(const struct engine *engine) { return engine->started && engine->owner == getpid(); }

static int ask(struct engine *engine, const struct request *request)
{
    int result = -1;
    if (!ours(engine))
        return result;
    pthread_mutex_lock(&engine->lock);
    while (engine->asking && !engine->ended)
        pthread_cond_wait(&engine->answered, &engine->lock);
    if (!engine->ended) {
        engine->asking = true;
        engine->request = *request;
        engine->requested = true;
        engine->done = false;
        pthread_cond_signal(&engine->wake);
        while (!engine->done && !engine->ended)
            pthread_cond_wait(&engine->answered, &engine->lock);
        result = engine->done ? engine->request.result : -1;
        engine->asking = false;
        pthread_cond_broadcast(&engine->answered);
    }
    pthread_mutex_unlock(&engine->lock);
    return result;
}

struct engine *engine_new(const struct settings *settings)
{
    struct engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL)
        return NULL;
    engine->settings = *settings;
    if (engine->settings.interval_ns < SHORTEST_NS)
        engine->settings.interval_ns = SHORTEST_NS;
    char *schema = malloc(settings->schema_size ? settings->schema_size : 1);
    if (schema == NULL) {
        free(engine);
        return NULL;
    }
    if (settings->schema_size)
        memcpy(schema, settings->schema, settings->schema_size);
    engine->settings.schema = schema;
    engine->lock_fd = NOT_OPEN;
    engine->segment.fd = NOT_OPEN;
    for (int stream = 1; stream <= STREAMS; stream++)
        engine->rows[stream].columns = stream_width(stream, (int)sysconf(_SC_NPROCESSORS_CONF));
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->wake, &attributes);
    pthread_cond_init(&engine->answered, &attributes);
    pthread_cond_init(&engine->rows_came, &attributes);
    pthread_condattr_destroy(&attributes);
    sharing_open(&engine->sharing);
    return engine;
}

bool engine_add_collector(struct engine *engine, const struct collector *wanted)
{
    if (engine->owner != 0 || !collectors_add(&engine->collectors, wanted))
        return false;
    for (int stream = 1; stream <= STREAMS; stream++) {
        struct rows *rows = &engine->rows[stream];
        size_t width = collectors_width(&engine->collectors, stream);
        rows->columns += width - rows->extra;
        rows->extra = width;
    }
    return true;
}

void engine_collector_reason(struct engine *engine, size_t index, char *reason, size_t size)
{
    reason[0] = '\0';
    if (engine->owner != getpid())
        return;
    pthread_mutex_lock(&engine->lock);
    if (index < engine->collectors.count && engine->collectors.all[index]->off)
        snprintf(reason, size, "%s", engine->collectors.all[index]->reason);
    pthread_mutex_unlock(&engine->lock);
}

bool engine_start(struct engine *engine, int *error)
{
    sigset_t all, before;
    if (engine->owner != 0) { /* a second thread would not find the first one's descriptors */
        *error = EALREADY;
        return false;
    }
    engine->owner = getpid();
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* no signal of the process is ever handled by our thread */
    int failed = pthread_create(&engine->thread, NULL, run, engine);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        engine->owner = 0;
        *error = failed;
        return false;
    }
    engine->started = true;
    pthread_mutex_lock(&engine->lock);
    while (!engine->done && !engine->ended)
        pthread_cond_wait(&engine->answered, &engine->lock);
    bool running = engine->statistics.running;
    *error = engine->statistics.error ? engine->statistics.error : ENOENT;
    pthread_mutex_unlock(&engine->lock);
    return running;
}

int engine_add_tree(struct engine *engine, int pid, const int *parents, int parent_count, const char *tag)
{
    struct request request = {.kind = ADD, .set = {.kind = TREE, .stream = STREAM_PROCESS, .root = pid}};
    for (int i = 0; i < parent_count && i < MOST_EXCLUDED; i++)
        request.set.parents[request.set.parent_count++] = parents[i];
    strncpy(request.set.tag, tag, MOST_TAG - 1);
    return ask(engine, &request);
}

int engine_add_owner(struct engine *engine, int stream, unsigned uid, const char *tag)
{
    struct request request = {.kind = ADD, .set = {.kind = OWNER, .stream = stream, .uid = uid}};
    strncpy(request.set.tag, tag, MOST_TAG - 1);
    return ask(engine, &request);
}

void engine_remove(struct engine *engine, int set)
{
    ask(engine, &(struct request){.kind = REMOVE, .number = set});
}

void engine_exclude(struct engine *engine, int pid) { ask(engine, &(struct request){.kind = EXCLUDE, .number = pid}); }
void engine_go(struct engine *engine) { ask(engine, &(struct request){.kind = GO}); }
void engine_tick(struct engine *engine, bool all) { ask(engine, &(struct request){.kind = TICK, .number = all}); }

bool engine_text(struct engine *engine, const char *lines, size_t size)
{
    if (!ours(engine))
        return false;
    pthread_mutex_lock(&engine->lock);
    bool fits = keep_text(engine, lines, size);
    pthread_mutex_unlock(&engine->lock);
    return fits;
}

int64_t engine_flush(struct engine *engine)
{
    ask(engine, &(struct request){.kind = FLUSH});
    struct statistics now;
    engine_statistics(engine, &now);
    return now.size;
}

void engine_stop(struct engine *engine)
{
    if (!ours(engine))
        return;
    ask(engine, &(struct request){.kind = STOP});
    pthread_mutex_lock(&engine->lock);
    bool mine = !engine->joining;
    engine->joining = true;
    while (!mine && engine->started)
        pthread_cond_wait(&engine->answered, &engine->lock);
    pthread_mutex_unlock(&engine->lock);
    if (!mine)
        return;
    pthread_join(engine->thread, NULL);
    sharing_join(&engine->sharing);
    pthread_mutex_lock(&engine->lock);
    engine->started = false;
    pthread_cond_broadcast(&engine->answered);
    pthread_mutex_unlock(&engine->lock);
}

void engine_free(struct engine *engine)
{
    if (engine == NULL)
        return;
    if (engine->started && engine->owner != getpid())
        return; /* a fork: the thread is not here, and its locks may be held for ever */
    engine_stop(engine);
    sharing_close(&engine->sharing);
    collectors_free(&engine->collectors);
    for (int stream = 1; stream <= STREAMS; stream++)
        free(engine->rows[stream].values);
    pthread_cond_destroy(&engine->wake);
    pthread_cond_destroy(&engine->answered);
    pthread_cond_destroy(&engine->rows_came);
    pthread_mutex_destroy(&engine->lock);
    free(engine->text);
    free(engine->queue);
    free((char *)engine->settings.schema);
    free(engine);
}

size_t engine_drain(struct engine *engine, int64_t *buffer, size_t size, int64_t timeout_ns)
{
    if (engine->owner != getpid())
        return 0;
    pthread_mutex_lock(&engine->lock);
    struct timespec until = at(now_ns() + timeout_ns);
    while (engine->queue_size == 0 && engine->started && !engine->ended && timeout_ns > 0)
        if (pthread_cond_timedwait(&engine->rows_came, &engine->lock, &until) == ETIMEDOUT)
            break;
    size_t moved = 0;
    while (moved < engine->queue_size) {
        int64_t head[2];
        memcpy(head, engine->queue + moved, sizeof head);
        size_t width = (2 + (size_t)head[1]) * sizeof(int64_t);
        if (moved + width > size)
            break;
        moved += width;
    }
    if (moved > 0) {
        memcpy(buffer, engine->queue, moved);
        engine->queue_size -= moved;
        memmove(engine->queue, engine->queue + moved, engine->queue_size);
    }
    pthread_mutex_unlock(&engine->lock);
    return moved;
}

size_t engine_members(struct engine *engine, int set, int64_t *buffer, size_t most)
{
    size_t count = 0;
    if (!ours(engine) || set < 0 || set >= MOST_SETS)
        return 0;
    pthread_mutex_lock(&engine->lock);
    const struct set *members = &engine->sets[set];
    for (size_t i = 0; !engine->ended && i < members->count && count < most; i++) {
        const struct process *process = members->members[i].process;
        int64_t *row = buffer + MEMBER_WIDTH * count++;
        row[0] = process->pid;
        row[1] = process->own[0] + process->dead[0];
        row[2] = process->rss;
        memcpy(row + 3, process->own + CPU_PARTS, 6 * sizeof *row);
    }
    pthread_mutex_unlock(&engine->lock);
    return count;
}

void engine_statistics(struct engine *engine, struct statistics *out)
{
    if (engine->owner != 0 && engine->owner != getpid()) {
        *out = (struct statistics){0};
        return;
    }
    pthread_mutex_lock(&engine->lock);
    *out = engine->statistics;
    pthread_mutex_unlock(&engine->lock);
}

bool engine_alive(struct engine *engine, int set)
{
    if (!ours(engine) || set < 0 || set >= MOST_SETS)
        return false;
    pthread_mutex_lock(&engine->lock);
    bool alive = engine->alive[set] && !engine->ended;
    pthread_mutex_unlock(&engine->lock);
    return alive;
}
