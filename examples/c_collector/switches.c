/* A collector in C: how often the threads of the measured processes gave up the CPU, and how often it was taken.
 *
 * Each process has its counts in /proc/PID/task/TID/status (proc_pid_status(5)). What ended keeps its last counts in
 * `gone`, so that the sums only grow. */
#define _GNU_SOURCE
#include "jumper_collector.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOLUNTARY, INVOLUNTARY, COUNTS, MOST_TASKS = 4096 };

struct task {
    int id;
    double counts[COUNTS];
};

struct state {
    double gone[COUNTS];
    struct task *tasks, *before; /* of this tick and of the last one */
    size_t count, count_before;
};

static int setup(const char *config, unsigned level, void **state, char *reason, size_t size)
{
    (void)level;
    if (config[0] != '\0') {
        snprintf(reason, size, "there is nothing to configure, found \"%s\"", config);
        return EINVAL;
    }
    struct state *mine = calloc(1, sizeof *mine);
    if (mine != NULL) {
        mine->tasks = calloc(MOST_TASKS, sizeof *mine->tasks);
        mine->before = calloc(MOST_TASKS, sizeof *mine->before);
    }
    if (mine == NULL || mine->tasks == NULL || mine->before == NULL)
        return ENOMEM;
    *state = mine;
    return 0;
}

static void read_task(struct state *state, const char *folder, int id)
{
    char path[96], line[256];
    snprintf(path, sizeof path, "%s/%d/status", folder, id);
    FILE *file = fopen(path, "re");
    if (file == NULL || state->count == MOST_TASKS)
        goto end;
    struct task *task = &state->tasks[state->count];
    task->id = id;
    int found = 0;
    while (fgets(line, sizeof line, file) != NULL)
        found += sscanf(line, "voluntary_ctxt_switches: %lf", &task->counts[VOLUNTARY]) == 1 ||
                 sscanf(line, "nonvoluntary_ctxt_switches: %lf", &task->counts[INVOLUNTARY]) == 1;
    state->count += found == COUNTS;
end:
    if (file != NULL)
        fclose(file);
}

static int by_id(const void *one, const void *other)
{
    const struct task *a = one, *b = other;
    return (a->id > b->id) - (a->id < b->id);
}

static int collect(void *mine, unsigned level, const int *pids, size_t pid_count, double *values)
{
    (void)level;
    struct state *state = mine;
    struct task *swap = state->before;
    state->before = state->tasks;
    state->count_before = state->count;
    state->tasks = swap;
    state->count = 0;
    for (size_t i = 0; i < pid_count; i++) {
        char folder[48];
        snprintf(folder, sizeof folder, "/proc/%d/task", pids[i]);
        DIR *listing = opendir(folder);
        if (listing == NULL)
            continue; /* it ended since the tick began */
        for (struct dirent *entry; (entry = readdir(listing)) != NULL;)
            if (atoi(entry->d_name) > 0)
                read_task(state, folder, atoi(entry->d_name));
        closedir(listing);
    }
    qsort(state->tasks, state->count, sizeof *state->tasks, by_id);
    for (size_t i = 0; i < state->count_before; i++)
        if (bsearch(&state->before[i], state->tasks, state->count, sizeof *state->tasks, by_id) == NULL)
            for (int k = 0; k < COUNTS; k++)
                state->gone[k] += state->before[i].counts[k];
    for (int k = 0; k < COUNTS; k++) {
        values[k] = state->gone[k];
        for (size_t i = 0; i < state->count; i++)
            values[k] += state->tasks[i].counts[k];
    }
    return 0;
}

static void teardown(void *mine)
{
    struct state *state = mine;
    free(state->tasks);
    free(state->before);
    free(state);
}

static const struct jumper_column columns[] = {
    {"switches_voluntary", "1", JUMPER_COUNTER},
    {"switches_involuntary", "1", JUMPER_COUNTER},
};

static const struct jumper_collector collector = {
    .abi = JUMPER_COLLECTOR_ABI,
    .levels = JUMPER_PROCESS,
    .name = "switches",
    .columns = columns,
    .column_count = sizeof columns / sizeof *columns,
    .setup = setup,
    .collect = collect,
    .teardown = teardown,
};

const struct jumper_collector *jumper_collector(void) { return &collector; }
