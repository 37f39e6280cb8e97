# The flush back ends msync and fdatasync, and what others can use of them.
from libc.stdint cimport int64_t

from rmq_store.base.segment._file cimport LogFile
from rmq_store.log.commitlog._log cimport Log

# Brings [begin, end) of the log, which lies in one file, out of the pool into it. 0 or -errno.
ctypedef int (*Piece)(Log *log, LogFile *f, int64_t begin, int64_t end) noexcept nogil

# [committed, to), file by file. Behind a file's end-of-file record nothing is written: the pool holds old bytes there.
cdef int pages_commit(Log *log, int64_t to, Piece piece) noexcept nogil
# FileChannel style: pwrite out of the pool, which is mapped twice, so that any piece is straight.
cdef int pages_write(Log *log, LogFile *f, int64_t begin, int64_t end) noexcept nogil
# Rows of _backends.pyx.
cdef int msync_make(Log *log, object options, object how) except -1
cdef int fdatasync_make(Log *log, object options, object how) except -1
