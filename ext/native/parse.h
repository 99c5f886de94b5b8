/* Parsers of the files of /proc: bytes in, numbers out, no allocation, no assumption about what the bytes are. */
#ifndef JUMPER_PARSE_H
#define JUMPER_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where nothing is known; stored as null. */
#define UNKNOWN INT64_MIN

struct stat_fields {
    char state;
    int64_t pid, ppid, minflt, cminflt, utime, stime, cutime, cstime, threads, start;
    uint64_t stack;
    int64_t session, majflt, rss; /* rss in pages, short of what each CPU has not handed in yet */
    int64_t flags;
};

struct io_fields {
    int64_t read_chars, write_chars, reads, writes, read_bytes, write_bytes;
};

struct rollup_fields {
    int64_t pss, rss, anon;
};

/* Products and sums of what was read; what is larger than any counter stays the largest number. */
static inline int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

static inline int64_t plus(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/* /proc/PID/stat, proc_pid_stat(5); false where it is cut short. */
bool parse_stat(const char *text, size_t size, struct stat_fields *out);
/* /proc/PID/statm: resident and shared pages. */
bool parse_statm(const char *text, size_t size, int64_t *resident, int64_t *shared);
/* One number after `name` at the start of a line, such as "VmHWM:"; UNKNOWN where there is none. */
int64_t parse_line(const char *text, size_t size, const char *name);
/* /proc/PID/io, proc_pid_io(5). */
bool parse_io(const char *text, size_t size, struct io_fields *out);
/* smaps_rollup, in bytes. */
bool parse_rollup(const char *text, size_t size, struct rollup_fields *out);
/* The last pid given out, fifth field of /proc/loadavg; -1 where there is none. */
int64_t parse_last_pid(const char *text, size_t size);
/* A cursor over decimal numbers: skips blanks, reads one number, false at the end of the text. */
bool next_number(const char **at, const char *end, int64_t *value);

#endif
