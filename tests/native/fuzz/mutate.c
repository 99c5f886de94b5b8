/* A fuzzer for compilers without one: seeds as they are, cut at every length, and changed at random for some seconds.
 *
 * mutate SECONDS FOLDER: prints how many texts it tried. The order of random numbers is always the same. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_SEEDS = 256, MOST_SIZE = 1 << 16, MOST_CUTS = 400, CHANGES = 6 };

static struct text {
    char *data;
    size_t size;
} seeds[MOST_SEEDS];
static size_t seed_count;
static uint64_t state = 88172645463325252u;

static size_t below(size_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return limit ? (size_t)(state % limit) : 0;
}

/* In memory of just its size: reading past the end is seen. */
static void try_text(const char *data, size_t size)
{
    char *exact = malloc(size);
    if (size)
        memcpy(exact, data, size);
    LLVMFuzzerTestOneInput((uint8_t *)exact, size);
    free(exact);
}

static void load(const char *folder)
{
    DIR *listing = opendir(folder);
    for (struct dirent *entry; listing != NULL && (entry = readdir(listing)) != NULL && seed_count < MOST_SEEDS;) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *file = entry->d_name[0] != '.' ? fopen(path, "rb") : NULL;
        if (file == NULL)
            continue;
        struct text *seed = &seeds[seed_count++];
        seed->data = malloc(MOST_SIZE);
        seed->size = fread(seed->data, 1, MOST_SIZE, file);
        fclose(file);
    }
    if (listing != NULL)
        closedir(listing);
}

static size_t change(char *text, size_t size)
{
    static const char *const numbers[] = {"0", "-1", "9223372036854775807", "18446744073709551615", "4294967296",
                                          "99999999999999999999999", "", "\r", ":", ")", "\n", " "};
    size_t at = below(size + 1), length;
    switch (below(5)) {
    case 0:
        if (at < size)
            text[at] = (char)below(256);
        return size;
    case 1: /* leave something out */
        length = below(size - at < 40 ? size - at + 1 : 40);
        memmove(text + at, text + at + length, size - at - length);
        return size - length;
    case 2: { /* put something in */
        const char *put = numbers[below(sizeof numbers / sizeof *numbers)];
        length = strlen(put);
        if (size + length > MOST_SIZE)
            return size;
        memmove(text + at + length, text + at, size - at);
        memcpy(text + at, put, length);
        return size + length;
    }
    case 3: { /* the end of another seed */
        const struct text *other = &seeds[below(seed_count)];
        size_t from = below(other->size + 1);
        length = other->size - from < MOST_SIZE - at ? other->size - from : MOST_SIZE - at;
        memcpy(text + at, other->data + from, length);
        return at + length;
    }
    default:
        return at;
    }
}

int main(int count, char **arguments)
{
    static char text[MOST_SIZE];
    if (count != 3)
        return 2;
    load(arguments[2]);
    if (seed_count == 0)
        return 2;
    unsigned long tried = 0;
    for (size_t i = 0; i < seed_count; i++)
        for (size_t size = 0; size <= seeds[i].size; size += 1 + seeds[i].size / MOST_CUTS, tried++)
            try_text(seeds[i].data, size);
    time_t end = time(NULL) + atoi(arguments[1]);
    for (; time(NULL) < end; tried++) {
        const struct text *seed = &seeds[below(seed_count)];
        size_t size = seed->size;
        memcpy(text, seed->data, size);
        for (size_t changes = 1 + below(CHANGES); changes > 0; changes--)
            size = change(text, size);
        try_text(text, size);
    }
    for (size_t i = 0; i < seed_count; i++)
        free(seeds[i].data);
    printf("%lu texts\n", tried);
    return 0;
}
