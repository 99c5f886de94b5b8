/* Has anything forked? See forks.h. */
#define _GNU_SOURCE
#include "forks.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Pids end below this (PID_MAX_LIMIT, proc_sys_kernel(5)). */
enum { PIDS = 1 << 22 };
/* Who is older and was not wanted will not be: neither its environment nor its parent becomes ours any more. */
#define STRANGER_NS INT64_C(10000000000)
/* More sessions than this, and everybody is looked at. */
enum { MOST_SESSIONS = 64 };
/* Between fork and exec a process shows its parent's environment. Source: include/linux/sched.h, PF_FORKNOEXEC. */
#define FORKED_ONLY 0x40
/* What our own processes have in their environment: no set that goes by environments lets them in. */
#define OWN_TAG "JUMPER_AGENT=1"
/* More new pids than this in one look, and a scan is cheaper. */
enum { SPAN = 2000, RETRIES = 3, RETRIES_FORKED = 250, ROUNDS = 3, SMALL = 1024 };
#define SCAN_EVERY_NS INT64_C(10000000000)
#define SCAN_SOON_NS INT64_C(100000000)

static int64_t last_pid(const struct forks *forks)
{
    char text[128];
    ssize_t got = pread(forks->load_fd, text, sizeof text, 0);
    return got > 0 ? parse_last_pid(text, (size_t)got) : -1;
}

static void *nothing(void *argument) { return argument; }

void forks_open(struct forks *forks)
{
    *forks = (struct forks){.last = -1, .load_fd = above_standard(open("/proc/loadavg", O_RDONLY | O_CLOEXEC))};
    int64_t before = last_pid(forks);
    pthread_t probe;
    if (before >= 0 && pthread_create(&probe, NULL, nothing, NULL) == 0) {
        pthread_join(probe, NULL);
        forks->cheap = last_pid(forks) != before; /* containers fake the file */
    }
}

void forks_close(struct forks *forks)
{
    if (forks->load_fd >= 0)
        close(forks->load_fd);
    free(forks->strangers);
    *forks = (struct forks){.load_fd = NOT_OPEN};
}

static void forget_strangers(struct forks *forks)
{
    free(forks->strangers);
    forks->strangers = NULL;
}

void forks_scan_next(struct forks *forks)
{
    forks->next_scan = 0;
    forget_strangers(forks);
}

bool forks_scan_due(const struct forks *forks, int64_t now)
{
    return !forks->cheap || forks->last < 0 || now >= forks->next_scan;
}

void forks_look_from(struct forks *forks, int pid)
{
    int64_t behind = forks->last - pid; /* far ahead: pids began anew since it started */
    if (!forks->cheap || forks->last < 0 || behind > SPAN || behind < -SPAN)
        forks_scan_next(forks);
    else if (pid <= forks->last) /* its children have later pids */
        forks->last = pid - 1;
}

static bool is_stranger(const struct forks *forks, int pid)
{
    return forks->strangers != NULL && pid < PIDS && forks->strangers[pid / 8] >> pid % 8 & 1;
}

static void set_stranger(struct forks *forks, int pid, bool stranger)
{
    if (forks->strangers == NULL && stranger)
        forks->strangers = calloc(PIDS / 8, 1); /* its pages come when they are written */
    if (forks->strangers == NULL || pid >= PIDS)
        return;
    unsigned char *byte = &forks->strangers[pid / 8], bit = (unsigned char)(1 << pid % 8);
    *byte = stranger ? *byte | bit : *byte & (unsigned char)~bit;
}

static bool among(int pid, const int *pids, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (pids[i] == pid)
            return true;
    return false;
}

/* The sessions of what is watched: a child is in its parent's, or it has made one of its own. Asking for a session
 * costs a thirtieth of opening, reading and closing a file of /proc. */
struct sessions {
    bool any; /* everybody may be ours */
    uint64_t by_environment; /* bits of the sets that somebody without a relative in them may join */
    int count, ids[MOST_SESSIONS];
};

static void add_session(struct sessions *sessions, int session)
{
    if (sessions->any || among(session, sessions->ids, (size_t)sessions->count))
        return;
    sessions->any = session <= 0 || sessions->count == MOST_SESSIONS;
    if (!sessions->any)
        sessions->ids[sessions->count++] = session;
}

static void gather(struct sessions *sessions, const struct table *table, struct set *sets[], size_t set_count)
{
    sessions->any = false;
    sessions->by_environment = 0;
    sessions->count = 0;
    for (size_t i = 0; i < set_count; i++) {
        bool rootless = sets[i]->kind == TREE && sets[i]->root <= 0;
        sessions->any |= sets[i]->kind != TREE || rootless;
        if ((sets[i]->kind != TREE || rootless) && sets[i]->tag[0])
            sessions->by_environment |= UINT64_C(1) << sets[i]->bit;
        for (int j = 0; j < sets[i]->parent_count; j++)
            add_session(sessions, getsid(sets[i]->parents[j]));
        for (unsigned j = 0; j < sets[i]->made_count && j < MOST_MADE; j++)
            if (getsid(sets[i]->made[j]) < 0)
                add_session(sessions, sets[i]->made[j]);
    }
    for (size_t i = 0; i < table->count; i++)
        add_session(sessions, table->order[i]->session);
}

/* False only for what cannot descend from what is watched; `from` to `to` are new pids, one of which may have made
 * the session. */
static bool may_be_ours(const struct sessions *sessions, const struct forks *forks, const struct table *table, int pid,
                        int session, int64_t from, int64_t to)
{
    if (sessions->any || session == pid)
        return true;
    return (session > from && session <= to) ||
           among(session, sessions->ids, (size_t)sessions->count) || table_find(table, session) != NULL ||
           among(session, forks->absent, forks->absent_count);
}

static bool read_stat(struct table *table, int pid, struct stat_fields *out)
{
    char text[SMALL];
    int once = NEVER;
    ssize_t got = procfs_read(&table->fs, pid, "stat", &once, text, sizeof text);
    return got > 0 && parse_stat(text, (size_t)got, out);
}

/* Threads have numbers among the pids. Signal 0 only asks who is there, and here only among our own. */
static bool is_own_thread(int pid) { return syscall(SYS_tgkill, getpid(), pid, 0) == 0; }

/* /proc/TID answers for threads too. */
static bool is_process(struct table *table, int pid)
{
    char text[4096];
    int once = NEVER;
    ssize_t got = procfs_read(&table->fs, pid, "status", &once, text, sizeof text);
    return got > 0 && parse_line(text, (size_t)got, "Tgid:") == pid;
}

/* A process that may be let in; its environment is read once for all sets that ask for it. */
struct candidate {
    int pid, ppid, session;
    bool marked; /* it is what a tag was made for */
    bool environ_read;
    const char *environ;
    size_t environ_size;
};

static bool tagged(struct table *table, struct candidate *who, const char *tag)
{
    size_t length = strlen(tag) + 1; /* with its end: NAME=value, not NAME=value2 */
    bool found = false;
    if (!who->environ_read) {
        char path[32];
        strcpy(put_number(path, (unsigned long)who->pid), "/environ");
        who->environ = procfs_read_long(&table->fs, path, &who->environ_size);
        who->environ_read = true;
    }
    const char *end_of_all = who->environ != NULL ? who->environ + who->environ_size : NULL;
    for (const char *at = who->environ; at < end_of_all;) {
        size_t left = (size_t)(end_of_all - at);
        found |= left >= length && memcmp(at, tag, length) == 0;
        if (left >= sizeof OWN_TAG && memcmp(at, OWN_TAG, sizeof OWN_TAG) == 0)
            return false;
        const char *end = memchr(at, '\0', left);
        if (end == NULL)
            break;
        at = end + 1;
    }
    return found;
}

static bool owned(const struct table *table, int pid, unsigned uid)
{
    char path[32];
    struct stat info;
    put_number(path, (unsigned long)pid);
    return fstatat(table->fs.folder, path, &info, 0) == 0 && info.st_uid == uid;
}

static bool wants(const struct set *set, struct table *table, struct candidate *who)
{
    if (set->kind == OWNER)
        return owned(table, who->pid, set->uid) && (set->tag[0] == '\0' || tagged(table, who, set->tag));
    if (among(who->pid, set->parents, (size_t)set->parent_count))
        return false;
    const struct process *parent = table_find(table, who->ppid);
    if (parent != NULL && (parent->sets >> set->bit & 1))
        return true;
    return among(who->ppid, set->parents, (size_t)set->parent_count) || set_made_session(set, table, who->session) ||
           (set->tag[0] && !who->marked && tagged(table, who, set->tag));
}

/* Let a process into every set that wants it; returns into how many. */
static size_t admit(struct forks *forks, struct table *table, struct set *sets[], size_t set_count, int pid, int ppid,
                    int session, int64_t now, bool scanning)
{
    size_t found = 0;
    struct candidate who = {.pid = pid, .ppid = ppid, .session = session};
    if (among(pid, forks->exclude, forks->exclude_count))
        return 0;
    for (size_t i = 0; i < set_count; i++)
        who.marked |= sets[i]->kind == TREE && sets[i]->root == pid && sets[i]->tag[0];
    for (size_t i = 0; i < set_count; i++) {
        const struct process *known = table_find(table, pid);
        if ((known != NULL && (known->sets >> sets[i]->bit & 1)) || !wants(sets[i], table, &who))
            continue;
        if (!scanning && !is_process(table, pid))
            return 0;
        struct process *process = table_add(table, pid);
        who.environ_read = false; /* adding it reads other files to where the environment lies */
        if (process != NULL && set_admit(sets[i], process, now))
            found++;
    }
    return found;
}

static void look_again(int pid, unsigned char tries, unsigned char most, int *absent, unsigned char *counts,
                       size_t *count)
{
    if (tries <= most && *count < MOST_ABSENT) {
        absent[*count] = pid;
        counts[(*count)++] = tries;
    }
}

static size_t look_at_new(struct forks *forks, struct table *table, struct set *sets[], size_t set_count, int64_t from,
                          int64_t to, int64_t now)
{
    static __thread int absent[MOST_ABSENT];
    static __thread unsigned char counts[MOST_ABSENT];
    size_t found = 0, count = 0;
    size_t old = forks->absent_count, fresh = (size_t)(to - from);
    struct sessions sessions;
    gather(&sessions, table, sets, set_count);
    for (size_t i = 0; i < old + fresh; i++) {
        int pid = i < old ? forks->absent[i] : (int)(from + 1 + (int64_t)(i - old));
        unsigned char tries = i < old ? forks->tries[i] : 0;
        struct stat_fields stat;
        set_stranger(forks, pid, false);
        int session = getsid(pid); /* fails where there is nobody, or nobody yet */
        if (session > 0 &&
            (!may_be_ours(&sessions, forks, table, pid, session, from, to) || (pid != getpid() && is_own_thread(pid))))
            continue;
        const struct process *known = session > 0 ? table_find(table, pid) : NULL;
        if (known != NULL && !(sessions.by_environment & ~known->sets))
            stat = (struct stat_fields){.ppid = known->ppid, .session = known->session};
        else if (session < 0 || !read_stat(table, pid, &stat)) {
            look_again(pid, tries + 1, RETRIES, absent, counts, &count);
            continue;
        }
        size_t more = admit(forks, table, sets, set_count, pid, (int)stat.ppid, (int)stat.session, now, false);
        found += more;
        if (more > 0)
            add_session(&sessions, (int)stat.session);
        known = table_find(table, pid);
        if ((stat.flags & FORKED_ONLY) && (sessions.by_environment & ~(known != NULL ? known->sets : 0)))
            look_again(pid, tries + 1, RETRIES_FORKED, absent, counts, &count);
        else if (among((int)stat.ppid, absent, count)) /* its parent is not visible yet */
            look_again(pid, tries + 1, RETRIES, absent, counts, &count);
    }
    memcpy(forks->absent, absent, count * sizeof *absent);
    memcpy(forks->tries, counts, count);
    forks->absent_count = count;
    return found;
}

/* Look at every process of /proc until no more are found. Pids mostly come in order, so one round is enough;
 * where processes come faster than a round takes, there is no end. */
static size_t scan(struct forks *forks, struct table *table, struct set *sets[], size_t set_count, int64_t now)
{
    size_t found = 0, before;
    int round = 0;
    bool owners = false;
    struct timespec since_boot = {0};
    clock_gettime(CLOCK_BOOTTIME, &since_boot);
    int64_t old = (since_boot.tv_sec * INT64_C(1000000000) + since_boot.tv_nsec - STRANGER_NS) / table->tick_ns;
    for (size_t i = 0; i < set_count; i++)
        owners |= sets[i]->kind != TREE;
    forks->scans++;
    do {
        before = found;
        DIR *folder = opendir("/proc");
        if (folder == NULL)
            return found;
        for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
            int pid = atoi(entry->d_name);
            struct stat_fields stat;
            const struct process *known = pid > 0 ? table_find(table, pid) : NULL;
            if (pid <= 0 || is_stranger(forks, pid) || (known == NULL && !read_stat(table, pid, &stat)))
                continue;
            int ppid = known != NULL ? known->ppid : (int)stat.ppid;
            int in = known != NULL ? known->session : (int)stat.session;
            size_t more = admit(forks, table, sets, set_count, pid, ppid, in, now, true);
            found += more;
            if (known == NULL && more == 0 && !owners && stat.start < old)
                set_stranger(forks, pid, true);
        }
        closedir(folder);
    } while (found != before && ++round < ROUNDS);
    return found;
}

size_t forks_look(struct forks *forks, struct table *table, struct set *sets[], size_t set_count, int64_t now)
{
    bool due = forks_scan_due(forks, now);
    int64_t last = forks->cheap ? last_pid(forks) : -1, before = forks->last;
    forks->last = last;
    forks->looks++;
    bool wrapped = last < before || last - before > SPAN;
    if (last < 0 || wrapped || due) {
        forks->absent_count = 0;
        if (wrapped || last < 0) /* pids may have been given out anew */
            forget_strangers(forks);
        size_t found = scan(forks, table, sets, set_count, now);
        forks->next_scan = now + (wrapped && before >= 0 ? SCAN_SOON_NS : SCAN_EVERY_NS);
        return found;
    }
    if (last == before && forks->absent_count == 0)
        return 0;
    return look_at_new(forks, table, sets, set_count, before, last, now);
}
