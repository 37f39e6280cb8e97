/* A thin wrapper of one io_uring ring, so that a test can fill it and drive the table's ring calls through ctypes. */
#include "rmq_io.h"
#include <liburing.h>
#include <stdlib.h>

struct io_uring *driver_new(unsigned entries, int *error) {
    struct io_uring *ring = malloc(sizeof *ring);
    *error = io_uring_queue_init(entries, ring, 0);
    if (*error == 0) return ring;
    free(ring);
    return NULL;
}
void driver_free(struct io_uring *ring) {
    io_uring_queue_exit(ring);
    free(ring);
}
int driver_dontfork(struct io_uring *ring) { return io_uring_ring_dontfork(ring); }
void *driver_memory(struct io_uring *ring) { return ring->sq.sqes; }

int driver_write(struct io_uring *ring, int fd, const void *data, unsigned n, uint64_t offset, uint64_t tag, unsigned flags,
                 int rw_flags) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    if (sqe == NULL) return -EBUSY;
    io_uring_prep_write(sqe, fd, data, n, offset);
    sqe->user_data = tag;
    sqe->flags |= (uint8_t)flags;
    sqe->rw_flags = rw_flags;
    return 0;
}
int driver_writev(struct io_uring *ring, int fd, const struct iovec *v, unsigned count, uint64_t offset, uint64_t tag) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    if (sqe == NULL) return -EBUSY;
    io_uring_prep_writev(sqe, fd, v, count, offset);
    sqe->user_data = tag;
    return 0;
}
int driver_sync(struct io_uring *ring, int fd, uint64_t tag, unsigned flags) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    if (sqe == NULL) return -EBUSY;
    io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
    sqe->user_data = tag;
    sqe->flags |= (uint8_t)flags;
    return 0;
}
int driver_submit(const rmq_io *io, struct io_uring *ring, unsigned wait) { return io->ring_submit(io->ctx, ring, wait); }
int driver_reap(const rmq_io *io, struct io_uring *ring, uint64_t *tag, int *result) {
    return io->ring_reap(io->ctx, ring, tag, result);
}
