"""The timer wheel of one store. Contract in _wheel.pxd.

Order of steps: a unit is written to the timer log, then its slot leads to it, then the queue's offset moves. A copy is
appended, and only when a whole slot is delivered the reading time moves. So a kill makes repeats possible and losses not. A
message whose slot is over goes into no slot: it is delivered before the queue's offset moves over it. So it counts by the
offset, and each other one by the reading time. What timercheck says is one state of all three, with the mark (`_count`), and is
written behind the sync of what it says it about. The wheel of the file is never read: the timer log makes it again.

No message is delivered before each recall that was stored in its time is known. The thread looks at the clock, and then where
the log ends. A recall of a slot that is over by that clock lies before that end. When dispatch has come there (`complete`), the
queue has all of them, and they go into their slots before the wheel turns. For a message whose slot is over already, the thread
reads the rest of the queue ahead. A rolled message, and a recall of it, come behind the end: the wheel stops at their time
until both are taken (`rolled_ms`).
"""
import os

cimport cython
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport calloc, free

from rmq_store.access.reader._look cimport record_at
from rmq_store.access.waiting._wait cimport StoreWait
from rmq_store.access.writer._put cimport find_property
from rmq_store.base.io._sync cimport (rmq_fence, rmq_load, rmq_load32, rmq_mutex_lock, rmq_mutex_unlock, rmq_publish,
                                      rmq_publish32)
from rmq_store.base.segment._file cimport LogFile, log_file_release
from rmq_store.codec._layout cimport UNIT_FILLER, UNIT_SIZE
from rmq_store.codec._record cimport RecordView
from rmq_store.codec._unit cimport unit_bytes, unit_physical
from rmq_store.queues.consumequeue._arrivals cimport hub_take, hub_watch
from rmq_store.queues.consumequeue._queue cimport Queue, queue_read, queues_find
from rmq_store.services.delivery._deliverer cimport (DELIVER_RETRY_MS, DeliveryThread, deliver_failed, deliver_skip,
                                                     deliver_sleep)
from rmq_store.services.timer._again cimport (again_entry, again_free, again_has, again_last_tick, again_rolled,
                                              again_units)
from rmq_store.services.timer._delivery cimport timer_rolled
from rmq_store.services.timer._entry cimport WAITS, entry_enqueue
from rmq_store.services.timer._once cimport once_forget, once_learn
from rmq_store.services.timer._recalls cimport recalls_forget
from rmq_store.services.timer._slot cimport slot_deliver
from rmq_store.services.timer._timerlog cimport (SLOT_SIZE, TOPICS_MAX, WHEEL_PAGE, WHEEL_PAGES, WHEEL_SLOTS, Counted,
                                                 TopicCount, Wheel, slot32, timerlog_close, timerlog_scan, wheel_clock,
                                                 wheel_holds, wheel_slot)

cdef enum:
    UNITS_AT_ONCE = 64
    DELAY_MAX = 2147483000


# ---- what timercheck may say

cdef void _count_locked(Wheel *t) noexcept nogil:
    # A state in which no message that is not counted has a copy, but for those before the mark. There is none while a slot is
    # half delivered, while copies from before a crash may still be claimed, and while entries are read a second time: then the
    # last one holds, and whoever dies goes on from there. It is given up when the next open would not read so far: then of
    # messages with the same content one may pay for another.
    cdef Counted found
    cdef int64_t wrote = rmq_load(&t.d.log.wrote)
    found.read_ms = t.read_ms if t.read_ms > t.base_ms else t.first_ms
    found.offset, found.mark, found.keep, found.again = t.offset, wrote, rmq_load(&t.keep), t.again_to > 0
    if t.done > 0 or t.once.table != NULL or t.again_to > 0 or found.read_ms < t.base_ms:
        if wrote - t.counted.mark < t.learn_max // 2:
            return
        found.mark = t.counted.mark
    t.counted = found


cdef void _count(Wheel *t) noexcept nogil:
    rmq_mutex_lock(&t.counted_lock)
    _count_locked(t)
    rmq_mutex_unlock(&t.counted_lock)


# ---- its queue

cdef int _take_entry(Wheel *t, int64_t physical, int32_t size) noexcept nogil:
    cdef RecordView v
    cdef LogFile *f = NULL
    cdef bint known = t.having != NULL and again_has(t, physical)
    cdef int rc
    if known and t.rolled.left == 0:
        return 0
    rc = record_at(t.d.log, physical, size, &v, &f)
    if rc == 0:
        if not timer_rolled(t, &v, known) and not known:
            rc = entry_enqueue(t, &v, physical, size, t.offset)
        log_file_release(f)
    elif known:
        rc = 0
    elif rc == -1:
        deliver_skip(&t.d, physical)
        rc = 0
    return rc


cdef int _take(Wheel *t) noexcept nogil:
    # Moves what waits in the queue into the wheel. 0; WAITS; -errno.
    cdef unsigned char[UNITS_AT_ONCE * UNIT_SIZE] units
    cdef int64_t n, i
    cdef int32_t size
    cdef int rc
    if t.offset < rmq_load(&t.queue.min_offset):
        rmq_publish(&t.offset, rmq_load(&t.queue.min_offset))
    while rmq_load32(&t.d.stop) == 0:
        if 0 < t.again_to <= t.offset:
            t.again_to = 0
            again_free(t)
        n = queue_read(t.d.queues, t.queue, t.offset, units, UNITS_AT_ONCE)
        if n <= 0:
            return <int> n
        for i in range(n):
            size = unit_bytes(units + i * UNIT_SIZE)
            if size > 0 and size != UNIT_FILLER:
                rc = _take_entry(t, unit_physical(units + i * UNIT_SIZE), size)
                if rc != 0:
                    return rc
            rmq_publish(&t.offset, t.offset + 1)
        _count(t)
    return 0


cdef void _read_to(Wheel *t, int64_t time_ms) noexcept nogil:
    rmq_mutex_lock(&t.counted_lock)         # whoever sees the time finds it counted
    rmq_publish(&t.read_ms, time_ms)
    _count_locked(t)
    rmq_mutex_unlock(&t.counted_lock)


cdef int _turn(Wheel *t) noexcept nogil:
    # Delivers the slots that are over. 0; WAITS: a slot may lack a recall, or a message that was rolled; -errno.
    cdef int rc = 0
    while rc == 0 and t.read_ms < t.turn_ms and rmq_load32(&t.d.stop) == 0:
        if t.read_ms >= t.rolled_ms or not t.complete and wheel_holds(t, t.read_ms):
            return WAITS
        if wheel_holds(t, t.read_ms):
            rc = slot_deliver(t, t.read_ms)
        elif rmq_load(&t.pending) == 0:
            _read_to(t, min(t.turn_ms, t.rolled_ms))
            continue
        if rc == 0:
            _read_to(t, t.read_ms + t.precision)
    return rc


cdef void _look(Wheel *t) noexcept nogil:
    # At the clock first: a recall that is stored from then on is told that it may be too late.
    t.turn_ms = wheel_clock(t) // t.precision * t.precision
    rmq_publish(&t.closing_ms, max(t.turn_ms, t.read_ms, t.once.until_ms))     # the log may have copies that nobody counts
    rmq_fence()
    t.seen_to = rmq_load(&t.d.log.wrote)


cdef int _round(Wheel *t) noexcept nogil:
    cdef int rc, turned
    t.complete = rmq_load(&t.d.log.dispatched) >= t.seen_to
    rc = _take(t)
    if rc == 0 and t.complete:
        t.rolled_ms = INT64_MAX
    if rc >= 0:
        turned = _turn(t)
        rc = turned if turned != 0 else rc
    if rc == 0 and t.complete:
        recalls_forget(&t.recalls)          # each message that they can name has asked
        t.recalls_to = 0
        if t.read_ms >= t.once.until_ms:
            once_forget(&t.once)            # whoever could claim a copy has asked
    return rc


cdef void *_run(void *arg) noexcept nogil:
    cdef Wheel *t = <Wheel *> arg
    cdef Queue *some[4]
    cdef int64_t pause = 1
    cdef bint looks = True
    cdef int rc
    while rmq_load32(&t.d.stop) == 0:
        hub_take(t.d.hub, some, 4)
        if looks:
            _look(t)
        rc = _round(t)
        if rmq_load32(&t.d.stop) != 0:
            break
        if rc == 0 and not looks:           # the clock went on
            looks = True
            continue
        looks = t.complete or rc == 0       # else dispatch has to come to that end, however far the log grows meanwhile
        pause = 1 if looks else min(2 * pause, DELIVER_RETRY_MS)
        _count(t)
        if rc < 0:
            deliver_failed(&t.d, rc)
        if rc != 0 and (rmq_load32(&t.d.log.fence) != 0 or rmq_load32(&t.dead) != 0):
            deliver_sleep(&t.d, -1)
        elif rc != 0:
            deliver_sleep(&t.d, DELIVER_RETRY_MS if rc < 0 else pause)
        else:
            deliver_sleep(&t.d, -1 if rmq_load(&t.pending) == 0 else t.precision - wheel_clock(t) % t.precision)
    return NULL


# ---- the face

@cython.final
@cython.no_gc_clear
cdef class TimerWheel(DeliveryThread):
    """The timer of one store. files: starts of the files of the timer log. known: (reading time, end of the timer log, queue
    offset, mark or None, what `again` says or None) of config/timercheck. learn_max: bytes behind the mark that are read at
    most. Control thread and close only, but for `count` and `pending`.

    `damaged_at`: where the timer log has no good unit though one was there, or None; what is behind is copied and cut before
    `start`. `unread`: bytes behind the mark that are too many to be read, or 0."""

    def __init__(self, StoreWait store not None, directory, files, known, learn_max):
        cdef Wheel *t
        options = store.options
        self.path = os.fsencode(directory)
        t = self.wheel = <Wheel *> calloc(1, sizeof(Wheel))
        if t == NULL:
            raise MemoryError("timer")
        t.fd = t.read_fd = -1
        self._prepare(store, &t.d)
        t.io = store.log.io
        t.slots = <unsigned char *> calloc(WHEEL_SLOTS, SLOT_SIZE)
        t.dirty = <int *> calloc(WHEEL_PAGES, sizeof(int))
        t.used = <int *> calloc(WHEEL_PAGES, sizeof(int))
        t.topics = <TopicCount *> calloc(TOPICS_MAX, sizeof(TopicCount))
        if t.slots == NULL or t.dirty == NULL or t.used == NULL or t.topics == NULL:
            raise MemoryError("timer wheel")
        t.directory = self.path
        t.precision, t.file_size = options.timer_precision_ms, options.timer_log_file_bytes
        # A unit has its delay in 32 bits, and a wheel has room for what it holds and what is read late.
        t.roll_ms = min(options.timer_roll_window_slot, WHEEL_SLOTS // 2 - 60, (DELAY_MAX // t.precision)) * t.precision
        t.first = files[0] if files else 0
        t.limit = files[len(files) - 1] + t.file_size if files else 0
        t.queue = queues_find(t.d.queues, b"rmq_sys_wheel_timer", 19, 0, True)
        if t.queue == NULL or hub_watch(t.d.hub, t.queue) < 0:
            raise MemoryError("timer queue")
        t.learn_max = learn_max
        t.recalls.precision, t.rolled_ms = t.precision, INT64_MAX
        self._load(known[0], known[1], known[2], -1 if known[3] is None else known[3], known[4])

    cdef int _load(self, int64_t known_ms, int64_t known_end, int64_t known_offset, int64_t mark, again) except -1:
        # Wheel and positions, from the files.
        cdef Wheel *t = self.wheel
        cdef int64_t last = -1, now = wheel_clock(t) // t.precision * t.precision
        cdef int rc
        if known_ms == 0 and t.limit == 0:
            known_ms = now          # nothing waits in the wheel
        t.first_ms = known_ms
        # Where nobody knows how far delivery was, all units wait, and the wheel has room for the newest.
        t.base_ms = max((known_ms if known_ms > 0 else now - WHEEL_SLOTS // 2 * t.precision) // t.precision, 1) * t.precision
        t.read_ms = t.base_ms
        t.loaded_end = INT64_MAX
        with nogil:
            rc = timerlog_scan(t, known_ms, known_end, &last)
        self._check(rc)
        t.loaded_end = t.end
        self.damaged_at = t.end if rc == 1 else None
        self._load_offset(known_offset, mark, last, rc == 1, again)
        with nogil:
            rc = once_learn(&t.once, t.d.log, mark, t.learn_max)
        self._check(rc)
        t.closing_ms = max(t.read_ms, t.once.until_ms)
        self.unread = t.once.until - mark if rc == 1 else 0
        t.counted.read_ms, t.counted.offset, t.counted.again = t.first_ms, t.offset, t.again_to > 0
        t.counted.mark = min(mark, t.once.until) if mark >= 0 and rc == 0 else t.once.until
        t.counted.keep = t.first
        return 0

    cdef int _load_offset(self, int64_t known_offset, int64_t mark, int64_t last, bint damaged, again) except -1:
        # Where the queue is read from on, and what is known of the entries that were read before. last: log offset of the
        # record of the last unit, or -1.
        cdef Wheel *t = self.wheel
        cdef int64_t low = rmq_load(&t.queue.min_offset), high = rmq_load(&t.queue.max_offset)
        cdef int64_t begin = known_offset, physical = -1, entered = 0
        # A broker that ends may say that nothing of its timer log was flushed, and that all of the queue was read: then only
        # that there is no unit tells that they are lost.
        cdef bint lost = damaged or (last < 0 and known_offset > 0 and mark < 0)
        cdef bint unknown = mark < 0 and known_offset == 0 and t.first_ms == 0          # there is no timercheck
        cdef int rc = 0
        if lost:                # units: their messages come once more, but for those that were delivered
            with nogil:
                rc = again_last_tick(t, &physical, &entered)
                begin = rc if rc < 0 else low if physical < 0 else again_entry(t, physical)
                if begin > known_offset and not unknown:
                    begin = known_offset        # what is delivered at once has no unit
        elif unknown and last >= 0:
            begin = again_entry(t, last + 1)
        self._check(begin)
        if lost:
            t.known_offset, t.known_ms, t.known_entered = known_offset, t.first_ms, entered
        if again is not None:       # whoever began to take them once more died
            t.known_offset, t.known_ms, t.known_entered = again[0], again[1], min(again[2], entered) if lost else again[2]
            begin = min(begin, known_offset)
        t.known_offset = min(t.known_offset, high)
        t.offset = begin = min(max(begin, low), high)
        if begin < high:
            lost = lost or again is not None
            t.again_to = high if lost else 0
            with nogil:
                rc = again_units(t, begin, last)
                if rc == 0 and lost:
                    rc = again_rolled(t, begin, t.known_entered)
            self._check(rc)
        return 0

    cdef int _check(self, int64_t rc) except -1:
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), os.fsdecode(self.path))
        return 0

    def cut(self):
        """Behind the last good unit: the files from there on were cut."""
        cdef Wheel *t = self.wheel
        timerlog_close(t)
        t.limit = t.end if t.end == t.first else t.first + ((t.end - t.first - 1) // t.file_size + 1) * t.file_size

    def start(self):
        """Begins to deliver."""
        self._begin(_run, self.wheel, b"rmq-timer", "timer")

    def count(self, time_ms):
        """How many messages are due in the slot of this time. Any thread."""
        return slot32(wheel_slot(self.wheel, time_ms) + 24) if wheel_holds(self.wheel, time_ms) else 0

    def position(self):
        """(reading time, end of the timer log, queue offset) as the thread has them. Any thread."""
        cdef Wheel *t = self.wheel
        return rmq_load(&t.read_ms), rmq_load(&t.end), rmq_load(&t.offset)

    def closing(self):
        """Slots before this time, in ms, are delivered, or being delivered: a recall that is stored when its slot lies there
        may be too late. Any thread."""
        rmq_fence()
        return rmq_load(&self.wheel.closing_ms)

    def counted(self):
        """(reading time, end of the timer log, queue offset, mark, where the first file begins that is needed, whether entries
        are still read a second time) for timercheck: one state of all, in which the copies behind the mark are those of the
        messages that are not counted. Any thread."""
        cdef Wheel *t = self.wheel
        cdef Counted found
        with nogil:
            rmq_mutex_lock(&t.counted_lock)
            found = t.counted
            rmq_mutex_unlock(&t.counted_lock)
        return found.read_ms, rmq_load(&t.end), found.offset, found.mark, found.keep, found.again

    def again(self):
        """(queue offset, reading time, tick): entries below that offset, due before that time, were delivered before units of
        the timer log were lost; units of those that were rolled came at that tick or later."""
        return self.wheel.known_offset, self.wheel.known_ms, self.wheel.known_entered

    def stop(self):
        """Ends the thread, as before; what it counts then is as new as what it delivered."""
        cdef bint ran = self.wheel.d.running
        DeliveryThread.stop(self)
        if ran:
            _count(self.wheel)

    def died(self, code):
        """A sync failed with this errno: nothing goes into the timer log any more."""
        rmq_publish32(&self.wheel.dead, code)

    def dirty_pages(self, int32_t first, int32_t most):
        """([(place in the file of the wheel, bytes)] of what changed since the last call, number of the page behind them or
        None), from page `first` on, `most` pages at most: whoever puts must not wait until all are copied."""
        cdef Wheel *t = self.wheel
        cdef int32_t i = first
        found = []
        while i < WHEEL_PAGES and len(found) < most:
            if rmq_load32(&t.dirty[i]):
                rmq_publish32(&t.dirty[i], 0)
                found.append((i * WHEEL_PAGE, (<char *> t.slots)[i * WHEEL_PAGE:(i + 1) * WHEEL_PAGE]))
            i += 1
        return found, (i if i < WHEEL_PAGES else None)

    def topics(self):
        """[(log offset of a waiting message, how many wait)] for each topic."""
        cdef Wheel *t = self.wheel
        cdef int32_t i
        return [(t.topics[i].physical, rmq_load(&t.topics[i].count)) for i in range(TOPICS_MAX)
                if rmq_load32(&t.topics[i].used)]

    def topic_of(self, int64_t physical):
        """The real topic of a timer message at this log offset, or None."""
        cdef Wheel *t = self.wheel
        cdef RecordView v
        cdef LogFile *f = NULL
        cdef const char *topic = NULL
        cdef Py_ssize_t size = 0
        found = None
        if (<StoreWait> self.store).log != NULL and record_at(t.d.log, physical, 0, &v, &f) == 0:
            if find_property(v.properties, v.properties_size, b"REAL_TOPIC", 10, &topic, &size):
                found = topic[:size].decode("utf-8", "replace")
            log_file_release(f)
        return found

    def mark_dirty(self, places):
        """Pages that could not be written."""
        for place in places:
            rmq_publish32(&self.wheel.dirty[<int> place // WHEEL_PAGE], 1)

    def first(self):
        """Where the first file of the timer log begins."""
        return rmq_load(&self.wheel.first)

    def forget(self, first):
        """The timer log begins there from now on."""
        rmq_publish(&self.wheel.first, first)

    def state(self):
        """(pending, delivered, skipped, failed tries, errno of the last one, log offset of the last one that was skipped)."""
        cdef Wheel *t = self.wheel
        return (rmq_load(&t.pending), rmq_load(&t.d.delivered), rmq_load(&t.d.skipped), rmq_load(&t.d.failures),
                rmq_load32(&t.d.last_error), rmq_load(&t.d.last_skipped))

    def waits(self):
        """Whether a message is in the wheel, or in the queue only: bool."""
        cdef Wheel *t = self.wheel
        return rmq_load(&t.pending) > 0 or t.offset < rmq_load(&t.queue.max_offset)

    def close(self):
        """Of a timer that stopped, or never started: its files."""
        self._let_go()
        timerlog_close(self.wheel)

    def __dealloc__(self):
        if self._may_free():
            timerlog_close(self.wheel)
            once_forget(&self.wheel.once)
            again_free(self.wheel)
            recalls_forget(&self.wheel.recalls)
            free(self.wheel.slots)
            free(self.wheel.dirty)
            free(self.wheel.used)
            free(self.wheel.topics)
            free(self.wheel)
