/* Any bytes as the files of /proc and as rows of a segment: numbers come out, and what is written is what was given.
 *
 * An entry for libFuzzer; mutate.c drives it where there is none. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native/node.h"
#include "native/parse.h"
#include "native/segment.h"

enum { CORES = 8, HEADER = 64, MOST = 1 << 12 };

static void check(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "broken: %s\n", what);
        abort();
    }
}

static void parse(const char *text, size_t size)
{
    struct stat_fields stat;
    struct io_fields io;
    struct rollup_fields rollup;
    int64_t resident, shared;
    parse_stat(text, size, &stat);
    parse_statm(text, size, &resident, &shared);
    parse_io(text, size, &io);
    if (parse_rollup(text, size, &rollup))
        check(rollup.pss >= 0 && rollup.rss >= 0 && rollup.anon >= 0, "a size below nothing");
    parse_line(text, size, "VmHWM:");
    check(parse_last_pid(text, size) >= -1, "a last pid below -1");
    struct node node;
    check(node_open(&node, CORES), "memory");
    node_parse_cpu(&node, text, size);
    node_parse_memory(&node, text, size);
    node_parse_disks(&node, text, size);
    node_parse_network(&node, text, size);
    node_close(&node);
}

static uint64_t number(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* Bit by bit, from the polynomial alone. */
static uint32_t slow_crc(uint32_t crc, const unsigned char *at, size_t size)
{
    crc = ~crc;
    for (; size > 0; size--) {
        crc ^= *at++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

static const unsigned char *whole_block(const unsigned char *at, size_t left, uint64_t sequence, size_t *length)
{
    check(left >= HEADER && memcmp(at, "JMPB", 4) == 0, "no header");
    *length = number(at + 16, 8);
    size_t whole = (HEADER + *length + 255) / 256 * 256;
    check(number(at + 8, 8) == sequence && whole <= left, "sequence or length");
    check(number(at + 60, 4) == slow_crc(slow_crc(0, at, 60), at + HEADER, *length), "checksum");
    return at + whole;
}

static char folder[] = "/tmp/jumper-fuzz-XXXXXX", path[64];

static void written(const int64_t *values, size_t rows, size_t columns, const void *text, size_t size)
{
    static unsigned char file[4 * MOST];
    int fd = open(path, O_RDONLY);
    ssize_t got = read(fd, file, sizeof file);
    close(fd);
    check(got > 0 && got % 256 == 0, "size of the file");
    const unsigned char *end = file + got, *at = file;
    size_t length, width = (rows + 7) / 8, bitmaps = (width * columns + 7) / 8 * 8;
    const unsigned char *next = whole_block(at, (size_t)(end - at), 0, &length);
    check(length == size && memcmp(at + HEADER, text, size) == 0, "text");
    at = next + HEADER;
    next = whole_block(next, (size_t)(end - next), 1, &length);
    check(next == end && length == 8 + bitmaps + 8 * rows * columns, "length of the rows");
    check(number(at, 2) == 3 && number(at + 2, 2) == columns && number(at + 4, 4) == rows, "shape of the rows");
    for (size_t row = 0; row < rows; row++)
        for (size_t column = 0; column < columns; column++) {
            int64_t given = values[row * columns + column];
            bool valid = at[8 + column * width + row / 8] >> row % 8 & 1;
            int64_t found = (int64_t)number(at + 8 + bitmaps + 8 * (column * rows + row), 8);
            check(valid == (given != UNKNOWN) && found == (valid ? given : 0), "value");
        }
}

static void leave_nothing(void)
{
    unlink(path);
    rmdir(folder);
}

static void segment(const char *text, size_t size)
{
    static int64_t values[MOST / sizeof(int64_t)];
    if (path[0] == '\0') {
        check(mkdtemp(folder) != NULL, "no folder");
        snprintf(path, sizeof path, "%s/a.seg", folder);
        atexit(leave_nothing);
    }
    size = size < MOST ? size : MOST;
    size_t count = size / sizeof *values;
    if (count < 2)
        return;
    memcpy(values, text, count * sizeof *values);
    size_t columns = 1 + (unsigned char)text[0] % count, rows = count / columns;
    struct segment segment;
    check(segment_open(&segment, path, 0), "cannot open");
    segment_block(&segment, BLOCK_TEXT, text, size, 1, 2);
    segment_rows(&segment, 3, values, rows, columns, 3, 4);
    segment_close(&segment);
    written(values, rows, columns, text, size);
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    parse((const char *)data, size);
    segment((const char *)data, size);
    return 0;
}
