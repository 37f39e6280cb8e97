"""The timer wheel of one store. Contract in _wheel.pxd.

Order of steps: a unit is written to the timer log, then its slot leads to it, then the queue's offset moves. A copy is
appended, and only when a whole slot is delivered the reading time moves. So a kill makes repeats possible and losses not. What
timercheck says is written behind the sync of what it says it about. The wheel of the file is never read: the timer log makes
it again.
"""
import os

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memset

from rmq_store.access.reader._look cimport record_at
from rmq_store.access.waiting._wait cimport StoreWait
from rmq_store.access.writer._put cimport find_property
from rmq_store.base.io._io cimport rmq_pread_all
from rmq_store.base.io._sync cimport (EIO, ENOMEM, ETIMEDOUT, rmq_add, rmq_load, rmq_load32, rmq_publish, rmq_publish32,
                                      rmq_thread_join, rmq_thread_start)
from rmq_store.base.segment._file cimport LogFile, log_file_release
from rmq_store.codec._layout cimport UNIT_FILLER, UNIT_SIZE
from rmq_store.codec._record cimport RecordView
from rmq_store.codec._unit cimport unit_bytes, unit_physical
from rmq_store.log.flush._flush cimport flush_wait
from rmq_store.queues.consumequeue._arrivals cimport hub_free, hub_new, hub_take, hub_watch
from rmq_store.queues.consumequeue._queue cimport Queue, queue_read, queues_find
from rmq_store.services.timer._delivery cimport timer_deliver, timer_number
from rmq_store.services.timer._timerlog cimport (LOG_UNIT, MAGIC_DEFAULT, MAGIC_DELETE, MAGIC_ROLL, SLOT_SIZE, WHEEL_PAGE,
                                                 WHEEL_PAGES, WHEEL_SLOTS, Due, Wheel, be32, be64, put32, put64,
                                                 timerlog_append, timerlog_fd, timerlog_good, timerlog_scan, wheel_holds,
                                                 wheel_revise, wheel_slot)

from rmq_store.errors import no_thread

cdef extern from * nogil:
    """
    #include <errno.h>
    #include <fcntl.h>
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
    static int32_t hash_of(const char *s, int32_t n) {      /* String.hashCode of the ASCII of a topic */
        uint32_t h = 0;
        for (int32_t i = 0; i < n; i++) h = 31 * h + (unsigned char)s[i];
        return (int32_t)h;
    }
    """
    enum: O_RDWR
    void rmq_wake_fd(int fd)
    int rmq_clock_fd()
    void rmq_clock_sleep(int fd, int clock_fd, int64_t delay_ms)
    int32_t hash_of(const char *s, int32_t n)

cdef enum:
    UNITS_AT_ONCE = 64
    RETRY_MS = 100

cdef int64_t SLICE_NS = 100_000_000


# ---- one slot

cdef bint _deleted(Wheel *t, const RecordView *v, const Due *dues, int64_t n) noexcept nogil:
    # Whether a unit of the slot deletes this message: TIMER_DEL_UNIQKEY is topic_key (buildDeleteKey).
    cdef const char *topic = NULL
    cdef const char *key = NULL
    cdef const char *gone = NULL
    cdef Py_ssize_t topic_size = 0, key_size = 0, gone_size = 0
    cdef RecordView d
    cdef LogFile *f = NULL
    cdef bint found = False
    cdef int64_t i
    if (not find_property(v.properties, v.properties_size, b"UNIQ_KEY", 8, &key, &key_size)
            or not find_property(v.properties, v.properties_size, b"REAL_TOPIC", 10, &topic, &topic_size)):
        return False
    for i in range(n):
        if dues[i].magic & MAGIC_DELETE and record_at(t.log, dues[i].physical, dues[i].size, &d, &f) == 0:
            found = (find_property(d.properties, d.properties_size, b"TIMER_DEL_UNIQKEY", 17, &gone, &gone_size)
                     and gone_size == topic_size + 1 + key_size and memcmp(gone, topic, topic_size) == 0
                     and gone[topic_size] == 95 and memcmp(gone + topic_size + 1, key, key_size) == 0)
            log_file_release(f)
            f = NULL
            if found:
                return True
    return False


cdef int64_t _gather(Wheel *t, int64_t time_ms, Due **out, int64_t *deletes) noexcept nogil:
    # The units of a slot, newest first; their number or -errno. The chain leads back, so it ends.
    cdef unsigned char[LOG_UNIT] u
    cdef int64_t n = 0, room = 0, at = 0, got, position = be64(wheel_slot(t, time_ms) + 16)
    cdef Due *more
    cdef int fd
    while position >= t.first:
        fd = timerlog_fd(t, position, &at)
        got = rmq_pread_all(t.io, fd, u, LOG_UNIT, at) if fd >= 0 else fd
        if got != LOG_UNIT or not timerlog_good(t, u, position):
            return got if got < 0 else -EIO
        if n == room:
            room = room * 2 + 64
            more = <Due *> realloc(out[0], room * sizeof(Due))
            if more == NULL:
                return -ENOMEM
            out[0] = more
        out[0][n].physical = be64(u + 28)
        out[0][n].size = be32(u + 36)
        out[0][n].magic = be32(u + 12)
        out[0][n].entered = be64(u + 16)
        deletes[0] += 1 if be32(u + 12) & MAGIC_DELETE else 0
        n += 1
        position = be64(u + 4)
    return n


cdef int _dequeue(Wheel *t, int64_t time_ms) noexcept nogil:
    # Delivers a slot in the order of its units.
    cdef Due *dues = NULL
    cdef RecordView v
    cdef LogFile *f = NULL
    cdef int64_t deletes = 0, n = _gather(t, time_ms, &dues, &deletes), i
    cdef int rc = <int> n if n < 0 else 0
    i = n - 1
    while i >= 0 and rc == 0:
        if rmq_load32(&t.stop) != 0:
            rc = -ETIMEDOUT
        elif not dues[i].magic & MAGIC_DELETE or dues[i].magic & MAGIC_ROLL:
            rc = record_at(t.log, dues[i].physical, dues[i].size, &v, &f)
            if rc == 0:
                if deletes == 0 or dues[i].magic & MAGIC_DELETE or not _deleted(t, &v, dues, n):
                    rc = timer_deliver(t, &v, dues[i].entered, dues[i].magic & MAGIC_ROLL)
                log_file_release(f)
                f = NULL
            elif rc == -1:
                rmq_add(&t.skipped, 1)      # cleaned away, or damaged
                rc = 0
        i -= 1
    free(dues)
    if rc == 0:
        rmq_add(&t.pending, -n)
        put64(wheel_slot(t, time_ms), -1)
        memset(wheel_slot(t, time_ms) + 8, 255, 16)
        memset(wheel_slot(t, time_ms) + 24, 0, 8)
        t.dirty[(wheel_slot(t, time_ms) - t.slots) // WHEEL_PAGE] = 1
    return rc


# ---- one entry of the queue

cdef int _enqueue(Wheel *t, const RecordView *v, int64_t physical, int32_t size, int64_t offset) noexcept nogil:
    cdef unsigned char[LOG_UNIT] u
    cdef const char *text = NULL
    cdef Py_ssize_t n = 0
    cdef int64_t due = 0, where = 0, now = t.io.wall_ms(t.io.ctx) // t.precision * t.precision
    cdef int32_t magic = MAGIC_DEFAULT
    cdef int rc
    if not find_property(v.properties, v.properties_size, b"TIMER_OUT_MS", 12, &text, &n) or timer_number(text, n, &due) < 0:
        rmq_add(&t.skipped, 1)
        return 0
    if offset < t.known_offset and due < t.known_ms:
        return 0
    if find_property(v.properties, v.properties_size, b"TIMER_DEL_UNIQKEY", 17, &text, &n):
        magic |= MAGIC_DELETE
    if due < now or due < t.read_ms:
        return 0 if magic & MAGIC_DELETE else timer_deliver(t, v, now, False)
    if due - now >= t.roll * t.precision:
        magic |= MAGIC_ROLL
        if due - now - t.roll * t.precision < t.roll // 3 * t.precision:
            due = now + t.roll // 2 * t.precision       # so that the last way is not too short
        else:
            due = now + t.roll * t.precision
    if not find_property(v.properties, v.properties_size, b"REAL_TOPIC", 10, &text, &n):
        n = 0
    put32(u, LOG_UNIT)
    put64(u + 4, be64(wheel_slot(t, due) + 16) if wheel_holds(t, due) else -1)
    put32(u + 12, magic)
    put64(u + 16, now)
    put32(u + 24, <int32_t> (due - now))
    put64(u + 28, physical)
    put32(u + 36, size)
    put32(u + 40, hash_of(text, <int32_t> n))
    put64(u + 44, 0)
    rc = timerlog_append(t, u, &where)
    if rc == 0:
        wheel_revise(t, due, where, magic)
    return rc


cdef int _take(Wheel *t) noexcept nogil:
    # Moves what waits in the queue into the wheel. 0 or -errno.
    cdef unsigned char[UNITS_AT_ONCE * UNIT_SIZE] units
    cdef RecordView v
    cdef LogFile *f = NULL
    cdef int64_t n, i, physical
    cdef int32_t size
    cdef int rc
    if t.offset < rmq_load(&t.queue.min_offset):
        rmq_publish(&t.offset, rmq_load(&t.queue.min_offset))
    while rmq_load32(&t.stop) == 0:
        n = queue_read(t.queues, t.queue, t.offset, units, UNITS_AT_ONCE)
        if n <= 0:
            return <int> n
        for i in range(n):
            physical = unit_physical(units + i * UNIT_SIZE)
            size = unit_bytes(units + i * UNIT_SIZE)
            if size > 0 and size != UNIT_FILLER:
                rc = record_at(t.log, physical, size, &v, &f)
                if rc == 0:
                    rc = _enqueue(t, &v, physical, size, t.offset)
                    log_file_release(f)
                    f = NULL
                    if rc < 0:
                        return rc
                elif rc == -1:
                    rmq_add(&t.skipped, 1)
                else:
                    return rc
            rmq_publish(&t.offset, t.offset + 1)
    return 0


cdef void *_run(void *arg) noexcept nogil:
    cdef Wheel *t = <Wheel *> arg
    cdef Queue *some[4]
    cdef int64_t now
    cdef int rc
    while rmq_load32(&t.stop) == 0:
        hub_take(t.hub, some, 4)
        rc = _take(t)
        now = t.io.wall_ms(t.io.ctx) // t.precision * t.precision
        while rc == 0 and t.read_ms < now and rmq_load32(&t.stop) == 0:
            if wheel_holds(t, t.read_ms):
                rc = _dequeue(t, t.read_ms)
            elif rmq_load(&t.pending) == 0:
                rmq_publish(&t.read_ms, now)
                break
            if rc == 0:
                rmq_publish(&t.read_ms, t.read_ms + t.precision)
        if rmq_load32(&t.stop) != 0:
            break
        if rc < 0:
            rmq_add(&t.failures, 1)
            rmq_publish32(&t.last_error, -rc)
            rmq_clock_sleep(t.arrivals_fd, t.clock_fd, -1 if rmq_load32(&t.log.fence) != 0 else RETRY_MS)
        else:
            rmq_clock_sleep(t.arrivals_fd, t.clock_fd, -1 if rmq_load(&t.pending) == 0
                            else t.precision - t.io.wall_ms(t.io.ctx) % t.precision)
    return NULL


# ---- the face

@cython.final
@cython.no_gc_clear
cdef class TimerWheel:
    """The timer of one store. files: starts of the files of the timer log. known: (queue offset, time): entries before both
    were delivered. Control thread and close only, but count."""

    def __init__(self, StoreWait store not None, directory, files, known):
        cdef Wheel *t
        cdef int64_t last = -1, at = 0
        cdef RecordView v
        cdef LogFile *f = NULL
        cdef int rc
        options = store.options
        self.alive = store.alive
        self.store = store
        self.path = os.fsencode(directory)
        t = self.wheel = <Wheel *> calloc(1, sizeof(Wheel))
        if t == NULL:
            raise MemoryError("timer")
        t.arrivals_fd = t.clock_fd = -1
        t.slots = <unsigned char *> calloc(WHEEL_SLOTS, SLOT_SIZE)
        t.dirty = <unsigned char *> calloc(1, WHEEL_PAGES)
        t.scratch = <unsigned char *> calloc(1, 1 << 16)
        if t.slots == NULL or t.dirty == NULL or t.scratch == NULL:
            raise MemoryError("timer wheel")
        t.directory = self.path
        t.log, t.queues, t.io, t.refused = store.log, store.queues, store.log.io, &store.refuses_puts
        t.compat5, t.record_crc, t.sync_mode = options.compat == "5.x", options.record_crc, store.sync_mode
        t.precision, t.roll = options.timer_precision_ms, options.timer_roll_window_slot
        t.congest, t.file_size = options.timer_congest_num_each_slot, options.timer_log_file_bytes
        t.first = files[0] if files else 0
        t.queue = queues_find(t.queues, b"rmq_sys_wheel_timer", 19, 0, True)
        if t.queue == NULL:
            raise MemoryError("timer queue")
        for start in files:
            fd = t.io.open(t.io.ctx, self.path + b"/%020d" % start, O_RDWR, 0)
            if fd < 0:
                raise OSError(-fd, os.strerror(-fd), f"{directory}/{start:020d}")
            t.fds[t.files] = fd
            t.files += 1
        now = t.io.wall_ms(t.io.ctx) // t.precision * t.precision
        t.read_ms = max(known[1] // t.precision * t.precision, now - (WHEEL_SLOTS // 2) * t.precision)
        with nogil:
            rc = timerlog_scan(t, &last)
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), directory)
        t.offset = known[0]
        if last >= 0 and record_at(t.log, last, 0, &v, &f) == 0:
            at = v.queue_offset + 1
            log_file_release(f)
        if rc == 1 or (last < 0 and known[0] > 0):      # units are lost: their messages come once more
            t.known_offset, t.known_ms = known[0], known[1]
            t.offset = at
        else:
            t.offset = max(t.offset, at)
        t.offset = min(max(t.offset, rmq_load(&t.queue.min_offset)), rmq_load(&t.queue.max_offset))
        t.arrivals_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        rc = rmq_clock_fd()
        if rc < 0:
            raise OSError(-rc, f"{os.strerror(-rc)}: making a timer on the wall clock", store.path)
        t.clock_fd = rc
        t.hub = hub_new(t.queues, t.arrivals_fd, False)
        if t.hub == NULL or hub_watch(t.hub, t.queue) < 0:
            raise MemoryError("timer")

    def start(self):
        """Begins to deliver."""
        cdef int rc = rmq_thread_start(&self.wheel.thread, _run, self.wheel, b"rmq-timer")
        if rc < 0:
            self._free()
            raise no_thread(-rc, "timer", self.store.path)
        self.wheel.running = True

    def poke(self):
        """Makes the timer look at the clock again."""
        if self.wheel.arrivals_fd >= 0:
            rmq_wake_fd(self.wheel.arrivals_fd)

    def stop(self):
        """Ends the thread; a message under way is delivered whole. Idempotent."""
        cdef Wheel *t = self.wheel
        if t == NULL or not t.running:
            return
        rmq_publish32(&t.stop, 1)
        rmq_wake_fd(t.arrivals_fd)
        with nogil:
            rmq_thread_join(&t.thread)
        t.running = False
        hub_free(t.hub)
        t.hub = NULL

    def count(self, time_ms):
        """How many messages are due in the slot of this time. Any thread."""
        return be32(wheel_slot(self.wheel, time_ms) + 24) if wheel_holds(self.wheel, time_ms) else 0

    def position(self, bint durable=True):
        """(reading time, end of the timer log, queue offset), all of it on the device where durable. OSError."""
        cdef Wheel *t = self.wheel
        cdef StoreWait store = self.store
        cdef int64_t read_ms = rmq_load(&t.read_ms), offset = rmq_load(&t.offset), end = rmq_load(&t.end), copies
        cdef int rc = 0
        cdef int32_t i
        copies = rmq_load(&t.delivered_end)
        if durable:
            if store.log != NULL:
                store.calls += 1
                with nogil:
                    rc = -ETIMEDOUT
                    while rc == -ETIMEDOUT and rmq_load32(&t.stop) == 0:
                        rc = flush_wait(t.log, copies, SLICE_NS)
                    if rc == -ETIMEDOUT:
                        rc = flush_wait(t.log, copies, SLICE_NS)
                store.calls -= 1
            for i in range(max(0, rmq_load32(&t.files) - 2), rmq_load32(&t.files)):
                if rc == 0:
                    with nogil:
                        rc = t.io.fdatasync(t.io.ctx, t.fds[i])
            if rc < 0:
                raise OSError(-rc, os.strerror(-rc), os.fsdecode(self.path))
        return read_ms, end, offset

    def dirty_pages(self):
        """[(place in the file of the wheel, bytes)] of what changed since the last call."""
        cdef Wheel *t = self.wheel
        cdef int32_t i
        found = []
        for i in range(WHEEL_PAGES):
            if t.dirty[i]:
                t.dirty[i] = 0
                found.append((i * WHEEL_PAGE, (<char *> t.slots)[i * WHEEL_PAGE:(i + 1) * WHEEL_PAGE]))
        return found

    def state(self):
        """(pending, delivered, skipped, failed tries, errno of the last one)."""
        cdef Wheel *t = self.wheel
        return (rmq_load(&t.pending), rmq_load(&t.delivered), rmq_load(&t.skipped), rmq_load(&t.failures),
                rmq_load32(&t.last_error))

    def close(self):
        """Of a timer that stopped: its files."""
        self._free()

    cdef int _free(self) except -1:
        cdef Wheel *t = self.wheel
        cdef int32_t i
        if t == NULL:
            return 0
        if t.hub != NULL and (<StoreWait> self.store).queues != NULL:
            hub_free(t.hub)
        t.hub = NULL
        for i in range(t.files):
            t.io.close(t.io.ctx, t.fds[i])
        t.files = 0
        for fd in (t.arrivals_fd, t.clock_fd):
            if fd >= 0:
                os.close(fd)
        t.arrivals_fd = t.clock_fd = -1
        return 0

    def __dealloc__(self):
        if self.wheel == NULL or self.wheel.running or self.alive[0] != 1:
            return              # the child of a fork, or an interpreter that ends: the thread may be at it
        self._free()
        free(self.wheel.slots)
        free(self.wheel.dirty)
        free(self.wheel.scratch)
        free(self.wheel)
