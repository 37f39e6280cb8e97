# What the pool has and the file does not get: behind the fence, or while commits lack something. These messages were put, and
# most of them acknowledged. Until close() they can be read here: nothing overwrites what is not committed. Any thread; copies.
from libc.stdint cimport int64_t

from rmq_store.base.io._sync cimport rmq_load, rmq_load32
from rmq_store.base.segment._file cimport LogFile
from rmq_store.codec._record cimport RecordView
from rmq_store.log.commitlog._log cimport Log


cdef inline bint log_stuck(Log *log) noexcept nogil:
    # Whether readers are to look here. Not where they see durable messages only.
    return log.pool != NULL and not log.durable_only and (rmq_load32(&log.fence) != 0 or rmq_load32(&log.want) != 0)


cdef inline int64_t log_readable(Log *log) noexcept nogil:
    # The end of what can be read by its place in the log.
    return rmq_load(&log.wrote) if log_stuck(log) else rmq_load(&log.committed)


# The record, or the head of the end-of-file record, at `offset`, of which the file lacks a part: memory that looks like a file,
# for the caller to release. size 0: whatever size it says. NULL: the file has all of it, nothing is there, or no memory.
cdef LogFile *unwritten_at(Log *log, int64_t offset, int64_t size) noexcept nogil
# The record at or behind *at, out of the file or out of the pool; *at moves behind it. Held for the caller. NULL: no more.
cdef LogFile *unwritten_walk(Log *log, int64_t *at, RecordView *v) noexcept nogil

cdef struct Unwritten:
    int64_t count, begin, end       # messages that the file lacks, log offset of the first, and behind the last
    int64_t committed, wrote        # of the log then; -1: nothing was counted yet

# Counts; `n` is what it found last, and stays where nothing has changed. False: the log can be written, or has no pool.
cdef bint unwritten_count(Log *log, Unwritten *n) noexcept nogil
