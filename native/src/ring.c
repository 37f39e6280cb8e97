/* One io_uring and its flights (rmq_ring.h). Runs in the one thread that enabled the ring. */
#define _GNU_SOURCE
#include "rmq_ring.h"
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

/* Newer than the oldest header we build with. */
#ifndef IORING_SETUP_SUBMIT_ALL
#define IORING_SETUP_SUBMIT_ALL (1U << 7)
#endif
#ifndef IORING_SETUP_COOP_TASKRUN
#define IORING_SETUP_COOP_TASKRUN (1U << 8)
#endif
#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif

enum { KIND_WRITE, KIND_SYNC };
enum { STATE_FLYING, STATE_AGAIN, STATE_DONE, STATE_FAILED };
/* What holds a write and the sync behind it together: nothing; a link in the kernel; this code, which gives the sync later. */
enum { CHAIN_NONE, CHAIN_LINKED, CHAIN_BY_HAND };
enum { TRIES_MAX = 1000, BUFFERS_MAX = 64, SQPOLL_IDLE_MS = 50, DRAIN_ROUNDS = 1000, MEMORY_WAITS = 60 };
enum { TRY_ROUNDS_SOON = 200 }; /* of a try: looks after 50 us each, before it looks once in a millisecond */
static const size_t BUFFER_SIZE = (size_t)1 << 30; /* the kernel's largest */

struct rmq_ring {
    const rmq_io *io;
    struct io_uring uring;
    rmq_ring_facts facts;
    rmq_flight *flights; /* a circle; the flight with number n is at n % capacity */
    uint64_t first, next; /* numbers: oldest not taken, next to begin */
    unsigned capacity;
    int polled;         /* a kernel thread takes the entries (SQPOLL) */
    unsigned queued;    /* entries the kernel has not been given yet */
    uint64_t filled, given; /* entries so far: filled in, and of these given to the kernel, which takes them in order */
    unsigned busy;      /* entries in the kernel's hands */
    int error, error_in_sync;
    int refusals;       /* submissions refused in a row */
    unsigned char *pool, *second;
    size_t pool_size, second_size;
};

static rmq_flight *flight(const rmq_ring *r, uint64_t number) { return &r->flights[number % r->capacity]; }

static void pause_us(long us) {
    struct timespec t = {0, us * 1000L};
    nanosleep(&t, NULL);
}

static void pause_ms(int ms) { pause_us(ms * 1000L); }

static void fail(rmq_ring *r, int error, int in_sync) {
    if (r->error == 0) {
        r->error = error;
        r->error_in_sync = in_sync;
    }
}

/* ---- life */

static int set_up(const rmq_io *io, rmq_ring *r, unsigned entries, unsigned wishes, int tiny) {
    /* From the best to the plainest: each flag is newer than the one behind it. */
    static const unsigned good[] = {
        IORING_SETUP_SUBMIT_ALL | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
        IORING_SETUP_SUBMIT_ALL | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN,
        IORING_SETUP_SUBMIT_ALL | IORING_SETUP_COOP_TASKRUN,
        0,
    };
    unsigned wished = (wishes & RMQ_RING_SQPOLL ? IORING_SETUP_SQPOLL : 0) +
                      (wishes & RMQ_RING_IOPOLL ? IORING_SETUP_IOPOLL : 0);
    /* with a kernel thread that submits, completions need no help from this thread */
    unsigned useless = wishes & RMQ_RING_SQPOLL ? IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_COOP_TASKRUN : 0;
    int rc = -EINVAL, waits = MEMORY_WAITS;
    for (size_t i = 0; i < sizeof good / sizeof *good && rc == -EINVAL; i++) {
        struct io_uring_params p = {.flags = (good[i] & ~useless) | wished | IORING_SETUP_R_DISABLED};
        if (wishes & RMQ_RING_SQPOLL) p.sq_thread_idle = SQPOLL_IDLE_MS;
        if (tiny) {
            p.flags |= IORING_SETUP_CQSIZE;
            p.cq_entries = entries;
        }
        /* The kernel counts a ring that was closed against the memlock limit until it has taken it down, a little later. */
        while ((rc = io->ring_setup(io->ctx, entries, &r->uring, &p)) == -ENOMEM && waits-- > 0)
            pause_ms(5);
        if (rc == 0) {
            r->facts.setup_flags = p.flags;
            r->facts.features = p.features;
        }
    }
    return rc;
}

int rmq_ring_new(const rmq_io *io, unsigned depth, unsigned wishes, unsigned entries, rmq_ring **out) {
    if (depth < 1 || depth > 256) return -EINVAL;
    rmq_ring *r = calloc(1, sizeof *r);
    if (r == NULL) return -ENOMEM;
    r->io = io;
    r->polled = wishes & RMQ_RING_SQPOLL;
    r->capacity = depth + 1; /* a chain's sync beside the deepest run of writes */
    r->facts = (rmq_ring_facts){.depth = depth, .buffers_error = 1, .files_error = 1};
    r->flights = calloc(r->capacity, sizeof *r->flights);
    int rc = r->flights == NULL ? -ENOMEM : set_up(io, r, entries ? entries : 2 * depth, wishes, entries != 0);
    if (rc == 0) {
        /* In a child of fork the ring's memory is absent, as the pool's is. Where the kernel cannot say so, none is made. */
        rc = io_uring_ring_dontfork(&r->uring);
        if (rc < 0) io_uring_queue_exit(&r->uring);
    }
    if (rc < 0) {
        free(r->flights);
        free(r);
        return rc;
    }
    *out = r;
    return 0;
}

int rmq_ring_enable(rmq_ring *r) { return io_uring_enable_rings(&r->uring); }

void rmq_ring_pool(rmq_ring *r, void *base, size_t size, void *second, size_t second_size) {
    struct iovec v[BUFFERS_MAX];
    unsigned n = 0;
    for (size_t at = 0; at < size && n < BUFFERS_MAX - 1; at += BUFFER_SIZE, n++)
        v[n] = (struct iovec){(char *)base + at, size - at < BUFFER_SIZE ? size - at : BUFFER_SIZE};
    int whole = n * BUFFER_SIZE >= size;
    if (second != NULL) v[n++] = (struct iovec){second, second_size};
    r->facts.buffers_error = whole ? r->io->ring_buffers(r->io->ctx, &r->uring, v, n) : -E2BIG;
    if (r->facts.buffers_error == 0) {
        r->pool = base;
        r->pool_size = size;
        r->second = second;
        r->second_size = second_size;
    }
    r->facts.files_error = r->io->ring_files(r->io->ctx, &r->uring, RMQ_RING_SLOTS);
}

void rmq_ring_free(rmq_ring *r) {
    if (r == NULL) return;
    io_uring_queue_exit(&r->uring);
    free(r->flights);
    free(r);
}

const rmq_ring_facts *rmq_ring_facts_of(const rmq_ring *r) { return &r->facts; }

int rmq_ring_file(rmq_ring *r, int slot, int fd) {
    if (r->facts.files_error != 0) return r->facts.files_error < 0 ? r->facts.files_error : -EBADF;
    /* An entry finds its file when it is issued: while one is under way, its slot must continue to mean the same file. */
    for (uint64_t n = r->first; n != r->next; n++)
        if (flight(r, n)->slot == slot) return -EBUSY;
    int rc = r->io->ring_file(r->io->ctx, &r->uring, (unsigned)slot, fd);
    return rc < 0 ? rc : 0;
}

/* ---- beginning */

unsigned rmq_ring_count(const rmq_ring *r) { return (unsigned)(r->next - r->first); }
unsigned rmq_ring_room(const rmq_ring *r) { return r->capacity - rmq_ring_count(r); }
rmq_flight *rmq_ring_newest(rmq_ring *r) { return r->next == r->first ? NULL : flight(r, r->next - 1); }

/* The kernel may take only the first of what is queued. A link ends with the submission: where it ended between a write and its
 * sync, the sync runs when it likes, and says nothing of the write. */
static void note_split(rmq_ring *r) {
    for (uint64_t n = r->first; n != r->next; n++) {
        if (flight(r, n)->chain != CHAIN_LINKED || flight(r, n)->entry != r->given) continue;
        flight(r, n)->chain = CHAIN_BY_HAND;
        flight(r, n + 1)->early = 1;
    }
}

/* Gives the kernel what is queued, and waits for so many completions. 0 or more: fine; -errno. */
static int submit(rmq_ring *r, unsigned wait) {
    int rc = r->io->ring_submit(r->io->ctx, &r->uring, wait);
    /* A kernel thread that polls has all of it whatever is returned; the number is only what it has not come to yet. */
    unsigned n = r->polled ? r->queued : rc > 0 ? (unsigned)rc : 0;
    r->queued -= n;
    r->busy += n;
    r->given += n;
    if (n > 0) note_split(r);
    return rc;
}

/* A free entry; where the queue is full, the kernel is given what is in it first. NULL: it does not take it now. */
static struct io_uring_sqe *entry(rmq_ring *r) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
    for (int i = 0; sqe == NULL && i < TRIES_MAX && r->error == 0; i++) {
        int rc = submit(r, 0);
        if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY) fail(r, rc, 0);
        if (i > 8) pause_ms(1);
        sqe = io_uring_get_sqe(&r->uring);
    }
    if (sqe == NULL) fail(r, -EBUSY, 0);
    return sqe;
}

/* The number of the registered buffer that holds [from, from + n), or -1. */
static int buffer_of(const rmq_ring *r, const unsigned char *from, size_t n) {
    if (r->pool == NULL) return -1;
    if (from >= r->pool && from + n <= r->pool + r->pool_size) {
        size_t at = (size_t)(from - r->pool);
        return at / BUFFER_SIZE == (at + n - 1) / BUFFER_SIZE ? (int)(at / BUFFER_SIZE) : -1;
    }
    if (r->second != NULL && from >= r->second && from + n <= r->second + r->second_size)
        return (int)((r->pool_size + BUFFER_SIZE - 1) / BUFFER_SIZE);
    return -1;
}

static void give(rmq_ring *r, uint64_t number) {
    rmq_flight *f = flight(r, number);
    f->early = 0;
    struct io_uring_sqe *sqe = entry(r);
    if (sqe == NULL) return;
    int file = f->slot >= 0 ? f->slot : f->fd;
    if (f->kind == KIND_SYNC) {
        io_uring_prep_fsync(sqe, file, IORING_FSYNC_DATASYNC);
        r->facts.syncs++;
    } else {
        int buffer = buffer_of(r, f->from, f->left);
        if (buffer >= 0) io_uring_prep_write_fixed(sqe, file, f->from, (unsigned)f->left, (uint64_t)f->offset, buffer);
        else io_uring_prep_write(sqe, file, f->from, (unsigned)f->left, (uint64_t)f->offset);
        if (f->durable) sqe->rw_flags = RWF_DSYNC;
        r->facts.writes++;
    }
    if (f->slot >= 0) sqe->flags |= IOSQE_FIXED_FILE;
    if (f->chain == CHAIN_LINKED) sqe->flags |= IOSQE_IO_LINK;
    sqe->user_data = number;
    f->state = STATE_FLYING;
    f->entry = ++r->filled;
    r->queued++;
}

/* Whether the sync with this number has to wait until the write before it is complete. */
static int behind_a_write(const rmq_ring *r, uint64_t number) {
    return number > r->first && flight(r, number - 1)->chain != CHAIN_NONE && flight(r, number - 1)->state != STATE_DONE;
}

static void begin(rmq_ring *r, rmq_flight f) {
    uint64_t number = r->next++;
    *flight(r, number) = f;
    if (f.kind == KIND_SYNC && behind_a_write(r, number) && flight(r, number - 1)->chain == CHAIN_BY_HAND)
        flight(r, number)->state = STATE_AGAIN;
    else
        give(r, number);
}

void rmq_ring_write(rmq_ring *r, int slot, int fd, const void *from, size_t n, int64_t offset, int64_t end, void *owner,
                    int durable, int link) {
    /* A chain should reach the kernel in one submission: room for both entries is made before the first. What a kernel thread
     * that polls takes at a time nobody can know: it gets no chains. */
    int chain = !link ? CHAIN_NONE : r->polled ? CHAIN_BY_HAND : CHAIN_LINKED;
    if (link && io_uring_sq_space_left(&r->uring) < 2 && r->queued > 0) rmq_ring_turn(r, 0, NULL);
    begin(r, (rmq_flight){.end = end, .owner = owner, .from = from, .left = n, .offset = offset, .fd = fd, .slot = slot,
                          .kind = KIND_WRITE, .durable = durable, .chain = chain});
}

void rmq_ring_sync(rmq_ring *r, int slot, int fd, int64_t end, void *owner) {
    begin(r, (rmq_flight){.end = end, .owner = owner, .fd = fd, .slot = slot, .kind = KIND_SYNC});
}

/* ---- completing */

static void complete(rmq_ring *r, uint64_t number, int result) {
    if (number < r->first || number >= r->next) return; /* no flight of this ring */
    rmq_flight *f = flight(r, number);
    if (f->kind == KIND_SYNC) {
        f->state = result == -ECANCELED || (result == 0 && f->early) ? STATE_AGAIN : result == 0 ? STATE_DONE : STATE_FAILED;
        if (f->state == STATE_FAILED) fail(r, result < 0 ? result : -EIO, 1);
        return;
    }
    if (result >= 0 && (size_t)result == f->left) {
        f->state = STATE_DONE;
        return;
    }
    f->state = STATE_AGAIN;
    if (result > 0 && (size_t)result < f->left) {
        /* Direct I/O continues at a whole block; a buffered write may as well: the bytes are still here. */
        size_t done = (size_t)result & ~(size_t)(RMQ_RING_BLOCK - 1);
        f->from += done;
        f->offset += (int64_t)done;
        f->left -= done;
        f->tries = done > 0 ? 0 : f->tries + 1;
    } else if (result == -EINTR || result == -EAGAIN || result == -ECANCELED) {
        f->tries++;
    } else {
        f->state = STATE_FAILED;
        fail(r, result < 0 ? result : -EIO, 0);
        return;
    }
    if (f->tries > TRIES_MAX) {
        f->state = STATE_FAILED;
        fail(r, result < 0 && result != -ECANCELED ? result : -EIO, 0);
    }
}

/* Entries that go again. A chain does so as a whole, once both its parts have come back. */
static void give_again(rmq_ring *r) {
    for (uint64_t n = r->first; n != r->next && r->error == 0; n++) {
        rmq_flight *f = flight(r, n);
        if (f->state != STATE_AGAIN) continue;
        if (f->kind == KIND_SYNC && behind_a_write(r, n)) continue; /* goes with its write, or behind it */
        r->facts.again++;
        if (f->chain == CHAIN_LINKED) {
            rmq_flight *sync = flight(r, n + 1);
            if (sync->state == STATE_FLYING) {
                r->facts.again--;
                continue;
            }
            if (io_uring_sq_space_left(&r->uring) < 2) {
                r->facts.again--;
                return; /* the next turn has emptied the queue */
            }
            give(r, n);
            give(r, n + 1);
            n++;
        } else {
            give(r, n);
        }
    }
}

static void reap(rmq_ring *r) {
    uint64_t number;
    int result, rc;
    while ((rc = r->io->ring_reap(r->io->ctx, &r->uring, &number, &result)) == 1) {
        r->busy--;
        complete(r, number, result);
    }
    if (rc < 0 && rc != -EAGAIN && rc != -EINTR) fail(r, rc, 0);
}

int rmq_ring_turn(rmq_ring *r, unsigned wait, int *in_sync) {
    if (r->error == 0) {
        if (wait > r->queued + r->busy) wait = r->queued + r->busy;
        int rc = submit(r, wait);
        r->facts.submits++;
        if (rc >= 0) {
            r->refusals = 0;
        } else if (rc != -EINTR) {
            /* EAGAIN: no memory for a request just now; EBUSY: completions must be taken first. Both pass, or are an error. */
            if ((rc != -EAGAIN && rc != -EBUSY) || ++r->refusals > TRIES_MAX) fail(r, rc, 0);
            else if (r->refusals > 8) pause_ms(1);
        }
        reap(r);
        give_again(r);
    }
    if (in_sync != NULL) *in_sync = r->error_in_sync;
    return r->error;
}

int rmq_ring_take(rmq_ring *r, rmq_flight *out) {
    if (r->first == r->next || flight(r, r->first)->state != STATE_DONE) return 0;
    *out = *flight(r, r->first++);
    return 1;
}

unsigned rmq_ring_drain(rmq_ring *r) {
    for (int i = 0; r->busy > 0 && i < DRAIN_ROUNDS; i++) {
        uint64_t number;
        int result;
        submit(r, 0);
        io_uring_get_events(&r->uring); /* no wait: it would have no end where the kernel does not answer */
        int some = 0;
        while (r->io->ring_reap(r->io->ctx, &r->uring, &number, &result) == 1) {
            r->busy--;
            some = 1;
            /* A sync that fails here has failed for good: the kernel tells it once. */
            int sync = number >= r->first && number < r->next && flight(r, number)->kind == KIND_SYNC;
            if (sync && result < 0 && result != -ECANCELED && !r->error_in_sync) r->error = result, r->error_in_sync = 1;
        }
        if (!some) pause_ms(1);
    }
    /* Now, not when the kernel gets to it after the ring is gone: registered files keep their file system busy. */
    if (r->busy == 0 && r->facts.files_error == 0) {
        io_uring_unregister_files(&r->uring);
        r->facts.files_error = 1;
    }
    return r->busy;
}

int rmq_ring_abandon(rmq_ring *r, rmq_flight *out) {
    if (r->first == r->next) return 0;
    *out = *flight(r, r->first++);
    return 1;
}

int rmq_ring_again(rmq_ring *r) {
    if (r->busy > 0 || r->queued > 0 || r->first != r->next || r->error_in_sync) return -EBUSY;
    r->error = r->refusals = 0;
    return 0;
}

int rmq_ring_look(const rmq_io *io, unsigned wishes, void *memory, size_t size, rmq_ring_facts *out) {
    rmq_ring *r;
    int rc = rmq_ring_new(io, 4, wishes, 0, &r);
    if (rc < 0) return rc;
    rmq_ring_pool(r, memory, size, NULL, 0);
    *out = r->facts;
    rmq_ring_free(r);
    return 0;
}

/* Takes flights until none is left, or the time is over. 0 or -errno. */
static int fly(rmq_ring *r, int *in_sync) {
    const rmq_io *io = r->io;
    int64_t until = io->mono_ns(io->ctx) + (int64_t)RMQ_RING_TRY_S * 1000000000;
    for (int round = 0;; round++) {
        rmq_flight done;
        int rc = rmq_ring_turn(r, 0, in_sync);
        while (rmq_ring_take(r, &done)) {
        }
        if (rc < 0 || rmq_ring_count(r) == 0) return rc;
        if (io->mono_ns(io->ctx) >= until) return -ETIMEDOUT;
        pause_us(round < TRY_ROUNDS_SOON ? 50 : 1000);
        io_uring_get_events(&r->uring);
    }
}

int rmq_ring_try(const rmq_io *io, unsigned wishes, void *memory, size_t size, int fd, int durable, int *synced) {
    rmq_ring *r;
    int in_sync = 0, rc = rmq_ring_new(io, 4, wishes, 0, &r);
    if (rc < 0) return rc;
    rmq_ring_pool(r, memory, size, NULL, 0);
    rc = rmq_ring_enable(r);
    if (rc == 0) {
        rmq_ring_write(r, -1, fd, memory, RMQ_RING_BLOCK, 0, 1, NULL, durable, synced != NULL);
        if (synced != NULL) rmq_ring_sync(r, -1, fd, 2, NULL);
        rc = fly(r, &in_sync);
        rmq_ring_drain(r);
    }
    rmq_ring_free(r);
    if (synced != NULL) *synced = in_sync ? rc : 0;
    return in_sync ? 0 : rc;
}

int rmq_pwrite_blocks(const rmq_io *io, int fd, const void *from, size_t n, int64_t offset, size_t block, int durable) {
    const char *p = from;
    int tries = 0;
    while (n > 0) {
        int64_t rc = durable ? io->pwrite_durable(io->ctx, fd, p, n, offset) : io->pwrite(io->ctx, fd, p, n, offset);
        if (rc == -EINTR) continue;
        if (rc < 0) return (int)rc;
        size_t done = (size_t)rc == n ? n : (size_t)rc & ~(block - 1);
        if (done == 0 && ++tries > TRIES_MAX) return -EIO;
        p += done;
        offset += (int64_t)done;
        n -= done;
    }
    return 0;
}
