/* io_uring with more and more of what it offers: uring_steps FILE BLOCK COUNT DEPTH MEANS
 *
 * Writes COUNT blocks of BLOCK bytes, one behind the other, into a file that is there and long enough, at most DEPTH under
 * way. MEANS, letters: p pwrite instead of io_uring; b registered buffers; f registered file; t SINGLE_ISSUER and
 * DEFER_TASKRUN; q SQPOLL; d O_DIRECT; each block durable: s by a write, then an fdatasync; l by both linked in one
 * submission; y by RWF_DSYNC. Without s, l or y one fdatasync ends it all. Prints seconds, CPU seconds of all its threads, the
 * kernel's included, and the median and the 99th percentile of a block's nanoseconds, from its begin to its end. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <liburing.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 64 };
static int has[128];
static int64_t begun[MOST], *took;
static char *memory[MOST];

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static int64_t cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    int64_t secs = u.ru_utime.tv_sec + u.ru_stime.tv_sec, us = u.ru_utime.tv_usec + u.ru_stime.tv_usec;
    return secs * 1000000000 + us * 1000;
}
static int fail(const char *what, int code) {
    fprintf(stderr, "%s: %s\n", what, strerror(code));
    return 1;
}
static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int by_pwrite(int fd, size_t block, long count) {
    for (long i = 0; i < count; i++) {
        int64_t start = now();
        if (pwrite(fd, memory[0], block, i * (off_t)block) != (ssize_t)block) return fail("pwrite", errno);
        if (has['s'] && fdatasync(fd) != 0) return fail("fdatasync", errno);
        took[i] = now() - start;
    }
    return 0;
}

/* One sync by the ring, and its end. */
static int sync_now(struct io_uring *ring, int fd) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    struct io_uring_cqe *cqe;
    io_uring_prep_fsync(sqe, has['f'] ? 0 : fd, IORING_FSYNC_DATASYNC);
    if (has['f']) sqe->flags |= IOSQE_FIXED_FILE;
    int rc = io_uring_submit_and_wait(ring, 1);
    if (rc < 0) return fail("submit", -rc);
    if ((rc = io_uring_wait_cqe(ring, &cqe)) < 0) return fail("wait", -rc);
    rc = cqe->res;
    io_uring_cqe_seen(ring, cqe);
    return rc < 0 ? fail("fsync", -rc) : 0;
}

static int by_ring(int fd, size_t block, long count, int depth) {
    struct io_uring ring;
    struct io_uring_params p = {0};
    struct iovec v[MOST];
    int parts[MOST] = {0}; /* completions that are still to come, by buffer */
    if (has['t']) p.flags |= IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    if (has['q']) {
        p.flags |= IORING_SETUP_SQPOLL;
        p.sq_thread_idle = 100;
    }
    int rc = io_uring_queue_init_params(2 * MOST, &ring, &p);
    if (rc < 0) return fail("io_uring_setup", -rc);
    for (int i = 0; i < depth; i++) v[i] = (struct iovec){memory[i], block};
    if (has['b'] && (rc = io_uring_register_buffers(&ring, v, (unsigned)depth)) < 0) return fail("register buffers", -rc);
    if (has['f'] && (rc = io_uring_register_files(&ring, &fd, 1)) < 0) return fail("register files", -rc);
    int target = has['f'] ? 0 : fd, flying = 0;
    unsigned fixed = has['f'] ? IOSQE_FIXED_FILE : 0;
    long next = 0, done = 0;
    while (done < count) {
        for (int i = 0; i < depth && next < count; i++) {
            if (parts[i]) continue;
            struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
            off_t at = next++ * (off_t)block;
            if (has['b']) io_uring_prep_write_fixed(sqe, target, memory[i], (unsigned)block, (uint64_t)at, i);
            else io_uring_prep_write(sqe, target, memory[i], (unsigned)block, (uint64_t)at);
            if (has['y']) sqe->rw_flags |= RWF_DSYNC;
            sqe->flags |= fixed | (has['l'] ? IOSQE_IO_LINK : 0);
            io_uring_sqe_set_data64(sqe, (uint64_t)i);
            begun[i] = now();
            parts[i] = 1;
            if (has['l']) {
                sqe = io_uring_get_sqe(&ring);
                io_uring_prep_fsync(sqe, target, IORING_FSYNC_DATASYNC);
                sqe->flags |= fixed;
                io_uring_sqe_set_data64(sqe, (uint64_t)i | 1 << 16);
                parts[i] = 2;
            }
            flying += parts[i];
        }
        if ((rc = io_uring_submit_and_wait(&ring, has['l'] && depth == 1 ? 2 : 1)) < 0) return fail("submit", -rc);
        struct io_uring_cqe *cqe;
        while (flying > 0 && io_uring_peek_cqe(&ring, &cqe) == 0) {
            int i = (int)(cqe->user_data & 0xffff), sync = cqe->user_data >> 16 != 0, result = cqe->res;
            io_uring_cqe_seen(&ring, cqe);
            if (result < 0 || (!sync && result != (int)block))
                return fail(sync ? "fsync" : "write", result < 0 ? -result : EIO);
            flying--;
            if (--parts[i] == 0) {
                if (has['s'] && sync_now(&ring, fd) != 0) return 1;
                took[done++] = now() - begun[i];
            }
        }
    }
    io_uring_queue_exit(&ring);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 6 || atoi(argv[4]) < 1 || atoi(argv[4]) > MOST || atol(argv[3]) < 1) {
        fprintf(stderr, "usage: uring_steps FILE BLOCK COUNT DEPTH MEANS\n");
        return 64;
    }
    size_t block = (size_t)atol(argv[2]);
    long count = atol(argv[3]);
    int depth = atoi(argv[4]);
    for (const char *c = argv[5]; *c; c++) has[(unsigned char)*c & 127] = 1;
    if (has['s'] && depth > 1) return fail("s with a depth", EINVAL);
    int fd = open(argv[1], O_RDWR | O_CLOEXEC | (has['d'] ? O_DIRECT : 0));
    if (fd < 0) return fail("open", errno);
    took = calloc((size_t)count, sizeof *took);
    for (int i = 0; i < depth; i++) {
        if (posix_memalign((void **)&memory[i], 4096, block) != 0) return fail("memory", ENOMEM);
        memset(memory[i], i + 1, block);
    }
    int64_t used = cpu(), start = now();
    if (has['p'] ? by_pwrite(fd, block, count) : by_ring(fd, block, count, depth)) return 1;
    if (!has['s'] && !has['l'] && !has['y'] && fdatasync(fd) != 0) return fail("fdatasync", errno);
    int64_t end = now();
    qsort(took, (size_t)count, sizeof *took, ascending);
    printf("%.6f %.6f %lld %lld\n", (double)(end - start) / 1e9, (double)(cpu() - used) / 1e9, (long long)took[count / 2],
           (long long)took[count * 99 / 100]);
    return 0;
}
