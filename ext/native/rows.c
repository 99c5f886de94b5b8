/* Rows of a tick: see rows.h. */
#define _GNU_SOURCE
#include "rows.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine.h"

/* Rows of a stream, until they are written; those beyond are counted. A power of two: the room doubles. */
enum { MOST_ROWS = 1 << 16 };

static const char *const PROCESS[] = {
    "mono_ns", "pid", "cpu_ns", "cpu_user_ns", "cpu_system_ns", "rss_bytes", "pss_bytes", "memory_bytes",
    "rss_peak_bytes", "memory_peak_bytes", "hwm_bytes", "hwm_max_bytes", "swap_bytes", "read_bytes", "write_bytes",
    "read_chars", "write_chars", "reads", "writes", "processes", "threads", "pss_missing", "unseen_faults",
    "processes_seen", "lost_cpu_ns", NULL};
static const char *const OWNED[] = {
    "mono_ns", "cpu_ns", "cpu_user_ns", "cpu_system_ns", "rss_bytes", "pss_bytes", "memory_bytes", "swap_bytes",
    "read_bytes", "write_bytes", "read_chars", "write_chars", "reads", "writes", "processes", "threads",
    "pss_missing", "lost_cpu_ns", NULL};
static const char *const SYSTEM[] = {
    "mono_ns", "cpu_ns", "cpu_user_ns", "cpu_system_ns", "cpu_iowait_ns", "memory_bytes", "swap_bytes", "read_bytes",
    "write_bytes", "reads", "writes", "net_sent_bytes", "net_recv_bytes", "net_sent_packets", "net_recv_packets",
    "cpu_pressure_ns", "memory_pressure_ns", "io_pressure_ns", NULL};
static const char *const THREAD[] = {
    "mono_ns", "pid", "tid", "cpu_ns", "read_bytes", "write_bytes", "read_chars", "write_chars", NULL};
static const char *const MONITOR[] = {
    "mono_ns", "pid", "cpu_ns", "rss_bytes", "ticks", "missed", "late_ns", "pss_cpu_ns", "dropped", NULL};

const char *const *stream_columns(int stream)
{
    static const char *const *const all[] = {NULL, PROCESS, OWNED, OWNED, SYSTEM, THREAD, MONITOR};
    return stream > 0 && stream <= STREAMS ? all[stream] : NULL;
}

size_t stream_width(int stream, int cores)
{
    size_t count = 0;
    for (const char *const *name = stream_columns(stream); name != NULL && *name != NULL; name++)
        count++;
    return count + (stream == STREAM_SYSTEM ? (size_t)(cores < MOST_CORES ? cores : MOST_CORES) : 0);
}

static bool has_room(struct rows *rows)
{
    if (rows->count < rows->capacity)
        return true;
    size_t capacity = rows->capacity ? rows->capacity * 2 : 4;
    int64_t *grown = rows->count < MOST_ROWS ? realloc(rows->values, capacity * rows->columns * sizeof *grown) : NULL;
    if (grown == NULL)
        return false;
    rows->values = grown;
    rows->capacity = capacity;
    return true;
}

void rows_add(struct rows *rows, const int64_t *values, size_t count)
{
    if (count + rows->extra != rows->columns || !has_room(rows)) {
        rows->lost++;
        return;
    }
    int64_t *row = rows->values + rows->count++ * rows->columns;
    memcpy(row, values, count * sizeof *values);
    for (size_t i = count; i < rows->columns; i++)
        row[i] = UNKNOWN;
}

void rows_add_set(struct rows *rows, const struct set *set, const struct reading *r, int64_t mono, int64_t inside)
{
    int64_t mine = set->kind == TREE && set->root == getpid() ? inside : 0;
    int64_t cpu = r->total[0] > mine ? r->total[0] - mine : 0, io[6];
    for (int i = 0; i < 6; i++)
        io[i] = r->io_known ? r->total[CPU_PARTS + i] : UNKNOWN;
    /* of /proc/PID/io: characters read, written; calls; bytes of storage read, written */
    if (set->kind == TREE) {
        int64_t row[] = {mono, set->root, cpu, r->total[1], r->total[2], r->rss, r->pss, r->used, r->rss_peak,
                         r->used_peak, r->hwm_sum, r->hwm_max, r->swap, io[4], io[5], io[0], io[1], io[2], io[3],
                         r->processes, r->threads, r->missing, r->faults, r->seen, r->lost};
        rows_add(&rows[set->stream], row, sizeof row / sizeof *row);
    } else {
        int64_t row[] = {mono, r->total[0], r->total[1], r->total[2], r->rss, UNKNOWN, r->used, r->swap, io[4], io[5],
                         io[0], io[1], io[2], io[3], r->processes, r->threads, r->missing, r->lost};
        rows_add(&rows[set->stream], row, sizeof row / sizeof *row);
    }
}

void rows_add_node(struct rows *rows, const struct node *node, int64_t mono)
{
    size_t width = rows[STREAM_SYSTEM].columns - rows[STREAM_SYSTEM].extra;
    int64_t *row = malloc(width * sizeof *row);
    if (row == NULL)
        return;
    row[0] = mono;
    memcpy(row + 1, node->values, sizeof node->values);
    memcpy(row + 1 + NODE_COLUMNS, node->cores, (width - 1 - NODE_COLUMNS) * sizeof *row);
    rows_add(&rows[STREAM_SYSTEM], row, width);
    free(row);
}

void rows_add_threads(struct rows *rows, struct procfs *fs, int pid, int64_t mono)
{
    char path[64], *at = path;
    memcpy(at, "/proc/", 6);
    at = put_number(at + 6, (unsigned long)pid);
    strcpy(at, "/task");
    DIR *folder = opendir(path);
    if (folder == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        int tid = atoi(entry->d_name), once = NEVER;
        char name[48], text[1024];
        if (tid <= 0)
            continue;
        if (!has_room(&rows[STREAM_THREAD])) {
            rows[STREAM_THREAD].lost++;
            continue;
        }
        strcpy(name, "task/");
        char *end = put_number(name + 5, (unsigned long)tid);
        strcpy(end, "/schedstat");
        ssize_t got = procfs_read(fs, pid, name, &once, text, sizeof text);
        const char *p = text;
        int64_t cpu;
        struct io_fields io;
        if (got <= 0 || !next_number(&p, text + got, &cpu))
            continue;
        strcpy(end, "/io");
        once = NEVER;
        got = procfs_read(fs, pid, name, &once, text, sizeof text);
        bool known = got > 0 && parse_io(text, (size_t)got, &io);
        int64_t row[] = {mono, pid, tid, cpu, known ? io.read_bytes : UNKNOWN, known ? io.write_bytes : UNKNOWN,
                         known ? io.read_chars : UNKNOWN, known ? io.write_chars : UNKNOWN};
        rows_add(&rows[STREAM_THREAD], row, sizeof row / sizeof *row);
    }
    closedir(folder);
}
