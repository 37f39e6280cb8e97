# native/include/rmq_ring.h as Cython sees it; the contract stands there.
from libc.stdint cimport int64_t

from rmq_store.io._io cimport rmq_io


cdef extern from "rmq_ring.h" nogil:
    enum: RMQ_RING_SQPOLL, RMQ_RING_IOPOLL, RMQ_RING_SLOTS, RMQ_RING_BLOCK
    ctypedef struct rmq_ring:
        pass
    ctypedef struct rmq_ring_facts:
        unsigned depth
        unsigned setup_flags
        unsigned features
        int buffers_error
        int files_error
        int64_t writes
        int64_t syncs
        int64_t again
        int64_t submits
    ctypedef struct rmq_flight:
        int64_t end
        void *owner
    int rmq_ring_new(const rmq_io *io, unsigned depth, unsigned wishes, unsigned entries, rmq_ring **out)
    int rmq_ring_enable(rmq_ring *r)
    void rmq_ring_pool(rmq_ring *r, void *base, size_t size, void *second, size_t second_size)
    void rmq_ring_free(rmq_ring *r)
    const rmq_ring_facts *rmq_ring_facts_of(const rmq_ring *r)
    int rmq_ring_file(rmq_ring *r, int slot, int fd)
    unsigned rmq_ring_room(const rmq_ring *r)
    unsigned rmq_ring_count(const rmq_ring *r)
    rmq_flight *rmq_ring_newest(rmq_ring *r)
    void rmq_ring_write(rmq_ring *r, int slot, int fd, const void *src, size_t n, int64_t offset, int64_t end, void *owner,
                        int durable, int link)
    void rmq_ring_sync(rmq_ring *r, int slot, int fd, int64_t end, void *owner)
    int rmq_ring_turn(rmq_ring *r, unsigned wait, int *in_sync)
    int rmq_ring_take(rmq_ring *r, rmq_flight *out)
    unsigned rmq_ring_drain(rmq_ring *r)
    int rmq_ring_abandon(rmq_ring *r, rmq_flight *out)
    int rmq_pwrite_blocks(const rmq_io *io, int fd, const void *src, size_t n, int64_t offset, size_t block, int durable)


cdef extern from *:
    """
    #include <fcntl.h>
    #include <stdlib.h>
    """
    enum: O_RDWR, O_CREAT, O_EXCL, O_DIRECT, O_NOFOLLOW
    int posix_memalign(void **out, size_t align, size_t n) nogil
