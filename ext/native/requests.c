/* What everybody else asks of an engine: made, started, asked, drained, stopped, from any thread and after a fork. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state.h"

#define SHORTEST_NS INT64_C(100000) /* no interval is shorter */
#define PATIENCE_NS INT64_C(1000000) /* how long an answer may take that a lock of the caller's is held for */
enum { FEW = 16 }; /* processes that are read in less */

static bool ours(const struct engine *engine) { return engine->started && engine->owner == getpid(); }

/* Under the lock. */
static void post(struct engine *engine, const struct request *request)
{
    engine->asking = true;
    engine->request = *request;
    engine->requested = true;
    engine->done = false;
    pthread_cond_signal(&engine->wake);
}

/* Under the lock; lets the next one ask. */
static int take_answer(struct engine *engine, struct request *request)
{
    int result = engine->done ? engine->request.result : -1;
    memcpy(request->most, engine->request.most, sizeof request->most);
    engine->asking = false;
    pthread_cond_broadcast(&engine->answered);
    return result;
}

static int ask(struct engine *engine, struct request *request)
{
    int result = -1;
    if (!ours(engine))
        return result;
    pthread_mutex_lock(&engine->lock);
    while (engine->asking && !engine->ended)
        pthread_cond_wait(&engine->answered, &engine->lock);
    if (!engine->ended) {
        post(engine, request);
        while (!engine->done && !engine->ended)
            pthread_cond_wait(&engine->answered, &engine->lock);
        result = take_answer(engine, request);
    }
    pthread_mutex_unlock(&engine->lock);
    return result;
}

/* Whether an answer takes no longer than the reading of a few files. */
static bool is_short(const struct engine *engine, const struct request *request)
{
    bool known = request->kind == FINISH && request->number >= 0 && request->number < MOST_SETS;
    return known && engine->sets[request->number].count <= FEW && !forks_scan_due(&engine->forks, now_ns());
}

/* The same for a caller with a lock of its own (the GIL), which it lets go of only where the answer takes long: two
 * changes of that lock's holder cost more than most answers. The engine's thread never takes that lock, and nobody
 * waits for it who has ours. */
static int ask_briefly(struct engine *engine, struct request *request)
{
    const struct settings *settings = &engine->settings;
    if (settings->let_go == NULL)
        return ask(engine, request);
    void *gone = NULL;
    int result = -1;
    if (ours(engine) && pthread_mutex_trylock(&engine->lock) == 0) {
        bool posted = !engine->asking && !engine->ended && is_short(engine, request);
        if (posted) {
            post(engine, request);
            struct timespec until = timespec_of(now_ns() + PATIENCE_NS);
            int waited = 0;
            while (!engine->done && !engine->ended && waited == 0)
                waited = pthread_cond_timedwait(&engine->answered, &engine->lock, &until);
            if (!engine->done && !engine->ended)
                gone = settings->let_go();
            while (!engine->done && !engine->ended)
                pthread_cond_wait(&engine->answered, &engine->lock);
            result = take_answer(engine, request);
        }
        pthread_mutex_unlock(&engine->lock);
        if (gone != NULL)
            settings->take_back(gone);
        if (posted)
            return result;
    }
    gone = settings->let_go();
    result = ask(engine, request);
    settings->take_back(gone);
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
    int failed = pthread_create(&engine->thread, NULL, engine_thread, engine);
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

/* Under the lock. Returns the number of the set, whose processes are read when the thread next looks; -1 for no room. */
static int enter(struct engine *engine, const struct set *wanted)
{
    if (engine->used_count == MOST_SETS || engine->ended)
        return -1;
    int bit = 0;
    while (engine->sets[bit].stream != 0)
        bit++;
    struct set *set = &engine->sets[bit];
    *set = *wanted;
    set->bit = bit;
    for (int i = 0; i < MOST_WIDTH; i++)
        set->most[i] = UNKNOWN;
    set->longest_step = engine->settings.interval_ns;
    set->entered = now_ns();
    set->fresh = set->kind == TREE && set->root > 0;
    engine->alive[bit] = set->kind == OWNER || set->root > 0;
    engine->used[engine->used_count++] = set;
    if (set->fresh && set->parent_count == 0)
        forks_look_from(&engine->forks, set->root);
    else
        forks_scan_next(&engine->forks);
    return bit;
}

static struct set tree_of(int pid, const int *parents, int parent_count, const char *tag)
{
    struct set set = {.kind = TREE, .stream = STREAM_PROCESS, .root = pid};
    for (int i = 0; i < parent_count && i < MOST_EXCLUDED; i++)
        set.parents[set.parent_count++] = parents[i];
    strncpy(set.tag, tag, MOST_TAG - 1);
    return set;
}

static int enter_and_look(struct engine *engine, const struct set *wanted)
{
    if (!ours(engine))
        return -1;
    pthread_mutex_lock(&engine->lock);
    int bit = enter(engine, wanted);
    pthread_mutex_unlock(&engine->lock);
    if (bit >= 0)
        ask(engine, &(struct request){.kind = ADD});
    return bit;
}

int engine_add_tree(struct engine *engine, int pid, const int *parents, int parent_count, const char *tag)
{
    struct set set = tree_of(pid, parents, parent_count, tag);
    return enter_and_look(engine, &set);
}

int engine_add_tree_soon(struct engine *engine, int pid, const int *parents, int parent_count, const char *tag)
{
    struct set set = tree_of(pid, parents, parent_count, tag);
    void *gone = NULL;
    if (!ours(engine))
        return -1;
    if (pthread_mutex_trylock(&engine->lock) != 0) {
        if (engine->settings.let_go != NULL)
            gone = engine->settings.let_go();
        pthread_mutex_lock(&engine->lock);
    }
    int bit = enter(engine, &set);
    int64_t look = now_ns() + FIRST_LOOK_NS;
    if (bit >= 0 && engine->going && look < engine->next_look) {
        engine->next_look = look;
        if (look < engine->sleeps_until)
            pthread_cond_signal(&engine->wake);
    }
    pthread_mutex_unlock(&engine->lock);
    if (gone != NULL)
        engine->settings.take_back(gone);
    return bit;
}

int engine_add_owner(struct engine *engine, int stream, unsigned uid, const char *tag)
{
    struct set set = {.kind = OWNER, .stream = stream, .uid = uid};
    strncpy(set.tag, tag, MOST_TAG - 1);
    return enter_and_look(engine, &set);
}

void engine_remove(struct engine *engine, int set)
{
    ask(engine, &(struct request){.kind = REMOVE, .number = set});
}

bool engine_finish(struct engine *engine, int set, int64_t most[MOST_WIDTH])
{
    struct request request = {.kind = FINISH, .number = set};
    bool done = ask_briefly(engine, &request) == 0;
    memcpy(most, request.most, sizeof request.most);
    return done;
}

void engine_node(struct engine *engine, bool wanted)
{
    if (!ours(engine))
        return;
    pthread_mutex_lock(&engine->lock);
    engine->settings.node = wanted;
    pthread_mutex_unlock(&engine->lock);
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

int engine_text_at_once(struct engine *engine, const char *lines, size_t size)
{
    if (!ours(engine))
        return 0;
    if (pthread_mutex_trylock(&engine->lock) != 0)
        return -1;
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
    struct timespec until = timespec_of(now_ns() + timeout_ns);
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
