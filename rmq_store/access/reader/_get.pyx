"""get by queue offset (RocketMQ: DefaultMessageStore.getMessage); see _get.pxd"""
import os

cimport cython
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t
from libc.stdlib cimport free, malloc

from rmq_store.access.reader._batches cimport scan_batches, unwrapped
from rmq_store.access.reader._checked cimport utf8, whole
from rmq_store.access.reader._look cimport StoreLook, record_next
from rmq_store.access.reader._message cimport Message, lease_new, message_new
from rmq_store.access.reader._request cimport request_coded, request_full, request_passed, request_passes, request_unmatched
from rmq_store.access.reader._unwritten cimport get_unwritten
from rmq_store.filter._bitmap cimport FilterSet, FilterTable, GroupBits, GroupFilter, bits_missed
from rmq_store.filter._program cimport SqlFilter, chosen_filter
from rmq_store.base.histogram._histogram cimport Histogram, rmq_histogram_add_shared, rmq_histogram_merge
from rmq_store.base.io._sync cimport rmq_load, rmq_load32, rmq_prefetch
from rmq_store.base.segment._file cimport FileRow, LogFile, log_file_release, row_end
from rmq_store.codec._layout cimport UNIT_SIZE
from rmq_store.codec._record cimport record_in_place
from rmq_store.codec._text cimport java_hash
from rmq_store.codec._unit cimport is_ext_address, unit_bytes, unit_code, unit_physical
from rmq_store.log.commitlog._log cimport Log
from rmq_store.log.commitlog._unwritten cimport log_stuck
from rmq_store.log.dispatch._dispatch cimport dispatch_filters
from rmq_store.queues.consumequeue._batches cimport queue_batched
from rmq_store.queues.consumequeue._queue cimport ExtWindow, Queue, QueueTable, queue_look_ext, queue_read, queues_find

from rmq_store import errors
from rmq_store.status import GetStatus

cdef enum:
    NOT_READABLE = 1            # status.RunningFlags
    AHEAD = 8                   # entries whose record is fetched into the cache beforehand
    UNITS_AT_ONCE = 64
    GETS_A_SAMPLE = 16          # one get in so many is timed
    CODES_MAX = 64

cdef tuple _STATUS = tuple(GetStatus)


@cython.final
cdef class GetResult:
    """The result of a get: messages to iterate and index, `status`, next_offset, min_offset and max_offset of the queue.

    RocketMQ: GetMessageResult. The messages are views: as long as a view lives, it stays valid and its file stays mapped, also
    after the store was closed. Pickled and deep-copied messages have their own memory. disk_messages and disk_bytes count the
    messages that lie further from the end of the log than memory_ratio_pct of the memory. RocketMQ assumes that these are read
    from the device (checkInDiskByCommitOffset); the page cache may still hold them. passed_disk_bytes: bytes of such messages
    that the SQL92 filter read and left out.
    """

    cdef readonly int64_t next_offset
    cdef readonly int64_t min_offset
    cdef readonly int64_t max_offset
    cdef readonly int64_t total_bytes
    cdef readonly int64_t disk_messages
    cdef readonly int64_t disk_bytes
    cdef readonly int64_t passed_disk_bytes
    cdef readonly int64_t unreadable
    cdef readonly list messages
    cdef int code

    @property
    def status(self):
        """GetStatus."""
        return _STATUS[self.code]

    def __iter__(self):
        return iter(self.messages)

    def __len__(self):
        return len(self.messages)

    def __getitem__(self, index):
        return self.messages[index]

    def _repr_html_(self):
        from rmq_store.access.reader.shown import table_html
        return table_html(repr(self), self.messages)

    def __repr__(self):
        return (f"GetResult({self.status.name}, {len(self.messages)} messages, next_offset={self.next_offset}, "
                f"min_offset={self.min_offset}, max_offset={self.max_offset})")


cdef bint _bounds_met(GetRequest *r, Queue *q, int64_t *at) noexcept nogil:
    # Whether the offset lies in the queue; if not, status and the offset to continue at.
    r.min_offset = rmq_load(&q.min_offset) if q != NULL else 0
    r.max_offset = rmq_load(&q.max_offset) if q != NULL else 0
    if r.max_offset == 0:
        r.status = NO_MESSAGE_IN_QUEUE
        at[0] = 0
    elif r.offset < r.min_offset:
        r.status = OFFSET_TOO_SMALL
        at[0] = r.min_offset
    elif r.offset == r.max_offset:
        r.status = OFFSET_OVERFLOW_ONE
        at[0] = r.offset
    elif r.offset > r.max_offset:
        r.status = OFFSET_OVERFLOW_BADLY
        at[0] = r.max_offset
    else:
        r.status = NO_MATCHED_MESSAGE
        return True
    return False


cdef inline void _fetch_ahead(const LogFile *f, const unsigned char *unit) noexcept nogil:
    # Of the record that an entry leads to: its head, and its end, where topic and properties stand.
    cdef int64_t at = unit_physical(unit)
    if f.start <= at < f.start + f.size - 64:
        at -= f.start
        rmq_prefetch(f.map + at)
        rmq_prefetch(f.map + at + 64)
        at += <int64_t> unit_bytes(unit) - 128
        if 0 <= at < f.size - 64:
            rmq_prefetch(f.map + at)
            rmq_prefetch(f.map + at + 64)


cdef bint entry_tagged(const GetRequest *r, QueueTable *queues, Queue *q, ExtWindow *window, int64_t code) noexcept nogil:
    cdef int64_t store_time
    cdef const unsigned char *bit_map
    if is_ext_address(code):
        if not r.ext_enabled or queue_look_ext(queues, q, window, code, &code, &store_time, &bit_map) < 0:
            return True             # no extension unit: its name decides
        if is_ext_address(code):
            return True
    return request_coded(r, code)


cdef bint entry_missed(const GroupBits *bits, QueueTable *queues, Queue *q, ExtWindow *window,
                       const unsigned char *unit) noexcept nogil:
    cdef int64_t code = unit_code(unit), stored = 0, size
    cdef const unsigned char *bit_map = NULL
    if not is_ext_address(code):
        return False
    size = queue_look_ext(queues, q, window, code, &code, &stored, &bit_map)
    # in_force comes last: entries that another filter was evaluated for were published after it was taken back.
    return (size > 0 and bit_map != NULL and bits_missed(bits, bit_map, size, stored) and unit_physical(unit) >= bits.since
            and rmq_load32(&bits.in_force) != 0)


cdef int64_t _pass_over(GetRequest *r, FileRow *row, const LogFile *f, int64_t physical,
                        int64_t skip_below) noexcept nogil:
    # An entry that leads to no message of it. The offset below which all entries can be skipped.
    r.unreadable += 1
    if r.found_count == 0:
        r.status = MESSAGE_WAS_REMOVING
    if f == NULL and 0 <= physical < row_end(row):      # gone, as all below the next file
        return (physical // row.file_size + 1) * row.file_size
    return skip_below


cdef bint _left_out(GetRequest *r, QueueTable *queues, Queue *q, ExtWindow *window, const unsigned char *unit) noexcept nogil:
    # Whether the entry says by itself that its message is not asked for.
    if r.codes != NULL and not entry_tagged(r, queues, q, window, unit_code(unit)):
        return True
    if r.bits == NULL or not entry_missed(r.bits, queues, q, window, unit):
        return False
    r.bit_map_skips += 1
    return True


cdef int64_t _scan(GetRequest *r, Log *log, QueueTable *queues, Queue *q) noexcept nogil:
    # Messages from r.offset on, until the request is filled, the scan long enough, or the ConsumeQueue file at its end
    # (RocketMQ reads the entries of one file a call). How many entries were looked at, or -errno.
    cdef unsigned char[UNITS_AT_ONCE * UNIT_SIZE] units
    cdef const unsigned char *unit
    cdef int64_t n, i, ahead, physical, size, scanned = 0, removed = rmq_load(&q.removed_below)
    cdef int64_t skip_below = -1        # records below this log offset are deleted; -1: not known
    cdef int64_t scan_max = max(r.scan_bytes_max // UNIT_SIZE, r.count_max)
    cdef LogFile *f = NULL              # of the record before
    cdef ExtWindow window               # of the entries' extension units
    cdef bint loose = False             # `f` is held, and no entry has taken the hold over yet
    cdef bint full = False
    cdef int rc, error = 0
    cdef Found *slot
    window.at = window.size = 0
    while error == 0 and not full and scanned < scan_max:
        n = queue_read(queues, q, r.offset + scanned, units, min(scan_max - scanned, <int64_t> UNITS_AT_ONCE))
        if scanned > 0 and removed != rmq_load(&q.removed_below):
            break               # it begins anew: these entries may be of the new queue
        if n <= 0:
            error = <int> n
            break
        ahead = 0
        for i in range(n):
            unit = units + i * UNIT_SIZE
            while f != NULL and ahead < min(i + AHEAD, n):
                _fetch_ahead(f, units + ahead * UNIT_SIZE)
                ahead += 1
            physical = unit_physical(unit)
            size = unit_bytes(unit)
            if skip_below >= 0 and physical < skip_below:
                scanned += 1
                continue
            full = request_full(r, r.found_count, 1, physical, size)
            if full:
                break
            if (r.codes != NULL or r.bits != NULL) and _left_out(r, queues, q, &window, unit):
                request_unmatched(r)
                scanned += 1
                continue
            slot = &r.found[r.found_count]
            rc = record_next(log, physical, size, &f, &loose, &slot.view)
            if rc < 0:
                error = rc
                break
            if rc == 0 or not record_in_place(&slot.view, r.topic, r.topic_size, r.queue_id, r.offset + scanned):
                skip_below = _pass_over(r, log.row, f, physical, skip_below)        # deleted, or a damaged entry
                scanned += 1
                continue
            if r.filter != NULL and not request_passes(r, &slot.view):
                request_passed(r, physical, size)
                request_unmatched(r)
                skip_below = -1
                scanned += 1
                continue
            slot.file = f
            slot.queue_offset = r.offset + scanned
            slot.held = loose
            loose = False
            r.found_count += 1
            r.found_bytes += size
            r.status = FOUND
            skip_below = -1
            scanned += 1
        if (r.offset + scanned) % r.units_per_file == 0:
            break
    if loose:
        log_file_release(f)
    return error if error < 0 else scanned


cdef void get_found(GetRequest *r, Log *log, QueueTable *queues, bint follows) noexcept nogil:
    cdef Queue *q = queues_find(queues, r.topic, r.topic_size, r.queue_id, False)
    cdef int64_t at = 0, scanned
    r.found_count = 0
    r.found_bytes = 0
    r.unreadable = 0
    r.bit_map_skips = r.passed_disk_bytes = 0
    r.error, r.next_offset = 0, r.offset
    r.batched = q != NULL and queue_batched(q)
    if _bounds_met(r, q, &at):
        r.log_end = rmq_load(&log.committed)
        scanned = scan_batches(r, log, queues, q) if r.batched else _scan(r, log, queues, q)
        if scanned < 0:
            r.error = <int> scanned
            return
        if scanned > 0 or r.found_count > 0:
            r.next_offset = r.offset + scanned
            return
        if follows and r.offset >= rmq_load(&q.min_offset):
            # A recovery of the writer has cut its entries off, and brings them back: the queue ends here for now.
            r.status = OFFSET_OVERFLOW_ONE
            r.max_offset = at = r.offset
        else:
            r.status = OFFSET_FOUND_NULL
            at = (r.offset // r.units_per_file + 1) * r.units_per_file
    elif log.pool != NULL and q != NULL and r.max_offset <= r.offset <= rmq_load(&q.next_offset):
        # Put and not dispatched: for as long as the log is stuck, out of the pool. Who has read that is at the end for now.
        if log_stuck(log) and r.offset < rmq_load(&q.next_offset) and get_unwritten(r, log):
            return
        if r.offset > r.max_offset:
            r.status = OFFSET_OVERFLOW_ONE
            r.max_offset = at = r.offset
    if not r.slave_rules:
        r.next_offset = at


cdef void get_count_disk(GetRequest *r) noexcept nogil:
    # Entries of a queue ascend in the log, so those far from its end come first: where all is recent, one comparison.
    r.disk_count = r.disk_bytes = 0
    while r.disk_count < r.found_count and r.log_end - r.found[r.disk_count].view.physical_offset > r.memory_bytes:
        r.disk_bytes += r.found[r.disk_count].view.size
        r.disk_count += 1


cdef int _take_older(StoreGet self, GetResult result, topic, queue_id, const GetRequest *r, set wanted) except -1:
    # The log has no more of the queue there: its compaction log may. That has no tags code of its own to look at first.
    cdef Message m
    cdef int64_t read = 0
    cdef object older = getattr(self, "_older", None)      # of the class that has the services
    if older is None:
        return 0
    found = older(topic, queue_id, r.offset, r.min_offset, min(r.count_max, r.count_max_disk),
                  min(r.bytes_max, r.bytes_max_disk))
    if found is None:
        return 0
    messages, result.next_offset, first, result.unreadable = found
    result.min_offset = min(<int64_t> first, r.min_offset)
    for m in messages:
        read += m.v.size
    result.messages = [m for m in messages if (wanted is None or m.tags in wanted)
                       and (r.filter == NULL or request_passes(r, &(<Message> m).v))]
    result.code = FOUND if result.messages else NO_MATCHED_MESSAGE
    for m in result.messages:
        result.total_bytes += m.v.size
    result.disk_messages, result.disk_bytes = len(result.messages), result.total_bytes
    result.passed_disk_bytes = read - result.total_bytes
    if result.messages:
        self.gets_missed -= 1
        self.gets_found += 1
        self.got_messages += len(result.messages)
        self.got_bytes += result.total_bytes
        self.got_disk_messages += len(result.messages)
        self.got_disk_bytes += result.total_bytes
    return 0


cdef class StoreGet(StoreLook):
    """The reading half of a store."""

    def _setup_get(self, int64_t memory_bytes):
        self.lease_count.io = self.io_owner
        options = self.options
        self.machine_bytes = memory_bytes
        self.ext_enabled = options.consumequeue_ext_enabled
        self.units_per_file = options.consumequeue_file_size_bytes // UNIT_SIZE

    def _apply(self, options):
        StoreLook._apply(self, options)
        self.memory_bytes = self.machine_bytes * options.memory_ratio_pct // 100
        self.bytes_max_memory = options.get_bytes_max_memory
        self.count_max_memory = options.get_count_max_memory
        self.bytes_max_disk = options.get_bytes_max_disk
        self.count_max_disk = options.get_count_max_disk
        self.scan_bytes_max = options.filter_bytes_max

    def _get_stats(self):
        """Counters of get since the store was opened: dict of str to int."""
        cdef GetCounts *n = &self.native
        return {"gets_found": self.gets_found + rmq_load(&n.found), "gets_missed": self.gets_missed + rmq_load(&n.missed),
                "got_messages": self.got_messages + rmq_load(&n.messages), "got_bytes": self.got_bytes + rmq_load(&n.bytes),
                "got_disk_messages": self.got_disk_messages + rmq_load(&n.disk_messages),
                "got_disk_bytes": self.got_disk_bytes + rmq_load(&n.disk_bytes), "bit_map_skips": self.bit_map_skips}

    def _set_filters(self, FilterTable table):
        """Dispatch makes the bit maps of these filters from now on, None: none. Returns (log offset, newest store time): all
        records from there on are evaluated with it, and what is stored later than that is."""
        cdef int64_t at, newest = 0
        cdef const FilterSet *filters = NULL if table is None else &table.set
        if self.dispatcher == NULL or self.alive[0] != 1:
            self._refuse()
        self.calls += 1
        with nogil:
            at = dispatch_filters(self.dispatcher, filters, &newest)
        self.calls -= 1
        self.filter_table, table = table, self.filter_table     # the one before may go now
        return at, newest

    def _get_histogram(self):
        """Durations of one get in 16, without what Python makes of the result: Histogram."""
        cdef Histogram found = Histogram()
        rmq_histogram_merge(found.h, &self.get_times)
        return found

    cdef void _get(self, GetRequest *r) noexcept nogil:
        r.ext_enabled = self.ext_enabled
        r.units_per_file = self.units_per_file
        get_found(r, self.log, self.queues, self.follower != NULL)

    cdef GroupFilter _registered(self, object topic, SqlFilter chosen):
        # The filter whose bit maps dispatch stores, where `chosen` is one.
        if chosen is None or self.filter_table is None:
            return None
        return (<FilterTable> self.filter_table).find(topic, chosen.sql)

    def get(self, topic, queue_id, offset, max_count=32, tags=None, *, sql=None, max_bytes=None, wait=None,
            _slave_rules=False, _scan_max=None, _whole=False):
        """Reads messages of a queue from `offset` on. Returns a GetResult.

        tags: "A || B"; None or "*" means all messages. Tags are compared by hash code in the queue, then by name. sql: a SQL92
        filter over the properties, in place of tags: text or SqlFilter (docs/filtering.md); raises FilterIllegal. A call
        returns at most get_count_max_memory messages and get_bytes_max_memory bytes (get_count_max_disk and get_bytes_max_disk
        for messages far from the end of the log), but at least one message if there is one. next_offset is the offset to
        continue at. If `offset` is outside of the queue, the status says so, and next_offset is the start or the end of the
        queue. wait: how many seconds to wait if there is no message at `offset` or later; True means long_polling_timeout_ms,
        None means no wait. The dispatcher wakes the call, Ctrl-C ends it, and it raises StoreClosed if the store closes. If
        there are messages, the call returns at once. Raises OSError if a read fails.
        Durability: the option `visibility` decides which messages are visible. RocketMQ: MessageStore.getMessage.
        """
        cdef GetRequest r
        cdef int32_t[CODES_MAX] codes
        cdef Found[64] few
        cdef int64_t room, begun
        cdef Py_ssize_t size = 0
        cdef GetResult result
        cdef bint timed = (self.gets_found + self.gets_missed) % GETS_A_SAMPLE == 0
        self._enter()           # a filter may import: not in a child of fork, where the import lock may be held for ever
        if self.flags & NOT_READABLE:
            raise errors.StoreNotReadable(self.path)
        cdef SqlFilter chosen = chosen_filter(sql, tags)        # lives as long as the call
        if wait is not None and wait is not False:
            return self._get_waiting(topic, queue_id, offset, max_count, tags, chosen, max_bytes, wait)
        if not isinstance(topic, str):
            raise errors.MessageIllegal(f"topic is a {type(topic).__name__}: give a str")
        try:
            r.topic = PyUnicode_AsUTF8AndSize(topic, &size)     # kept by the str
        except UnicodeEncodeError:
            name = topic.encode("utf-8", "surrogatepass")
            r.topic = name
            size = len(name)
        r.topic_size = <int32_t> size
        r.queue_id = <int32_t> whole(queue_id, "queue_id", 0, INT32_MAX)
        r.offset = whole(offset, "offset", INT64_MIN, INT64_MAX)
        r.count_max = whole(max_count, "max_count", 1, INT64_MAX)
        r.bytes_max = INT64_MAX if max_bytes is None else whole(max_bytes, "max_bytes", 0, INT64_MAX)
        r.slave_rules, r.unwraps = _slave_rules, not _whole
        r.filter = NULL if chosen is None else &chosen.program
        cdef GroupFilter known = self._registered(topic, chosen)        # lives as long as the call, too
        r.bits = NULL if known is None else &known.bits
        r.codes, r.codes_count = NULL, 0
        wanted = None
        if tags is not None and tags not in ("", "*"):
            wanted = {t.strip() for t in tags.split("||") if t.strip()}
            if len(wanted) > CODES_MAX:
                raise ValueError(errors.exceeds("number of tags", len(wanted), CODES_MAX, "ask for fewer, or for all"))
            for tag in wanted:
                text = utf8(tag, "tags")
                codes[r.codes_count] = java_hash(text, <int32_t> len(text))
                r.codes_count += 1
            if wanted:
                r.codes = codes
        r.memory_bytes, r.scan_bytes_max = self.memory_bytes, self.scan_bytes_max
        r.bytes_max_memory, r.count_max_memory = self.bytes_max_memory, self.count_max_memory
        r.bytes_max_disk, r.count_max_disk = self.bytes_max_disk, self.count_max_disk
        if _scan_max is not None:       # entries: who may not be held longer
            r.scan_bytes_max = min(r.scan_bytes_max, <int64_t> _scan_max * UNIT_SIZE)
        self._enter()
        room = min(r.count_max, max(r.count_max_memory, r.count_max_disk))
        r.found = few
        if room > 64:
            r.found = <Found *> malloc(room * sizeof(Found))
            if r.found == NULL:
                raise MemoryError("get")
        self.calls += 1
        with nogil:
            begun = self.io.mono_ns(self.io.ctx) if timed else 0
            self._get(&r)
            get_count_disk(&r)
            if timed:
                rmq_histogram_add_shared(&self.get_times, self.io.mono_ns(self.io.ctx) - begun)
        self.calls -= 1
        result = GetResult.__new__(GetResult)
        result.messages = self._views(&r, None if r.batched else wanted)
        if r.found != few:
            free(r.found)
        if r.error < 0:
            raise OSError(-r.error, os.strerror(-r.error), f"{self.path}: {topic}, queue {queue_id}, offset {offset}")
        self.bit_map_skips += r.bit_map_skips
        if r.found_count > 0:
            self.gets_found += 1
            self.got_messages += r.found_count
            self.got_bytes += r.found_bytes
            self.got_disk_messages += r.disk_count
            self.got_disk_bytes += r.disk_bytes
        else:
            self.gets_missed += 1
        result.code = r.status
        if r.batched and not _whole:
            result.messages, r.next_offset, r.unreadable = unwrapped(result.messages, &r, wanted)
        if r.status == FOUND and not result.messages:
            result.code = NO_MATCHED_MESSAGE        # equal hash codes, other names
        result.next_offset, result.min_offset, result.max_offset = r.next_offset, r.min_offset, r.max_offset
        result.unreadable, result.total_bytes = r.unreadable, r.found_bytes
        result.disk_messages, result.disk_bytes, result.passed_disk_bytes = r.disk_count, r.disk_bytes, r.passed_disk_bytes
        if r.status == OFFSET_TOO_SMALL:
            _take_older(self, result, topic, queue_id, &r, wanted)
        return result

    cdef list _views(self, GetRequest *r, set wanted):
        # One lease a file: the views of one call share it. The first entry of a row in one file came with the hold.
        cdef object lease = None
        cdef Found *slot
        cdef int64_t i
        cdef list messages = PyList_New(r.found_count)
        cdef Message m
        for i in range(r.found_count):
            slot = &r.found[i]
            if slot.held:
                lease = lease_new(slot.file, self.lease_count)
            m = message_new(lease, &slot.view)
            Py_INCREF(m)
            PyList_SET_ITEM(messages, i, m)
        return messages if wanted is None else [m for m in messages if (<Message> m).tags in wanted]
