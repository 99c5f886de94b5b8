/* PSS in sweeps: see sharing.h. */
#define _GNU_SOURCE
#include "sharing.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Share of one core that reading may take, and what may be spent at once. */
#define BUDGET 0.005
#define CREDIT_NS 100000000.0
/* A sweep is taken again when it is older than this, or memory has changed by this part since. */
#define REFRESH_NS INT64_C(2000000000)
#define CHANGED 0.05
/* How much memory may change while a sweep is taken. */
#define STEADY 0.02
enum { LARGE = 4096 };

static bool steady(int64_t a, int64_t b, double part)
{
    double larger = (double)(a > b ? a : b);
    return (double)(a > b ? a - b : b - a) <= part * larger;
}

static int by_pid(const void *a, const void *b)
{
    return ((const struct share *)a)->pid - ((const struct share *)b)->pid;
}

static const struct share *find(const struct share *shares, size_t count, int pid, int64_t start)
{
    struct share key = {.pid = pid};
    const struct share *found = count ? bsearch(&key, shares, count, sizeof key, by_pid) : NULL;
    return found != NULL && found->start == start ? found : NULL;
}

/* Under the lock. */
static bool due(const struct sharing *sharing, int64_t now)
{
    if (sharing->wanted_count == 0)
        return false;
    if (sharing->sweep == 0 || now - sharing->done_ns > REFRESH_NS)
        return true;
    int64_t before = 0, after = 0;
    for (size_t i = 0; i < sharing->wanted_count; i++) {
        const struct share *wanted = &sharing->wanted[i];
        const struct share *known = find(sharing->done, sharing->done_count, wanted->pid, wanted->start);
        if (known == NULL)
            return true;
        after += wanted->rss;
        before += known->rollup.rss;
    }
    return !steady(before, after, CHANGED);
}

static int64_t resident(struct procfs *fs, const struct share *shares, size_t count)
{
    int64_t page = sysconf(_SC_PAGESIZE);
    int64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        char text[256];
        int once = NEVER;
        int64_t rss, shared;
        ssize_t got = procfs_read(fs, shares[i].pid, "statm", &once, text, sizeof text);
        if (got > 0 && parse_statm(text, (size_t)got, &rss, &shared))
            sum += rss * page;
    }
    return sum;
}

static bool take(const struct sharing *sharing, struct procfs *fs, struct share *shares, size_t count)
{
    int64_t before = resident(fs, shares, count);
    for (size_t i = 0; i < count && !__atomic_load_n(&sharing->stopped, __ATOMIC_RELAXED); i++) {
        char text[LARGE];
        int once = NEVER;
        ssize_t got = procfs_read(fs, shares[i].pid, "smaps_rollup", &once, text, sizeof text);
        shares[i].known = got > 0 && parse_rollup(text, (size_t)got, &shares[i].rollup);
    }
    return steady(before, resident(fs, shares, count), STEADY);
}

static void wait_ns(struct sharing *sharing, int64_t pause)
{
    struct timespec until;
    int64_t at = now_ns() + pause;
    until.tv_sec = at / 1000000000;
    until.tv_nsec = at % 1000000000;
    pthread_cond_timedwait(&sharing->wake, &sharing->lock, &until);
}

static void *run(void *argument)
{
    struct sharing *sharing = argument;
    struct procfs fs;
    double credit = CREDIT_NS;
    int64_t last = now_ns();
    if (!procfs_open(&fs, 0)) {
        procfs_close(&fs);
        return NULL;
    }
    pthread_mutex_lock(&sharing->lock);
    while (!sharing->stopped) {
        int64_t now = now_ns();
        if (!due(sharing, now)) {
            wait_ns(sharing, 500000000);
            continue;
        }
        credit += (double)(now - last) * BUDGET;
        credit = credit > CREDIT_NS ? CREDIT_NS : credit;
        last = now;
        if (credit <= 0) {
            double pause = 50000000.0 - credit / BUDGET;
            wait_ns(sharing, (int64_t)(pause < 5e8 ? pause : 5e8));
            continue;
        }
        size_t count = sharing->wanted_count;
        struct share *shares = malloc(count * sizeof *shares);
        if (shares == NULL)
            break;
        memcpy(shares, sharing->wanted, count * sizeof *shares);
        int64_t asked = sharing->wanted_ns;
        pthread_mutex_unlock(&sharing->lock);
        int64_t began = thread_cpu_ns();
        bool good = take(sharing, &fs, shares, count);
        qsort(shares, count, sizeof *shares, by_pid);
        credit -= (double)(thread_cpu_ns() - began);
        pthread_mutex_lock(&sharing->lock);
        sharing->cpu_ns = thread_cpu_ns();
        if (good) {
            free(sharing->done);
            sharing->done = shares;
            sharing->done_count = count;
            sharing->done_ns = now_ns();
            sharing->asked_ns = asked;
            sharing->sweep++;
        } else {
            free(shares);
            wait_ns(sharing, 10000000);
        }
    }
    pthread_mutex_unlock(&sharing->lock);
    procfs_close(&fs);
    return NULL;
}

void sharing_open(struct sharing *sharing)
{
    *sharing = (struct sharing){0};
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&sharing->lock, NULL);
    pthread_cond_init(&sharing->wake, &attributes);
    pthread_condattr_destroy(&attributes);
}

void sharing_end(struct sharing *sharing)
{
    pthread_mutex_lock(&sharing->lock);
    __atomic_store_n(&sharing->stopped, true, __ATOMIC_RELAXED);
    pthread_cond_signal(&sharing->wake);
    pthread_mutex_unlock(&sharing->lock);
}

void sharing_join(struct sharing *sharing)
{
    if (sharing->started)
        pthread_join(sharing->thread, NULL);
    sharing->started = false;
}

void sharing_close(struct sharing *sharing)
{
    sharing_end(sharing);
    sharing_join(sharing);
    pthread_cond_destroy(&sharing->wake);
    pthread_mutex_destroy(&sharing->lock);
    free(sharing->wanted);
    free(sharing->done);
}

int64_t sharing_cpu_ns(struct sharing *sharing)
{
    pthread_mutex_lock(&sharing->lock);
    int64_t cpu = sharing->cpu_ns;
    pthread_mutex_unlock(&sharing->lock);
    return cpu;
}

static bool want(struct sharing *sharing, const struct process *process)
{
    if (sharing->wanted_count == sharing->wanted_capacity) {
        size_t capacity = sharing->wanted_capacity ? sharing->wanted_capacity * 2 : 64;
        struct share *grown = realloc(sharing->wanted, capacity * sizeof *grown);
        if (grown == NULL)
            return false;
        sharing->wanted = grown;
        sharing->wanted_capacity = capacity;
    }
    sharing->wanted[sharing->wanted_count++] =
        (struct share){.pid = process->pid, .start = process->start, .rss = process->rss, .sets = process->sets};
    return true;
}

/* Under the lock. A sweep is a sample of its own: who was in it may be gone at the next tick. */
static void tell_sums(struct sharing *sharing, struct set *sets[], size_t set_count)
{
    for (size_t i = 0; i < set_count && sharing->told != sharing->sweep; i++) {
        int64_t sum = 0;
        for (size_t j = 0; j < sharing->done_count; j++)
            if (sharing->done[j].known && (sharing->done[j].sets >> sets[i]->bit & 1))
                sum += sharing->done[j].rollup.pss;
        if (sets[i]->kind == TREE && sets[i]->entered < sharing->asked_ns && sum > sets[i]->used_peak)
            sets[i]->used_peak = sum;
    }
    sharing->told = sharing->sweep;
}

void sharing_exchange(struct sharing *sharing, struct set *sets[], size_t set_count)
{
    pthread_mutex_lock(&sharing->lock);
    tell_sums(sharing, sets, set_count);
    sharing->wanted_count = 0;
    sharing->wanted_ns = now_ns();
    for (size_t i = 0; i < set_count; i++) {
        if (sets[i]->kind != TREE)
            continue;
        for (size_t j = 0; j < sets[i]->count; j++) {
            struct process *process = sets[i]->members[j].process;
            if (process->rss == 0)
                continue;
            const struct share *known = find(sharing->done, sharing->done_count, process->pid, process->start);
            process->sweep = known != NULL && known->known ? sharing->sweep : 0;
            if (process->sweep)
                process->rollup = known->rollup;
            if (sets[i]->count > 1 && !want(sharing, process))
                break;
        }
    }
    if (sharing->wanted_count > 0 && !sharing->started)
        sharing->started = pthread_create(&sharing->thread, NULL, run, sharing) == 0;
    else if (sharing->started && due(sharing, now_ns()))
        pthread_cond_signal(&sharing->wake);
    pthread_mutex_unlock(&sharing->lock);
}
