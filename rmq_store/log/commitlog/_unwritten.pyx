"""Reading what the pool has and the file does not get. RocketMQ has no such reader. Contract in _unwritten.pxd."""
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from rmq_store.base.io._sync cimport rmq_fence, rmq_load, rmq_load32
from rmq_store.base.segment._file cimport LogFile, log_file_copied, log_file_lost, log_file_release, row_find
from rmq_store.codec._inner cimport Inner, inner_of
from rmq_store.codec._layout cimport BLANK_SIZE, FLAG_INNER_BATCH, MAGIC_BLANK, RECORD_HEAD_SIZE
from rmq_store.codec._record cimport (RECORD_BLANK, RECORD_OK, RecordStatus, RecordView, head_magic, head_size, record_parse)
from rmq_store.log.commitlog._log cimport Log
from rmq_store.log.pool._pool cimport pool_at


cdef bint _copy(Log *log, int64_t offset, int64_t size, unsigned char *to) noexcept nogil:
    # The file has the first bytes, perhaps, as commits do not end where records do. False: it has by now what was copied out of
    # the pool, whose place may have new bytes.
    cdef int64_t left = max(min(rmq_load(&log.committed) - offset, size), <int64_t> 0)
    cdef LogFile *f
    cdef int error = 0
    cdef bint whole
    if left > 0:
        f = row_find(log.row, offset, &error)
        if f == NULL:
            return False
        whole = left <= f.start + f.size - offset
        if whole:
            memcpy(to, f.map + (offset - f.start), left)
            whole = not log_file_lost(f, offset, left)
        log_file_release(f)
        if not whole:
            return False
    memcpy(to + left, pool_at(log.pool, offset + left), size - left)
    rmq_fence()
    return rmq_load(&log.reusable) <= offset + left


cdef LogFile *unwritten_at(Log *log, int64_t offset, int64_t size) noexcept nogil:
    cdef int64_t end = rmq_load(&log.wrote)
    cdef unsigned char[RECORD_HEAD_SIZE] head
    cdef LogFile *f
    if offset < 0 or offset > end - RECORD_HEAD_SIZE:
        return NULL
    if size == 0:
        if not _copy(log, offset, RECORD_HEAD_SIZE, head):
            return NULL
        size = BLANK_SIZE if head_magic(head) == MAGIC_BLANK else head_size(head)
    if size < RECORD_HEAD_SIZE or size > end - offset or size > log.pool.size or offset + size <= rmq_load(&log.committed):
        return NULL
    f = log_file_copied(log.io, offset, size)
    if f != NULL and not _copy(log, offset, size, f.map):
        log_file_release(f)
        return NULL
    return f


cdef LogFile *_in_file(Log *log, int64_t at, RecordView *v, RecordStatus *status) noexcept nogil:
    # The file that has all of the record at `at`, held; NULL: none has.
    cdef int error = 0
    cdef LogFile *f = row_find(log.row, at, &error)
    if f != NULL:
        status[0] = record_parse(f.map + (at - f.start), min(f.start + f.size, rmq_load(&log.committed)) - at, v)
        if ((status[0] == RECORD_BLANK or (status[0] == RECORD_OK and v.physical_offset == at))
                and not log_file_lost(f, at, v.size)):
            return f
        log_file_release(f)
    return NULL


cdef LogFile *unwritten_walk(Log *log, int64_t *at, RecordView *v) noexcept nogil:
    cdef RecordStatus status = RECORD_OK
    cdef LogFile *f
    while at[0] < rmq_load(&log.wrote):
        f = _in_file(log, at[0], v, &status) if at[0] < rmq_load(&log.committed) else NULL
        if f == NULL:
            f = unwritten_at(log, at[0], 0)
            if f == NULL:
                return NULL
            status = record_parse(f.map, f.size, v)
        if v.size <= 0 or (status != RECORD_BLANK and (status != RECORD_OK or v.physical_offset != at[0])):
            log_file_release(f)
            return NULL
        at[0] += v.size             # of the end-of-file record: to the next file
        if status == RECORD_OK:
            return f
        log_file_release(f)
    return NULL


cdef int64_t _count(Log *log, int64_t *begin, int64_t *end) noexcept nogil:
    cdef int64_t at = rmq_load(&log.dispatched), count = 0
    cdef RecordView v
    cdef Inner inner
    cdef LogFile *f
    begin[0] = end[0] = rmq_load(&log.wrote)
    while True:
        f = unwritten_walk(log, &at, &v)
        if f == NULL:
            return count
        if at > rmq_load(&log.committed):
            begin[0] = min(begin[0], v.physical_offset)
            inner = inner_of(&v) if v.sys_flag & FLAG_INNER_BATCH else Inner(-1, 0)
            count += max(inner.count, 1)
            end[0] = at
        log_file_release(f)


cdef bint unwritten_count(Log *log, Unwritten *n) noexcept nogil:
    cdef int64_t committed = rmq_load(&log.committed), wrote = rmq_load(&log.wrote)
    if log.pool == NULL or (rmq_load32(&log.fence) == 0 and rmq_load32(&log.want) == 0):
        return False
    if n.committed != committed or n.wrote != wrote:
        n.committed, n.wrote = committed, wrote
        n.count = _count(log, &n.begin, &n.end)
    return True
