/* replay.c: a fuzzer without libFuzzer, for the test run: each seed unchanged and changed, a few
 * thousand inputs in all, the same ones in each run. `make fuzz` covers more.
 *
 *     fuzz_NAME SEED… */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_MAX = 64 * 1024, ALL_ROUNDS = 6000, ROOM = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static uint64_t state = 0x9e3779b97f4a7c15;

static size_t any(size_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below ? (size_t)(state % below) : 0;
}

/* Change, take out, put in or repeat something of it. */
static size_t change(uint8_t *data, size_t bytes)
{
    static const char *const marks[] = {"\r\n", "\0", "\xff",        "{\"", "\\u0000",
                                        ":",    "-",  "99999999999", "{{",  "//"};
    size_t at = any(bytes + 1), run = any(bytes - at + 1) % 16;
    const char *mark = marks[any(sizeof marks / sizeof *marks)];
    size_t length = *mark ? strlen(mark) : 1;

    switch (any(4)) {
    case 0:
        if (at < bytes)
            data[at] = (uint8_t)any(256);
        return bytes;
    case 1:
        memmove(data + at, data + at + run, bytes - at - run);
        return bytes - run;
    case 2:
        memmove(data + at + length, data + at, bytes - at);
        memcpy(data + at, mark, length);
        return bytes + length;
    default:
        memmove(data + at + run, data + at, bytes - at);
        return bytes + run;
    }
}

/* In memory that is exactly as long, so that a sanitizer sees a byte too far. */
static void try(const uint8_t *data, size_t bytes)
{
    uint8_t *exact = malloc(bytes ? bytes : 1);
    if (!exact)
        abort();
    memcpy(exact, data, bytes);
    LLVMFuzzerTestOneInput(exact, bytes);
    free(exact);
}

static void replay(const char *path, int rounds)
{
    static uint8_t seed[INPUT_MAX], data[INPUT_MAX + ROOM];
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(1);
    }
    size_t seed_bytes = fread(seed, 1, sizeof seed, file);
    fclose(file);
    try(seed, seed_bytes);
    for (int round = 0; round < rounds; round++) {
        size_t bytes = seed_bytes;
        memcpy(data, seed, bytes);
        for (size_t n = 1 + any(4); n > 0 && bytes < INPUT_MAX; n--)
            bytes = change(data, bytes);
        try(data, bytes);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s SEED...\n", argv[0]);
        return 2;
    }
    int rounds = 1 + ALL_ROUNDS / (argc - 1);
    for (int i = 1; i < argc; i++)
        replay(argv[i], rounds);
    printf("1..1\nok 1 - %d seeds, %d inputs each\n", argc - 1, rounds + 1);
    return 0;
}
