/* Processes that are watched: see process.h. */
#define _GNU_SOURCE
#include "process.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* A process whose CPU clock stands still did not run: its old values stand, but for its memory, which others may
 * reclaim; that is read every so many passes. */
enum { MEMORY_EVERY = 30 };
/* Nothing enters a process's memory without a page fault, but for what khugepaged fills in, and stat shows its RSS but
 * for some pages a CPU: where neither has changed, statm is what it was; what little left is seen this late. */
#define STATM_EVERY_NS INT64_C(4900000000)
/* VmHWM and swap cost more than all else together: at most so often, but after so many page faults. */
#define STATUS_EVERY_NS INT64_C(900000000)
/* A mark cannot rise without a page fault; where none came and RSS is the same, at least so often. */
#define STATUS_STILL_NS INT64_C(9900000000)
enum { MANY_FAULTS = 256, SAME_PAGES = 16, YOUNG_PASSES = 16 };
enum { SMALL = 1024, LARGE = 4096, FIRST_CAPACITY = 256 };

static size_t slot_of(const struct table *table, int pid)
{
    return ((unsigned)pid * 2654435761u) & (table->capacity - 1);
}

static void put(struct table *table, struct process *process)
{
    size_t i = slot_of(table, process->pid);
    while (table->slots[i] != NULL)
        i = (i + 1) & (table->capacity - 1);
    table->slots[i] = process;
}

static bool rebuild(struct table *table, size_t capacity)
{
    struct process **slots = calloc(capacity, sizeof *slots);
    if (slots == NULL)
        return false;
    free(table->slots);
    table->slots = slots;
    table->capacity = capacity;
    for (size_t i = 0; i < table->count; i++)
        put(table, table->order[i]);
    return true;
}

bool table_open(struct table *table, int most_kept)
{
    *table = (struct table){.tick_ns = 1000000000 / sysconf(_SC_CLK_TCK), .page = sysconf(_SC_PAGESIZE)};
    return procfs_open(&table->fs, most_kept) && rebuild(table, FIRST_CAPACITY);
}

static void release(struct table *table, struct process *process)
{
    procfs_forget(&table->fs, &process->stat_fd);
    procfs_forget(&table->fs, &process->statm_fd);
    procfs_forget(&table->fs, &process->io_fd);
    free(process);
}

void table_close(struct table *table)
{
    for (size_t i = 0; i < table->count; i++)
        release(table, table->order[i]);
    free(table->order);
    free(table->slots);
    procfs_close(&table->fs);
    *table = (struct table){.fs = {.folder = NOT_OPEN}};
}

struct process *table_find(const struct table *table, int pid)
{
    for (size_t i = slot_of(table, pid); table->slots[i] != NULL; i = (i + 1) & (table->capacity - 1))
        if (table->slots[i]->pid == pid && !table->slots[i]->gone)
            return table->slots[i];
    return NULL;
}

struct process *table_add(struct table *table, int pid)
{
    struct process *known = table_find(table, pid);
    if (known != NULL)
        return known;
    if (table->count >= MOST_PROCESSES) {
        table->refused++;
        return NULL;
    }
    if (table->count == table->order_capacity) {
        size_t capacity = table->order_capacity ? table->order_capacity * 2 : 64;
        struct process **order = realloc(table->order, capacity * sizeof *order);
        if (order == NULL)
            return NULL;
        table->order = order;
        table->order_capacity = capacity;
    }
    if ((table->count + 1) * 2 > table->capacity && !rebuild(table, table->capacity * 2))
        return NULL;
    struct process *process = calloc(1, sizeof *process);
    if (process == NULL)
        return NULL;
    process->pid = pid;
    process->is_self = pid == getpid();
    process->clock_ns = UNKNOWN;
    process->stat_fd = process->statm_fd = process->io_fd = NOT_OPEN;
    if (!process_read(table, process, now_ns(), true)) {
        release(table, process);
        return NULL;
    }
    if (table->count > 0) {
        const struct process *last = table->order[table->count - 1];
        if (last->start > process->start || (last->start == process->start && last->pid > pid))
            table->unsorted = true;
    }
    table->order[table->count++] = process;
    put(table, process);
    return process;
}

/* A child of vfork runs in its parent's memory until it has exec'ed: the parent counts it. A fork has the same stack
 * too, but not the file pages that its parent had touched. */
static bool has_parents_memory(struct table *table, const struct process *process, int64_t resident, int64_t shared)
{
    char text[SMALL];
    int64_t theirs, their_shared;
    if (process->stack == 0 || process->ppid == process->pid || process->passes > YOUNG_PASSES)
        return false;
    struct process *parent = table_find(table, process->ppid);
    if (parent == NULL || parent->stack != process->stack)
        return false;
    ssize_t got = procfs_read(&table->fs, parent->pid, "statm", &parent->statm_fd, text, sizeof text);
    return got > 0 && parse_statm(text, (size_t)got, &theirs, &their_shared) && llabs(resident - theirs) <= SAME_PAGES &&
           llabs(shared - their_shared) <= SAME_PAGES;
}

/* Whether statm must say what it said last; the young are read, as they may be about to exec. */
static bool same_memory(const struct process *process, int64_t now)
{
    return process->passes > YOUNG_PASSES && now - process->statm_ns < STATM_EVERY_NS &&
           process->faults == process->statm_faults && process->shown_rss == process->statm_shown;
}

/* Returns false where the memory is the parent's. */
static bool read_statm(struct table *table, struct process *process, int64_t now)
{
    char text[SMALL];
    int64_t resident, shared;
    ssize_t got = procfs_read(&table->fs, process->pid, "statm", &process->statm_fd, text, sizeof text);
    if (got > 0 && parse_statm(text, (size_t)got, &resident, &shared)) {
        if (has_parents_memory(table, process, resident, shared)) {
            process->rss = process->anon = 0;
            return false;
        }
        process->rss = resident * table->page;
        process->anon = resident > shared ? (resident - shared) * table->page : 0;
        process->statm_ns = now;
        process->statm_faults = process->faults;
        process->statm_shown = process->shown_rss;
    }
    return true;
}

static void read_memory(struct table *table, struct process *process, int64_t now, bool full)
{
    char text[LARGE];
    if ((full || !same_memory(process, now)) && !read_statm(table, process, now))
        return;
    if (process->rss > process->hwm)
        process->hwm = process->rss;
    bool touched = process->minflt - process->marked_minflt > MANY_FAULTS;
    bool still = process->minflt == process->marked_minflt && process->rss == process->marked_rss;
    if (!full && !touched && now - process->status_ns < (still ? STATUS_STILL_NS : STATUS_EVERY_NS))
        return;
    process->status_ns = now;
    process->marked_minflt = process->minflt;
    process->marked_rss = process->rss;
    int once = NEVER;
    ssize_t got = procfs_read(&table->fs, process->pid, "status", &once, text, sizeof text);
    if (got <= 0)
        return;
    const char *status = text;
    size_t size = (size_t)got;
    if (size == sizeof text) { /* a user of very many groups: what we look for stands behind them */
        char path[32];
        strcpy(put_number(path, (unsigned long)process->pid), "/status");
        status = procfs_read_long(&table->fs, path, &size);
        if (status == NULL)
            return;
    }
    int64_t hwm = parse_line(status, size, "VmHWM:"), swap = parse_line(status, size, "VmSwap:");
    if (hwm > 0 && hwm * 1024 > process->hwm)
        process->hwm = hwm * 1024;
    process->swap = swap > 0 ? swap * 1024 : 0;
}

static void read_io(struct table *table, struct process *process)
{
    char text[SMALL];
    struct io_fields io;
    if (process->io_fd == NEVER)
        return;
    ssize_t got = procfs_read(&table->fs, process->pid, "io", &process->io_fd, text, sizeof text);
    if (got <= 0 || !parse_io(text, (size_t)got, &io))
        return;
    process->io_known = true;
    int64_t values[] = {io.read_chars, io.write_chars, io.reads, io.writes, io.read_bytes, io.write_bytes};
    memcpy(process->own + CPU_PARTS, values, sizeof values);
}

static bool is_dead(const struct process *process) { return process->state == 'Z' || process->state == 'X'; }

bool process_read(struct table *table, struct process *process, int64_t now, bool full)
{
    int64_t clock = process_cpu_ns(process->pid);
    unsigned pass = process->passes++ + (unsigned)process->pid;
    if (!process->is_self && clock != UNKNOWN && clock == process->clock_ns) {
        if (!full && pass % MEMORY_EVERY == 0 && !is_dead(process)) {
            process->statm_ns = now - STATM_EVERY_NS;
            read_memory(table, process, now, false);
        }
        return true;
    }
    char text[SMALL];
    struct stat_fields stat;
    ssize_t got = procfs_read(&table->fs, process->pid, "stat", &process->stat_fd, text, sizeof text);
    if (got == NO_ROOM && process->start && clock != UNKNOWN) { /* not gone: the other old values stand */
        process->own[0] = clock;
        return true;
    }
    if (got <= 0 || !parse_stat(text, (size_t)got, &stat) || (process->start && stat.start != process->start))
        return false;
    process->clock_ns = clock;
    process->ppid = (int)stat.ppid;
    process->start = stat.start;
    process->state = stat.state;
    process->stack = stat.stack;
    process->threads = stat.threads;
    process->session = (int)stat.session;
    process->minflt = stat.minflt;
    process->faults = plus(stat.minflt, stat.majflt);
    process->shown_rss = stat.rss;
    process->cminflt = stat.cminflt;
    int64_t user = stat.utime * table->tick_ns, system = stat.stime * table->tick_ns;
    process->own[0] = clock != UNKNOWN ? clock : user + system;
    process->own[1] = user;
    process->own[2] = system;
    process->dead[1] = stat.cutime * table->tick_ns;
    process->dead[2] = stat.cstime * table->tick_ns;
    process->dead[0] = process->dead[1] + process->dead[2];
    if (process->is_self) { /* our own dead children: to the microsecond */
        struct rusage usage;
        if (getrusage(RUSAGE_CHILDREN, &usage) == 0) {
            process->dead[1] = usage.ru_utime.tv_sec * INT64_C(1000000000) + usage.ru_utime.tv_usec * 1000;
            process->dead[2] = usage.ru_stime.tv_sec * INT64_C(1000000000) + usage.ru_stime.tv_usec * 1000;
            process->dead[0] = process->dead[1] + process->dead[2];
        }
    }
    if (is_dead(process)) {
        process->rss = process->anon = process->swap = 0;
        if (process->io_fd >= 0) /* a zombie's cannot be opened without privilege, but read */
            read_io(table, process);
        return true;
    }
    read_memory(table, process, now, full);
    read_io(table, process);
    return true;
}

static int by_age(const void *a, const void *b)
{
    const struct process *x = *(struct process *const *)a, *y = *(struct process *const *)b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

void table_read(struct table *table, int64_t now)
{
    if (table->unsorted) {
        qsort(table->order, table->count, sizeof *table->order, by_age);
        table->unsorted = false;
    }
    bool died = false;
    for (size_t i = 0; i < table->count; i++) {
        struct process *process = table->order[i];
        bool alive = !is_dead(process);
        process->gone = process->gone || !process_read(table, process, now, false);
        died |= process->gone || (alive && is_dead(process)); /* also who was found gone between two ticks */
    }
    for (size_t i = 0; died && i < table->count; i++) { /* who sleeps has another parent now: read it again */
        struct process *process = table->order[i];
        const struct process *parent = table_find(table, process->ppid);
        if (parent == NULL || is_dead(parent))
            process->clock_ns = UNKNOWN;
    }
}

void table_sweep(struct table *table)
{
    size_t kept = 0;
    for (size_t i = 0; i < table->count; i++) {
        struct process *process = table->order[i];
        if (process->gone && process->sets == 0)
            release(table, process);
        else
            table->order[kept++] = process;
    }
    if (kept != table->count) {
        table->count = kept;
        memset(table->slots, 0, table->capacity * sizeof *table->slots);
        for (size_t i = 0; i < kept; i++)
            put(table, table->order[i]);
    }
}
