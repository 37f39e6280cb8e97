"""TransientStorePool (RocketMQ: TransientStorePool.java). Contract in _pool.pxd."""
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free


cdef extern from *:
    """
    #include <errno.h>
    """
    enum: ENOMEM

cdef extern from "rmq_ring_memory.h" nogil:
    int rmq_ring_memory_new(int64_t size, int lock, int *huge, unsigned char **out)
    void rmq_ring_memory_free(void *base, int64_t size)


cdef Pool *pool_new(int64_t size, bint lock, bint huge, int *error) noexcept nogil:
    cdef int granted = huge
    cdef Pool *p = <Pool *> calloc(1, sizeof(Pool))
    error[0] = -ENOMEM
    if p == NULL:
        return NULL
    error[0] = rmq_ring_memory_new(size, lock, &granted, &p.base)
    if error[0] < 0:
        free(p)
        return NULL
    p.size = size
    p.locked = lock
    p.huge = granted != 0
    return p


cdef void pool_free(Pool *p) noexcept nogil:
    if p != NULL:
        rmq_ring_memory_free(p.base, p.size)
        free(p)
