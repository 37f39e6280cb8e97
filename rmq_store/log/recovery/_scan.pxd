# Walking the raw log after the night: where the good records end, and how the rest is cut off so that a crash during the cut
# does no harm. The opening thread only.
from libc.stdint cimport int64_t

from rmq_store.base.io._io cimport IoTable, rmq_io
from rmq_store.base.segment._file cimport FileRow, LogFile

# The first offset in [begin, stop) of one file where a whole, checked record of exactly this place lies; -1: none. Any thread.
cdef int64_t scan_next_good(const LogFile *f, int64_t begin, int64_t stop, bint crc_property) noexcept nogil


cdef class LogRecovery:
    # The row belongs to the store; it is borrowed while the store opens.
    cdef IoTable _owner
    cdef const rmq_io *io
    cdef FileRow *row
    cdef void attach(self, IoTable owner, FileRow *row)
    cdef LogFile *_file(self, int64_t start) except NULL
    cdef LogFile *_open(self, int64_t start) except NULL        # that file, with its descriptor, until _close
    cdef void _close(self, LogFile *f) noexcept
