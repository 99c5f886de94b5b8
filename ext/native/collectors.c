/* Collectors in C: see collectors.h. */
#define _GNU_SOURCE
#include "collectors.h"

#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODE_SERIES = MOST_SETS, MOST_SLOW = 3 };

static unsigned level_of(int stream) { return stream >= 1 && stream <= 4 ? 1u << (stream - 1) : 0; }

static void switch_off(struct collector *collector, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(collector->reason, sizeof collector->reason, format, arguments);
    va_end(arguments);
    collector->off = true;
}

static void error_text(int error, char *text, size_t size)
{
    char room[128];
    snprintf(text, size, "%s (%d)", strerror_r(error, room, sizeof room), error);
}

static bool load(struct collector *collector)
{
    void *library = dlopen(collector->path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        switch_off(collector, "load: %s", dlerror());
        return false;
    }
    const struct jumper_collector *(*find)(void);
    void *symbol = dlsym(library, "jumper_collector");
    memcpy(&find, &symbol, sizeof find); /* ISO C has no cast from object to function; dlsym(3) */
    const struct jumper_collector *code = find != NULL ? find() : NULL;
    if (code == NULL || code->abi != JUMPER_COLLECTOR_ABI || code->levels != collector->levels ||
        code->column_count != collector->columns || code->collect == NULL) {
        switch_off(collector, "load: %s is not the library any more that was checked", collector->path);
        return false;
    }
    collector->code = code;
    return true;
}

static bool set_up(struct collector *collector, int series, unsigned level)
{
    char reason[MOST_REASON - 16] = "", text[160];
    void *state = NULL;
    int error = collector->code->setup != NULL
                    ? collector->code->setup(collector->config, level, &state, reason, sizeof reason)
                    : 0;
    if (error != 0) {
        reason[sizeof reason - 1] = '\0';
        error_text(error, text, sizeof text);
        switch_off(collector, "setup: %s", reason[0] != '\0' ? reason : text);
        return false;
    }
    collector->states[series] = state;
    collector->ready[series] = true;
    return true;
}

static void ask(struct collector *collector, int series, unsigned level, const int *pids, size_t count,
                int64_t interval_ns, double *values)
{
    if (collector->code == NULL && !load(collector))
        return;
    if (!collector->ready[series] && !set_up(collector, series, level))
        return;
    int64_t began = now_ns();
    int error = collector->code->collect(collector->states[series], level, pids, count, values);
    int64_t took = now_ns() - began;
    if (error != 0) {
        char text[160];
        error_text(error, text, sizeof text);
        switch_off(collector, "collect: %s", text);
    }
    collector->slow = took > interval_ns ? collector->slow + 1 : 0;
    if (collector->slow == MOST_SLOW)
        switch_off(collector, "collect: took %.2f s, longer than the interval, %d times in a row", (double)took / 1e9,
                   MOST_SLOW);
}

static size_t list_pids(struct collectors *collectors, const struct set *set)
{
    if (set == NULL)
        return 0;
    if (set->count > collectors->pid_capacity) {
        int *grown = realloc(collectors->pids, 2 * set->count * sizeof *grown);
        if (grown == NULL)
            return 0;
        collectors->pids = grown;
        collectors->pid_capacity = 2 * set->count;
    }
    for (size_t i = 0; i < set->count; i++)
        collectors->pids[i] = set->members[i].process->pid;
    return set->count;
}

bool collectors_add(struct collectors *collectors, const struct collector *wanted)
{
    struct collector *mine = collectors->count < MOST_COLLECTORS ? calloc(1, sizeof *mine) : NULL;
    if (mine == NULL)
        return false;
    *mine = *wanted;
    mine->path = strdup(wanted->path);
    mine->config = strdup(wanted->config);
    mine->name = strdup(wanted->name);
    mine->origin = strdup(wanted->origin);
    collectors->all[collectors->count++] = mine;
    if (mine->path == NULL || mine->config == NULL || mine->name == NULL || mine->origin == NULL)
        switch_off(mine, "load: no memory");
    return true;
}

size_t collectors_width(const struct collectors *collectors, int stream)
{
    size_t width = 0;
    for (size_t i = 0; i < collectors->count; i++)
        if (collectors->all[i]->levels & level_of(stream))
            width += collectors->all[i]->columns;
    return width;
}

void collectors_collect(struct collectors *collectors, int stream, const struct set *set, int64_t interval_ns,
                        int64_t *values)
{
    unsigned level = level_of(stream);
    int series = set != NULL ? set->bit : NODE_SERIES;
    size_t count = list_pids(collectors, set);
    for (size_t i = 0; i < collectors->count; i++) {
        struct collector *collector = collectors->all[i];
        if (!(collector->levels & level))
            continue;
        double *found = malloc(collector->columns * sizeof *found);
        for (size_t k = 0; found != NULL && k < collector->columns; k++)
            found[k] = NAN;
        if (found != NULL && !collector->off)
            ask(collector, series, level, collectors->pids, count, interval_ns, found);
        for (size_t k = 0; k < collector->columns; k++, values++) {
            bool known = found != NULL && !collector->off && isfinite(found[k]);
            double value = known ? found[k] + 0.0 : 0; /* the bits of -0.0 are those of UNKNOWN */
            memcpy(values, &value, sizeof value);
            if (!known)
                *values = UNKNOWN;
        }
        free(found);
    }
}

/* Text as it may stand in a JSON string: what is not plain ASCII becomes a question mark. */
static void plain(char *text)
{
    for (; *text != '\0'; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
        else if (*text == '"' || *text == '\\')
            *text = '\'';
}

size_t collectors_event(struct collectors *collectors, int64_t mono, int64_t wall, char *line, size_t size)
{
    for (size_t i = 0; i < collectors->count; i++) {
        struct collector *collector = collectors->all[i];
        if (!collector->off || collector->told)
            continue;
        collector->told = true;
        plain(collector->reason);
        int length = snprintf(line, size,
                              "{\"type\": \"event\", \"kind\": \"collector-off\", \"collector\": \"%s\", "
                              "\"origin\": \"%s\", \"text\": \"collector %s (%s) is off: %s\", "
                              "\"mono_ns\": %lld, \"wall_ns\": %lld}\n",
                              collector->name, collector->origin, collector->name, collector->origin,
                              collector->reason, (long long)mono, (long long)wall);
        if (length > 0 && (size_t)length < size)
            return (size_t)length;
    }
    return 0;
}

static void release(struct collector *collector, int series)
{
    if (!collector->ready[series])
        return;
    collector->ready[series] = false;
    if (collector->code->teardown != NULL)
        collector->code->teardown(collector->states[series]);
}

void collectors_release(struct collectors *collectors, int bit)
{
    for (size_t i = 0; i < collectors->count; i++)
        release(collectors->all[i], bit);
}

void collectors_close(struct collectors *collectors)
{
    for (int series = 0; series <= NODE_SERIES; series++)
        collectors_release(collectors, series);
}

void collectors_free(struct collectors *collectors)
{
    for (size_t i = 0; i < collectors->count; i++) {
        struct collector *collector = collectors->all[i];
        free(collector->path);
        free(collector->config);
        free(collector->name);
        free(collector->origin);
        free(collector);
    }
    free(collectors->pids);
    *collectors = (struct collectors){0};
}
