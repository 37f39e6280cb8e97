"""The timer of delayed messages. Contract in _timer.pxd.

A message is delivered as a copy: body, flag, system flag, born time and host, store host, reconsume times and properties
(DELAY, REAL_TOPIC and REAL_QID among them) as they are; topic and queue are the real ones; everything else is that of a new
message.
The order of steps makes repeats possible and losses not: the copy is appended, the level's offset moves, and only when the copy
is durable the offset is written to the file.

The wall clock decides what is due, as RocketMQ. Two cases are told apart where it was set back. A message that was there before
and would now wait longer than its level says is due at once (RocketMQ's rule). A message that came while the clock is behind
the log got the log's store time, because store times never run backwards; it waits its delay by the monotonic clock.
"""
cimport cython
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memset

from rmq_store.access.reader._look cimport record_at
from rmq_store.access.waiting._wait cimport StoreWait
from rmq_store.access.writer._put cimport find_property
from rmq_store.base.io._sync cimport rmq_load, rmq_load32, rmq_publish
from rmq_store.base.segment._file cimport LogFile, log_file_release
from rmq_store.codec._delay cimport SCHEDULE_TOPIC_SIZE
from rmq_store.codec._layout cimport UNIT_FILLER, UNIT_SIZE
from rmq_store.codec._record cimport RecordArgs, RecordView
from rmq_store.codec._unit cimport is_ext_address, unit_bytes, unit_code, unit_physical
from rmq_store.queues.consumequeue._arrivals cimport hub_take, hub_watch
from rmq_store.queues.consumequeue._queue cimport Queue, queue_read, queue_read_ext, queues_find
from rmq_store.services.delivery._deliverer cimport (DELIVER_RETRY_MS, DELIVER_SKIPPED, DeliveryThread, deliver_append,
                                                     deliver_content, deliver_failed, deliver_fits, deliver_place, deliver_skip,
                                                     deliver_sleep, deliver_without)

cdef enum:
    UNITS_AT_ONCE = 64


# ---- one message

cdef int _copy(Timer *t, const RecordView *v, RecordArgs *a) noexcept nogil:
    # 0, or DELIVER_SKIPPED where there is no place to deliver to.
    cdef const char *crc = b"__CRC32#\x01"      # the checksum of the record that waited is not that of its copy
    cdef const char *names[4]
    cdef const char *text = NULL
    cdef Py_ssize_t size = 0
    memset(a, 0, sizeof(RecordArgs))
    if not deliver_place(&t.d, v, a) or not deliver_content(&t.d, v, a):
        return DELIVER_SKIPPED
    a.properties, a.properties_size = v.properties, v.properties_size
    if find_property(v.properties, v.properties_size, b"__CRC32#", 8, &text, &size):     # also if this store writes none
        a.properties_size = deliver_without(v.properties, v.properties_size, &crc, 1, t.d.scratch)
        a.properties = <const char *> t.d.scratch
    a.trailing_separator = t.d.compat5
    if not t.d.compat5 and not t.d.record_crc and a.properties_size > 0 and a.properties[a.properties_size - 1] == 2:
        a.properties_size -= 1
    if deliver_fits(&t.d, a):
        return 0
    # It was put without a checksum, or without a separator at the end, or by another program: what named its time and place
    # makes room for that.
    names[0], names[1], names[2], names[3] = crc, b"DELAY\x01", b"REAL_TOPIC\x01", b"REAL_QID\x01"
    a.properties_size = deliver_without(v.properties, v.properties_size, names, 4, t.d.scratch)
    a.properties = <const char *> t.d.scratch
    if a.properties_size > 0 and a.properties[a.properties_size - 1] == 2:
        a.properties_size -= 1
    a.trailing_separator = 0
    return 0 if deliver_fits(&t.d, a) else DELIVER_SKIPPED


cdef int _deliver(Timer *t, Level *level, int64_t offset, int64_t physical, int32_t size) noexcept nogil:
    # 0 delivered; DELIVER_SKIPPED; -errno: try again.
    cdef RecordView v
    cdef RecordArgs a
    cdef LogFile *f = NULL
    cdef int rc = record_at(t.d.log, physical, size, &v, &f)
    if rc == -1:
        return DELIVER_SKIPPED
    if rc < 0:
        return rc
    if (v.topic_size != SCHEDULE_TOPIC_SIZE or memcmp(v.topic, b"SCHEDULE_TOPIC_XXXX", SCHEDULE_TOPIC_SIZE) != 0
            or v.queue_id != level.queue.queue_id or v.queue_offset != offset):
        rc = DELIVER_SKIPPED    # a damaged entry: it leads to another record
    else:
        rc = _copy(t, &v, &a)
        if rc == 0:
            rc = deliver_append(&t.d, &a)
    log_file_release(f)
    return rc


# ---- when

cdef void _mark(Timer *t, Level *level, int64_t mono) noexcept nogil:
    # While the wall clock is behind the log, who came when is known only by the monotonic clock.
    cdef int64_t end = rmq_load(&level.queue.max_offset)
    cdef Mark *last = level.marks + level.marks_used - 1
    if level.marks_used > 0 and (last.end >= end or level.marks_used == MARKS_MAX
                                 or mono - last.seen < level.delay_ms * 1_000_000 // 100):
        if last.end < end:
            last.end = end
            last.seen = mono
        return
    level.marks[level.marks_used].end = end
    level.marks[level.marks_used].seen = mono
    level.marks_used += 1


cdef int64_t _due(Timer *t, Level *level, int64_t offset, int64_t deliver, int64_t now, int64_t mono) noexcept nogil:
    cdef int32_t i, n = 0
    while n < level.marks_used and level.marks[n].end <= offset:
        n += 1
    if n > 0:
        for i in range(level.marks_used - n):
            level.marks[i] = level.marks[i + n]
        level.marks_used -= n
    if deliver <= now + level.delay_ms:
        return deliver
    if level.marks_used > 0:
        return now + level.delay_ms - (mono - level.marks[0].seen) // 1_000_000
    return now                  # correctDeliverTimestamp


cdef int64_t _extended(Timer *t, Level *level, int64_t code, int64_t physical, int32_t size) noexcept nogil:
    # The delivery time in an extension unit; without the unit, by the record's own time.
    cdef int64_t stored = 0
    cdef RecordView v
    cdef LogFile *f = NULL
    if queue_read_ext(t.d.queues, level.queue, code, &code, &stored, NULL, 0) >= 0:
        return code
    if record_at(t.d.log, physical, size, &v, &f) < 0:
        return 0
    stored = v.store_timestamp
    log_file_release(f)
    return stored + level.delay_ms


cdef int64_t _level(Timer *t, Level *level) noexcept nogil:
    # Delivers what is due; when to come back, in wall ms.
    cdef unsigned char[UNITS_AT_ONCE * UNIT_SIZE] units
    cdef int64_t offset = level.offset
    cdef int64_t low = rmq_load(&level.queue.min_offset)
    cdef int64_t n, i, physical, code, now, due
    cdef int32_t size
    cdef int rc
    if offset < low:
        offset = low            # cleaned away while they waited
        rmq_publish(&level.offset, offset)
    while rmq_load32(&t.d.stop) == 0:
        n = queue_read(t.d.queues, level.queue, offset, units, UNITS_AT_ONCE)
        if n <= 0:
            if n < 0:
                deliver_failed(&t.d, <int> n)
                return t.d.log.io.wall_ms(t.d.log.io.ctx) + DELIVER_RETRY_MS
            return INT64_MAX
        for i in range(n):
            if rmq_load32(&t.d.stop) != 0:
                break
            physical = unit_physical(units + i * UNIT_SIZE)
            size = unit_bytes(units + i * UNIT_SIZE)
            code = unit_code(units + i * UNIT_SIZE)
            rc = DELIVER_SKIPPED
            if size > 0 and size != UNIT_FILLER:
                if level.ext and is_ext_address(code):
                    code = _extended(t, level, code, physical, size)
                now = t.d.log.io.wall_ms(t.d.log.io.ctx)
                due = _due(t, level, offset, code, now, t.d.log.io.mono_ns(t.d.log.io.ctx))
                if due > now:
                    return due
                rc = _deliver(t, level, offset, physical, size)
                if rc < 0:
                    deliver_failed(&t.d, rc)
                    return now + DELIVER_RETRY_MS
                if rc == DELIVER_SKIPPED:
                    deliver_skip(&t.d, physical)
            offset += 1
            rmq_publish(&level.offset, offset)
    return 0


cdef void *_run(void *arg) noexcept nogil:
    cdef Timer *t = <Timer *> arg
    cdef Queue *some[MARKS_MAX]
    cdef int64_t next, due, now
    cdef int32_t i
    cdef int n, k
    while rmq_load32(&t.d.stop) == 0:
        next = INT64_MAX
        n = hub_take(t.d.hub, some, MARKS_MAX)
        now = t.d.log.io.wall_ms(t.d.log.io.ctx)
        if rmq_load(&t.d.log.wrote_timestamp) > now:
            for k in range(n):
                if some[k].queue_id < t.count:
                    _mark(t, &t.levels[some[k].queue_id], t.d.log.io.mono_ns(t.d.log.io.ctx))
        for i in range(t.count):
            due = _level(t, &t.levels[i])
            rmq_publish(&t.levels[i].next_due, due)
            if due < next:
                next = due
        if rmq_load32(&t.d.log.fence) != 0:
            next = INT64_MAX        # nothing is appended any more
        if rmq_load32(&t.d.stop) != 0:
            break
        now = t.d.log.io.wall_ms(t.d.log.io.ctx)
        deliver_sleep(&t.d, -1 if next == INT64_MAX else (next - now if next > now else 0))
    return NULL


# ---- the face

@cython.final
@cython.no_gc_clear
cdef class DelayTimer(DeliveryThread):
    """Delivers the delayed messages of one store. offsets: {level: next queue offset}. Control thread and close only."""

    def __init__(self, StoreWait store not None, offsets, delays_ms):
        cdef Timer *t
        cdef int32_t i
        cdef Queue *q
        t = self.timer = <Timer *> calloc(1, sizeof(Timer))
        if t == NULL:
            raise MemoryError("delay timer")
        self._prepare(store, &t.d)
        t.levels = <Level *> calloc(len(delays_ms) + 1, sizeof(Level))
        if t.levels == NULL:
            raise MemoryError("delay levels")
        t.count = <int32_t> len(delays_ms)
        for i in range(t.count):
            q = queues_find(t.d.queues, b"SCHEDULE_TOPIC_XXXX", SCHEDULE_TOPIC_SIZE, i, True)
            t.levels[i].marks = <Mark *> calloc(MARKS_MAX, sizeof(Mark))
            if q == NULL or t.levels[i].marks == NULL or hub_watch(t.d.hub, q) < 0:
                raise MemoryError("delay levels")
            t.levels[i].queue = q
            t.levels[i].delay_ms = delays_ms[i]
            t.levels[i].ext = store.options.consumequeue_ext_enabled
            t.levels[i].next_due = INT64_MAX
            # correctDelayOffset
            t.levels[i].offset = min(max(offsets.get(i + 1, 0), rmq_load(&q.min_offset)), rmq_load(&q.max_offset))

    def start(self):
        """Begins to deliver."""
        self._begin(_run, self.timer, b"rmq-delay", "delay")

    def offsets(self, bint durable=True):
        """{level: next queue offset}, of levels where something was delivered. durable: waits until the copies are on the
        device; OSError where they cannot be."""
        cdef Timer *t = self.timer
        found = {i + 1: rmq_load(&t.levels[i].offset) for i in range(t.count) if rmq_load(&t.levels[i].offset) > 0}
        if durable:
            self.sync_delivered()
        return found

    def state(self):
        """(delivered, skipped, physical offset of the last one skipped, failed tries, errno of the last one,
        [wall ms when the next message of each level is due, None where none waits])."""
        cdef Timer *t = self.timer
        dues = [rmq_load(&t.levels[i].next_due) for i in range(t.count)]
        return (rmq_load(&t.d.delivered), rmq_load(&t.d.skipped), rmq_load(&t.d.last_skipped), rmq_load(&t.d.failures),
                rmq_load32(&t.d.last_error), [None if due == INT64_MAX else due for due in dues])

    def __dealloc__(self):
        cdef int32_t i
        if self._may_free():
            for i in range(self.timer.count):
                free(self.timer.levels[i].marks)
            free(self.timer.levels)
            free(self.timer)
