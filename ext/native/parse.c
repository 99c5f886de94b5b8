/* Parsers of the files of /proc: see parse.h. */
#define _GNU_SOURCE
#include "parse.h"

#include <string.h>

enum { LAST_STAT_FIELD = 28, STATE_FIELD = 3 };

/* The fields of /proc/PID/stat that are used, a bit each: turning the others into numbers is a third of the work. */
#define FIELD(number) (1u << (number))
static const unsigned USED = FIELD(4) | FIELD(6) | FIELD(9) | FIELD(10) | FIELD(11) | FIELD(12) | FIELD(14) | FIELD(15) |
                             FIELD(16) | FIELD(17) | FIELD(20) | FIELD(22) | FIELD(24) | FIELD(28);

static bool digit(char c) { return c >= '0' && c <= '9'; }

bool next_number(const char **at, const char *end, int64_t *value)
{
    const char *p = *at;
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    bool negative = p < end && *p == '-';
    if (negative)
        p++;
    if (p >= end || !digit(*p))
        return false;
    uint64_t n = 0;
    while (p < end && digit(*p))
        n = n * 10 + (uint64_t)(*p++ - '0');
    *value = (int64_t)(negative ? 0 - n : n);
    *at = p;
    return true;
}

/* Step over one field; false at the end of the text. */
static bool skip_field(const char **at, const char *end)
{
    const char *p = *at;
    while (p < end && *p == ' ')
        p++;
    const char *begin = p;
    while (p < end && *p != ' ')
        p++;
    *at = p;
    return p > begin;
}

bool parse_stat(const char *text, size_t size, struct stat_fields *out)
{
    const char *end = text + size, *at = text;
    const char *closing = memrchr(text, ')', size);
    if (closing == NULL || closing + 3 >= end || !next_number(&at, end, &out->pid))
        return false;
    out->state = closing[2];
    at = closing + 3;
    int64_t fields[LAST_STAT_FIELD + 1];
    for (int field = STATE_FIELD + 1; field <= LAST_STAT_FIELD; field++)
        if (!(USED & FIELD(field) ? next_number(&at, end, &fields[field]) : skip_field(&at, end)))
            return false;
    if (at >= end) /* a last field that is cut off would be a smaller number */
        return false;
    out->ppid = fields[4];
    out->minflt = fields[10];
    out->cminflt = fields[11];
    out->utime = fields[14];
    out->stime = fields[15];
    out->cutime = fields[16];
    out->cstime = fields[17];
    out->threads = fields[20];
    out->start = fields[22];
    out->stack = (uint64_t)fields[28];
    out->session = fields[6];
    out->majflt = fields[12];
    out->rss = fields[24];
    out->flags = fields[9];
    return true;
}

bool parse_statm(const char *text, size_t size, int64_t *resident, int64_t *shared)
{
    const char *at = text, *end = text + size;
    int64_t total;
    return next_number(&at, end, &total) && next_number(&at, end, resident) && next_number(&at, end, shared);
}

int64_t parse_line(const char *text, size_t size, const char *name)
{
    size_t length = strlen(name);
    const char *end = text + size;
    for (const char *line = text; line != NULL && line < end;) {
        if ((size_t)(end - line) > length && memcmp(line, name, length) == 0) {
            const char *at = line + length;
            int64_t value;
            return next_number(&at, end, &value) ? value : UNKNOWN;
        }
        line = memchr(line, '\n', (size_t)(end - line));
        if (line != NULL)
            line++;
    }
    return UNKNOWN;
}

bool parse_io(const char *text, size_t size, struct io_fields *out)
{
    int64_t *values[] = {&out->read_chars, &out->write_chars, &out->reads,
                         &out->writes,     &out->read_bytes,  &out->write_bytes};
    const char *at = text, *end = text + size;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        at = at < end ? memchr(at, ':', (size_t)(end - at)) : NULL;
        if (at == NULL)
            return false;
        at++;
        if (!next_number(&at, end, values[i]))
            return false;
    }
    return true;
}

bool parse_rollup(const char *text, size_t size, struct rollup_fields *out)
{
    out->pss = parse_line(text, size, "Pss:");
    out->rss = parse_line(text, size, "Rss:");
    out->anon = parse_line(text, size, "Anonymous:");
    if (out->pss < 0 || out->rss < 0 || out->anon < 0)
        return false;
    out->pss = times(out->pss, 1024);
    out->rss = times(out->rss, 1024);
    out->anon = times(out->anon, 1024);
    return true;
}

int64_t parse_last_pid(const char *text, size_t size)
{
    while (size > 0 && !digit(text[size - 1]))
        size--;
    size_t begin = size;
    while (begin > 0 && digit(text[begin - 1]))
        begin--;
    const char *at = text + begin;
    int64_t value;
    return begin > 0 && next_number(&at, text + size, &value) && value >= 0 && value <= INT32_MAX ? value : -1;
}
