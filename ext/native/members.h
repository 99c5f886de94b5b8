/* Sets of processes (a target's tree, a user's, a Slurm job's): who belongs, what they used, what they hold. */
#ifndef JUMPER_MEMBERS_H
#define JUMPER_MEMBERS_H

#include "process.h"

enum set_kind { TREE, OWNER };
/* The most that a set had: CPU in ns; RSS, memory, PSS, the largest mark of a single process in bytes; UNKNOWN where
 * nothing was seen. */
enum most { MOST_CPU, MOST_RSS, MOST_USED, MOST_PSS, MOST_HWM, MOST_WIDTH };
/* A process is read so soon after it was found, and from then on at ever longer steps. */
#define FIRST_LOOK_NS INT64_C(5000000)
enum { MOST_SETS = 64, MOST_EXCLUDED = 16, MOST_TAG = 256, MOST_MADE = 64 };

struct member {
    struct process *process;
    int64_t pending[WIDTH];  /* what dead children used and this one has not collected yet */
    int64_t absorbed[WIDTH]; /* what it had collected when it was found, or at the pass before */
    int age;
    int64_t next_look, step; /* early samples; 0: none more */
};

struct reading { /* the values of one row of a set, bytes, ns and counts; UNKNOWN where not known */
    int64_t total[WIDTH];
    int64_t rss, pss, used, rss_peak, used_peak, hwm_sum, hwm_max, swap, processes, threads, missing, faults, seen, lost;
    bool io_known;
};

struct family { /* forks of one program that have not exec'ed: they have one stack, and share their memory */
    uint64_t stack;
    int64_t known, unknown; /* largest anonymous memory of those whose sharing is known, and is not */
};

struct set {
    enum set_kind kind;
    bool fresh;     /* TREE: the root is not read yet */
    int bit, stream; /* bit: its place in the engine and in process.sets */
    int root;                            /* TREE: the target */
    int parents[MOST_EXCLUDED], parent_count; /* TREE: whose children belong though they do not */
    int made[MOST_MADE];                 /* TREE: sessions that members made who are gone now; the latest */
    unsigned made_count;
    unsigned uid;                        /* OWNER */
    char tag[MOST_TAG];                  /* NAME=value in the environment; TREE: also belongs; OWNER: must have */
    int64_t longest_step, entered; /* entered: when; another set may have had its bit before */
    struct member *members;
    size_t count, capacity;
    struct family *families; /* room for measuring: open addressing by stack */
    size_t family_capacity;
    int64_t carry[WIDTH], last[WIDTH], lost_cpu;
    int64_t rss_peak, used_peak, hwm_dead, hwm_max_dead, seen_faults, orphan_faults, seen;
    bool io_known, measured, unsorted, grown; /* grown: has members that are not measured yet */
    int64_t most[MOST_WIDTH]; /* over its whole time */
};

/* Become a member; false where it is one already or there is no memory. */
bool set_admit(struct set *set, struct process *process, int64_t now);
/* Whether a member other than the root made this session: who is in it descends from that member. */
bool set_made_session(const struct set *set, const struct table *table, int session);
/* Account those that are gone and give the totals; parents first in `members`. */
void set_settle(struct set *set);
/* Note memory as it is now; between rows too. */
void set_measure(struct set *set, struct reading *out);
/* Fill a row and begin the next one. */
void set_take(struct set *set, struct reading *out);
/* Read members whose early sample is due; returns when the next one is, or INT64_MAX; `root` is lowered to when that of
 * the root is. */
int64_t set_look_early(struct set *set, struct table *table, int64_t now, int64_t *root);
void set_free(struct set *set);

#endif
