"""An entry of the timer's queue that is taken. Contract in _entry.pxd; source: TimerMessageStore.enqueue, doEnqueue (5.3.3)."""
from libc.stdint cimport int32_t, int64_t

from rmq_store.access.reader._look cimport record_at
from rmq_store.access.writer._put cimport find_property
from rmq_store.base.io._sync cimport rmq_load, rmq_load32
from rmq_store.base.segment._file cimport LogFile, log_file_release
from rmq_store.codec._layout cimport PROPERTIES_SIZE_MAX, UNIT_FILLER, UNIT_SIZE
from rmq_store.codec._record cimport RecordView
from rmq_store.codec._unit cimport unit_bytes, unit_physical
from rmq_store.queues.consumequeue._queue cimport queue_read
from rmq_store.services.delivery._deliverer cimport deliver_number, deliver_skip
from rmq_store.services.timer._delivery cimport timer_deliver
from rmq_store.services.timer._recalls cimport recalls_add, recalls_name
from rmq_store.services.timer._timerlog cimport (AT_DELAY, AT_ENTERED, AT_MAGIC, AT_PHYSICAL, AT_PREVIOUS, AT_SIZE, AT_TOPIC,
                                                 LOG_UNIT, MAGIC_DEFAULT, MAGIC_DELETE, MAGIC_ROLL, WHEEL_SLOTS, Wheel, be64,
                                                 put32, put64, timerlog_append, wheel_clock, wheel_holds, wheel_revise,
                                                 wheel_slot)

cdef extern from * nogil:
    """
    #include <stdint.h>
    static int32_t hash_of(const char *s, int32_t n) {      /* String.hashCode of the ASCII of a topic */
        uint32_t h = 0;
        for (int32_t i = 0; i < n; i++) h = 31 * h + (unsigned char)s[i];
        return (int32_t)h;
    }
    """
    int32_t hash_of(const char *s, int32_t n)

cdef enum:
    UNITS_AT_ONCE = 64
    DELAY_MAX = 0x7FFFFFFF              # ms; a unit has 32 bits for it
    ROLLED_SIZE_MAX = 128           # of the properties that a rolled message has more


cdef int _read_ahead(Wheel *t) noexcept nogil:
    # Learns the recalls that stand in the queue from the next entry on. 0 or -errno.
    cdef unsigned char[UNITS_AT_ONCE * UNIT_SIZE] units
    cdef RecordView v
    cdef LogFile *f = NULL
    cdef int64_t n, i, high = rmq_load(&t.queue.max_offset)
    cdef int32_t size
    cdef int rc
    if t.recalls_to < t.offset:
        t.recalls_to = t.offset
    while t.recalls_to < high and rmq_load32(&t.d.stop) == 0:
        n = queue_read(t.d.queues, t.queue, t.recalls_to, units, UNITS_AT_ONCE)
        if n <= 0:
            return <int> n
        for i in range(n):
            size = unit_bytes(units + i * UNIT_SIZE)
            if size <= 0 or size == UNIT_FILLER:
                continue
            rc = record_at(t.d.log, unit_physical(units + i * UNIT_SIZE), size, &v, &f)
            if rc == 0:
                rc = recalls_add(&t.recalls, &v)
                log_file_release(f)
                f = NULL
            if rc < -1:
                return rc
        t.recalls_to += n
    return 0


cdef int _late(Wheel *t, const RecordView *v) noexcept nogil:
    # A message whose slot is over. 0 delivered or taken back; WAITS; -errno.
    cdef int rc
    if not t.complete:
        return WAITS
    rc = _read_ahead(t)
    if rc < 0:
        return rc
    if rmq_load32(&t.d.stop) != 0 or (t.base_ms > t.first_ms and t.read_ms <= t.base_ms and wheel_holds(t, t.base_ms)):
        return WAITS        # a recall of it may be in the slot that has what is older than the wheel
    rc = recalls_name(&t.recalls, t.d.log, v)
    if rc != 0:
        return rc if rc < 0 else 0
    return timer_deliver(t, v, wheel_clock(t) // t.precision * t.precision, False)


cdef int entry_place(Wheel *t, const RecordView *v, int64_t physical, int32_t size, int64_t due,
                     int32_t magic) noexcept nogil:
    # The clock may be behind the wheel, and a slot that it has passed comes never; or farther ahead than the wheel is long.
    # What has no room to be rolled goes as far as the wheel is long: a put of this store refuses it.
    cdef unsigned char[LOG_UNIT] u
    cdef const char *topic = NULL
    cdef Py_ssize_t n = 0
    cdef int64_t where = 0, now = wheel_clock(t) // t.precision * t.precision
    cdef int rc
    now = max(t.read_ms, min(now, t.read_ms + WHEEL_SLOTS // 2 * t.precision))
    if due < now:                   # it will soon be
        now = due
    if due - now >= t.roll_ms and not (v.properties_size > PROPERTIES_SIZE_MAX - ROLLED_SIZE_MAX
                                       and due - t.read_ms < WHEEL_SLOTS // 4 * 3 * t.precision
                                       and due - now <= DELAY_MAX):
        magic |= MAGIC_ROLL
        if due - now - t.roll_ms < t.roll_ms // t.precision // 3 * t.precision:
            due = now + t.roll_ms // t.precision // 2 * t.precision     # so that the last way is not too short
        else:
            due = now + t.roll_ms
    if not find_property(v.properties, v.properties_size, b"REAL_TOPIC", 10, &topic, &n):
        n = 0
    put32(u, LOG_UNIT)
    put64(u + AT_PREVIOUS, be64(wheel_slot(t, due) + 16) if wheel_holds(t, due) else -1)
    put32(u + AT_MAGIC, magic)
    put64(u + AT_ENTERED, now)
    put32(u + AT_DELAY, <int32_t> (due - now))
    put64(u + AT_PHYSICAL, physical)
    put32(u + AT_SIZE, size)
    put32(u + AT_TOPIC, hash_of(topic, <int32_t> n))
    rc = timerlog_append(t, u, &where)
    if rc == 0:
        wheel_revise(t, due, where, u)
    return rc


cdef int entry_enqueue(Wheel *t, const RecordView *v, int64_t physical, int32_t size, int64_t offset) noexcept nogil:
    cdef const char *text = NULL
    cdef Py_ssize_t n = 0
    cdef int64_t due = 0
    cdef int32_t magic = MAGIC_DEFAULT
    if not find_property(v.properties, v.properties_size, b"TIMER_OUT_MS", 12, &text, &n) or deliver_number(text, n, &due) < 0:
        deliver_skip(&t.d, physical)
        return 0
    if offset < t.known_offset and due < t.known_ms:
        return 0
    if find_property(v.properties, v.properties_size, b"TIMER_DEL_UNIQKEY", 17, &text, &n):
        magic |= MAGIC_DELETE
    if due < t.read_ms or due < t.first_ms:     # its slot is over
        return recalls_add(&t.recalls, v) if magic & MAGIC_DELETE else _late(t, v)
    return entry_place(t, v, physical, size, due, magic)
