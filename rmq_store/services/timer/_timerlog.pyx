"""Timer wheel and timer log: slots of 32 bytes, units of 52. Contract in _timerlog.pxd; source: TimerWheel, TimerLog."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdio cimport snprintf

from rmq_store.base.io._io cimport rmq_pread_all, rmq_pwrite_all
from rmq_store.base.io._sync cimport EIO, rmq_add, rmq_load, rmq_load32, rmq_publish, rmq_publish32
from rmq_store.codec._layout cimport MAGIC_BLANK
from rmq_store.codec._record cimport body_crc32

cdef extern from * nogil:
    """
    #include <errno.h>
    #include <fcntl.h>
    """
    enum: EMSGSIZE, O_RDWR, O_CREAT, O_NOFOLLOW

cdef enum:
    SCAN_UNITS = 1260
    PATH_SIZE = 4096


# ---- wheel

cdef int64_t wheel_clock(Wheel *t) noexcept nogil:
    cdef int64_t now = t.io.wall_ms(t.io.ctx)
    return now if now > t.precision else t.precision


cdef unsigned char *wheel_slot(Wheel *t, int64_t time_ms) noexcept nogil:
    cdef int64_t i = time_ms // t.precision % WHEEL_SLOTS
    return t.slots + (i if i >= 0 else i + WHEEL_SLOTS) * SLOT_SIZE


cdef bint wheel_holds(Wheel *t, int64_t time_ms) noexcept nogil:
    return slot64(wheel_slot(t, time_ms)) == time_ms // t.precision and slot64(wheel_slot(t, time_ms) + 16) >= 0


cdef void _changed(Wheel *t, const unsigned char *slot) noexcept nogil:
    t.used[(slot - t.slots) // WHEEL_PAGE] = 1
    rmq_publish32(&t.dirty[(slot - t.slots) // WHEEL_PAGE], 1)


cdef void wheel_clear(Wheel *t, int64_t time_ms) noexcept nogil:
    cdef unsigned char *s = wheel_slot(t, time_ms)
    slot_put64(s, -1)
    slot_put64(s + 8, -1)
    slot_put64(s + 16, -1)
    slot_put32(s + 24, 0)
    slot_put32(s + 28, 0)
    _changed(t, s)


cdef void topic_add(Wheel *t, int32_t hash, int64_t physical, int64_t n) noexcept nogil:
    # Only the timer's thread adds; others read. A topic beyond TOPICS_MAX is not counted.
    cdef int64_t i = (<int64_t> hash & 0x7FFFFFFF) % TOPICS_MAX, _tries
    for _tries in range(TOPICS_MAX):
        if not t.topics[i].used:
            t.topics[i].hash = hash
            t.topics[i].physical = physical
            rmq_publish32(&t.topics[i].used, 1)
        if t.topics[i].hash == hash:
            rmq_add(&t.topics[i].count, n)
            return
        i = (i + 1) % TOPICS_MAX


cdef void wheel_revise(Wheel *t, int64_t time_ms, int64_t position, const unsigned char *u) noexcept nogil:
    cdef unsigned char *s = wheel_slot(t, time_ms)
    cdef bint delete = be32(u + AT_MAGIC) & MAGIC_DELETE
    if not wheel_holds(t, time_ms):
        slot_put32(s + 24, 0)           # before the time: whoever sees that sees no count of an earlier time
        slot_put32(s + 28, 0)
        slot_put64(s + 8, position)
        slot_put64(s + 16, position)
        slot_put64(s, time_ms // t.precision)
    slot_put64(s + 16, position)
    slot_put32(s + 24, slot32(s + 24) + (-1 if delete else 1))
    _changed(t, s)
    rmq_add(&t.pending, 1)
    if not delete:
        topic_add(t, be32(u + AT_TOPIC), be64(u + AT_PHYSICAL), 1)


cdef bint unit_far(Wheel *t, const unsigned char *u, int64_t position) noexcept nogil:
    # Of a wheel with longer slots.
    return position < t.loaded_end and be64(u + AT_ENTERED) + be32(u + AT_DELAY) - t.base_ms >= (WHEEL_SLOTS - 1) * t.precision


cdef int64_t unit_slot_ms(Wheel *t, const unsigned char *u, int64_t position) noexcept nogil:
    cdef int64_t due = be64(u + AT_ENTERED) + be32(u + AT_DELAY)
    if position < t.loaded_end and due < t.base_ms:
        return t.base_ms
    if unit_far(t, u, position):
        return t.base_ms + WHEEL_SLOTS // 2 * t.precision
    return due // t.precision * t.precision


cdef int64_t _first_needed(Wheel *t) noexcept nogil:
    # The position of the first unit that a slot leads to.
    cdef int64_t found = INT64_MAX, i
    cdef const unsigned char *s
    for i in range(WHEEL_SLOTS):
        if i % (WHEEL_PAGE // SLOT_SIZE) == 0 and not t.used[i * SLOT_SIZE // WHEEL_PAGE]:
            continue
        s = t.slots + i * SLOT_SIZE
        if be64(s) > 0 and be64(s + 16) >= 0 and be64(s + 8) < found:
            found = be64(s + 8)
    return found


# ---- timer log

cdef int _open(Wheel *t, int64_t start, int flags) noexcept nogil:
    cdef char[PATH_SIZE] path
    if snprintf(path, PATH_SIZE, b"%s/%020lld", t.directory, <long long> start) >= PATH_SIZE:
        return -EMSGSIZE
    return t.io.open(t.io.ctx, path, O_RDWR | O_NOFOLLOW | flags, 0o644)


cdef void timerlog_close(Wheel *t) noexcept nogil:
    if t.fd >= 0:
        t.io.close(t.io.ctx, t.fd)
    if t.read_fd >= 0:
        t.io.close(t.io.ctx, t.read_fd)
    t.fd = t.read_fd = -1


cdef int timerlog_fd(Wheel *t, int64_t position, int64_t *at) noexcept nogil:
    cdef int64_t first = rmq_load(&t.first), start
    cdef int fd
    if position < first or position >= t.limit:
        return -EIO
    start = position - (position - first) % t.file_size
    at[0] = position - start
    if t.fd >= 0 and start == t.fd_start:
        return t.fd
    if t.read_fd >= 0 and start == t.read_start:
        return t.read_fd
    fd = _open(t, start, 0)
    if fd < 0:
        return fd
    if start + t.file_size == t.limit:
        t.fd, t.fd_start = fd, start
    else:
        if t.read_fd >= 0:
            t.io.close(t.io.ctx, t.read_fd)
        t.read_fd, t.read_start = fd, start
    return fd


cdef int _next_file(Wheel *t) noexcept nogil:
    # Makes the next file, when the one before is on the device. Where one is needed is a good time to say which are not.
    cdef int64_t keep = _first_needed(t)
    cdef int fd, rc = t.io.fdatasync(t.io.ctx, t.fd) if t.fd >= 0 else 0
    if rc < 0:
        rmq_publish32(&t.dead, -rc)
        return rc
    fd = _open(t, t.limit, O_CREAT)
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
    if t.fd >= 0:
        t.io.close(t.io.ctx, t.fd)
    t.fd, t.fd_start = fd, t.limit
    t.limit += t.file_size
    rmq_publish(&t.keep, keep if keep < t.fd_start - t.file_size else t.fd_start - t.file_size)
    return 0


cdef int64_t _seal(const unsigned char *unit) noexcept nogil:
    return <int64_t> LOG_SEAL << 32 | body_crc32(unit, AT_SEAL)


cdef int timerlog_append(Wheel *t, unsigned char *unit, int64_t *where) noexcept nogil:
    # Seals the unit and appends it. A file's rest that is too small for a unit and a blank gets RocketMQ's blank.
    cdef unsigned char[LOG_TAIL] blank
    cdef int64_t at = 0, left
    cdef int fd, rc
    if rmq_load32(&t.dead) != 0:
        return -rmq_load32(&t.dead)
    left = t.file_size - (t.end - t.first) % t.file_size
    if LOG_UNIT + LOG_TAIL > left:
        fd = timerlog_fd(t, t.end, &at)
        put32(blank, <int32_t> left)
        put64(blank + AT_PREVIOUS, 0)
        put32(blank + AT_MAGIC, MAGIC_BLANK)
        rc = rmq_pwrite_all(t.io, fd, blank, LOG_TAIL if left > LOG_TAIL else left, at) if fd >= 0 else fd
        if rc < 0:
            return rc
        rmq_publish(&t.end, t.end + left)
    if t.end == t.limit:
        rc = _next_file(t)
        if rc < 0:
            return rc
    put64(unit + AT_SEAL, _seal(unit))
    fd = timerlog_fd(t, t.end, &at)
    rc = rmq_pwrite_all(t.io, fd, unit, LOG_UNIT, at) if fd >= 0 else fd
    if rc < 0:
        return rc
    where[0] = t.end
    rmq_publish(&t.end, t.end + LOG_UNIT)
    return 0


cdef bint timerlog_good(Wheel *t, const unsigned char *u, int64_t position) noexcept nogil:
    cdef int32_t magic = be32(u + AT_MAGIC)
    return (be32(u) == LOG_UNIT and be64(u + AT_PREVIOUS) < position and magic & MAGIC_DEFAULT and 0 <= magic < 8
            and be64(u + AT_ENTERED) > 0 and be32(u + AT_DELAY) > -86400000
            and be64(u + AT_PHYSICAL) >= 0 and be32(u + AT_SIZE) > 0
            and be64(u + AT_PHYSICAL) + be32(u + AT_SIZE) <= rmq_load(&t.d.log.committed)
            and (be64(u + AT_SEAL) == 0 or be64(u + AT_SEAL) == _seal(u)))


cdef void _known(Wheel *t, const unsigned char *u) noexcept nogil:
    # A unit whose message waits. Its chain is that of its slot, or led to files that are gone.
    cdef int64_t slot_ms = unit_slot_ms(t, u, t.end), before = be64(u + AT_PREVIOUS)
    cdef int64_t expected = be64(wheel_slot(t, slot_ms) + 16) if wheel_holds(t, slot_ms) else -1
    if before != expected and (expected >= 0 or before >= t.first) or slot_ms != be64(u + AT_ENTERED) + be32(u + AT_DELAY):
        t.scattered = True
    wheel_revise(t, slot_ms, t.end, u)


cdef int timerlog_scan(Wheel *t, int64_t known_ms, int64_t known_end, int64_t *last) noexcept nogil:
    cdef unsigned char[SCAN_UNITS * LOG_UNIT] some
    cdef int64_t got, at = 0, i
    cdef const unsigned char *u
    cdef int fd
    last[0] = -1
    t.end = t.first
    while t.end < t.limit:
        fd = timerlog_fd(t, t.end, &at)
        if fd < 0:
            return fd
        got = t.file_size - at
        if LOG_UNIT + LOG_TAIL > got:
            t.end += got
            continue
        got = rmq_pread_all(t.io, fd, some, got if got < SCAN_UNITS * LOG_UNIT else SCAN_UNITS * LOG_UNIT, at)
        if got < 0:
            return <int> got
        i = 0
        while i + LOG_UNIT <= got and t.file_size - at - i >= LOG_UNIT + LOG_TAIL:
            u = some + i
            if be32(u) == 0 and be64(u + AT_PREVIOUS) == 0:
                return 1 if t.end < known_end else 0
            if not timerlog_good(t, u, t.end):
                return 1
            if be64(u + AT_ENTERED) + be32(u + AT_DELAY) >= known_ms:
                _known(t, u)
            last[0] = max(last[0], be64(u + AT_PHYSICAL))      # one that was rolled without room has a unit once more
            t.end += LOG_UNIT
            i += LOG_UNIT
        if i == 0:
            return 1
    return 1 if t.end < known_end else 0
