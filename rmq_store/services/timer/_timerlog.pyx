"""Timer wheel and timer log: slots of 32 bytes, units of 52. Contract in _timerlog.pxd; source: TimerWheel, TimerLog."""
from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport snprintf

from rmq_store.base.io._io cimport rmq_pread_all, rmq_pwrite_all
from rmq_store.base.io._sync cimport EIO, rmq_add, rmq_load, rmq_publish, rmq_publish32

cdef extern from * nogil:
    """
    #include <errno.h>
    #include <fcntl.h>
    """
    enum: EMSGSIZE, EMFILE, O_RDWR, O_CREAT

cdef enum:
    TAIL_SIZE = 16
    SCAN_UNITS = 1260

cdef int32_t BLANK_MAGIC = -875286124       # 0xCBD43194


# ---- wheel and timer log

cdef unsigned char *wheel_slot(Wheel *t, int64_t time_ms) noexcept nogil:
    return t.slots + time_ms // t.precision % WHEEL_SLOTS * SLOT_SIZE


cdef bint wheel_holds(Wheel *t, int64_t time_ms) noexcept nogil:
    return be64(wheel_slot(t, time_ms)) == time_ms // t.precision and be64(wheel_slot(t, time_ms) + 16) >= 0


cdef void wheel_revise(Wheel *t, int64_t time_ms, int64_t position, int32_t magic) noexcept nogil:
    cdef unsigned char *s = wheel_slot(t, time_ms)
    cdef int32_t num = 0
    if wheel_holds(t, time_ms):
        num = be32(s + 24)
    else:
        put64(s, time_ms // t.precision)
        put64(s + 8, position)
        put32(s + 28, 0)
    put64(s + 16, position)
    num += -1 if magic & MAGIC_DELETE else 1
    put32(s + 24, num)
    t.dirty[(s - t.slots) // WHEEL_PAGE] = 1
    rmq_add(&t.pending, 1)


cdef int timerlog_fd(Wheel *t, int64_t position, int64_t *at) noexcept nogil:
    cdef int64_t n = (position - t.first) // t.file_size
    if position < t.first or n >= t.files:
        return -EIO
    at[0] = (position - t.first) % t.file_size
    return t.fds[n]


cdef int _next_file(Wheel *t) noexcept nogil:
    cdef char[4096] path
    cdef int fd, rc
    cdef int64_t start = t.first + t.files * t.file_size
    if t.files == FILES_MAX:
        return -EMFILE
    if snprintf(path, 4096, b"%s/%020lld", t.directory, <long long> start) >= 4096:
        return -EMSGSIZE
    fd = t.io.open(t.io.ctx, path, O_RDWR | O_CREAT, 0o644)
    if fd < 0:
        return fd
    rc = t.io.ftruncate(t.io.ctx, fd, t.file_size)
    if rc == 0:
        rc = t.io.fsync(t.io.ctx, fd)
    if rc == 0:
        rc = t.io.sync_dir(t.io.ctx, t.directory)
    if rc < 0:
        t.io.close(t.io.ctx, fd)
        return rc
    t.fds[t.files] = fd
    rmq_publish32(&t.files, t.files + 1)
    return 0


cdef int timerlog_append(Wheel *t, unsigned char *unit, int64_t *where) noexcept nogil:
    # Appends. A file's rest that is too small for a unit and a blank gets upstream's blank.
    cdef unsigned char[TAIL_SIZE] blank
    cdef int64_t at = 0, left
    cdef int fd, rc
    left = t.file_size - (t.end - t.first) % t.file_size
    if LOG_UNIT + TAIL_SIZE > left:
        fd = timerlog_fd(t, t.end, &at)
        put32(blank, <int32_t> left)
        put64(blank + 4, 0)
        put32(blank + 12, BLANK_MAGIC)
        rc = rmq_pwrite_all(t.io, fd, blank, TAIL_SIZE if left > TAIL_SIZE else left, at) if fd >= 0 else fd
        if rc < 0:
            return rc
        rmq_publish(&t.end, t.end + left)
    if t.end == t.first + t.files * t.file_size:
        rc = _next_file(t)
        if rc < 0:
            return rc
    fd = timerlog_fd(t, t.end, &at)
    rc = rmq_pwrite_all(t.io, fd, unit, LOG_UNIT, at) if fd >= 0 else fd
    if rc < 0:
        return rc
    where[0] = t.end
    rmq_publish(&t.end, t.end + LOG_UNIT)
    return 0


cdef bint timerlog_good(Wheel *t, const unsigned char *u, int64_t position) noexcept nogil:
    cdef int32_t magic = be32(u + 12)
    return (be32(u) == LOG_UNIT and be64(u + 4) < position and magic & MAGIC_DEFAULT and 0 <= magic < 8
            and be64(u + 16) > 0 and be32(u + 24) > -86400000 and be64(u + 28) >= 0 and be32(u + 36) > 0
            and be64(u + 28) + be32(u + 36) <= rmq_load(&t.log.committed))


cdef int timerlog_scan(Wheel *t, int64_t *last) noexcept nogil:
    # Makes the wheel from the log. 1: the log ends in damage; 0; -errno. last: physical offset of the last unit's record.
    cdef unsigned char[SCAN_UNITS * LOG_UNIT] some
    cdef int64_t got, at = 0, i, due
    cdef const unsigned char *u
    cdef int fd, damaged = 0
    last[0] = -1
    t.end = t.first
    while t.end < t.first + t.files * t.file_size:
        fd = timerlog_fd(t, t.end, &at)
        got = t.file_size - at
        if LOG_UNIT + TAIL_SIZE > got:
            t.end += got
            continue
        got = rmq_pread_all(t.io, fd, some, got if got < SCAN_UNITS * LOG_UNIT else SCAN_UNITS * LOG_UNIT, at)
        if got < 0:
            return <int> got
        i = 0
        while i + LOG_UNIT <= got and t.file_size - at - i >= LOG_UNIT + TAIL_SIZE:
            u = some + i
            if not timerlog_good(t, u, t.end):
                return 0 if be32(u) == 0 and be64(u + 4) == 0 else 1
            due = be64(u + 16) + be32(u + 24)
            if due >= t.read_ms:
                wheel_revise(t, due, t.end, be32(u + 12))
            last[0] = be64(u + 28)
            t.end += LOG_UNIT
            i += LOG_UNIT
        if i == 0:
            return 1
    return damaged
