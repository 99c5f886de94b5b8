/* The native engine: one POSIX thread a process that samples all that is watched, without ever taking the GIL.
 *
 * All files are opened, written and closed by that thread, in a descriptor table of its own; everybody else sends
 * it requests. Rows go to a segment and into a bounded queue for whoever wants them in this process. */
#ifndef JUMPER_ENGINE_H
#define JUMPER_ENGINE_H

#include "collectors.h"
#include "forks.h"
#include "node.h"
#include "segment.h"
#include "sharing.h"

enum stream { STREAM_PROCESS = 1, STREAM_USER, STREAM_SLURM, STREAM_SYSTEM, STREAM_THREAD, STREAM_MONITOR };
enum { STREAMS = 6, MOST_COLUMNS = NODE_COLUMNS + 1 + MOST_CORES, MOST_PATH = 4096 };

struct settings {
    int64_t interval_ns;
    bool in_target;        /* this process is what is watched: its own CPU is left out */
    bool node;             /* take the level system */
    bool queue;            /* keep rows for engine_drain */
    int thread_pid;        /* whose threads are read; 0: nobody's */
    int64_t flush_ns;      /* write at most so often; 0: at every tick */
    int64_t cap;           /* of what the disk holds of the segment, in bytes; 0: none */
    char segment[MOST_PATH]; /* its path; "": none */
    char node_lock[MOST_PATH]; /* take `system` only while holding this; "": no lock */
    const char *schema;    /* payload of the schema block */
    size_t schema_size;
    void *(*let_go)(void); /* of a lock that who adds or finishes a tree has (the GIL), and how to get it back; */
    void (*take_back)(void *); /* NULL: there is none */
};

struct statistics {
    int64_t ticks, missed, late_ns, cpu_ns, pss_cpu_ns, dropped, refused, size, queue_lost, rows_lost;
    int64_t processes, kept_descriptors, scans, looks;
    int error;             /* errno of the segment; 0: none */
    bool running, private_table;
};

struct engine; /* its own file knows */

struct engine *engine_new(const struct settings *settings);
/* Ask a C collector at every tick, too; before the start. Its values stand behind those of its streams' rows. */
bool engine_add_collector(struct engine *engine, const struct collector *wanted);
/* Why the collector of that index is off; "" while it is not. */
void engine_collector_reason(struct engine *engine, size_t index, char *reason, size_t size);
/* Start the thread; false with `*error` set to an errno where it cannot. Nothing is sampled before engine_go. */
bool engine_start(struct engine *engine, int *error);
/* Watch the tree of a process; returns its number, or -1. */
int engine_add_tree(struct engine *engine, int pid, const int *parents, int parent_count, const char *tag);
/* The same, not waited for: it is read within 5 ms, or at its end. */
int engine_add_tree_soon(struct engine *engine, int pid, const int *parents, int parent_count, const char *tag);
/* Watch what a user owns (stream user), or of it what has a tag in its environment (stream slurm). */
int engine_add_owner(struct engine *engine, int stream, unsigned uid, const char *tag);
void engine_remove(struct engine *engine, int set);
/* Take a last row of a set and watch it no more; `most` is the most that it had. False where it was not watched. */
bool engine_finish(struct engine *engine, int set, int64_t most[MOST_WIDTH]);
void engine_exclude(struct engine *engine, int pid);
/* Take the level `system` or not, from the next tick on. */
void engine_node(struct engine *engine, bool wanted);
/* Begin the schedule; the first tick is taken before this returns. */
void engine_go(struct engine *engine);
/* Take a tick now; `all`: also read processes that did not run since the last one. */
void engine_tick(struct engine *engine, bool all);
/* Append text records (JSON lines) to the segment; not waited for. */
bool engine_text(struct engine *engine, const char *lines, size_t size);
/* The same as 1 or 0 where the engine's lock is free; -1 where it is not, and nothing was done. */
int engine_text_at_once(struct engine *engine, const char *lines, size_t size);
/* Take a tick, write everything; returns the segment's size. */
int64_t engine_flush(struct engine *engine);
/* Take the last tick, write everything, end the thread. */
void engine_stop(struct engine *engine);
void engine_free(struct engine *engine);
/* Move up to `size` bytes of queued rows to `buffer`: int64 stream, count, values. Waits up to timeout for some. */
size_t engine_drain(struct engine *engine, int64_t *buffer, size_t size, int64_t timeout_ns);
void engine_statistics(struct engine *engine, struct statistics *out);
/* The members of a set: nine values each (pid, CPU ns with its dead children, RSS, the six of /proc/PID/io). */
enum { MEMBER_WIDTH = 9 };
size_t engine_members(struct engine *engine, int set, int64_t *buffer, size_t most);
/* Whether any process of a set is left. */
bool engine_alive(struct engine *engine, int set);

#endif
