# The I/O table as Cython sees it (native/include/rmq_io.h is the contract) and the Python owner of one.
from libc.stdint cimport int64_t, uint64_t


cdef extern from "rmq_io.h" nogil:
    ctypedef struct rmq_io:
        void *ctx
        int (*open)(void *ctx, const char *path, int flags, int mode) noexcept nogil
        int (*close)(void *ctx, int fd) noexcept nogil
        int64_t (*size)(void *ctx, int fd) noexcept nogil
        int64_t (*modified_ms)(void *ctx, int fd) noexcept nogil
        int (*alone)(void *ctx, int fd) noexcept nogil
        int64_t (*next_data)(void *ctx, int fd, int64_t offset) noexcept nogil
        int64_t (*pread)(void *ctx, int fd, void *to, size_t n, int64_t offset) noexcept nogil
        int64_t (*pwrite)(void *ctx, int fd, const void *src, size_t n, int64_t offset) noexcept nogil
        int (*mmap)(void *ctx, int fd, int64_t offset, size_t n, int writable, void **out) noexcept nogil
        int (*munmap)(void *ctx, void *at, size_t n) noexcept nogil
        int (*release)(void *ctx, int fd, void *at, size_t n) noexcept nogil
        int (*msync)(void *ctx, int fd, void *at, size_t n) noexcept nogil
        int (*fdatasync)(void *ctx, int fd) noexcept nogil
        int (*fsync)(void *ctx, int fd) noexcept nogil
        int (*fallocate)(void *ctx, int fd, int64_t offset, int64_t n) noexcept nogil
        int (*ftruncate)(void *ctx, int fd, int64_t n) noexcept nogil
        int (*rename)(void *ctx, const char *src, const char *dst) noexcept nogil
        int (*unlink)(void *ctx, const char *path) noexcept nogil
        int (*mkdir)(void *ctx, const char *path, int mode) noexcept nogil
        int (*rmdir)(void *ctx, const char *path) noexcept nogil
        int (*sync_dir)(void *ctx, const char *path) noexcept nogil
        int (*lock)(void *ctx, int fd, int take) noexcept nogil
        int (*direct_align)(void *ctx, int fd) noexcept nogil
        int64_t (*pwrite_durable)(void *ctx, int fd, const void *src, size_t n, int64_t offset) noexcept nogil
        int (*ring_submit)(void *ctx, void *ring, unsigned wait) noexcept nogil
        int (*ring_reap)(void *ctx, void *ring, uint64_t *tag, int *result) noexcept nogil
        int64_t (*wall_ms)(void *ctx) noexcept nogil
        int64_t (*mono_ns)(void *ctx) noexcept nogil
        void (*map_store)(void *ctx, int fd, int64_t offset, const void *data, size_t n) noexcept nogil
    int rmq_pwrite_all(const rmq_io *io, int fd, const void *src, size_t n, int64_t offset)
    int64_t rmq_pread_all(const rmq_io *io, int fd, void *to, size_t n, int64_t offset)


cdef extern from "rmq_probe.h" nogil:
    ctypedef struct rmq_probe


cdef extern from "rmq_identity.h" nogil:
    ctypedef struct rmq_identity:
        pass
    rmq_identity rmq_identity_of(const char *path, int fd)
    bint rmq_identity_at(const rmq_identity *i, int fd)


cdef extern from "rmq_guard.h" nogil:
    ctypedef struct rmq_lost:
        int64_t begin
        int64_t end
    bint rmq_lost_any(const rmq_lost *l)
    bint rmq_lost_in(const rmq_lost *l, int64_t begin, int64_t end)
    void rmq_guard_touch(const unsigned char *at, int64_t n)


# The answer to SIGBUS (native/include/rmq_guard.h); here, because there must be one table for all extensions.
cdef int guard_install() noexcept nogil
# *number: the map's in that table, 0 not there. 0 or -errno.
cdef int guard_add(void *at, size_t n, const rmq_identity *file, bint writable, rmq_lost *lost, int *number) noexcept nogil
cdef void guard_remove(int *number) noexcept nogil      # also of a map that is not there


cdef extern from "rmq_io.h" nogil:
    ctypedef struct rmq_home:
        pass


cdef class IoTable:
    # The table a store works with; keeps what `table.ctx` points to alive.
    cdef const rmq_io *table
    cdef rmq_home *home


cdef class ProbeIo(IoTable):
    cdef rmq_probe *probe
    cdef list notes
