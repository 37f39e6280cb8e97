"""Which files of a log have a descriptor (RocketMQ: none; its mapped files keep theirs). Contract in _descriptors.pxd."""
from libc.stdint cimport int64_t

from rmq_store.base.io._io cimport rmq_io
from rmq_store.base.io._sync cimport rmq_event_wake, rmq_load, rmq_mutex_lock, rmq_mutex_unlock
from rmq_store.base.segment._file cimport FileRow, LogFile, log_file_map, log_file_open_again


cdef int log_file_have_fd(LogFile *f) noexcept nogil:
    cdef int fd
    if f.fd < 0:
        fd = log_file_open_again(f, f.writable)
        if fd < 0:
            return fd
        f.fd = fd
    return 0


cdef inline void _close(const rmq_io *io, int fd) noexcept nogil:
    if fd >= 0:
        io.close(io.ctx, fd)        # nothing depends on the result, as in log_file_release


cdef void _drop(FileRow *row, LogFile *f) noexcept nogil:
    # Enters with the lock, and leaves without it. No hold is taken: whoever deletes the file waits for users of it.
    cdef int fd = -1, direct_fd = -1
    if f.map != NULL:
        fd, f.fd = f.fd, -1
        direct_fd, f.direct_fd = f.direct_fd, -1
    rmq_mutex_unlock(&row.lock)
    _close(row.io, direct_fd)
    _close(row.io, fd)


cdef void log_file_drop_fd(FileRow *row, LogFile *f) noexcept nogil:
    if log_file_map(row, f) >= 0:
        rmq_mutex_lock(&row.lock)
        _drop(row, f)


cdef void row_drop_fds(FileRow *row, int64_t begin, int64_t end) noexcept nogil:
    cdef int64_t i
    while True:
        rmq_mutex_lock(&row.lock)
        i = 0
        if row.count > 0 and begin > row.files[0].start:
            i = (begin - row.files[0].start) // row.file_size
        if i >= row.count or row.files[i].start + row.file_size > end:
            break
        begin = row.files[i].start + row.file_size
        _drop(row, row.files[i])
    rmq_mutex_unlock(&row.lock)


cdef int64_t log_file_next_data(const LogFile *f, int64_t position) noexcept nogil:
    cdef int fd = log_file_open_again(f, False)
    cdef int64_t at = fd
    if fd >= 0:
        at = f.io.next_data(f.io.ctx, fd, position)
        _close(f.io, fd)
    return at


cdef bint unflushed_look(Unflushed *u, FileRow *row, int64_t want) noexcept nogil:
    cdef int64_t flushed = rmq_load(u.flushed)
    cdef int64_t end = min(flushed - flushed % row.file_size, rmq_load(&u.tail))
    if u.closed_to < end:
        row_drop_fds(row, u.closed_to, end)
        u.closed_to = end
    if want - flushed <= UNFLUSHED_FILES * row.file_size:
        return False
    rmq_event_wake(u.wanted)
    return want - flushed > 2 * UNFLUSHED_FILES * row.file_size
