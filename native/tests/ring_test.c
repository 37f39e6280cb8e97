/* The ring under everything the kernel may answer: short writes, EINTR, EAGAIN, EBUSY, broken chains, a completion queue that
 * overflows, errors in the middle. Answers are put in by the probe; the ring and the file are real. */
#define _GNU_SOURCE
#include "check.h"
#include "rmq_probe.h"
#include "rmq_ring.h"
#include <fcntl.h>
#include <liburing.h>
#include <string.h>

enum { BLOCK = RMQ_RING_BLOCK, BLOCKS = 64 };

static unsigned char *memory;
static rmq_probe *probe;
static const rmq_io *io;
static rmq_io watched;
static int file;
static unsigned wishes;
static int overflows; /* submissions after which the kernel held completions back, because their queue was full */

static unsigned most; /* entries that the next submission takes, as where memory for requests runs out; 0: all */

static int watched_submit(void *ctx, void *ring, unsigned wait) {
    struct io_uring_sq *sq = &((struct io_uring *)ring)->sq;
    unsigned tail = sq->sqe_tail, part = most;
    most = 0;
    if (part > 0 && part < tail - sq->sqe_head) {
        sq->sqe_tail = sq->sqe_head + part;
        wait = 0; /* nor does the kernel wait then */
    }
    int rc = rmq_probe_table(probe)->ring_submit(ctx, ring, wait);
    sq->sqe_tail = tail;
    overflows += (__atomic_load_n(((struct io_uring *)ring)->sq.kflags, __ATOMIC_RELAXED) & IORING_SQ_CQ_OVERFLOW) != 0;
    return rc;
}

static int start(void) {
    probe = rmq_probe_new(rmq_io_system(), 0);
    CHECK(probe != NULL);
    watched = *rmq_probe_table(probe);
    watched.ring_submit = watched_submit;
    io = &watched;
    file = io->open(io->ctx, "ring.data", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0);
    return 0;
}

static void end(void) {
    io->close(io->ctx, file);
    rmq_probe_free(probe);
}

static rmq_ring *ring_of(unsigned depth, unsigned entries) {
    rmq_ring *r = NULL;
    int rc = rmq_ring_new(io, depth, wishes, entries, &r);
    if (rc < 0) {
        printf("no ring here: %s\n", strerror(-rc));
        exit(0);
    }
    rmq_ring_pool(r, memory, (size_t)BLOCK * BLOCKS, NULL, 0);
    CHECK(rmq_ring_enable(r) == 0);
    return r;
}

/* Writes all blocks, some in flight; ends must come back in order. Returns the ring's error. */
static int write_blocks(rmq_ring *r, int slot) {
    int rc = 0, begun = 0, taken = 0;
    rmq_flight done;
    while (rc == 0 && taken < BLOCKS) {
        while (begun < BLOCKS && rmq_ring_room(r) > 1) {
            rmq_ring_write(r, slot, file, memory + (size_t)begun * BLOCK, BLOCK, (int64_t)begun * BLOCK, begun + 1, NULL, 0, 0);
            begun++;
        }
        rc = rmq_ring_turn(r, 1, NULL);
        while (rmq_ring_take(r, &done)) {
            CHECK(done.end == taken + 1);
            taken++;
        }
    }
    return rc;
}

static void check_file(void) {
    static unsigned char back[BLOCK * BLOCKS];
    CHECK(rmq_pread_all(io, file, back, sizeof back, 0) == (int64_t)sizeof back);
    CHECK(memcmp(back, memory, sizeof back) == 0);
}

static void whole(unsigned depth, unsigned entries, uint64_t kinds, int error, int shorten, int64_t nth, int sticky_times) {
    start();
    for (int i = 0; i < sticky_times; i++) {
        if (shorten) CHECK(rmq_probe_shorten(probe, kinds, nth + i, NULL, 0) == 0);
        else if (error) CHECK(rmq_probe_fail(probe, kinds, nth + i, error, NULL, 0) == 0);
    }
    rmq_ring *r = ring_of(depth, entries);
    int slot = rmq_ring_file(r, 1, file) == 0 ? 1 : -1;
    CHECK(write_blocks(r, slot) == 0);
    CHECK(rmq_probe_hits(probe) == sticky_times || !(error || shorten));
    check_file();
    CHECK(rmq_ring_facts_of(r)->writes >= BLOCKS);
    CHECK(rmq_ring_drain(r) == 0);
    rmq_ring_free(r);
    end();
}

static void chain(uint64_t kinds, int error, int shorten, int expect, int expect_sync) {
    start();
    if (shorten) CHECK(rmq_probe_shorten(probe, kinds, 1, NULL, 0) == 0);
    else if (error) CHECK(rmq_probe_fail(probe, kinds, 1, error, NULL, 0) == 0);
    rmq_ring *r = ring_of(4, 0);
    int in_sync = 0, rc = 0;
    rmq_flight done;
    rmq_ring_write(r, -1, file, memory, 2 * BLOCK, 0, 1, NULL, 0, 1);
    rmq_ring_sync(r, -1, file, 2, NULL);
    int64_t reached = 0;
    while (rc == 0 && rmq_ring_count(r) > 0) {
        rc = rmq_ring_turn(r, 1, &in_sync);
        while (rmq_ring_take(r, &done)) reached = done.end;
    }
    CHECK(rc == expect && in_sync == expect_sync);
    CHECK(rc < 0 || reached == 2);
    if (rc == 0) {
        /* The sync that counted ran behind the whole write: no entry of the write came after it. */
        int64_t last_write = 0, last_sync = 0;
        rmq_call c;
        for (int64_t i = 0; rmq_probe_at(probe, i, &c) == 0; i++) {
            if (c.kind == RMQ_CALL_RING_WRITE) last_write = i;
            if (c.kind == RMQ_CALL_RING_SYNC) last_sync = i;
        }
        CHECK(last_sync > last_write);
        int twice = (shorten || error) && !(wishes & RMQ_RING_SQPOLL); /* there it is not given before the write is complete */
        CHECK(rmq_probe_count(probe, RMQ_CALL_RING_SYNC) == (twice ? 2 : 1));
    } else {
        CHECK(rmq_probe_count(probe, RMQ_CALL_RING_SYNC) <= 1); /* a sync is never tried again */
        CHECK(rmq_ring_turn(r, 1, NULL) == expect);              /* and the error stays */
        rmq_ring_drain(r);
        while (rmq_ring_abandon(r, &done)) {
        }
    }
    rmq_ring_free(r);
    end();
}

/* The kernel takes the write of a chain and not its sync, or the queue has no room for both: the sync that counts is given when
 * the write is known to be complete. shorten: and the write falls short besides. */
static void split_chain(int full_queue, int shorten) {
    start();
    if (shorten) CHECK(rmq_probe_shorten(probe, RMQ_CALLS(RMQ_CALL_RING_WRITE), 1 + full_queue, NULL, 0) == 0);
    if (full_queue) CHECK(rmq_probe_fail(probe, RMQ_CALLS(RMQ_CALL_RING_SUBMIT), 1, EAGAIN, NULL, 0) == 0);
    CHECK(rmq_probe_fail(probe, RMQ_CALLS(RMQ_CALL_RING_REAP), 1 + full_queue, EAGAIN, NULL, 0) == 0);
    rmq_ring *r = ring_of(4, full_queue ? 2 : 0);
    rmq_flight done;
    if (full_queue) rmq_ring_write(r, -1, file, memory, BLOCK, 0, 1, NULL, 0, 0);
    else most = 1;
    rmq_ring_write(r, -1, file, memory + BLOCK, 2 * BLOCK, BLOCK, 2, NULL, 0, 1);
    rmq_ring_sync(r, -1, file, 3, NULL);
    int64_t reached = 0;
    while (rmq_ring_count(r) > 0) {
        CHECK(rmq_ring_turn(r, 1, NULL) == 0);
        while (rmq_ring_take(r, &done)) CHECK(done.end > reached && (reached = done.end));
    }
    CHECK(reached == 3);
    int64_t written = 0, last_sync = 0;
    rmq_call c, entry;
    for (int64_t i = 0; rmq_probe_at(probe, i, &c) == 0; i++) {
        if (c.kind == RMQ_CALL_RING_SYNC) last_sync = i;
        if (c.kind == RMQ_CALL_RING_REAP && rmq_probe_at(probe, c.begin, &entry) == 0 && entry.kind == RMQ_CALL_RING_WRITE)
            written = i;
    }
    CHECK(written > 0 && last_sync > written);
    CHECK(rmq_ring_drain(r) == 0);
    rmq_ring_free(r);
    end();
}

static void error_in_the_middle(void) {
    start();
    CHECK(rmq_probe_fail(probe, RMQ_CALLS(RMQ_CALL_RING_WRITE), 9, ENOSPC, NULL, 0) == 0);
    rmq_ring *r = ring_of(4, 0);
    CHECK(write_blocks(r, -1) == -ENOSPC);
    CHECK(rmq_ring_drain(r) == 0);
    rmq_flight f;
    int64_t next = 0;
    CHECK(rmq_ring_abandon(r, &f));
    next = f.end;
    while (rmq_ring_abandon(r, &f)) CHECK(f.end == ++next);
    rmq_ring_free(r);
    end();
}

static void never_ready(void) {
    start();
    CHECK(rmq_probe_fail(probe, RMQ_CALLS(RMQ_CALL_RING_WRITE), 1, EINTR, NULL, 1) == 0);
    rmq_ring *r = ring_of(2, 0);
    CHECK(write_blocks(r, -1) == -EINTR); /* tried a thousand times, then an error like any other */
    rmq_ring_drain(r);
    rmq_ring_free(r);
    end();
}

/* The answers to a write and the sync behind it: the write lacks room, and the sync's answer is there when the ring drains. */
static int sync_answer, kept, draining;

static int want_then_sync(void *ctx, void *ring, uint64_t *number, int *result) {
    int rc = rmq_probe_table(probe)->ring_reap(ctx, ring, number, result);
    if (rc == 1 && *number == 1 && !draining) {
        kept = 1;
        rc = rmq_probe_table(probe)->ring_reap(ctx, ring, number, result);
    } else if (rc != 1 && draining && kept) {
        kept = 0;
        *number = rc = 1;
    }
    if (rc == 1 && *number < 2) *result = *number == 0 ? -ENOSPC : sync_answer;
    return rc;
}

static void want_while_a_sync_is_in_flight(int answer, int expect) {
    start();
    watched.ring_reap = want_then_sync;
    sync_answer = answer;
    draining = kept = 0;
    rmq_ring *r = ring_of(4, 0);
    rmq_flight f;
    int in_sync = 0, rc = 0;
    rmq_ring_write(r, -1, file, memory, BLOCK, 0, 1, NULL, 0, 0);
    rmq_ring_sync(r, -1, file, 2, NULL);
    while (rc == 0) rc = rmq_ring_turn(r, 1, &in_sync);
    CHECK(rc == -ENOSPC && in_sync == 0);
    draining = 1;
    CHECK(rmq_ring_drain(r) == 0);
    while (rmq_ring_abandon(r, &f)) {
    }
    CHECK(rmq_ring_again(r) == expect); /* a sync that failed is not tried again */
    CHECK(rmq_ring_turn(r, 0, &in_sync) == (expect ? answer : 0) && in_sync == (expect != 0)); /* the sync's error counts */
    if (expect == 0) CHECK(write_blocks(r, -1) == 0);
    rmq_ring_drain(r);
    rmq_ring_free(r);
    end();
}

static void a_busy_slot_keeps_its_file(void) {
    start();
    rmq_ring *r = ring_of(4, 0);
    if (rmq_ring_file(r, 0, file) == 0) {
        int other = io->open(io->ctx, "other.data", O_RDWR | O_CREAT | O_TRUNC, 0600);
        rmq_flight done;
        rmq_ring_write(r, 0, file, memory, BLOCK, 0, 1, NULL, 0, 0);
        CHECK(rmq_ring_file(r, 0, other) == -EBUSY);
        CHECK(rmq_ring_turn(r, 1, NULL) == 0 && rmq_ring_take(r, &done));
        CHECK(rmq_ring_file(r, 0, other) == 0);
        CHECK(io->size(io->ctx, file) == BLOCK && io->size(io->ctx, other) == 0);
        io->close(io->ctx, other);
    }
    rmq_ring_free(r);
    end();
}

static void blocks_by_hand(int error, int shorten, int durable) {
    start();
    if (shorten) CHECK(rmq_probe_shorten(probe, RMQ_CALLS(RMQ_CALL_PWRITE), 1, NULL, 0) == 0);
    else if (error) CHECK(rmq_probe_fail(probe, RMQ_CALLS(RMQ_CALL_PWRITE), 1, error, NULL, 0) == 0);
    int rc = rmq_pwrite_blocks(io, file, memory, (size_t)BLOCK * BLOCKS, 0, BLOCK, durable);
    CHECK(rc == (error == EINTR ? 0 : -error));
    if (rc == 0) check_file();
    end();
}

static void every_answer(void) {
    uint64_t writes = RMQ_CALLS(RMQ_CALL_RING_WRITE), syncs = RMQ_CALLS(RMQ_CALL_RING_SYNC);
    uint64_t submits = RMQ_CALLS(RMQ_CALL_RING_SUBMIT), reaps = RMQ_CALLS(RMQ_CALL_RING_REAP);

    whole(8, 0, 0, 0, 0, 1, 1);
    whole(1, 0, 0, 0, 0, 1, 1);
    overflows = 0;
    /* Two entries in each queue for sixteen flights: completions overflow and are not lost. Some devices answer one by one. */
    whole(16, 2, 0, 0, 0, 1, 1);
    for (int i = 0; i < 200 && overflows == 0 && !(wishes & RMQ_RING_SQPOLL); i++) whole(16, 2, 0, 0, 0, 1, 1);
    CHECK(overflows > 0 || wishes & RMQ_RING_SQPOLL);
    whole(8, 0, writes, 0, 1, 3, 5);
    whole(8, 0, writes, EINTR, 0, 3, 5);
    whole(8, 0, writes, EAGAIN, 0, 1, 8);
    whole(8, 0, writes, ECANCELED, 0, 2, 1);
    whole(8, 0, submits, EINTR, 0, 2, 1);
    whole(8, 0, submits, EAGAIN, 0, 1, 12);
    whole(8, 0, submits, EBUSY, 0, 2, 3);
    whole(16, 2, submits, EBUSY, 0, 1, 5);
    whole(8, 0, reaps, EAGAIN, 0, 1, 3);
    chain(0, 0, 0, 0, 0);
    chain(writes, 0, 1, 0, 0);
    chain(writes, EINTR, 0, 0, 0);
    chain(writes, EAGAIN, 0, 0, 0);
    chain(writes, EIO, 0, -EIO, 0);
    chain(syncs, EIO, 0, -EIO, 1);
    chain(syncs, EINTR, 0, -EINTR, 1); /* a sync that ran is not tried again, whatever it says */
    for (int shorten = 0; shorten < 2; shorten++) {
        split_chain(0, shorten);
        split_chain(1, shorten);
    }
    error_in_the_middle();
    never_ready();
    want_while_a_sync_is_in_flight(0, 0);
    want_while_a_sync_is_in_flight(-ECANCELED, 0);
    want_while_a_sync_is_in_flight(-EIO, -EBUSY);
    want_while_a_sync_is_in_flight(-ENOSPC, -EBUSY);
    a_busy_slot_keeps_its_file();
    for (int durable = 0; durable < 2; durable++) {
        blocks_by_hand(0, 0, durable);
        blocks_by_hand(0, 1, durable);
        blocks_by_hand(EINTR, 0, durable);
        blocks_by_hand(EIO, 0, durable);
    }
}

/* A kernel thread takes the entries by itself: what a submission returns tells nothing of how many are under way. */
static void drained_at_once(void) {
    start();
    rmq_ring *r = ring_of(2, 0);
    for (int i = 0; i < 2000; i++) {
        rmq_flight done;
        rmq_ring_write(r, -1, file, memory, BLOCK, 0, 1, NULL, 0, 0);
        while (!rmq_ring_take(r, &done)) CHECK(rmq_ring_turn(r, 1, NULL) == 0);
        CHECK(rmq_ring_drain(r) == 0);
    }
    rmq_ring_free(r);
    end();
}

/* A kernel that never answers: a try says so, and does not wait for ever. */
static int never(void *ctx, void *ring, uint64_t *tag, int *result) {
    (void)ctx, (void)ring, (void)tag, (void)result;
    return 0;
}

static int64_t second_by_second(void *ctx) {
    static int64_t now;
    (void)ctx;
    return now += 1000000000;
}

static void not_answered(void) {
    start();
    rmq_io silent = *io;
    silent.ring_reap = never;
    silent.mono_ns = second_by_second;
    int synced = 1, rc = rmq_ring_try(&silent, wishes, memory, (size_t)BLOCK * BLOCKS, file, 0, &synced);
    CHECK(rc == -ETIMEDOUT && synced == 0);
    CHECK(rmq_ring_try(io, wishes, memory, (size_t)BLOCK * BLOCKS, file, 0, &synced) == 0 && synced == 0);
    end();
}

int main(int argc, char **argv) {
    limit_seconds(120);
    if (argc > 1) CHECK(chdir(argv[1]) == 0);
    CHECK(posix_memalign((void **)&memory, BLOCK, (size_t)BLOCK * BLOCKS) == 0);
    for (int i = 0; i < BLOCK * BLOCKS; i++) memory[i] = (unsigned char)(i * 31 + i / BLOCK);
    every_answer();
    drained_at_once();
    wishes = RMQ_RING_SQPOLL;
    drained_at_once();
    every_answer();
    not_answered();
    wishes = 0;
    not_answered();
    free(memory);
    return 0;
}
