/* Sets of processes: see members.h.
 *
 * The kernel adds what a child used to whoever waits for it. The living are read parent first, so a child that
 * dies in between is seen too little for one pass, never twice; what a parent has not collected yet is carried
 * until it has. The same as jumper/monitor/metrics/process/ledger.py, which explains it in Python. */
#define _GNU_SOURCE
#include "members.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Passes that a parent gets to collect a child before it counts as never collected. */
enum { PATIENCE = 3 };
/* cutime and cstime are shown in whole ticks: what is missing below this is rounding. */
#define ROUNDING_NS INT64_C(20000000)

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static struct member *member_of(const struct set *set, int pid)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->members[i].process->pid == pid)
            return &set->members[i];
    return NULL;
}

static bool older(const struct process *a, const struct process *b)
{
    return a->start != b->start ? a->start < b->start : a->pid < b->pid;
}

static int by_age(const void *a, const void *b)
{
    const struct process *x = ((const struct member *)a)->process, *y = ((const struct member *)b)->process;
    return older(y, x) - older(x, y);
}

static void collected(const struct process *process, int64_t out[WIDTH])
{
    memcpy(out, process->dead, sizeof process->dead);
    memcpy(out + CPU_PARTS, process->own + CPU_PARTS, (WIDTH - CPU_PARTS) * sizeof *out);
}

bool set_admit(struct set *set, struct process *process, int64_t now)
{
    uint64_t bit = UINT64_C(1) << set->bit;
    if (process->sets & bit)
        return false;
    if (set->count == set->capacity) {
        size_t capacity = set->capacity ? set->capacity * 2 : 16;
        struct member *members = realloc(set->members, capacity * sizeof *members);
        if (members == NULL)
            return false;
        set->members = members;
        set->capacity = capacity;
    }
    size_t at = set->count++;
    if (at > 0 && older(process, set->members[at - 1].process))
        set->unsorted = true;
    set->members[at] = (struct member){.process = process};
    /* its children are found after it: whatever it collects of them comes on top */
    collected(process, set->members[at].absorbed);
    if (set->kind == TREE) {
        set->members[at].step = FIRST_LOOK_NS;
        set->members[at].next_look = now + FIRST_LOOK_NS;
    }
    process->sets |= bit;
    set->seen++;
    set->grown = true;
    return true;
}

bool set_made_session(const struct set *set, const struct table *table, int session)
{
    if (set->kind != TREE || session == set->root)
        return false;
    const struct process *leader = table_find(table, session);
    if (leader != NULL && (leader->sets >> set->bit & 1)) /* no other made it: a session keeps its number from being */
        return true;                                      /* given out, and its maker may not have been read since */
    for (unsigned i = 0; i < set->made_count && i < MOST_MADE; i++)
        if (set->made[i] == session)
            return getsid(session) < 0; /* who has the number now is another process, and the session is over */
    return false;
}

static void total_of(const struct member *member, int64_t out[WIDTH])
{
    for (int i = 0; i < WIDTH; i++)
        out[i] = member->process->own[i] + (i < CPU_PARTS ? member->process->dead[i] : 0) + member->pending[i];
}

static void add(int64_t into[WIDTH], const int64_t values[WIDTH])
{
    for (int i = 0; i < WIDTH; i++)
        into[i] += values[i];
}

/* Take from what a process has still to collect what it has collected since the last pass; whether it had any. */
static bool collect(struct member *member)
{
    int64_t now[WIDTH];
    bool waiting = false;
    collected(member->process, now);
    for (int i = 0; i < WIDTH; i++) {
        waiting |= member->pending[i] != 0;
        member->pending[i] = larger(0, member->pending[i] - larger(0, now[i] - member->absorbed[i]));
    }
    memcpy(member->absorbed, now, sizeof now);
    return waiting;
}

static void bury(struct set *set, struct member *member)
{
    struct process *process = member->process;
    int64_t used[WIDTH];
    if (process->session == process->pid && process->pid != set->root)
        set->made[set->made_count++ % MOST_MADE] = process->session;
    collect(member);
    total_of(member, used);
    struct member *parent = process->ppid != process->pid ? member_of(set, process->ppid) : NULL;
    if (parent == NULL) {
        add(set->carry, used);
        set->orphan_faults += process->cminflt;
    } else {
        add(parent->pending, used);
        parent->age = 0;
        set->seen_faults += process->marked_minflt;
    }
    set->hwm_dead += process->hwm;
    set->hwm_max_dead = larger(set->hwm_max_dead, process->hwm);
}

static void absorb(struct set *set, struct member *member)
{
    if (!collect(member) || ++member->age < PATIENCE)
        return;
    if (member->pending[0] > ROUNDING_NS) {
        add(set->carry, member->pending);
        set->lost_cpu += member->pending[0];
    }
    memset(member->pending, 0, sizeof member->pending);
}

void set_settle(struct set *set)
{
    if (set->unsorted) /* parents before their children */
        qsort(set->members, set->count, sizeof *set->members, by_age);
    set->unsorted = false;
    for (size_t i = set->count; i-- > 0;) /* children first: what they used goes up to their parents */
        if (set->members[i].process->gone)
            bury(set, &set->members[i]);
    size_t kept = 0;
    for (size_t i = 0; i < set->count; i++) {
        if (set->members[i].process->gone)
            set->members[i].process->sets &= ~(UINT64_C(1) << set->bit);
        else
            set->members[kept++] = set->members[i];
    }
    set->count = kept;
    int64_t totals[WIDTH], mine[WIDTH];
    memcpy(totals, set->carry, sizeof totals);
    for (size_t i = 0; i < set->count; i++) {
        absorb(set, &set->members[i]);
        total_of(&set->members[i], mine);
        add(totals, mine);
        set->io_known |= set->members[i].process->io_known;
    }
    for (int i = 0; i < WIDTH; i++)
        set->last[i] = larger(set->last[i], totals[i]);
}

/* A process's share of memory now: its PSS when it was read, and its own growth since. What grew in files and
 * shared memory may be others' too, so it waits for the next reading. */
static int64_t used_since(const struct process *process)
{
    int64_t grown = larger(0, process->rollup.pss + process->anon - process->rollup.anon);
    return smaller(process->rss, grown);
}

static struct family *family_of(struct set *set, uint64_t stack)
{
    size_t i = (size_t)((stack >> 4) * UINT64_C(11400714819323198485) >> 32) & (set->family_capacity - 1);
    while (set->families[i].stack != 0 && set->families[i].stack != stack)
        i = (i + 1) & (set->family_capacity - 1);
    set->families[i].stack = stack;
    return &set->families[i];
}

static bool clear_families(struct set *set)
{
    if (set->family_capacity < 2 * set->count) {
        size_t capacity = set->family_capacity ? set->family_capacity : 32;
        while (capacity < 2 * set->count)
            capacity *= 2;
        struct family *families = realloc(set->families, capacity * sizeof *families);
        if (families == NULL)
            return false;
        set->families = families;
        set->family_capacity = capacity;
    }
    memset(set->families, 0, set->family_capacity * sizeof *set->families);
    return true;
}

/* Memory of those whose sharing is not known, from below: each family once, less its known members. */
static int64_t unknown_memory(struct set *set)
{
    int64_t sum = 0;
    if (!clear_families(set))
        return 0;
    for (size_t i = 0; i < set->count; i++) {
        const struct process *process = set->members[i].process;
        if (process->rss == 0)
            continue;
        if (process->stack == 0) {
            sum += process->sweep ? 0 : process->anon;
            continue;
        }
        struct family *family = family_of(set, process->stack);
        int64_t *most = process->sweep ? &family->known : &family->unknown;
        *most = larger(*most, process->anon);
    }
    for (size_t i = 0; i < set->family_capacity; i++)
        sum += larger(0, set->families[i].unknown - set->families[i].known);
    return sum;
}

static void measure(struct set *set, struct reading *out)
{
    int64_t largest = 0, unknown = 0;
    unsigned living = 0, known = 0;
    out->rss = out->pss = out->used = out->swap = out->threads = 0;
    for (size_t i = 0; i < set->count; i++) {
        const struct process *process = set->members[i].process;
        out->swap += process->swap;
        out->threads += process->threads;
        if (process->rss == 0)
            continue;
        living++;
        out->rss += process->rss;
        largest = larger(largest, process->rss);
        if (process->sweep) {
            known++;
            out->pss += process->rollup.pss;
            out->used += used_since(process);
        } else {
            unknown += process->rss;
        }
    }
    out->missing = set->kind == TREE && living > 1 ? living - known : 0;
    if (living == 0 || known < living)
        out->pss = UNKNOWN;
    if (living <= 1)
        out->used = out->rss;
    else if (set->kind == OWNER) /* no PSS is read for these: what is not known counts with what it holds */
        out->used += unknown;
    else
        out->used = larger(out->used + (known < living ? unknown_memory(set) : 0), largest);
}

void set_measure(struct set *set, struct reading *out)
{
    measure(set, out);
    int64_t risen = 0;
    for (size_t i = 0; i < set->count; i++) {
        struct process *process = set->members[i].process;
        if (process->hwm > process->hwm_told) {
            process->hwm_told = process->hwm;
            risen = larger(risen, process->hwm - process->rss);
        }
    }
    if (!set->measured) /* marks from before anybody looked */
        risen = 0;
    set->measured = true;
    set->grown = false;
    set->rss_peak = larger(set->rss_peak, out->rss);
    set->used_peak = larger(set->used_peak, out->used + (set->kind == TREE ? risen : 0));
}

void set_take(struct set *set, struct reading *out)
{
    set_measure(set, out);
    memcpy(out->total, set->last, sizeof out->total);
    out->io_known = set->io_known;
    out->rss_peak = set->rss_peak;
    out->used_peak = set->used_peak;
    out->hwm_sum = set->hwm_dead;
    out->hwm_max = set->hwm_max_dead;
    int64_t faults = set->orphan_faults - set->seen_faults;
    for (size_t i = 0; i < set->count; i++) {
        const struct process *process = set->members[i].process;
        out->hwm_sum += process->hwm;
        out->hwm_max = larger(out->hwm_max, process->hwm);
        faults += process->cminflt;
    }
    out->faults = larger(0, faults);
    out->lost = set->lost_cpu;
    out->seen = set->seen;
    out->processes = (int64_t)set->count;
    const int64_t now[MOST_WIDTH] = {out->total[0], out->rss_peak, out->used_peak, out->pss, out->hwm_max};
    for (int i = 0; i < MOST_WIDTH; i++)
        set->most[i] = larger(set->most[i], now[i]);
    set->rss_peak = set->used_peak = set->hwm_dead = set->hwm_max_dead = 0;
}

int64_t set_look_early(struct set *set, struct table *table, int64_t now, int64_t *root)
{
    int64_t next = INT64_MAX;
    bool changed = set->grown;
    for (size_t i = 0; i < set->count; i++) {
        struct member *member = &set->members[i];
        if (member->step == 0 || member->process->gone)
            continue;
        if (member->next_look <= now) {
            changed = true;
            if (!process_read(table, member->process, now, true)) {
                member->process->gone = true;
                continue;
            }
            int64_t late = now - member->next_look;
            do /* looks that come late count for those that they come too late for */
                member->step *= 2;
            while (member->step <= late);
            if (member->step >= set->longest_step) {
                member->step = 0;
                continue;
            }
            member->next_look = now + member->step;
        }
        next = smaller(next, member->next_look);
        if (member->process->pid == set->root)
            *root = smaller(*root, member->next_look);
    }
    if (changed) {
        struct reading now_held;
        set_measure(set, &now_held);
    }
    return next;
}

void set_free(struct set *set)
{
    for (size_t i = 0; i < set->count; i++)
        set->members[i].process->sets &= ~(UINT64_C(1) << set->bit);
    free(set->members);
    free(set->families);
    *set = (struct set){0};
}
