/* The engine driven from all sides for some seconds, to be run under sanitizers and without: drive SECONDS ENGINES FOLDER.
 *
 * Trees are added and removed, processes and threads come in storms, and everybody asks at the same time. Then
 * so many engines are started and stopped, one after the other. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "native/engine.h"

enum { CHILDREN = 6 };

static struct engine *engine;
static atomic_bool ended;

static void check(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "broken: %s\n", what);
        abort();
    }
}

static void sleep_ns(long ns) { nanosleep(&(struct timespec){.tv_nsec = ns}, NULL); }

/* What callers hold as Python's threads hold the GIL: the engine lets go of it where it would wait long. */
static pthread_mutex_t callers = PTHREAD_MUTEX_INITIALIZER;

static void *let_go(void)
{
    pthread_mutex_unlock(&callers);
    return &callers;
}

static void take_back(void *what) { pthread_mutex_lock(what); }

static struct engine *started(const char *folder, int number, int64_t interval_ns, bool everything)
{
    static struct settings settings;
    int error = 0;
    settings = (struct settings){.interval_ns = interval_ns, .in_target = true, .node = everything,
                                 .queue = everything, .thread_pid = everything ? getpid() : 0,
                                 .schema = "{}", .schema_size = 2, .let_go = let_go, .take_back = take_back};
    snprintf(settings.segment, sizeof settings.segment, "%s/%d.seg", folder, number);
    struct engine *made = engine_new(&settings);
    check(made != NULL && engine_start(made, &error), "an engine does not start");
    check(!engine_start(made, &error) && error != 0, "an engine starts twice");
    return made;
}

/* Children that have children of their own, and that touch the engine that they do not have. */
static void *processes(void *nothing)
{
    while (!ended) {
        for (int i = 0; i < CHILDREN; i++)
            if (fork() == 0) {
                engine_flush(engine);
                engine_stop(engine);
#ifndef __SANITIZE_ADDRESS__ /* its allocator is locked in the child for good where another thread was in it */
                engine_free(engine);
#endif
                if (fork() == 0) {
                    sleep_ns(2000000);
                    _exit(0);
                }
                sleep_ns(1000000L * (i % 4));
                _exit(0);
            }
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        sleep_ns(20000000); /* under sanitizers a fork is slow, and holds up all that reads its memory */
    }
    return nothing;
}

static void *brief(void *argument) { return argument; }

static void *threads(void *nothing)
{
    while (!ended) {
        pthread_t some[8];
        for (int i = 0; i < 8; i++)
            check(pthread_create(&some[i], NULL, brief, NULL) == 0, "no thread");
        for (int i = 0; i < 8; i++)
            pthread_join(some[i], NULL);
        sleep_ns(1000000);
    }
    return nothing;
}

static int entered(int pid, int parent_count, const char *tag)
{
    pthread_mutex_lock(&callers);
    int set = engine_add_tree_soon(engine, pid, (int[]){1}, parent_count, tag);
    pthread_mutex_unlock(&callers);
    return set;
}

static void *roots(void *nothing)
{
    int set[MOST_SETS + 8];
    while (!ended) {
        int count = 0, parents[] = {1};
        for (; count < MOST_SETS + 8 && !ended; count++) {
            const char *tag = count % 8 ? "" : "JUMPER_TAG=1";
            if (count % 9 == 0)
                set[count] = engine_add_owner(engine, STREAM_USER, getuid(), count % 2 ? "" : "A=b");
            else if (count % 3)
                set[count] = entered(getpid(), count % 2, tag);
            else
                set[count] = engine_add_tree(engine, getpid(), parents, count % 2, tag);
        }
        check(ended || set[count - 1] == -1, "more sets than there is room for");
        engine_remove(engine, -1);
        engine_remove(engine, MOST_SETS);
        while (count > 0 && !ended) {
            engine_remove(engine, set[--count]);
            engine_node(engine, count % 2);
        }
        sleep_ns(20000000);
    }
    return nothing;
}

/* Trees of short lives, as jobs have them, from two threads at once. */
static void *jobs(void *nothing)
{
    int64_t most[MOST_WIDTH];
    for (int i = 0; !ended; i++) {
        int pid = fork();
        if (pid == 0) {
            sleep_ns(1000000L * (i % 8));
            _exit(0);
        }
        int set = entered(pid, 0, i % 3 ? "" : "JUMPER_TAG=2");
        sleep_ns(1000000L * (i % 5));
        pthread_mutex_lock(&callers);
        bool known = engine_finish(engine, set, most);
        pthread_mutex_unlock(&callers);
        check(known == (set >= 0), "a tree that was entered is not there at its end");
    }
    return nothing;
}

static void *readers(void *nothing)
{
    enum { SIZE = 1 << 20 };
    int64_t *buffer = malloc(SIZE);
    while (!ended) {
        struct statistics now;
        engine_drain(engine, buffer, SIZE, 1000000);
        engine_members(engine, 0, buffer, SIZE / (MEMBER_WIDTH * sizeof *buffer));
        engine_members(engine, -1, buffer, 1);
        engine_alive(engine, MOST_SETS);
        engine_statistics(engine, &now);
    }
    free(buffer);
    return nothing;
}

static void *stop(void *one)
{
    engine_stop(one);
    return NULL;
}

static void drive(const char *folder, int seconds)
{
    void *(*const work[])(void *) = {processes, threads, roots, readers, jobs, jobs};
    pthread_t workers[sizeof work / sizeof *work], stopper;
    engine = started(folder, 0, 20000000, true);
    int parent = getpid();
    check(engine_add_tree(engine, parent, NULL, 0, "") == 0, "the first tree");
    engine_go(engine);
    for (size_t i = 0; i < sizeof work / sizeof *work; i++)
        check(pthread_create(&workers[i], NULL, work[i], NULL) == 0, "no thread");
    time_t end = time(NULL) + seconds;
    while (time(NULL) < end) {
        engine_text(engine, "{\"type\":\"event\"}\n", 17);
        engine_exclude(engine, 1);
        check(engine_flush(engine) > 0, "nothing written");
        sleep_ns(10000000);
    }
    ended = true;
    for (size_t i = 0; i < sizeof work / sizeof *work; i++)
        pthread_join(workers[i], NULL);
    struct statistics now;
    check(pthread_create(&stopper, NULL, stop, engine) == 0, "no thread");
    engine_stop(engine);
    pthread_join(stopper, NULL);
    engine_stop(engine);
    engine_statistics(engine, &now);
    check(now.error == 0 && now.dropped == 0 && !now.running, "blocks lost");
    engine_free(engine);
    while (wait(NULL) > 0)
        ;
    printf("%ld ticks\n", (long)now.ticks);
}

int main(int count, char **arguments)
{
    if (count != 4)
        return 2;
    const char *folder = arguments[3];
    int engines = atoi(arguments[2]);
    drive(folder, atoi(arguments[1]));
    for (int i = 1; i <= engines; i++) {
        struct engine *one = started(folder, i, 1000000, i % 8 == 0);
        engine_add_tree(one, getpid(), NULL, 0, "");
        engine_go(one);
        engine_stop(one);
        engine_free(one);
    }
    printf("%d engines\n", engines);
    return 0;
}
