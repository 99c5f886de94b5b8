/* Counters of the whole machine: see node.h. */
#define _GNU_SOURCE
#include "node.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "parse.h"

enum { SECTOR = 512, STAT_TIMES = 8 };

bool node_open(struct node *node, int core_count)
{
    *node = (struct node){.core_count = core_count < MOST_CORES ? core_count : MOST_CORES,
                          .tick_ns = 1000000000 / sysconf(_SC_CLK_TCK)};
    node->cores = malloc((size_t)(node->core_count ? node->core_count : 1) * sizeof *node->cores);
    return node->cores != NULL;
}

void node_close(struct node *node)
{
    free(node->cores);
    node->cores = NULL;
}

/* The next line of a text, without its end. */
static bool next_line(const char **at, const char *end, const char **line, size_t *size)
{
    if (*at >= end)
        return false;
    const char *stop = memchr(*at, '\n', (size_t)(end - *at));
    *line = *at;
    *size = (size_t)((stop != NULL ? stop : end) - *at);
    *at = stop != NULL ? stop + 1 : end;
    return true;
}

/* proc_stat(5): user nice system idle iowait irq softirq steal; guest time is part of user time already. */
void node_parse_cpu(struct node *node, const char *text, size_t size)
{
    const char *at = text, *end = text + size, *line;
    size_t length;
    for (int i = 0; i < node->core_count; i++)
        node->cores[i] = UNKNOWN;
    while (next_line(&at, end, &line, &length) && length > 3 && memcmp(line, "cpu", 3) == 0) {
        const char *p = line + 3, *stop = line + length;
        int64_t core = -1, t[STAT_TIMES] = {0};
        bool all = *p == ' ';
        if (!all && (!isdigit((unsigned char)*p) || !next_number(&p, stop, &core)))
            return;
        for (int i = 0; i < STAT_TIMES; i++) {
            if (!next_number(&p, stop, &t[i]))
                break;
            t[i] = times(t[i], node->tick_ns);
        }
        int64_t busy = plus(plus(plus(t[0], t[1]), plus(t[2], t[5])), plus(t[6], t[7]));
        if (all) {
            node->values[NODE_CPU] = busy;
            node->values[NODE_USER] = plus(t[0], t[1]);
            node->values[NODE_SYSTEM] = plus(plus(t[2], t[5]), t[6]);
            node->values[NODE_IOWAIT] = t[4];
        } else if (core >= 0 && core < node->core_count) {
            node->cores[core] = busy;
        }
    }
}

void node_parse_memory(struct node *node, const char *text, size_t size)
{
    int64_t total = parse_line(text, size, "MemTotal:"), available = parse_line(text, size, "MemAvailable:");
    int64_t swap = parse_line(text, size, "SwapTotal:"), swap_free = parse_line(text, size, "SwapFree:");
    if (available == UNKNOWN)
        available = parse_line(text, size, "MemFree:");
    if (total >= 0 && available >= 0)
        node->values[NODE_MEMORY] = times(total - available, 1024);
    if (swap >= 0 && swap_free >= 0)
        node->values[NODE_SWAP] = times(swap - swap_free, 1024);
}

static bool all_digits(const char *at, const char *end)
{
    if (at >= end)
        return false;
    for (; at < end; at++)
        if (!isdigit((unsigned char)*at))
            return false;
    return true;
}

static bool all_letters(const char *at, const char *end)
{
    if (at >= end)
        return false;
    for (; at < end; at++)
        if (*at < 'a' || *at > 'z')
            return false;
    return true;
}

static bool begins(const char *name, size_t size, const char *with)
{
    return size > strlen(with) && memcmp(name, with, strlen(with)) == 0;
}

/* Whole disks only: partitions and mapped devices would count a byte twice. */
static bool whole_disk(const char *name, size_t size)
{
    const char *end = name + size;
    if (begins(name, size, "sd") || begins(name, size, "hd") || begins(name, size, "vd"))
        return all_letters(name + 2, end);
    if (begins(name, size, "xvd"))
        return all_letters(name + 3, end);
    if (begins(name, size, "mmcblk"))
        return all_digits(name + 6, end);
    if (begins(name, size, "nvme")) {
        const char *n = memchr(name + 4, 'n', size - 4);
        return n != NULL && all_digits(name + 4, n) && all_digits(n + 1, end);
    }
    return false;
}

/* Documentation/admin-guide/iostats.rst: major minor name reads merged sectors ms writes merged sectors ... */
void node_parse_disks(struct node *node, const char *text, size_t size)
{
    const char *at = text, *end = text + size, *line;
    size_t length;
    int64_t sums[4] = {0};
    while (next_line(&at, end, &line, &length)) {
        const char *p = line, *stop = line + length;
        int64_t skipped, fields[7];
        if (!next_number(&p, stop, &skipped) || !next_number(&p, stop, &skipped))
            continue;
        while (p < stop && *p == ' ')
            p++;
        const char *name = p;
        while (p < stop && *p != ' ')
            p++;
        if (!whole_disk(name, (size_t)(p - name)))
            continue;
        int got = 0;
        while (got < 7 && next_number(&p, stop, &fields[got]))
            got++;
        if (got < 7)
            continue;
        sums[0] = plus(sums[0], fields[0]);
        sums[1] = plus(sums[1], fields[2]);
        sums[2] = plus(sums[2], fields[4]);
        sums[3] = plus(sums[3], fields[6]);
    }
    node->values[NODE_READS] = sums[0];
    node->values[NODE_READ] = times(sums[1], SECTOR);
    node->values[NODE_WRITES] = sums[2];
    node->values[NODE_WRITE] = times(sums[3], SECTOR);
}

/* proc_net(5), dev: name: bytes packets ... (8 received), bytes packets ... (8 sent); without the loopback. */
void node_parse_network(struct node *node, const char *text, size_t size)
{
    const char *at = text, *end = text + size, *line;
    size_t length;
    int64_t sums[4] = {0};
    while (next_line(&at, end, &line, &length)) {
        const char *stop = line + length, *colon = memrchr(line, ':', length), *name = line;
        if (colon == NULL)
            continue;
        while (name < colon && *name == ' ')
            name++;
        if (colon - name == 2 && memcmp(name, "lo", 2) == 0)
            continue;
        const char *p = colon + 1;
        int64_t fields[10];
        int got = 0;
        while (got < 10 && next_number(&p, stop, &fields[got]))
            got++;
        if (got < 10)
            continue;
        sums[0] = plus(sums[0], fields[8]);
        sums[1] = plus(sums[1], fields[0]);
        sums[2] = plus(sums[2], fields[9]);
        sums[3] = plus(sums[3], fields[1]);
    }
    memcpy(node->values + NODE_SENT, sums, sizeof sums);
}

/* Documentation/accounting/psi.rst: "some ... total=" is in microseconds. */
static int64_t pressure(struct procfs *fs, const char *path)
{
    size_t size;
    const char *text = procfs_read_long(fs, path, &size);
    const char *total = text != NULL ? memmem(text, size, "total=", 6) : NULL;
    if (total == NULL)
        return UNKNOWN;
    const char *at = total + 6;
    int64_t value;
    return next_number(&at, text + size, &value) ? times(value, 1000) : UNKNOWN;
}

void node_read(struct node *node, struct procfs *fs)
{
    static const struct {
        const char *path;
        void (*parse)(struct node *, const char *, size_t);
    } files[] = {{"stat", node_parse_cpu},
                 {"meminfo", node_parse_memory},
                 {"diskstats", node_parse_disks},
                 {"self/net/dev", node_parse_network}};
    for (int i = 0; i < NODE_COLUMNS; i++)
        node->values[i] = UNKNOWN;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t size;
        const char *text = procfs_read_long(fs, files[i].path, &size);
        if (text != NULL)
            files[i].parse(node, text, size);
    }
    node->values[NODE_CPU_PRESSURE] = pressure(fs, "pressure/cpu");
    node->values[NODE_MEMORY_PRESSURE] = pressure(fs, "pressure/memory");
    node->values[NODE_IO_PRESSURE] = pressure(fs, "pressure/io");
}
