"""One native thread that appends copies of messages that are due. Contract in _deliverer.pxd.

Source: ScheduleMessageService.messageTimeup (4.9.8), TimerMessageStore.convert, doPut (5.3.3).
"""
import os

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memcpy, strlen

from rmq_store.access.waiting._wait cimport StoreWait
from rmq_store.access.writer._put cimport find_property
from rmq_store.base.io._sync cimport (ENOMEM, ENOSPC, ETIMEDOUT, rmq_add, rmq_event_wake, rmq_load, rmq_load32, rmq_publish,
                                      rmq_publish32, rmq_thread_join, rmq_thread_start)
from rmq_store.base.segment._file cimport LogFile, log_file_release, row_find
from rmq_store.codec._layout cimport BLANK_SIZE, PROPERTIES_SIZE_MAX, TOPIC_SIZE_V1_MAX
from rmq_store.codec._record cimport (RecordArgs, RecordView, body_crc32, born_host_size, record_prepare, store_host_size,
                                      topic_fits)
from rmq_store.log.commitlog._log cimport (APPEND_FENCED, APPEND_NEED_FILE, APPEND_NEED_ROOM, APPEND_OK, Appended, log_append,
                                           log_dispatch_wake, log_lock_begin, log_lock_end_quick, log_wait_file, log_wait_room)
from rmq_store.log.flush._flush cimport flush_wait
from rmq_store.queues.consumequeue._arrivals cimport hub_free, hub_new
from rmq_store.queues.consumequeue._kinds cimport queue_keep_plain
from rmq_store.queues.consumequeue._queue cimport Queue, queues_find

from rmq_store.base.io.wants import no_thread

cdef extern from "rmq_pages.h" nogil:
    int rmq_pages_populate(void *at, size_t n)

cdef extern from * nogil:
    """
    #include <errno.h>
    #include <poll.h>
    #include <sched.h>
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
    static void rmq_rest(int64_t ns) {
        struct timespec t = {0, ns};
        nanosleep(&t, NULL);
    }
    """
    enum: EMSGSIZE
    void rmq_wake_fd(int fd)
    int rmq_clock_fd()
    void rmq_clock_sleep(int fd, int clock_fd, int64_t delay_ms)
    void rmq_rest(int64_t ns)
    int sched_yield()

cdef enum:
    WAITS_MAX = 100             # for room or for a file, before it is tried again later
    BURST = 64                  # copies between two rests
    ROW_MIN = 16                # copies in a row, before more are expected: a sync writes what was made ready in vain
    READY_BYTES = 128 << 10     # of the log, whose pages are brought into memory at once
    PAGE_MASK = 0xFFFF          # of the largest page there is
    SLEPT_FOR = 2               # state of a mutex that somebody sleeps for

cdef int64_t SLICE_NS = 100_000_000
cdef int64_t OTHERS_NS = 100_000_000        # so long after a put of somebody else there may be another
cdef int64_t REST_NS = 150_000              # at most
cdef int64_t LET_IN_NS = 50_000             # whoever was woken has a processor by then, or waits for one
cdef const char *HALF_TOPIC = b"RMQ_SYS_TRANS_HALF_TOPIC"
cdef const char *LEVEL_TOPIC = b"SCHEDULE_TOPIC_XXXX"
cdef const char *TIMER_TOPIC = b"rmq_sys_wheel_timer"


# ---- a copy

cdef int deliver_number(const char *text, Py_ssize_t size, int64_t *out) noexcept nogil:
    cdef Py_ssize_t i
    out[0] = 0
    if size < 1 or size > 18:
        return -1
    for i in range(size):
        if text[i] < 48 or text[i] > 57:
            return -1
        out[0] = out[0] * 10 + text[i] - 48
    return 0


cdef int32_t deliver_without(const char *text, int32_t size, const char **names, int32_t count,
                             unsigned char *out) noexcept nogil:
    cdef const char *end = text + size
    cdef const char *stop
    cdef int32_t i, n = 0
    cdef bint left_out
    while text < end:
        stop = <const char *> memchr(text, 2, end - text)
        stop = end if stop == NULL else stop + 1
        left_out = False
        for i in range(count):
            left_out |= <size_t> (stop - text) >= strlen(names[i]) and memcmp(text, names[i], strlen(names[i])) == 0
        if not left_out:
            memcpy(out + n, text, stop - text)
            n += <int32_t> (stop - text)
        text = stop
    return n


cdef bint _never(const char *topic, Py_ssize_t size) noexcept nogil:
    # Half messages come from transactions alone. What was delivered to a topic of delivery would be due there again, for ever.
    return (size == 24 and memcmp(topic, HALF_TOPIC, 24) == 0
            or size == 19 and (memcmp(topic, LEVEL_TOPIC, 19) == 0 or memcmp(topic, TIMER_TOPIC, 19) == 0))


cdef bint deliver_place(Deliverer *d, const RecordView *v, RecordArgs *a) noexcept nogil:
    cdef const char *queue = NULL
    cdef Py_ssize_t topic_size = 0, queue_size = 0
    cdef int64_t number = 0
    if (not find_property(v.properties, v.properties_size, b"REAL_TOPIC", 10, &a.topic, &topic_size)
            or not find_property(v.properties, v.properties_size, b"REAL_QID", 8, &queue, &queue_size)
            or deliver_number(queue, queue_size, &number) < 0 or number > 0x7FFFFFFF
            or not topic_fits(a.topic, <int32_t> topic_size)
            or (topic_size > TOPIC_SIZE_V1_MAX and not d.compat5)       # 4.9 cannot read a record of version 2
            or _never(a.topic, topic_size)):
        return False
    a.topic_size, a.queue_id = <int32_t> topic_size, <int32_t> number
    return True


cdef bint deliver_content(Deliverer *d, const RecordView *v, RecordArgs *a) noexcept nogil:
    a.body, a.body_size = v.body, v.body_size
    a.body_crc = body_crc32(v.body, v.body_size)
    if a.body_crc != v.body_crc:
        return False            # a copy with a new checksum would hide it, one with the old would cut the log
    a.flag, a.sys_flag = v.flag, v.sys_flag
    a.born_timestamp = v.born_timestamp
    a.reconsume_times = v.reconsume_times
    memcpy(a.born_host, v.born_host, born_host_size(v.sys_flag))
    memcpy(a.store_host, v.store_host, store_host_size(v.sys_flag))
    a.crc_property = d.record_crc
    return True


cdef bint deliver_fits(Deliverer *d, RecordArgs *a) noexcept nogil:
    record_prepare(a)
    return a.properties_total <= PROPERTIES_SIZE_MAX and a.size <= d.log.row.file_size - BLANK_SIZE


# ---- appending it

cdef void _make_ready(Deliverer *d, int32_t size) noexcept nogil:
    # The pages of the map that the log writes next, up to the zeros that are written ahead, maybe past the page cache. What
    # fails here is not there when the append needs it, which tells.
    cdef Log *log = d.log
    cdef int64_t at = rmq_load(&log.wrote)
    cdef int64_t begin, end
    cdef LogFile *f
    cdef int error = 0
    if log.pool != NULL or d.row < ROW_MIN or at + size <= d.ready_to:
        return
    f = row_find(log.row, at, &error)
    if f == NULL:
        return                  # the next file, which is mapped when the log begins it
    begin = (at - f.start) & ~(<int64_t> PAGE_MASK)
    end = rmq_load(&f.zeroed_to)
    if end < at - f.start + size:
        end = at - f.start + size
    if end > begin + READY_BYTES + size:
        end = begin + READY_BYTES + size
    if end > f.size:
        end = f.size
    rmq_pages_populate(f.map + begin, end - begin)
    d.ready_to = f.start + end
    log_file_release(f)


cdef void _make_way(Deliverer *d) noexcept nogil:
    # After a burst, while others put. It works at least as long as the last rest was, which may be late to end.
    cdef int64_t now, puts, worked
    d.burst += 1
    if d.burst < BURST:
        return
    now = d.log.io.mono_ns(d.log.io.ctx)
    puts = rmq_load(&d.log.puts)
    worked = now - d.rest_end_ns
    if puts - d.puts_seen > d.burst:
        d.others_ns = now
    d.burst, d.puts_seen = 0, puts
    if d.others_ns != 0 and now - d.others_ns < OTHERS_NS and worked >= d.rested_ns:
        rmq_rest(worked if worked < REST_NS else REST_NS)
        d.rest_end_ns = d.log.io.mono_ns(d.log.io.ctx)
        d.rested_ns = d.rest_end_ns - now


cdef void _let_in(Log *log, int64_t puts) noexcept nogil:
    # Who slept for the put lock was woken, and needs longer to take it than this thread to make the next copy.
    cdef int64_t begun = log.io.mono_ns(log.io.ctx)
    while (rmq_load32(&log.lock.mutex.state) == 0 and rmq_load(&log.puts) == puts
           and log.io.mono_ns(log.io.ctx) - begun < LET_IN_NS):
        sched_yield()


cdef int deliver_append(Deliverer *d, RecordArgs *a) noexcept nogil:
    # Waits for room and files in slices, so that close() need not wait long for this thread.
    cdef Queue *q = queues_find(d.queues, a.topic, a.topic_size, a.queue_id, True)
    cdef Appended out
    cdef int64_t now, puts
    cdef int status, rc, waits = 0
    cdef bint slept_for
    if q == NULL:
        return -ENOMEM
    queue_keep_plain(d.queues, q)           # a batch queue never leads to it; no other becomes one before it is there
    if d.refused[0]:
        return -ENOSPC
    while True:
        _make_ready(d, a.size)
        now = log_lock_begin(d.log)
        status = log_append(d.log, a, q, now, &out)
        puts, slept_for = d.log.puts, rmq_load32(&d.log.lock.mutex.state) == SLEPT_FOR
        if log_lock_end_quick(d.log):
            log_dispatch_wake(d.log)        # what is noted of it moves before a reader can have the message, as a rule
        if slept_for:
            _let_in(d.log, puts)
        if status == APPEND_OK:
            break
        if status == APPEND_NEED_ROOM:
            # The pool was larger when it was put: it waits for one that is again. The rest of a file may have to fit, too.
            if a.size > d.log.pool.size or (waits > 0 and 2 * a.size + BLANK_SIZE > d.log.pool.size):
                return -EMSGSIZE
            rc = log_wait_room(d.log, a.size, SLICE_NS)
        elif status == APPEND_NEED_FILE:
            rc = log_wait_file(d.log, a.size, SLICE_NS)
        else:
            return -rmq_load32(&d.log.fence) if status == APPEND_FENCED else -ENOMEM
        if rc < 0:
            return rc
        waits += 1
        if waits == WAITS_MAX or rmq_load32(&d.stop) != 0:
            return -ETIMEDOUT   # close() need not wait for room or for a file
    rmq_publish(&d.delivered_end, out.offset + a.size)
    rmq_add(&d.delivered, 1)
    d.row += 1
    if d.sync_mode and rmq_load32(&d.log.flush_asleep) != 0:
        rmq_event_wake(&d.log.flush_wanted)
    _make_way(d)
    return 0


cdef void deliver_skip(Deliverer *d, int64_t physical) noexcept nogil:
    rmq_publish(&d.last_skipped, physical)
    rmq_add(&d.skipped, 1)


cdef void deliver_failed(Deliverer *d, int error) noexcept nogil:
    rmq_add(&d.failures, 1)
    rmq_publish32(&d.last_error, -error)


cdef void deliver_sleep(Deliverer *d, int64_t delay_ms) noexcept nogil:
    d.row = 0
    rmq_clock_sleep(d.arrivals_fd, d.clock_fd, delay_ms)


# ---- the face

@cython.no_gc_clear
cdef class DeliveryThread:
    """The thread of a service that delivers. Control thread and close only, but for `poke`."""

    cdef int _prepare(self, StoreWait store, Deliverer *d) except -1:
        options = store.options
        self.store, self.alive, self.d = store, store.alive, d
        d.arrivals_fd = d.clock_fd = -1
        d.log, d.queues, d.refused = store.log, store.queues, &store.refuses_puts
        d.compat5, d.record_crc, d.sync_mode = options.compat == "5.x", options.record_crc, store.sync_mode
        d.scratch = <unsigned char *> calloc(1, 1 << 16)
        if d.scratch == NULL:
            raise MemoryError("delivery")
        d.arrivals_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        d.clock_fd = rmq_clock_fd()
        if d.clock_fd < 0:
            raise OSError(-d.clock_fd, f"{os.strerror(-d.clock_fd)}: making a timer on the wall clock", store.path)
        d.hub = hub_new(d.queues, d.arrivals_fd, False)
        if d.hub == NULL:
            raise MemoryError("delivery")
        return 0

    cdef int _begin(self, void *(*body)(void *) noexcept nogil, void *of, const char *name, str what) except -1:
        cdef int rc = rmq_thread_start(&self.d.thread, body, of, name)
        if rc < 0:
            self._let_go()          # now, while there are queues: who holds this error holds this object, too
            raise no_thread(-rc, what, self.store.path)
        self.d.running = True
        return 0

    cdef int _let_go(self) except -1:
        # Of what a closed store must not keep, however long somebody holds it: arrivals first, as they go to a descriptor.
        cdef int arrivals_fd = self.d.arrivals_fd, clock_fd = self.d.clock_fd
        if self.d.hub != NULL and (<StoreWait> self.store).queues != NULL:      # else it was opened in vain
            hub_free(self.d.hub)
        self.d.hub = NULL
        self.d.arrivals_fd = self.d.clock_fd = -1
        for fd in (arrivals_fd, clock_fd):
            if fd >= 0:
                os.close(fd)
        return 0

    cdef bint _may_free(self):
        # For __dealloc__. Not in the child of a fork, or in an interpreter that ends: the thread may be at it.
        if self.d == NULL or self.d.running or self.alive[0] != 1:
            return False
        self._let_go()
        free(self.d.scratch)
        return True

    def poke(self):
        """Makes the thread look at the clock again."""
        if self.d.arrivals_fd >= 0:
            rmq_wake_fd(self.d.arrivals_fd)

    def stop(self):
        """Ends the thread; a message under way is delivered whole. Idempotent."""
        cdef Deliverer *d = self.d
        if d == NULL or not d.running:
            return
        rmq_publish32(&d.stop, 1)
        rmq_wake_fd(d.arrivals_fd)
        with nogil:
            rmq_thread_join(&d.thread)
        d.running = False
        self._let_go()

    def sync_delivered(self):
        """Waits until what was delivered is on the device. Raises OSError."""
        cdef Deliverer *d = self.d
        cdef StoreWait store = self.store
        cdef int64_t copies = rmq_load(&d.delivered_end)
        cdef int rc = -ETIMEDOUT
        if store.log == NULL:
            return
        store.calls += 1
        with nogil:
            while rc == -ETIMEDOUT and rmq_load32(&d.stop) == 0:
                rc = flush_wait(d.log, copies, SLICE_NS)
            if rc == -ETIMEDOUT:
                rc = flush_wait(d.log, copies, SLICE_NS)
        store.calls -= 1
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), store.path)
