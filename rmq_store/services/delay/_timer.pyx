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
import os

cimport cython
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memcpy, memset

from rmq_store.access.reader._look cimport record_at
from rmq_store.access.waiting._wait cimport StoreWait
from rmq_store.access.writer._put cimport find_property
from rmq_store.base.io._sync cimport (ENOMEM, ENOSPC, ETIMEDOUT, rmq_add, rmq_event_wake, rmq_load, rmq_load32, rmq_publish,
                                      rmq_publish32, rmq_thread_join, rmq_thread_start)
from rmq_store.base.segment._file cimport LogFile, log_file_release
from rmq_store.codec._delay cimport SCHEDULE_TOPIC_SIZE
from rmq_store.codec._layout cimport BLANK_SIZE, PROPERTIES_SIZE_MAX, TOPIC_SIZE_V1_MAX, UNIT_FILLER, UNIT_SIZE
from rmq_store.codec._record cimport (RecordArgs, RecordView, body_crc32, born_host_size, record_prepare, store_host_size,
                                      topic_fits)
from rmq_store.codec._unit cimport is_ext_address, unit_bytes, unit_code, unit_physical
from rmq_store.log.commitlog._log cimport (APPEND_FENCED, APPEND_NEED_FILE, APPEND_NEED_ROOM, APPEND_OK, Appended, log_append,
                                           log_dispatch_wake, log_lock_begin, log_lock_end_quick, log_wait_file, log_wait_room)
from rmq_store.log.flush._flush cimport flush_wait
from rmq_store.queues.consumequeue._arrivals cimport hub_free, hub_new, hub_take, hub_watch
from rmq_store.queues.consumequeue._queue cimport Queue, queue_read, queue_read_ext, queues_find

from rmq_store.errors import no_thread

cdef extern from * nogil:
    """
    #include <errno.h>
    #include <poll.h>
    #include <stdint.h>
    #include <sys/timerfd.h>
    #include <time.h>
    #include <unistd.h>
    /* eventfd and timerfd are no part of a store: they need not go through its I/O table. */
    static void rmq_wake_fd(int fd) { uint64_t one = 1; ssize_t n = write(fd, &one, 8); (void)n; }
    static int rmq_clock_fd(void) {
        int fd = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK);
        return fd < 0 ? -errno : fd;
    }
    /* Sleeps until fd is readable, delay_ms of the wall clock passed (negative: never), or the clock was set. */
    static void rmq_clock_sleep(int fd, int clock_fd, int64_t delay_ms) {
        struct itimerspec at = {{0, 0}, {0, 0}};
        struct pollfd fds[2] = {{fd, POLLIN, 0}, {clock_fd, POLLIN, 0}};
        uint64_t count;
        ssize_t n;
        clock_gettime(CLOCK_REALTIME, &at.it_value);
        if (delay_ms < 0 || delay_ms > 366LL * 86400000) delay_ms = 366LL * 86400000;
        at.it_value.tv_sec += delay_ms / 1000;
        at.it_value.tv_nsec += delay_ms % 1000 * 1000000;
        if (at.it_value.tv_nsec >= 1000000000) { at.it_value.tv_sec++; at.it_value.tv_nsec -= 1000000000; }
        timerfd_settime(clock_fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &at, NULL);
        poll(fds, 2, -1);
        n = read(fd, &count, 8);
        n = read(clock_fd, &count, 8);
        (void)n;
    }
    """
    enum: EMSGSIZE
    void rmq_wake_fd(int fd)
    int rmq_clock_fd()
    void rmq_clock_sleep(int fd, int clock_fd, int64_t delay_ms)

cdef enum:
    UNITS_AT_ONCE = 64
    RETRY_MS = 100              # RocketMQ's DELAY_FOR_A_WHILE
    SKIPPED = 1
    WAITS_MAX = 100             # for room or for a file, before it is tried again later

cdef int64_t SLICE_NS = 100_000_000
cdef const char *HALF_TOPIC = b"RMQ_SYS_TRANS_HALF_TOPIC"


# ---- one message

cdef int32_t _without_crc(const char *text, int32_t size, unsigned char *out) noexcept nogil:
    # The checksum of the record that waited is not that of its copy.
    cdef const char *end = text + size
    cdef const char *stop
    cdef int32_t n = 0
    while text < end:
        stop = <const char *> memchr(text, 2, end - text)
        stop = end if stop == NULL else stop + 1
        if stop - text < 9 or memcmp(text, b"__CRC32#\x01", 9) != 0:
            memcpy(out + n, text, stop - text)
            n += <int32_t> (stop - text)
        text = stop
    return n


cdef bint _number(const char *text, Py_ssize_t size, int32_t *out) noexcept nogil:
    cdef int64_t n = 0
    cdef Py_ssize_t i
    if size < 1 or size > 10:
        return False
    for i in range(size):
        if text[i] < 48 or text[i] > 57:
            return False
        n = n * 10 + text[i] - 48
    out[0] = <int32_t> n
    return n <= 0x7FFFFFFF


cdef int _copy(Timer *t, const RecordView *v, RecordArgs *a) noexcept nogil:
    # messageTimeup: 0, or SKIPPED where there is no place to deliver to.
    cdef const char *topic = NULL
    cdef const char *queue = NULL
    cdef Py_ssize_t topic_size = 0, queue_size = 0
    memset(a, 0, sizeof(RecordArgs))
    if (not find_property(v.properties, v.properties_size, b"REAL_TOPIC", 10, &topic, &topic_size)
            or not find_property(v.properties, v.properties_size, b"REAL_QID", 8, &queue, &queue_size)
            or not _number(queue, queue_size, &a.queue_id) or not topic_fits(topic, <int32_t> topic_size)
            or (topic_size > TOPIC_SIZE_V1_MAX and not t.compat5)       # 4.9 cannot read a record of version 2
            or (topic_size == 24 and memcmp(topic, HALF_TOPIC, 24) == 0)):
        return SKIPPED
    a.topic = topic
    a.topic_size = <int32_t> topic_size
    a.body = v.body
    a.body_size = v.body_size
    a.body_crc = body_crc32(v.body, v.body_size)
    if a.body_crc != v.body_crc:
        return SKIPPED          # rotten; a copy with a new checksum would hide it, one with the old would cut the log
    a.flag = v.flag
    a.sys_flag = v.sys_flag
    a.born_timestamp = v.born_timestamp
    a.reconsume_times = v.reconsume_times
    memcpy(a.born_host, v.born_host, born_host_size(v.sys_flag))
    memcpy(a.store_host, v.store_host, store_host_size(v.sys_flag))
    a.properties = v.properties
    a.properties_size = v.properties_size
    if t.record_crc:
        a.properties_size = _without_crc(v.properties, v.properties_size, t.scratch)
        a.properties = <const char *> t.scratch
        a.crc_property = True
    a.trailing_separator = t.compat5
    if not t.compat5 and not t.record_crc and a.properties_size > 0 and a.properties[a.properties_size - 1] == 2:
        a.properties_size -= 1
    record_prepare(a)
    if a.properties_total > PROPERTIES_SIZE_MAX or a.size > t.log.row.file_size - BLANK_SIZE:
        return SKIPPED
    return 0


cdef int _append(Timer *t, RecordArgs *a) noexcept nogil:
    # 0; -errno: try again later. Waits for room and files in slices, so that close() need not wait long for this thread.
    cdef Queue *q = queues_find(t.queues, a.topic, a.topic_size, a.queue_id, True)
    cdef Appended out
    cdef int64_t now
    cdef int status, rc, waits = 0
    if q == NULL:
        return -ENOMEM
    while True:
        now = log_lock_begin(t.log)
        status = log_append(t.log, a, q, now, &out)
        if log_lock_end_quick(t.log):
            log_dispatch_wake(t.log)        # the level's offset moves before a reader can have the message, as a rule
        if status == APPEND_OK:
            break
        if status == APPEND_NEED_ROOM:
            # The pool was larger when it was put: it waits for one that is again. The rest of a file may have to fit, too.
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
            return -ETIMEDOUT   # close() need not wait for room or for a file
    rmq_publish(&t.delivered_end, out.offset + a.size)
    if t.sync_mode and rmq_load32(&t.log.flush_asleep) != 0:
        rmq_event_wake(&t.log.flush_wanted)
    return 0


cdef int _deliver(Timer *t, Level *level, int64_t offset, int64_t physical, int32_t size) noexcept nogil:
    # 0 delivered; SKIPPED; -errno: try again.
    cdef RecordView v
    cdef RecordArgs a
    cdef LogFile *f = NULL
    cdef int rc = record_at(t.log, physical, size, &v, &f)
    if rc == -1:
        return SKIPPED
    if rc < 0:
        return rc
    if (v.topic_size != SCHEDULE_TOPIC_SIZE or memcmp(v.topic, b"SCHEDULE_TOPIC_XXXX", SCHEDULE_TOPIC_SIZE) != 0
            or v.queue_id != level.queue.queue_id or v.queue_offset != offset):
        rc = SKIPPED            # a damaged entry: it leads to another record
    else:
        rc = _copy(t, &v, &a)
        if rc == 0:
            rc = -ENOSPC if t.refused[0] else _append(t, &a)
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
    if queue_read_ext(t.queues, level.queue, code, &code, &stored, NULL, 0) >= 0:
        return code
    if record_at(t.log, physical, size, &v, &f) < 0:
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
    while rmq_load32(&t.stop) == 0:
        n = queue_read(t.queues, level.queue, offset, units, UNITS_AT_ONCE)
        if n <= 0:
            if n < 0:
                rmq_add(&t.failures, 1)
                rmq_publish32(&t.last_error, <int> -n)
                return t.log.io.wall_ms(t.log.io.ctx) + RETRY_MS
            return INT64_MAX
        for i in range(n):
            if rmq_load32(&t.stop) != 0:
                break
            physical = unit_physical(units + i * UNIT_SIZE)
            size = unit_bytes(units + i * UNIT_SIZE)
            code = unit_code(units + i * UNIT_SIZE)
            rc = SKIPPED
            if size > 0 and size != UNIT_FILLER:
                if level.ext and is_ext_address(code):
                    code = _extended(t, level, code, physical, size)
                now = t.log.io.wall_ms(t.log.io.ctx)
                due = _due(t, level, offset, code, now, t.log.io.mono_ns(t.log.io.ctx))
                if due > now:
                    return due
                rc = _deliver(t, level, offset, physical, size)
                if rc < 0:
                    rmq_add(&t.failures, 1)
                    rmq_publish32(&t.last_error, -rc)
                    return now + RETRY_MS
                if rc == SKIPPED:
                    rmq_publish(&t.last_skipped, physical)
                    rmq_add(&t.skipped, 1)
                else:
                    rmq_add(&t.delivered, 1)
            offset += 1
            rmq_publish(&level.offset, offset)
    return 0


cdef void *_run(void *arg) noexcept nogil:
    cdef Timer *t = <Timer *> arg
    cdef Queue *some[MARKS_MAX]
    cdef int64_t next, due, now
    cdef int32_t i
    cdef int n, k
    while rmq_load32(&t.stop) == 0:
        next = INT64_MAX
        n = hub_take(t.hub, some, MARKS_MAX)
        now = t.log.io.wall_ms(t.log.io.ctx)
        if rmq_load(&t.log.wrote_timestamp) > now:
            for k in range(n):
                if some[k].queue_id < t.count:
                    _mark(t, &t.levels[some[k].queue_id], t.log.io.mono_ns(t.log.io.ctx))
        for i in range(t.count):
            due = _level(t, &t.levels[i])
            rmq_publish(&t.levels[i].next_due, due)
            if due < next:
                next = due
        if rmq_load32(&t.log.fence) != 0:
            next = INT64_MAX        # nothing is appended any more
        if rmq_load32(&t.stop) != 0:
            break
        now = t.log.io.wall_ms(t.log.io.ctx)
        rmq_clock_sleep(t.arrivals_fd, t.clock_fd, -1 if next == INT64_MAX else (next - now if next > now else 0))
    return NULL


# ---- the face

@cython.final
@cython.no_gc_clear
cdef class DelayTimer:
    """Delivers the delayed messages of one store. offsets: {level: next queue offset}. Control thread and close only."""

    def __init__(self, StoreWait store not None, offsets, delays_ms):
        cdef Timer *t
        cdef int32_t i
        cdef Queue *q
        cdef int rc
        options = store.options
        self.alive = store.alive
        self.store = store
        self.fds = (-1, -1)
        t = self.timer = <Timer *> calloc(1, sizeof(Timer))
        if t == NULL:
            raise MemoryError("delay timer")
        t.count = <int32_t> len(delays_ms)
        t.levels = <Level *> calloc(t.count + 1, sizeof(Level))
        t.scratch = <unsigned char *> calloc(1, 1 << 16)
        if t.levels == NULL or t.scratch == NULL:
            raise MemoryError("delay levels")
        t.log = store.log
        t.queues = store.queues
        t.refused = &store.refuses_puts
        t.compat5 = options.compat == "5.x"
        t.record_crc = options.record_crc
        t.sync_mode = store.sync_mode
        self.fds[0] = t.arrivals_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        rc = rmq_clock_fd()
        if rc < 0:
            raise OSError(-rc, f"{os.strerror(-rc)}: making a timer on the wall clock", store.path)
        self.fds[1] = t.clock_fd = rc
        t.hub = hub_new(t.queues, t.arrivals_fd, False)
        if t.hub == NULL:
            raise MemoryError("delay timer")
        for i in range(t.count):
            q = queues_find(t.queues, b"SCHEDULE_TOPIC_XXXX", SCHEDULE_TOPIC_SIZE, i, True)
            t.levels[i].marks = <Mark *> calloc(MARKS_MAX, sizeof(Mark))
            if q == NULL or t.levels[i].marks == NULL or hub_watch(t.hub, q) < 0:
                raise MemoryError("delay levels")
            t.levels[i].queue = q
            t.levels[i].delay_ms = delays_ms[i]
            t.levels[i].ext = options.consumequeue_ext_enabled
            t.levels[i].next_due = INT64_MAX
            # correctDelayOffset
            t.levels[i].offset = min(max(offsets.get(i + 1, 0), rmq_load(&q.min_offset)), rmq_load(&q.max_offset))

    def start(self):
        """Begins to deliver."""
        cdef int rc = rmq_thread_start(&self.timer.thread, _run, self.timer, b"rmq-delay")
        if rc < 0:
            self._let_go()          # now, while there are queues: who holds this error holds the timer, too
            raise no_thread(-rc, "delay", self.store.path)
        self.timer.running = True

    cdef int _let_go(self) except -1:
        # Of what a closed store must not keep, however long somebody holds it: arrivals first, as they go to a descriptor.
        hub_free(self.timer.hub)
        self.timer.hub = NULL
        self._close_fds()
        return 0

    cdef int _close_fds(self) except -1:
        cdef int i, fd
        for i in range(2):
            fd = self.fds[i]
            self.fds[i] = -1
            if fd >= 0:
                os.close(fd)
        return 0

    def poke(self):
        """Makes the timer look at the clock again."""
        if self.fds[0] >= 0:
            rmq_wake_fd(self.fds[0])

    def stop(self):
        """Ends the thread; a message under way is delivered whole. Idempotent."""
        cdef Timer *t = self.timer
        if t == NULL or not t.running:
            return
        rmq_publish32(&t.stop, 1)
        rmq_wake_fd(t.arrivals_fd)
        with nogil:
            rmq_thread_join(&t.thread)
        t.running = False
        self._let_go()

    def offsets(self, bint durable=True):
        """{level: next queue offset}, of levels where something was delivered. durable: waits until the copies are on the
        device; OSError where they cannot be."""
        cdef Timer *t = self.timer
        cdef StoreWait store = self.store
        cdef int64_t end
        cdef int rc
        found = {i + 1: rmq_load(&t.levels[i].offset) for i in range(t.count) if rmq_load(&t.levels[i].offset) > 0}
        end = rmq_load(&t.delivered_end)
        if durable and store.log != NULL:
            store.calls += 1
            with nogil:
                rc = -ETIMEDOUT
                while rc == -ETIMEDOUT and rmq_load32(&t.stop) == 0:
                    rc = flush_wait(t.log, end, SLICE_NS)
                if rc == -ETIMEDOUT:
                    rc = flush_wait(t.log, end, SLICE_NS)
            store.calls -= 1
            if rc < 0:
                raise OSError(-rc, os.strerror(-rc), store.path)
        return found

    def state(self):
        """(delivered, skipped, physical offset of the last one skipped, failed tries, errno of the last one,
        [wall ms when the next message of each level is due, None where none waits])."""
        cdef Timer *t = self.timer
        dues = [rmq_load(&t.levels[i].next_due) for i in range(t.count)]
        return (rmq_load(&t.delivered), rmq_load(&t.skipped), rmq_load(&t.last_skipped), rmq_load(&t.failures),
                rmq_load32(&t.last_error), [None if due == INT64_MAX else due for due in dues])

    def __dealloc__(self):
        cdef int32_t i
        if self.timer == NULL or self.timer.running or self.alive[0] != 1:
            return              # the child of a fork, or an interpreter that ends: the thread may be at it
        if self.timer.hub != NULL and (<StoreWait> self.store).queues != NULL:      # else it was opened in vain
            hub_free(self.timer.hub)
        for i in range(self.timer.count if self.timer.levels != NULL else 0):
            free(self.timer.levels[i].marks)
        free(self.timer.levels)
        free(self.timer.scratch)
        free(self.timer)
        self._close_fds()
