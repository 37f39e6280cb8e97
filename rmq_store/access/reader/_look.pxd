# Reading by position. Any thread; what may come from the device is read without the GIL.
from libc.stdint cimport int64_t

from rmq_store.access.reader._message cimport LeaseCount
from rmq_store.access.writer._inner cimport StorePutInner
from rmq_store.base.io._sync cimport EIO, rmq_load
from rmq_store.base.segment._file cimport LogFile, log_file_lost, row_find
from rmq_store.codec._record cimport RECORD_OK, RecordView, record_parse
from rmq_store.log.commitlog._log cimport Log
from rmq_store.queues.consumequeue._queue cimport Queue


# The record at `offset` (size 0: whatever size it says), in a file held for the caller. 0; -1 nothing readable there; -errno.
# Never looks beyond what is committed.
cdef int record_at(Log *log, int64_t offset, int64_t size, RecordView *v, LogFile **file) noexcept nogil
# With direct I/O, a record that is still in the pool, copied: its place in the file would have to be read back from the device,
# and pool memory is never lent. NULL: not there (or no memory): the file has it.
cdef LogFile *log_recent(Log *log, int64_t offset, int64_t size) noexcept nogil


cdef inline int record_in(Log *log, LogFile *f, int64_t offset, int64_t size, RecordView *v) noexcept nogil:
    # record_at for an offset that lies in `f`: 0, -1 or -EIO.
    cdef int64_t end = f.start + f.size
    if rmq_load(&log.committed) < end:
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
    return f if f != NULL else row_find(log.row, offset, error)


cdef class StoreLook(StorePutInner):
    cdef LeaseCount lease_count

    cdef Queue *_find(self, object topic, object queue_id) except? NULL     # open, and the queue or NULL
    cdef list _all_queues(self)
    cdef object _message_at(self, int64_t offset)
