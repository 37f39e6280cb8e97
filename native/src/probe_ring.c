/* The probe on io_uring rings: entries are looked at when they are submitted, and their completions when they are reaped.
 *
 * A rule that must spoil an entry sends it with descriptor -1, so that the kernel itself breaks the chain behind it as it would
 * after a real failure, and replaces the -EBADF in its completion by what the rule wants. Entries on registered files are
 * traced with the descriptor that was registered.
 * Thread-safety: as liburing's, one submitter and one reaper of a ring at a time; the probe's own state is under its lock. */
#define _GNU_SOURCE
#include "probe.h"
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

/* The lock is held. */
static void remember(rmq_probe *p, const probe_flight *f) {
    if (p->flight_count == p->flight_capacity) {
        int capacity = p->flight_capacity * 2 + 64;
        probe_flight *more = realloc(p->flights, (size_t)capacity * sizeof(probe_flight));
        if (more == NULL) {
            p->torn = 1;
            return;
        }
        p->flights = more;
        p->flight_capacity = capacity;
    }
    p->flights[p->flight_count++] = *f;
}

static unsigned char *gather(const struct iovec *v, unsigned n, size_t *size) {
    *size = 0;
    for (unsigned i = 0; i < n; i++) *size += v[i].iov_len;
    unsigned char *out = malloc(*size), *at = out;
    for (unsigned i = 0; out != NULL && i < n; i++) {
        memcpy(at, v[i].iov_base, v[i].iov_len);
        at += v[i].iov_len;
    }
    return out;
}

static void spoil(struct io_uring_sqe *sqe, uint8_t opcode) {
    sqe->opcode = opcode;
    sqe->flags &= (uint8_t)~IOSQE_FIXED_FILE;
    sqe->fd = -1;
    if (opcode == IORING_OP_NOP) {
        sqe->off = sqe->addr = 0;
        sqe->len = 0;
        sqe->rw_flags = 0;
        sqe->ioprio = 0;
        sqe->buf_index = 0;
    }
}

/* The descriptor that was registered at `slot` of this ring, or -1. */
static int registered(rmq_probe *p, const void *ring, unsigned slot) {
    int fd = -1;
    probe_lock(p);
    for (int i = 0; i < p->slot_count; i++)
        if (p->slots[i].ring == ring && p->slots[i].slot == slot) fd = p->slots[i].fd;
    probe_unlock(p);
    return fd;
}

static void submit_one(rmq_probe *p, const struct io_uring *ring, struct io_uring_sqe *sqe) {
    probe_step s;
    size_t n = sqe->len;
    const void *data = (const void *)(uintptr_t)sqe->addr;
    unsigned char *copy = NULL;
    int write = sqe->opcode != IORING_OP_FSYNC;
    int fd = sqe->flags & IOSQE_FIXED_FILE ? registered(p, ring, (unsigned)sqe->fd) : sqe->fd;
    probe_begin(&s, p, write ? RMQ_CALL_RING_WRITE : RMQ_CALL_RING_SYNC, fd, NULL, write);
    s.call.flags = sqe->flags;
    if (write) {
        if (sqe->rw_flags & RWF_DSYNC) s.call.flags |= RMQ_CALL_DSYNC;
        if (sqe->opcode == IORING_OP_WRITEV) {
            copy = gather((const struct iovec *)(uintptr_t)sqe->addr, sqe->len, &n);
            data = copy;
        }
        s.call.offset = (int64_t)sqe->off;
        s.call.length = (int64_t)n;
    } else {
        n = 0;
    }
    probe_flight f = {.tag = sqe->user_data, .expected = -EBADF, .length = (int64_t)n, .kind = s.call.kind};
    if (s.error) {
        f.forced = 1;
        f.result = -s.error;
    } else if (s.skip) {
        f.forced = 1;
        f.result = (int)n;
        f.expected = 0;
    } else if (s.shorten && n > 1 && fd >= 0) {
        int64_t rc = p->below->pwrite(p->below->ctx, fd, data, n / 2, (int64_t)sqe->off);
        n /= 2;
        f.forced = 1;
        f.result = (int)rc;
    }
    if (f.forced) spoil(sqe, s.skip && !s.error ? IORING_OP_NOP : sqe->opcode);
    probe_lock(p);
    f.call = p->full ? -1 : p->length; /* the append below may be the first that the trace does not take */
    remember(p, &f);
    probe_append(&s, 0, data, s.error ? 0 : (int64_t)n);
    if (p->full) p->flights[p->flight_count - 1].call = -1;
    probe_unlock(p);
    free(copy);
}

static int probe_ring_submit(void *ctx, void *ring_ptr, unsigned wait) {
    rmq_probe *p = ctx;
    struct io_uring *ring = ring_ptr;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_RING_SUBMIT, -1, NULL, 0);
    s.call.length = wait;
    if (s.error) return (int)probe_end(&s, -s.error, NULL, 0);
    unsigned shift = ring->flags & IORING_SETUP_SQE128 ? 1 : 0;
    for (unsigned i = ring->sq.sqe_head; i != ring->sq.sqe_tail; i++) {
        struct io_uring_sqe *sqe = &ring->sq.sqes[(i & ring->sq.ring_mask) << shift];
        if (sqe->opcode == IORING_OP_WRITE || sqe->opcode == IORING_OP_WRITE_FIXED || sqe->opcode == IORING_OP_WRITEV ||
            sqe->opcode == IORING_OP_FSYNC)
            submit_one(p, ring, sqe);
    }
    return (int)probe_end(&s, p->below->ring_submit(p->below->ctx, ring_ptr, wait), NULL, 0);
}

/* Where a gate waits for the completion of this flight. */
static void stand_as(rmq_probe *p, uint64_t tag) {
    const char *path = NULL;
    probe_lock(p);
    for (int i = 0; i < p->flight_count; i++)
        if (p->flights[i].tag == tag && p->flights[i].call >= 0) {
            path = p->calls[p->flights[i].call].path;
            break;
        }
    int gated = probe_gated(p, RMQ_CALLS(RMQ_CALL_RING_REAP), path);
    probe_unlock(p);
    if (gated) probe_stand(p, RMQ_CALL_RING_REAP, path);
}

static int probe_ring_reap(void *ctx, void *ring, uint64_t *tag, int *result) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_RING_REAP, -1, NULL, 0);
    if (s.error) return (int)probe_end(&s, -s.error, NULL, 0);
    int rc = p->below->ring_reap(p->below->ctx, ring, tag, result);
    if (rc == 0) return 0; /* nothing there: counted, not traced */
    if (rc < 0) return (int)probe_end(&s, rc, NULL, 0);
    stand_as(p, *tag);
    probe_lock(p);
    s.call.begin = -1;
    for (int i = 0; i < p->flight_count; i++) {
        probe_flight *f = &p->flights[i];
        if (f->tag != *tag) continue;
        if (f->forced && *result == f->expected) *result = f->result;
        s.call.begin = f->call;
        s.call.length = f->length;
        if (f->call >= 0) {
            s.call.fd = p->calls[f->call].fd;
            s.call.path = p->calls[f->call].path;
        }
        memmove(f, f + 1, (size_t)(--p->flight_count - i) * sizeof(probe_flight));
        break;
    }
    probe_append(&s, *result, NULL, 0);
    probe_unlock(p);
    return rc;
}

static int probe_ring_setup(void *ctx, unsigned entries, void *ring, void *params) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_RING_SETUP, -1, NULL, 0);
    s.call.length = entries;
    s.call.flags = (int)((struct io_uring_params *)params)->flags;
    return (int)probe_end(&s, s.error ? -s.error : p->below->ring_setup(p->below->ctx, entries, ring, params), NULL, 0);
}

static int probe_ring_buffers(void *ctx, void *ring, const void *buffers, unsigned n) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_RING_BUFFERS, -1, NULL, 0);
    s.call.length = n;
    return (int)probe_end(&s, s.error ? -s.error : p->below->ring_buffers(p->below->ctx, ring, buffers, n), NULL, 0);
}

static int probe_ring_files(void *ctx, void *ring, unsigned slots) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_RING_FILES, -1, NULL, 0);
    s.call.length = slots;
    return (int)probe_end(&s, s.error ? -s.error : p->below->ring_files(p->below->ctx, ring, slots), NULL, 0);
}

static int probe_ring_file(void *ctx, void *ring, unsigned slot, int fd) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_RING_FILE, fd, NULL, 0);
    s.call.offset = slot;
    if (s.error) return (int)probe_end(&s, -s.error, NULL, 0);
    int rc = p->below->ring_file(p->below->ctx, ring, slot, fd);
    probe_lock(p);
    int i = 0;
    while (i < p->slot_count && (p->slots[i].ring != ring || p->slots[i].slot != slot)) i++;
    if (rc >= 0 && i == p->slot_count) {
        probe_slot *more = realloc(p->slots, (size_t)(i + 1) * sizeof(probe_slot));
        if (more == NULL) p->torn = 1;
        else p->slots = more;
        p->slot_count += more != NULL;
    }
    if (rc >= 0 && i < p->slot_count) p->slots[i] = (probe_slot){ring, slot, fd};
    probe_append(&s, rc, NULL, 0);
    probe_unlock(p);
    return rc;
}

void probe_fill_ring(rmq_io *table) {
    table->ring_setup = probe_ring_setup;
    table->ring_buffers = probe_ring_buffers;
    table->ring_files = probe_ring_files;
    table->ring_file = probe_ring_file;
    table->ring_submit = probe_ring_submit;
    table->ring_reap = probe_ring_reap;
}
