"""A timer message that is due: its copy. Contract in _delivery.pxd; source: TimerMessageStore.convert, doPut (5.3.3)."""
from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport snprintf
from libc.string cimport memchr, memcmp, memcpy, memset

from rmq_store.access.writer._put cimport find_property
from rmq_store.base.io._sync cimport ENOMEM, ENOSPC, ETIMEDOUT, rmq_add, rmq_event_wake, rmq_load32, rmq_publish
from rmq_store.codec._layout cimport BLANK_SIZE, PROPERTIES_SIZE_MAX, TOPIC_SIZE_V1_MAX
from rmq_store.codec._record cimport (RecordArgs, RecordView, body_crc32, born_host_size, record_prepare, store_host_size,
                                      topic_fits)
from rmq_store.log.commitlog._log cimport (APPEND_FENCED, APPEND_NEED_FILE, APPEND_NEED_ROOM, APPEND_OK, Appended, log_append,
                                           log_dispatch_wake, log_lock_begin, log_lock_end_quick, log_wait_file, log_wait_room)
from rmq_store.queues.consumequeue._queue cimport Queue, queues_find
from rmq_store.services.timer._timerlog cimport Wheel

cdef extern from "errno.h" nogil:
    enum: EMSGSIZE

cdef enum:
    SKIPPED = 1
    WAITS_MAX = 100

cdef int64_t SLICE_NS = 100_000_000


cdef int32_t _changed(const RecordView *v, unsigned char *out, int64_t entered, int64_t now, bint rolled) noexcept nogil:
    # The properties of the copy: those that delivery sets are taken out, and stand at the end. -1: no room.
    cdef const char *text = v.properties
    cdef const char *end = text + v.properties_size
    cdef const char *stop
    cdef const char *times = NULL
    cdef Py_ssize_t size = 0
    cdef int32_t n = 0
    cdef int rolls = 0, i
    if find_property(v.properties, v.properties_size, b"TIMER_ROLL_TIMES", 16, &times, &size) and size < 9:
        for i in range(<int> size):
            if 48 <= times[i] <= 57:
                rolls = rolls * 10 + times[i] - 48
    if v.properties_size > PROPERTIES_SIZE_MAX - 120:
        return -1
    while text < end:
        stop = <const char *> memchr(text, 2, end - text)
        stop = end if stop == NULL else stop + 1
        if not ((stop - text >= 9 and memcmp(text, b"__CRC32#\x01", 9) == 0)
                or (stop - text >= 17 and memcmp(text, b"TIMER_ENQUEUE_MS\x01", 17) == 0)
                or (stop - text >= 17 and memcmp(text, b"TIMER_DEQUEUE_MS\x01", 17) == 0)
                or (rolled and stop - text >= 17 and memcmp(text, b"TIMER_ROLL_TIMES\x01", 17) == 0)):
            memcpy(out + n, text, stop - text)
            n += <int32_t> (stop - text)
        text = stop
    if n > 0 and out[n - 1] != 2:
        out[n] = 2
        n += 1
    if entered >= 0:
        n += snprintf(<char *> out + n, 40, b"TIMER_ENQUEUE_MS\x01%lld\x02", <long long> entered)
    if rolled:
        n += snprintf(<char *> out + n, 40, b"TIMER_ROLL_TIMES\x01%d\x02", rolls + 1)
    return n + snprintf(<char *> out + n, 40, b"TIMER_DEQUEUE_MS\x01%lld\x02", <long long> now)


cdef int timer_number(const char *text, Py_ssize_t size, int64_t *out) noexcept nogil:
    cdef Py_ssize_t i
    out[0] = 0
    if size < 1 or size > 18:
        return -1
    for i in range(size):
        if text[i] < 48 or text[i] > 57:
            return -1
        out[0] = out[0] * 10 + text[i] - 48
    return 0


cdef int _copy(Wheel *t, const RecordView *v, RecordArgs *a, int64_t entered, bint rolled) noexcept nogil:
    cdef const char *queue = NULL
    cdef const char *topic = NULL
    cdef Py_ssize_t size = 0
    cdef int64_t number = 0
    memset(a, 0, sizeof(RecordArgs))
    if v.topic_size != 19 or memcmp(v.topic, b"rmq_sys_wheel_timer", 19) != 0:
        return SKIPPED          # the log was cut there once, and is another record's now
    if rolled:
        a.topic = v.topic
        a.topic_size = <int32_t> v.topic_size
    else:
        if (not find_property(v.properties, v.properties_size, b"REAL_QID", 8, &queue, &size)
                or timer_number(queue, size, &number) < 0 or number > 0x7FFFFFFF
                or not find_property(v.properties, v.properties_size, b"REAL_TOPIC", 10, &topic, &size)
                or not topic_fits(topic, <int32_t> size) or (size > TOPIC_SIZE_V1_MAX and not t.compat5)):
            return SKIPPED
        a.topic = topic
        a.topic_size = <int32_t> size
        a.queue_id = <int32_t> number
    a.body = v.body
    a.body_size = v.body_size
    a.body_crc = body_crc32(v.body, v.body_size)
    if a.body_crc != v.body_crc:
        return SKIPPED          # rotten; a copy with a new checksum would hide it
    a.flag = v.flag
    a.sys_flag = v.sys_flag
    a.born_timestamp = v.born_timestamp
    a.reconsume_times = v.reconsume_times
    memcpy(a.born_host, v.born_host, born_host_size(v.sys_flag))
    memcpy(a.store_host, v.store_host, store_host_size(v.sys_flag))
    a.properties_size = _changed(v, t.scratch, entered, t.io.wall_ms(t.io.ctx), rolled)
    a.properties = <const char *> t.scratch
    if a.properties_size < 0:
        return SKIPPED
    a.crc_property = t.record_crc
    if not t.compat5:
        a.properties_size -= 1
    record_prepare(a)
    if a.properties_total > PROPERTIES_SIZE_MAX or a.size > t.log.row.file_size - BLANK_SIZE:
        return SKIPPED
    return 0


cdef int _append(Wheel *t, RecordArgs *a) noexcept nogil:
    # 0; -errno: try again later. Waits in slices, so that close() need not wait long for this thread.
    cdef Queue *q = queues_find(t.queues, a.topic, a.topic_size, a.queue_id, True)
    cdef Appended out
    cdef int64_t now
    cdef int status, rc, waits = 0
    if q == NULL:
        return -ENOMEM
    if t.refused[0]:
        return -ENOSPC
    while True:
        now = log_lock_begin(t.log)
        status = log_append(t.log, a, q, now, &out)
        if log_lock_end_quick(t.log):
            log_dispatch_wake(t.log)
        if status == APPEND_OK:
            break
        if status == APPEND_NEED_ROOM:
            if a.size > t.log.pool.size or (waits > 0 and 2 * a.size + BLANK_SIZE > t.log.pool.size):
                return -EMSGSIZE
            rc = log_wait_room(t.log, a.size, SLICE_NS)
        elif status == APPEND_NEED_FILE:
            rc = log_wait_file(t.log, a.size, SLICE_NS)
        else:
            return -rmq_load32(&t.log.fence) if status == APPEND_FENCED else -ENOMEM
        if rc < 0:
            return rc
        waits += 1
        if waits == WAITS_MAX or rmq_load32(&t.stop) != 0:
            return -ETIMEDOUT
    rmq_publish(&t.delivered_end, out.offset + a.size)
    rmq_add(&t.delivered, 1)
    if t.sync_mode and rmq_load32(&t.log.flush_asleep) != 0:
        rmq_event_wake(&t.log.flush_wanted)
    return 0


cdef int timer_deliver(Wheel *t, const RecordView *v, int64_t entered, bint rolled) noexcept nogil:
    cdef RecordArgs a
    cdef int rc = _copy(t, v, &a, entered, rolled)
    if rc == 0:
        rc = _append(t, &a)
    if rc == SKIPPED:
        rmq_add(&t.skipped, 1)
        return 0
    return rc
