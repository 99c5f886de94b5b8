/* Rows of a tick, by stream, with the columns of jumper/schema/columns.py in its order. */
#ifndef JUMPER_ROWS_H
#define JUMPER_ROWS_H

#include "members.h"
#include "node.h"

struct rows {
    int64_t *values; /* row by row */
    size_t columns, extra, count, capacity; /* extra: of the columns, the last ones, that C collectors fill */
    int64_t lost; /* rows that there was no room for */
};

/* Names of the columns of a stream in the order of its values; NULL after the last. Cores come after them. */
const char *const *stream_columns(int stream);
size_t stream_width(int stream, int cores);
/* A row; where there is no room for it, it is counted as lost. */
void rows_add(struct rows *rows, const int64_t *values, size_t count);
/* `rows` is the array of all streams. `inside` is the monitor's own CPU in the target, to be left out. */
void rows_add_set(struct rows *rows, const struct set *set, const struct reading *reading, int64_t mono, int64_t inside);
void rows_add_node(struct rows *rows, const struct node *node, int64_t mono);
void rows_add_threads(struct rows *rows, struct procfs *fs, int pid, int64_t mono);

#endif
