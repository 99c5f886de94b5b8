/* The writer of a segment: see segment.h. */
#define _GNU_SOURCE
#include "segment.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "parse.h"
#include "procfile.h"

enum { HEADER = 64, ALIGN = 256, FORMAT = 1, MOST_WAITING = 256 << 10, ROWS_HEADER = 8, CRC_AT = 60 };
#define POLYNOMIAL 0xEDB88320u

static uint32_t crc_table[256];
static pthread_once_t crc_once = PTHREAD_ONCE_INIT; /* engines of one process may start at the same time */

static void fill_crc_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c & 1 ? c >> 1 ^ POLYNOMIAL : c >> 1;
        crc_table[i] = c;
    }
}

/* The CRC of zlib and of IEEE 802.3. */
uint32_t crc32_of(uint32_t before, const void *data, size_t size)
{
    pthread_once(&crc_once, fill_crc_table);
    uint32_t crc = ~before;
    for (const unsigned char *p = data; size > 0; size--)
        crc = crc_table[(crc ^ *p++) & 0xFF] ^ crc >> 8;
    return ~crc;
}

static void little(char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (char)(value >> (8 * i));
}

static bool room(char **buffer, size_t *capacity, size_t size)
{
    if (size <= *capacity)
        return true;
    size_t grown = *capacity ? *capacity : 4096;
    while (grown < size)
        grown *= 2;
    char *bigger = realloc(*buffer, grown);
    if (bigger == NULL)
        return false;
    *buffer = bigger;
    *capacity = grown;
    return true;
}

static size_t padded(size_t size) { return (size + ALIGN - 1) / ALIGN * ALIGN; }

static size_t block_size(const char *block)
{
    uint64_t length = 0;
    for (int i = 0; i < 8; i++)
        length |= (uint64_t)(unsigned char)block[16 + i] << (8 * i);
    return padded(HEADER + (size_t)length);
}

bool segment_open(struct segment *segment, const char *path, int64_t cap)
{
    *segment = (struct segment){.fd = -1, .cap = cap};
    segment->fd = above_standard(open(path, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600));
    if (segment->fd < 0) {
        segment->error = errno;
        return false;
    }
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    fcntl(segment->fd, F_SETLK, &lock); /* some shared file systems have none; an adopter then looks at the pid */
    return true;
}

void segment_close(struct segment *segment)
{
    if (segment->fd >= 0) {
        segment_flush(segment);
        close(segment->fd);
        for (size_t at = 0; at < segment->waiting_size; at += block_size(segment->waiting + at))
            segment->dropped++;
    }
    free(segment->waiting);
    free(segment->block);
    segment->fd = -1;
    segment->waiting = segment->block = NULL;
    segment->waiting_size = segment->waiting_capacity = segment->block_capacity = 0;
}

static bool append(struct segment *segment, const char *block, size_t size)
{
    struct stat info;
    bool known = fstat(segment->fd, &info) == 0;
    if (known && info.st_nlink == 0) { /* its folder was removed: nobody would find it */
        segment->error = ENOENT;
        return false;
    }
    int64_t held = segment->size; /* what was shipped may have been given back to the disk: fallocate(2), holes */
    if (known && info.st_blocks * 512 < held)
        held = info.st_blocks * 512;
    if (segment->cap > 0 && held + (int64_t)size > segment->cap) {
        segment->error = ENOSPC;
        return false;
    }
    ssize_t written = write(segment->fd, block, size);
    if (written == (ssize_t)size) {
        segment->size += written;
        return true;
    }
    segment->error = written < 0 ? errno : ENOSPC;
    if (written > 0 && ftruncate(segment->fd, segment->size) != 0)
        segment->error = errno;
    return false;
}

bool segment_flush(struct segment *segment)
{
    size_t done = 0;
    while (done < segment->waiting_size) {
        size_t size = block_size(segment->waiting + done);
        if (!append(segment, segment->waiting + done, size))
            break;
        done += size;
    }
    if (done > 0) {
        segment->waiting_size -= done;
        memmove(segment->waiting, segment->waiting + done, segment->waiting_size);
    }
    return segment->waiting_size == 0;
}

/* Drop the oldest blocks that wait, but never a schema: rows that come after it could not be read without. */
static void shed(struct segment *segment)
{
    size_t at = 0;
    while (segment->waiting_size > MOST_WAITING && at < segment->waiting_size) {
        size_t size = block_size(segment->waiting + at);
        if (segment->waiting[at + 6] == BLOCK_SCHEMA) {
            at += size;
            continue;
        }
        memmove(segment->waiting + at, segment->waiting + at + size, segment->waiting_size - at - size);
        segment->waiting_size -= size;
        segment->dropped++;
    }
}

static void send_block(struct segment *segment, size_t length)
{
    size_t size = padded(HEADER + length);
    if (segment_flush(segment) && append(segment, segment->block, size))
        return;
    if (!room(&segment->waiting, &segment->waiting_capacity, segment->waiting_size + size)) {
        segment->dropped++;
        return;
    }
    memcpy(segment->waiting + segment->waiting_size, segment->block, size);
    segment->waiting_size += size;
    shed(segment);
}

static void finish(struct segment *segment, enum block_kind kind, size_t length, int64_t mono, int64_t wall)
{
    char *head = segment->block;
    memset(head, 0, HEADER);
    memcpy(head, "JMPB", 4);
    little(head + 4, FORMAT, 2);
    little(head + 6, kind, 2);
    little(head + 8, segment->sequence++, 8);
    little(head + 16, length, 8);
    little(head + 24, (uint64_t)mono, 8);
    little(head + 32, (uint64_t)wall, 8);
    little(head + CRC_AT, crc32_of(crc32_of(0, head, CRC_AT), head + HEADER, length), 4);
    memset(head + HEADER + length, 0, padded(HEADER + length) - HEADER - length);
    send_block(segment, length);
}

void segment_block(struct segment *segment, enum block_kind kind, const void *payload, size_t size, int64_t mono,
                   int64_t wall)
{
    if (segment->fd < 0)
        return;
    if (!room(&segment->block, &segment->block_capacity, padded(HEADER + size))) {
        segment->dropped++;
        return;
    }
    memcpy(segment->block + HEADER, payload, size);
    finish(segment, kind, size, mono, wall);
}

void segment_rows(struct segment *segment, int stream, const int64_t *values, size_t rows, size_t columns, int64_t mono,
                  int64_t wall)
{
    if (segment->fd < 0 || rows == 0)
        return;
    size_t width = (rows + 7) / 8, bitmaps = (width * columns + 7) / 8 * 8;
    size_t length = ROWS_HEADER + bitmaps + rows * columns * 8;
    if (!room(&segment->block, &segment->block_capacity, padded(HEADER + length))) {
        segment->dropped++;
        return;
    }
    char *payload = segment->block + HEADER, *bits = payload + ROWS_HEADER, *body = bits + bitmaps;
    little(payload, (uint64_t)stream, 2);
    little(payload + 2, columns, 2);
    little(payload + 4, rows, 4);
    memset(bits, 0, bitmaps);
    for (size_t column = 0; column < columns; column++)
        for (size_t row = 0; row < rows; row++) {
            int64_t value = values[row * columns + column];
            if (value != UNKNOWN)
                bits[column * width + row / 8] |= (char)(1 << row % 8);
            little(body + (column * rows + row) * 8, (uint64_t)(value != UNKNOWN ? value : 0), 8);
        }
    finish(segment, BLOCK_ROWS, length, mono, wall);
}
