# Which files of a log have a descriptor. One that is mapped and on the device needs none: a process may have few of them
# (RLIMIT_NOFILE), and a log may have thousands of files. So a file keeps its own from when it is made until it is full and
# flushed; whoever needs one of an older file opens it again by its name, for a moment, and is told -ESTALE where that leads to
# another file by now (log_file_open_again). Where there is no map to be had, a file keeps its descriptor instead.
from libc.stdint cimport int64_t

from rmq_store.base.io._sync cimport rmq_event
from rmq_store.base.segment._file cimport FileRow, LogFile

cdef enum:
    UNFLUSHED_FILES = 24            # at so many the log is flushed early; at twice as many no file is made

# Opens `fd` again if it is closed: 0 or -errno. The caller is the only user of the descriptors.
cdef int log_file_have_fd(LogFile *f) noexcept nogil
# Maps the file and closes its descriptors. The caller is the only user of them.
cdef void log_file_drop_fd(FileRow *row, LogFile *f) noexcept nogil
# Closes those of mapped files that lie in [begin, end) as a whole; nobody writes or syncs them any more. Any one thread.
cdef void row_drop_fds(FileRow *row, int64_t begin, int64_t end) noexcept nogil
# rmq_io.next_data of the file. Any thread.
cdef int64_t log_file_next_data(const LogFile *f, int64_t position) noexcept nogil

# Of a log that is written; the allocator's thread.
cdef struct Unflushed:
    const int64_t *flushed          # how far the log is on the device
    rmq_event *wanted               # wakes who flushes
    int64_t tail                    # atomic: start of the file that the log writes
    int64_t closed_to               # files that begin before it have no descriptor

# The next file is to begin at `want`. Closes what it can. True: too many files wait for a flush, which is asked for; no more
# are to be made until it came.
cdef bint unflushed_look(Unflushed *u, FileRow *row, int64_t want) noexcept nogil
