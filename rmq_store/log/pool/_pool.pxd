# TransientStorePool: page-aligned memory outside the heap through which records go to the file.
#
# RocketMQ takes five buffers of one file each. Here a buffer is a window of the log, and all windows lie in one circle that is
# mapped twice, back to back: the byte of log offset o is at base + o % size, and a record that crosses the circle's end is
# still one straight piece of memory. The pool is bounded by what is on its way to the file, not by the size of a file.
# Taken and touched once, at open; never lent to Python; absent in a child of fork.
from libc.stdint cimport int64_t


cdef struct Pool:
    unsigned char *base     # 2 * size bytes of address space over size bytes of memory
    int64_t size            # window_size * window_count
    bint locked             # mlock succeeded
    bint huge               # transparent huge pages were asked for and granted


cdef inline unsigned char *pool_at(Pool *p, int64_t offset) noexcept nogil:
    return p.base + offset % p.size


# size: a multiple of the page size. NULL: *error is -errno (-ENOMEM, or what mlock said where lock is asked for).
cdef Pool *pool_new(int64_t size, bint lock, bint huge, int *error) noexcept nogil
cdef void pool_free(Pool *p) noexcept nogil
