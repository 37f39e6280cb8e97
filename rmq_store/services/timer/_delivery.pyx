"""A timer message that is due: its copy. Contract in _delivery.pxd; source: TimerMessageStore.convert, doPut (5.3.3)."""
from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memset

from rmq_store.access.writer._put cimport find_property
from rmq_store.codec._record cimport RecordArgs, RecordView
from rmq_store.services.delivery._deliverer cimport (DELIVER_SKIPPED, deliver_append, deliver_content, deliver_fits,
                                                     deliver_number, deliver_place, deliver_skip, deliver_without)
from rmq_store.services.timer._once cimport once_claim
from rmq_store.services.timer._timerlog cimport Wheel, wheel_clock

cdef enum:
    ROLLED_SIZE_MAX = 9         # digits


cdef int32_t _short(const RecordView *v, unsigned char *out, int64_t now) noexcept nogil:
    # The properties of a copy whose others do not fit, as only other programs store them: what named its time and place is
    # left out. That is more than what tells the next open that this is a copy.
    cdef const char *names[9]
    cdef int32_t n
    names[0], names[1], names[2] = b"__CRC32#\x01", b"TIMER_ENQUEUE_MS\x01", b"TIMER_DEQUEUE_MS\x01"
    names[3], names[4], names[5] = b"TIMER_OUT_MS\x01", b"REAL_TOPIC\x01", b"REAL_QID\x01"
    names[6], names[7], names[8] = b"TIMER_DELIVER_MS\x01", b"TIMER_DELAY_MS\x01", b"TIMER_DELAY_SEC\x01"
    n = deliver_without(v.properties, v.properties_size, names, 9, out)
    if n > 0 and out[n - 1] != 2:
        out[n] = 2
        n += 1
    return n + snprintf(<char *> out + n, 40, b"TIMER_DEQUEUE_MS\x01%lld\x02", <long long> now)


cdef int32_t _changed(const RecordView *v, unsigned char *out, int64_t entered, int64_t now, bint rolled) noexcept nogil:
    # The properties of the copy: those that delivery sets are taken out, and stand at the end.
    cdef const char *text = NULL
    cdef Py_ssize_t size = 0
    cdef const char *names[4]
    cdef int64_t rolls = 0
    cdef int32_t n
    names[0], names[1] = b"__CRC32#\x01", b"TIMER_ENQUEUE_MS\x01"
    names[2], names[3] = b"TIMER_DEQUEUE_MS\x01", b"TIMER_ROLL_TIMES\x01"
    n = deliver_without(v.properties, v.properties_size, names, 4 if rolled else 3, out)
    if n > 0 and out[n - 1] != 2:
        out[n] = 2
        n += 1
    if entered >= 0:
        n += snprintf(<char *> out + n, 40, b"TIMER_ENQUEUE_MS\x01%lld\x02", <long long> entered)
    if rolled:
        if (not find_property(v.properties, v.properties_size, b"TIMER_ROLL_TIMES", 16, &text, &size)
                or size > ROLLED_SIZE_MAX or deliver_number(text, size, &rolls) < 0):
            rolls = 0
        n += snprintf(<char *> out + n, 40, b"TIMER_ROLL_TIMES\x01%lld\x02", <long long> (rolls + 1))
    return n + snprintf(<char *> out + n, 40, b"TIMER_DEQUEUE_MS\x01%lld\x02", <long long> now)


cdef int _copy(Wheel *t, const RecordView *v, RecordArgs *a, int64_t entered, bint rolled) noexcept nogil:
    memset(a, 0, sizeof(RecordArgs))
    if v.topic_size != 19 or memcmp(v.topic, b"rmq_sys_wheel_timer", 19) != 0:
        return DELIVER_SKIPPED          # the log was cut there once, and is another record's now
    if rolled:
        a.topic, a.topic_size = v.topic, v.topic_size
    elif not deliver_place(&t.d, v, a):
        return DELIVER_SKIPPED
    if not deliver_content(&t.d, v, a):
        return DELIVER_SKIPPED
    a.properties_size = _changed(v, t.d.scratch, entered, t.io.wall_ms(t.io.ctx), rolled) - (not t.d.compat5)
    a.properties = <const char *> t.d.scratch
    if deliver_fits(&t.d, a):
        return 0
    if rolled:
        return NO_ROOM
    a.properties_size = _short(v, t.d.scratch, t.io.wall_ms(t.io.ctx)) - 1
    return 0 if deliver_fits(&t.d, a) else DELIVER_SKIPPED


cdef bint _claimed(Wheel *t, const RecordView *v) noexcept nogil:
    # Whether the log has what became of it. That may have been delivered where it would be rolled now, or the other way round:
    # clock, wheel and units are not what they were. The time is as long as that of the copy: a longer one may not fit.
    cdef RecordArgs a
    if t.once.left > 0 and _copy(t, v, &a, wheel_clock(t), False) == 0 and once_claim(&t.once, &a):
        return True
    return t.once.left > 0 and _copy(t, v, &a, wheel_clock(t), True) == 0 and once_claim(&t.once, &a)


cdef int timer_deliver(Wheel *t, const RecordView *v, int64_t entered, bint rolled) noexcept nogil:
    cdef RecordArgs a
    cdef int rc
    if _claimed(t, v):
        return 0
    rc = _copy(t, v, &a, entered, rolled)
    if rc == NO_ROOM:
        return rc
    if rc == DELIVER_SKIPPED:
        deliver_skip(&t.d, v.physical_offset)
        return 0
    return deliver_append(&t.d, &a)


cdef bint timer_rolled(Wheel *t, const RecordView *v, bint known) noexcept nogil:
    cdef RecordArgs a
    if t.rolled.left > 0 and _copy(t, v, &a, wheel_clock(t), True) == 0 and once_claim(&t.rolled, &a):
        if not known:
            once_claim(&t.once, &a)     # where it counts as not delivered, this was its delivery
        return True
    return not known and _claimed(t, v)
