/* The least a synchronous put can cost: pwrite and fdatasync in a C loop. bare_sync FILE OFFSET SIZE COUNT
 *
 * Writes COUNT pieces of SIZE zero bytes, one behind the other from OFFSET, into a file that exists, each followed by
 * fdatasync, and prints the nanoseconds of each pair on a line. Zeros: the region may be the pre-zeroed rest of a live
 * commit-log file, which stays what it is. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: bare_sync FILE OFFSET SIZE COUNT\n");
        return 64;
    }
    int64_t at = strtoll(argv[2], NULL, 10);
    size_t size = (size_t)strtoll(argv[3], NULL, 10);
    long count = strtol(argv[4], NULL, 10);
    int fd = open(argv[1], O_RDWR | O_CLOEXEC);
    char *zeros = calloc(1, size);
    int64_t *took = calloc((size_t)count, sizeof *took);
    if (fd < 0) return fail("open");
    if (!zeros || !took) return fail("calloc");
    for (long i = 0; i < count; i++, at += (int64_t)size) {
        int64_t start = now();
        if (pwrite(fd, zeros, size, at) != (ssize_t)size) return fail("pwrite");
        if (fdatasync(fd) != 0) return fail("fdatasync");
        took[i] = now() - start;
    }
    for (long i = 0; i < count; i++) printf("%lld\n", (long long)took[i]);
    return 0;
}
