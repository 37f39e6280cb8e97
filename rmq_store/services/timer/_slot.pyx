"""Delivers a slot of the timer wheel: gathers its units, leaves out what recalls of the same slot name. Contract in _slot.pxd.

Source: TimerMessageStore.dequeue, TimerDequeueGetMessageService (5.3.3).
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from rmq_store.access.reader._look cimport record_at
from rmq_store.access.writer._put cimport find_property
from rmq_store.base.io._io cimport rmq_pread_all
from rmq_store.base.io._sync cimport EIO, ENOMEM, ETIMEDOUT, rmq_add, rmq_load, rmq_load32
from rmq_store.base.segment._file cimport LogFile, log_file_release
from rmq_store.codec._record cimport RecordView
from rmq_store.services.delivery._deliverer cimport deliver_number, deliver_skip
from rmq_store.services.timer._again cimport again_later
from rmq_store.services.timer._delivery cimport NO_ROOM, timer_deliver
from rmq_store.services.timer._entry cimport entry_place
from rmq_store.services.timer._recalls cimport Recalls, recalls_add, recalls_forget, recalls_name
from rmq_store.services.timer._timerlog cimport (AT_DELAY, AT_ENTERED, AT_MAGIC, AT_PHYSICAL, AT_PREVIOUS, AT_SIZE, AT_TOPIC,
                                                 LOG_TAIL, LOG_UNIT, MAGIC_DELETE, MAGIC_ROLL, Due, Wheel, be32, be64,
                                                 timerlog_fd, timerlog_good, topic_add, unit_far, unit_slot_ms, wheel_clear,
                                                 wheel_slot)

cdef enum:
    READ_SIZE = 4096


cdef struct Slot:
    Due *dues
    int64_t n
    int64_t room
    int64_t deletes
    Recalls recalls             # of this slot


cdef int _learn_recalls(Wheel *t, Slot *s) noexcept nogil:
    cdef RecordView d
    cdef LogFile *f = NULL
    cdef int64_t i
    cdef int rc
    s.recalls.precision = t.precision
    if s.deletes == 0:
        return 0
    for i in range(s.n):
        if not s.dues[i].magic & MAGIC_DELETE:
            continue
        rc = record_at(t.d.log, s.dues[i].physical, s.dues[i].size, &d, &f)
        if rc == 0:
            rc = recalls_add(&s.recalls, &d)
            log_file_release(f)
            f = NULL
        if rc < -1:
            return rc
    return 0


cdef int _add_due(Wheel *t, Slot *s, const unsigned char *u, int64_t position) noexcept nogil:
    cdef Due *more
    cdef int32_t magic = be32(u + AT_MAGIC)
    if s.n == s.room:
        more = <Due *> realloc(s.dues, (s.room * 2 + 64) * sizeof(Due))
        if more == NULL:
            return -ENOMEM
        s.dues, s.room = more, s.room * 2 + 64
    if unit_far(t, u, position):
        magic |= MAGIC_ROLL             # this slot is on the way to its time
    s.dues[s.n].physical, s.dues[s.n].size = be64(u + AT_PHYSICAL), be32(u + AT_SIZE)
    s.dues[s.n].magic, s.dues[s.n].entered, s.dues[s.n].topic = magic, be64(u + AT_ENTERED), be32(u + AT_TOPIC)
    if magic & MAGIC_DELETE:
        s.deletes += 1
    s.n += 1
    return 0


cdef int _gather_chain(Wheel *t, int64_t position, Slot *s) noexcept nogil:
    # The units of a chain, newest first. It leads back, so it ends. Neighbours come with one read.
    cdef unsigned char[READ_SIZE] some
    cdef int64_t begin = 0, end = 0, at = 0, got
    cdef const unsigned char *u
    cdef int fd, rc
    while position >= rmq_load(&t.first):
        if position < begin or position + LOG_UNIT > end:
            fd = timerlog_fd(t, position, &at)
            if fd < 0:
                return fd
            begin = position - (at if at < READ_SIZE - LOG_UNIT else READ_SIZE - LOG_UNIT)
            got = rmq_pread_all(t.io, fd, some, position - begin + LOG_UNIT, at - (position - begin))
            if got != position - begin + LOG_UNIT:
                return <int> got if got < 0 else -EIO
            end = begin + got
        u = some + (position - begin)
        if not timerlog_good(t, u, position):
            return -EIO
        rc = _add_due(t, s, u, position)
        if rc < 0:
            return rc
        position = be64(u + AT_PREVIOUS)
    return 0


cdef int _gather_walk(Wheel *t, int64_t time_ms, int64_t position, int64_t last, Slot *s) noexcept nogil:
    # The units of a slot by a walk from its first to its last one, newest first as well.
    cdef unsigned char[LOG_UNIT] u
    cdef int64_t at = 0, got, i
    cdef int fd, rc
    cdef Due other
    while position <= last:
        fd = timerlog_fd(t, position, &at)
        if fd < 0:
            return fd
        if t.file_size - at < LOG_UNIT + LOG_TAIL:
            position += t.file_size - at
            continue
        got = rmq_pread_all(t.io, fd, u, LOG_UNIT, at)
        if got != LOG_UNIT or not timerlog_good(t, u, position):
            return <int> got if got < 0 else -EIO
        # What was delivered before the open may lie between units that wait.
        if be64(u + AT_ENTERED) + be32(u + AT_DELAY) >= t.first_ms and unit_slot_ms(t, u, position) == time_ms:
            rc = _add_due(t, s, u, position)
            if rc < 0:
                return rc
        position += LOG_UNIT
    for i in range(s.n // 2):
        other = s.dues[i]
        s.dues[i] = s.dues[s.n - 1 - i]
        s.dues[s.n - 1 - i] = other
    return 0


cdef int _roll(Wheel *t, const RecordView *v, const Due *due) noexcept nogil:
    # It comes into the queue once more: the wheel must not pass the slot of its time before it is taken from there. A message
    # without room for that gets another unit, if it did not get that before a kill.
    cdef const char *text = NULL
    cdef Py_ssize_t size = 0
    cdef int64_t out = 0
    cdef int rc = timer_deliver(t, v, due.entered, True)
    if (rc < 0 or not find_property(v.properties, v.properties_size, b"TIMER_OUT_MS", 12, &text, &size)
            or deliver_number(text, size, &out) < 0):
        return rc
    if rc == NO_ROOM:
        rc = again_later(t, due.physical, due.entered)
        if rc != 0:
            return rc if rc < 0 else 0
        return entry_place(t, v, due.physical, due.size, max(out, t.read_ms + t.precision), due.magic & ~MAGIC_ROLL)
    if out < t.rolled_ms:
        t.rolled_ms = out // t.precision * t.precision
    return rc


cdef int _deliver_due(Wheel *t, const Slot *s, const Due *due) noexcept nogil:
    cdef RecordView v
    cdef LogFile *f = NULL
    cdef int rc = record_at(t.d.log, due.physical, due.size, &v, &f)
    if rc == -1:
        deliver_skip(&t.d, due.physical)        # cleaned away, or damaged
        return 0
    if rc == 0:
        if not due.magic & MAGIC_DELETE:
            rc = recalls_name(&s.recalls, t.d.log, &v)
            if rc == 0:
                rc = recalls_name(&t.recalls, t.d.log, &v)
        if rc == 0:
            rc = _roll(t, &v, due) if due.magic & MAGIC_ROLL else timer_deliver(t, &v, due.entered, False)
        log_file_release(f)
    return rc if rc < 0 else 0


cdef int slot_deliver(Wheel *t, int64_t time_ms) noexcept nogil:
    cdef Slot s
    cdef int64_t i
    cdef int rc
    memset(&s, 0, sizeof(s))
    if t.scattered:
        rc = _gather_walk(t, time_ms, be64(wheel_slot(t, time_ms) + 8), be64(wheel_slot(t, time_ms) + 16), &s)
    else:
        rc = _gather_chain(t, be64(wheel_slot(t, time_ms) + 16), &s)
    if rc == 0:
        rc = _learn_recalls(t, &s)
    while t.done < s.n and rc == 0:
        i = s.n - 1 - t.done
        if rmq_load32(&t.d.stop) != 0:
            rc = -ETIMEDOUT
        elif not s.dues[i].magic & MAGIC_DELETE or s.dues[i].magic & MAGIC_ROLL:
            rc = _deliver_due(t, &s, &s.dues[i])
        if rc == 0:
            t.done += 1
    if rc == 0:
        t.done = 0
        rmq_add(&t.pending, -s.n)
        for i in range(s.n):
            if not s.dues[i].magic & MAGIC_DELETE:
                topic_add(t, s.dues[i].topic, s.dues[i].physical, -1)
        wheel_clear(t, time_ms)
    free(s.dues)
    recalls_forget(&s.recalls)
    return rc
