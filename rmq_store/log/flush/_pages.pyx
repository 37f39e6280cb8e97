"""The flush back ends msync and fdatasync: through the page cache (RocketMQ: MappedFile.commit, flush); see _pages.pxd"""
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from rmq_store.base.io._io cimport rmq_lost_any, rmq_pwrite_all
from rmq_store.base.io._sync cimport EIO, rmq_add, rmq_load
from rmq_store.base.segment._allocator cimport allocator_pass
from rmq_store.base.segment._file cimport LogFile, log_file_release, row_find
from rmq_store.log.commitlog._log cimport Backend, Log, log_committed
from rmq_store.log.pool._pool cimport pool_at

cdef extern from "rmq_pages.h" nogil:
    int64_t rmq_page_size()


cdef int pages_write(Log *log, LogFile *f, int64_t begin, int64_t end) noexcept nogil:
    return rmq_pwrite_all(log.io, f.fd, pool_at(log.pool, begin), end - begin, begin - f.start)


cdef int _copy(Log *log, LogFile *f, int64_t begin, int64_t end) noexcept nogil:
    memcpy(f.map + (begin - f.start), pool_at(log.pool, begin), end - begin)
    if log.io.map_store != NULL:
        log.io.map_store(log.io.ctx, f.fd, begin - f.start, f.map + (begin - f.start), end - begin)
    return -EIO if rmq_lost_any(&f.lost) else 0


cdef int pages_commit(Log *log, int64_t to, Piece piece) noexcept nogil:
    cdef int64_t at = rmq_load(&log.committed)
    cdef int64_t end, data_end
    cdef LogFile *f
    cdef int rc = 0
    while at < to:
        f = row_find(log.row, at, &rc)
        if f == NULL:
            return rc if rc < 0 else -EIO
        end = f.start + f.size
        if to < end:
            end = to
        data_end = rmq_load(&f.data_end)
        if data_end >= 0 and end > data_end and data_end >= at:
            rc = 0
            if data_end > at:
                if data_end - f.start > rmq_load(&f.zeroed_to):
                    allocator_pass(log.alloc, f, data_end - f.start)
                rc = piece(log, f, at, data_end)
            end = f.start + f.size
        elif data_end >= 0 and at > data_end:
            end = f.start + f.size      # inside the rest behind the end-of-file record
        else:
            if end - f.start > rmq_load(&f.zeroed_to):
                allocator_pass(log.alloc, f, end - f.start)
            rc = piece(log, f, at, end)
        log_file_release(f)
        if rc < 0:
            return rc
        at = end
        log_committed(log, at)
    rmq_add(&log.commits, 1)
    return 0


cdef int _commit_write(Log *log, int64_t to) noexcept nogil:
    return pages_commit(log, to, pages_write)


cdef int _commit_copy(Log *log, int64_t to) noexcept nogil:
    return pages_commit(log, to, _copy)


cdef int _sync_map(Log *log, LogFile *f, int64_t begin, int64_t end) noexcept nogil:
    cdef int64_t first = (begin - f.start) & -rmq_page_size()
    return log.io.msync(log.io.ctx, f.fd, f.map + first, end - f.start - first)


cdef int _sync_file(Log *log, LogFile *f, int64_t begin, int64_t end) noexcept nogil:
    return log.io.fdatasync(log.io.ctx, f.fd)


# Over the pool and over mapped files; what is NULL is done the plain way (_flush.pyx).
cdef Backend _MSYNC_POOL = Backend(_commit_copy, _sync_map, NULL, NULL, NULL, NULL, NULL)
cdef Backend _MSYNC_MAP = Backend(NULL, _sync_map, NULL, NULL, NULL, NULL, NULL)
cdef Backend _FDATASYNC_POOL = Backend(_commit_write, _sync_file, NULL, NULL, NULL, NULL, NULL)
cdef Backend _FDATASYNC_MAP = Backend(NULL, _sync_file, NULL, NULL, NULL, NULL, NULL)


cdef int msync_make(Log *log, object options, object how) except -1:
    log.backend = &_MSYNC_MAP if log.pool == NULL else &_MSYNC_POOL
    return 0


cdef int fdatasync_make(Log *log, object options, object how) except -1:
    log.backend = &_FDATASYNC_MAP if log.pool == NULL else &_FDATASYNC_POOL
    return 0
