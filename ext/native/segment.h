/* The writer of a segment, docs/segment.md: whole blocks by write(2), a full disk is an error and never a signal. */
#ifndef JUMPER_SEGMENT_H
#define JUMPER_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum block_kind { BLOCK_SCHEMA = 1, BLOCK_ROWS = 2, BLOCK_TEXT = 3 };

struct segment {
    int fd;
    uint64_t sequence;
    int64_t size, cap, dropped;
    int error; /* errno of the last block that could not be written; 0: none */
    char *waiting; /* blocks that the disk refused, until there is room */
    size_t waiting_size, waiting_capacity;
    char *block; /* room to build one */
    size_t block_capacity;
};

/* Make the file (never overwritten) and lock it; false with `error` set. */
bool segment_open(struct segment *segment, const char *path, int64_t cap);
void segment_close(struct segment *segment);
void segment_block(struct segment *segment, enum block_kind kind, const void *payload, size_t size, int64_t mono,
                   int64_t wall);
/* One block of rows: values row by row, UNKNOWN is null. */
void segment_rows(struct segment *segment, int stream, const int64_t *values, size_t rows, size_t columns, int64_t mono,
                  int64_t wall);
/* Write what waits; true where nothing is left. */
bool segment_flush(struct segment *segment);

uint32_t crc32_of(uint32_t before, const void *data, size_t size);

#endif
