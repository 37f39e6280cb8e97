/* The probe under native threads: writers, syncs and maps while rules come and go, holds, and a freeze in full run. */
#define _GNU_SOURCE
#include "check.h"
#include "rmq_probe.h"
#include "rmq_wake.h"
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum { WRITERS = 3, ROUNDS = 400, BLOCK = 64 };

static const rmq_io *io;
static rmq_probe *probe;
static int file;
static int64_t stop;

static void *write_blocks(void *arg) {
    int64_t k = (int64_t)(intptr_t)arg, written = 0;
    char block[BLOCK], name[64];
    memset(block, (int)k, sizeof block);
    snprintf(name, sizeof name, "w%d", (int)k);
    for (int i = 0; i < ROUNDS; i++) {
        int rc = rmq_pwrite_all(io, file, block, BLOCK, (k * ROUNDS + i) * BLOCK);
        CHECK(rc == 0 || rc == -EIO);
        written += rc == 0;
        int fd = io->open(io->ctx, name, O_RDWR | O_CREAT, 0600);
        CHECK(fd >= 0);
        io->fdatasync(io->ctx, fd);
        CHECK(io->close(io->ctx, fd) == 0);
    }
    return (void *)(intptr_t)written;
}

static void *store_through_a_map(void *arg) {
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        void *at = NULL;
        CHECK(io->mmap(io->ctx, file, 0, 4096, 1, &at) == 0);
        memset(at, i, 8);
        io->map_store(io->ctx, file, 0, at, 8);
        CHECK(io->msync(io->ctx, file, at, 4096) == 0);
        CHECK(io->munmap(io->ctx, at, 4096) == 0);
    }
    return NULL;
}

static void *meddle(void *arg) {
    (void)arg;
    while (rmq_load(&stop) == 0) {
        CHECK(rmq_probe_fail(probe, RMQ_CALLS(RMQ_CALL_PWRITE), 5, EIO, NULL, 0) == 0);
        CHECK(rmq_probe_fail(probe, RMQ_CALLS(RMQ_CALL_PWRITE), 2, EINTR, NULL, 0) == 0);
        CHECK(rmq_probe_shorten(probe, RMQ_CALLS(RMQ_CALL_PWRITE), 3, NULL, 0) == 0);
        CHECK(rmq_probe_hold(probe, RMQ_CALLS(RMQ_CALL_FDATASYNC), NULL) == 0);
        rmq_probe_wait_held(probe, 1, 200000);
        CHECK(rmq_probe_hold(probe, 0, NULL) == 0);
        rmq_probe_clock(probe, 0, 1000, 1);
        CHECK(io->wall_ms(io->ctx) >= 1000);
        rmq_call call;
        int64_t n = rmq_probe_length(probe);
        CHECK(n >= 0 && rmq_probe_at(probe, n, &call) <= 0);
        rmq_probe_clear(probe);
    }
    return NULL;
}

static void test_threads(void) {
    pthread_t t[WRITERS], mapper, meddler;
    int64_t written = 0, seen = 0;
    CHECK(rmq_thread_start(&meddler, meddle, NULL, "meddle") == 0);
    CHECK(rmq_thread_start(&mapper, store_through_a_map, NULL, "map") == 0);
    for (int i = 0; i < WRITERS; i++) CHECK(rmq_thread_start(&t[i], write_blocks, (void *)(intptr_t)(i + 1), "write") == 0);
    for (int i = 0; i < WRITERS; i++) {
        void *result;
        CHECK(pthread_join(t[i], &result) == 0);
        written += (int64_t)(intptr_t)result;
    }
    CHECK(rmq_thread_join(&mapper) == 0);
    rmq_publish(&stop, 1);
    CHECK(rmq_thread_join(&meddler) == 0);
    /* Every byte that a write claims is in the trace, no matter who spoiled what. */
    int64_t bytes = 0;
    for (int64_t i = 0; i < rmq_probe_length(probe); i++) {
        rmq_call c;
        CHECK(rmq_probe_at(probe, i, &c) == 0 && c.begin <= i);
        if (c.kind == RMQ_CALL_PWRITE && c.result > 0) bytes += c.result;
        if (c.kind == RMQ_CALL_PWRITE && c.result > 0) CHECK(c.data_size == c.result && c.data[0] == c.offset / BLOCK / ROUNDS);
        seen++;
    }
    CHECK(bytes >= written * BLOCK && seen > ROUNDS);
}

static void *store_for_ever(void *arg) {
    unsigned char *at = arg;
    for (int64_t i = 1; rmq_load(&stop) == 0; i++) {
        rmq_publish((int64_t *)(void *)at, i);
        io->map_store(io->ctx, file, 0, at, 8);
    }
    return NULL;
}

static void test_freeze_in_full_run(void) {
    pthread_t t;
    void *at = NULL;
    int64_t first = 0, second = 0;
    rmq_publish(&stop, 0);
    CHECK(io->mmap(io->ctx, file, 0, 4096, 1, &at) == 0);
    CHECK(rmq_thread_start(&t, store_for_ever, at, "store") == 0);
    CHECK(rmq_probe_freeze(probe, RMQ_CALLS(RMQ_CALL_MAP_STORE), 1000, NULL) == 0);
    while (!rmq_probe_frozen(probe)) rmq_pause();
    CHECK(io->pread(io->ctx, file, &first, 8, 0) == 8);
    int64_t later = rmq_load((int64_t *)at) + 100;
    while (rmq_load((int64_t *)at) < later) rmq_pause(); /* the program runs on ... */
    CHECK(io->pread(io->ctx, file, &second, 8, 0) == 8);
    CHECK(first >= 1000 && first == second); /* ... and the file does not */
    rmq_publish(&stop, 1);
    CHECK(rmq_thread_join(&t) == 0);
    CHECK(io->munmap(io->ctx, at, 4096) == 0);
}

int main(int argc, char **argv) {
    limit_seconds(120);
    CHECK(argc == 2 && chdir(argv[1]) == 0); /* an empty directory to work in */
    probe = rmq_probe_new(rmq_io_system(), 1);
    CHECK(probe != NULL);
    io = rmq_probe_table(probe);
    file = io->open(io->ctx, "file", O_RDWR | O_CREAT, 0600);
    CHECK(file >= 0 && io->ftruncate(io->ctx, file, 4096) == 0);
    test_threads();
    test_freeze_in_full_run();
    CHECK(io->close(io->ctx, file) == 0);
    rmq_probe_free(probe);
    return 0;
}
