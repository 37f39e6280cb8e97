# Reading by position. Any thread; what may come from the device is read without the GIL.
from libc.stdint cimport int64_t

from rmq_store.access.reader._message cimport LeaseCount
from rmq_store.access.writer._inner cimport StorePutInner
from rmq_store.base.io._sync cimport EIO, rmq_load
from rmq_store.base.segment._file cimport LogFile, log_file_lost, log_file_release, row_find
from rmq_store.codec._record cimport RECORD_OK, RecordView, record_parse
from rmq_store.log.commitlog._log cimport Log
from rmq_store.log.commitlog._unwritten cimport log_stuck, unwritten_at
from rmq_store.queues.consumequeue._queue cimport Queue


# The record at `offset` (size 0: whatever size it says), in a file held for the caller. 0; -1 nothing readable there; -errno.
# Never looks beyond log_readable.
cdef int record_at(Log *log, int64_t offset, int64_t size, RecordView *v, LogFile **file) noexcept nogil
# With direct I/O, a record that is still in the pool, copied: its place in the file would have to be read back from the device,
# and pool memory is never lent. NULL: not there (or no memory): the file has it.
cdef LogFile *log_recent(Log *log, int64_t offset, int64_t size) noexcept nogil


cdef inline int record_in(Log *log, LogFile *f, int64_t offset, int64_t size, RecordView *v) noexcept nogil:
    # record_at for an offset that lies in `f`: 0, -1 or -EIO.
    cdef int64_t end = f.start + f.size
    if not f.copied and rmq_load(&log.committed) < end:
        end = rmq_load(&log.committed)
    if (offset < end and size <= end - offset and record_parse(f.map + (offset - f.start), end - offset, v) == RECORD_OK
            and v.physical_offset == offset and (size == 0 or v.size == size)):
        return -EIO if log_file_lost(f, offset, v.size) else 0
    return -EIO if log_file_lost(f, offset, 0) else -1


cdef inline LogFile *file_at(Log *log, int64_t offset, int64_t size, int *error) noexcept nogil:
    # Where the record at `offset` can be read, held for the caller; as row_find.
    cdef LogFile *f = NULL
    error[0] = 0
    if log.direct:
        f = log_recent(log, offset, size)
    if f == NULL and log_stuck(log):
        f = unwritten_at(log, offset, size)
    return f if f != NULL else row_find(log.row, offset, error)


cdef inline int record_next(Log *log, int64_t offset, int64_t size, LogFile **f, bint *loose, RecordView *v) noexcept nogil:
    # The record of the next entry of a scan. `f` is the file of the record before, or NULL; `loose`: the scan holds it, and has
    # to let it go. 1: read; 0: not there; -errno.
    cdef int rc, error = 0
    if (f[0] == NULL or offset < f[0].start or offset >= f[0].start + f[0].size
            or (log.direct and not f[0].copied and offset >= rmq_load(&log.reusable))
            or (log_stuck(log) and offset + size > rmq_load(&log.committed))):
        if loose[0]:
            log_file_release(f[0])
        f[0] = file_at(log, offset, size, &error) if offset >= 0 else NULL
        loose[0] = f[0] != NULL
    rc = record_in(log, f[0], offset, size, v) if f[0] != NULL and size > 0 else -1
    if error < 0:
        return error
    return 1 if rc == 0 else 0 if rc == -1 else rc


cdef class StoreLook(StorePutInner):
    cdef LeaseCount lease_count

    cdef Queue *_find(self, object topic, object queue_id) except? NULL     # open, and the queue or NULL
    cdef list _all_queues(self)
    cdef object _message_at(self, int64_t offset)
