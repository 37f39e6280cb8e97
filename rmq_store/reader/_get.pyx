"""get by queue offset and look-ups by position (upstream: DefaultMessageStore.getMessage, lookMessageByOffset); see _get.pxd"""
import os

cimport cython
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t
from libc.stdlib cimport free, malloc

from rmq_store.codec._record cimport (BLANK_SIZE, RECORD_BLANK, RECORD_OK, RecordStatus, RecordView,
                                      record_in_place, record_parse, rmq_get32, rmq_get64)
from rmq_store.codec._text cimport java_hash
from rmq_store.commitlog._log cimport Log, log_copy
from rmq_store.consumequeue._queue cimport UNIT_SIZE, Queue, queue_read, queue_read_ext, queues_at, queues_count, queues_find
from rmq_store.histogram._histogram cimport Histogram, rmq_histogram_add_shared, rmq_histogram_merge
from rmq_store.io._sync cimport EIO, rmq_load, rmq_prefetch
from rmq_store.reader._checked cimport utf8, whole
from rmq_store.reader._message cimport LeaseCount, Message, lease_new, message_new
from rmq_store.segment._file cimport LogFile, log_file_copied, log_file_lost, log_file_release, row_end, row_find, row_start

from rmq_store import errors
from rmq_store.codec.message_id import decode_message_id
from rmq_store.status import GetStatus

cdef enum:
    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MESSAGE_IN_QUEUE = 8

cdef enum:
    AHEAD = 4                   # entries whose record is fetched into the cache beforehand
    UNITS_AT_ONCE = 64
    GETS_A_SAMPLE = 16          # one get in so many is timed
    CODES_MAX = 64

cdef int64_t EXT_ADDRESS_MAX = -2147483649      # at or below it a tags code is the address of an extension unit
cdef tuple _STATUS = tuple(GetStatus)


@cython.final
cdef class GetResult:
    """What a get found: iterable and indexable messages, `status`, where to go on, and the queue's bounds.

    Upstream: GetMessageResult. The messages are views: they stay good, and their file mapped, as long as they live, also after
    the store was closed; pickled and deep-copied they are on memory of their own. disk_messages and
    disk_bytes: of them, those that lie further from the log's end than memory_ratio_pct of the memory. Upstream takes these for
    read from the device (checkInDiskByCommitOffset); the page cache may have them still.
    """

    cdef readonly int64_t next_offset
    cdef readonly int64_t min_offset
    cdef readonly int64_t max_offset
    cdef readonly int64_t total_bytes
    cdef readonly int64_t disk_messages
    cdef readonly int64_t disk_bytes
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
        from rmq_store.reader.shown import table_html
        return table_html(repr(self), self.messages)

    def __repr__(self):
        return (f"GetResult({self.status.name}, {len(self.messages)} messages, next_offset={self.next_offset}, "
                f"min_offset={self.min_offset}, max_offset={self.max_offset})")


cdef bint _coded(const GetRequest *r, int64_t code) noexcept nogil:
    cdef int32_t i
    for i in range(r.codes_count):
        if r.codes[i] == <int32_t> code:
            return True
    return False


cdef inline int _record_in(Log *log, LogFile *f, int64_t offset, int64_t size, RecordView *v) noexcept nogil:
    # record_at for an offset that lies in `f`: 0, -1 or -EIO.
    cdef int64_t end = f.start + f.size
    if rmq_load(&log.committed) < end:
        end = rmq_load(&log.committed)
    if (offset < end and size <= end - offset and record_parse(f.map + (offset - f.start), end - offset, v) == RECORD_OK
            and v.physical_offset == offset and (size == 0 or v.size == size)):
        return -EIO if log_file_lost(f, offset, v.size) else 0
    return -EIO if log_file_lost(f, offset, 0) else -1


cdef LogFile *_recent(Log *log, int64_t offset, int64_t size) noexcept nogil:
    # With direct I/O, a record that is still in the pool, copied: its place in the file would have to be read back from the
    # device, and pool memory is never lent. NULL: not there (or no memory): the file has it.
    cdef unsigned char[4] head
    cdef LogFile *f
    if size == 0:
        if not log_copy(log, offset, 4, head):
            return NULL
        size = rmq_get32(head)
    if size <= 0 or offset < rmq_load(&log.reusable) or size > rmq_load(&log.committed) - offset:
        return NULL
    f = log_file_copied(log.io, offset, size)
    if f != NULL and not log_copy(log, offset, size, f.map):
        log_file_release(f)
        return NULL
    return f


cdef inline LogFile *_file_at(Log *log, int64_t offset, int64_t size, int *error) noexcept nogil:
    # Where the record at `offset` can be read, held for the caller; as row_find.
    cdef LogFile *f = NULL
    error[0] = 0
    if log.direct:
        f = _recent(log, offset, size)
    return f if f != NULL else row_find(log.row, offset, error)


cdef int record_at(Log *log, int64_t offset, int64_t size, RecordView *v, LogFile **file) noexcept nogil:
    # The record at `offset` (size 0: whatever size it says), in a file held for the caller. 0; -1 nothing readable there;
    # -errno. Never looks beyond what is committed.
    cdef int error = 0
    cdef int rc
    cdef LogFile *f
    if offset < 0 or size < 0:
        return -1
    f = _file_at(log, offset, size, &error)
    if f == NULL:
        return error if error < -1 else -1
    rc = _record_in(log, f, offset, size, v)
    if rc == 0:
        file[0] = f
        return 0
    log_file_release(f)
    return rc


cdef inline void _count_disk(GetRequest *r) noexcept nogil:
    # Entries of a queue ascend in the log, so those far from its end come first: where all is recent, one comparison.
    r.disk_count = r.disk_bytes = 0
    while r.disk_count < r.found_count and r.log_end - r.found[r.disk_count].view.physical_offset > r.memory_bytes:
        r.disk_bytes += r.found[r.disk_count].view.size
        r.disk_count += 1


cdef class StoreGet(StorePutMany):
    """The reading half of a store."""

    def __cinit__(self):
        self.lease_count = LeaseCount.__new__(LeaseCount)

    def _setup_get(self, int64_t memory_bytes):
        self.lease_count.io = self.io_owner
        options = self.options
        self.machine_bytes = memory_bytes
        self.ext_enabled = options.consumequeue_ext_enabled
        self.units_per_file = options.consumequeue_file_size_bytes // UNIT_SIZE

    def _apply(self, options):
        StorePutMany._apply(self, options)
        self.memory_bytes = self.machine_bytes * options.memory_ratio_pct // 100
        self.bytes_max_memory = options.get_bytes_max_memory
        self.count_max_memory = options.get_count_max_memory
        self.bytes_max_disk = options.get_bytes_max_disk
        self.count_max_disk = options.get_count_max_disk
        self.scan_bytes_max = options.filter_bytes_max

    @property
    def leases(self):
        """How many groups of message views are alive: int."""
        return self.lease_count.alive

    def _lease_total(self):
        return self.lease_count.alive

    def _get_stats(self):
        """Counters of get since the store was opened: dict of str to int."""
        return {"gets_found": self.gets_found, "gets_missed": self.gets_missed, "got_messages": self.got_messages,
                "got_bytes": self.got_bytes, "got_disk_messages": self.got_disk_messages, "got_disk_bytes": self.got_disk_bytes}

    def _get_histogram(self):
        """Durations of one get in 16, without what Python makes of the result: Histogram."""
        cdef Histogram found = Histogram()
        rmq_histogram_merge(found.h, &self.get_times)
        return found

    cdef void _get(self, GetRequest *r) noexcept nogil:
        cdef Queue *q = queues_find(self.queues, r.topic, r.topic_size, r.queue_id, False)
        cdef unsigned char[UNITS_AT_ONCE * UNIT_SIZE] units
        cdef int64_t n, i, physical, size, code, at, skip_below = -1, scanned = 0, log_end, store_time
        cdef int64_t scan_max = r.scan_bytes_max // UNIT_SIZE
        cdef bint in_disk, full = False
        cdef bint loose = False     # `f` is held, and no entry has taken the hold over yet
        cdef LogFile *f = NULL
        cdef int rc
        cdef Found *slot
        r.found_count = 0
        r.found_bytes = 0
        r.unreadable = 0
        r.error = 0
        r.next_offset = r.offset
        r.min_offset = rmq_load(&q.min_offset) if q != NULL else 0
        r.max_offset = rmq_load(&q.max_offset) if q != NULL else 0
        if r.max_offset == 0:
            r.status = NO_MESSAGE_IN_QUEUE
            at = 0
        elif r.offset < r.min_offset:
            r.status = OFFSET_TOO_SMALL
            at = r.min_offset
        elif r.offset == r.max_offset:
            r.status = OFFSET_OVERFLOW_ONE
            at = r.offset
        elif r.offset > r.max_offset:
            r.status = OFFSET_OVERFLOW_BADLY
            at = r.max_offset
        else:
            r.status = NO_MATCHED_MESSAGE
            if r.count_max > scan_max:
                scan_max = r.count_max
            log_end = r.log_end = rmq_load(&self.log.committed)
            while not full and scanned < scan_max:
                n = scan_max - scanned
                if n > UNITS_AT_ONCE:
                    n = UNITS_AT_ONCE
                n = queue_read(self.queues, q, r.offset + scanned, units, n)
                if n < 0:
                    if loose:
                        log_file_release(f)
                    r.error = <int> n
                    return
                if n == 0:
                    break
                for i in range(n):
                    if f != NULL and i + AHEAD < n:
                        at = rmq_get64(units + (i + AHEAD) * UNIT_SIZE)
                        if f.start <= at < f.start + f.size - 64:
                            at -= f.start
                            rmq_prefetch(f.map + at)
                            rmq_prefetch(f.map + at + 64)
                            at += <int64_t> rmq_get32(units + (i + AHEAD) * UNIT_SIZE + 8) - 64
                            if 0 <= at < f.size:
                                rmq_prefetch(f.map + at)    # topic and properties stand at its end
                    physical = rmq_get64(units + i * UNIT_SIZE)
                    size = rmq_get32(units + i * UNIT_SIZE + 8)
                    code = rmq_get64(units + i * UNIT_SIZE + 12)
                    if skip_below >= 0 and physical < skip_below:
                        scanned += 1
                        continue
                    in_disk = physical < log_end - r.memory_bytes       # whatever an entry says: no overflow
                    if r.found_count > 0:
                        full = (r.found_count >= r.count_max or r.found_bytes + size > r.bytes_max
                                or r.found_bytes + size > (r.bytes_max_disk if in_disk else r.bytes_max_memory)
                                or r.found_count > (r.count_max_disk if in_disk else r.count_max_memory) - 1)
                        if full:
                            break
                    if r.codes != NULL:
                        if code <= EXT_ADDRESS_MAX:
                            if not self.ext_enabled or queue_read_ext(self.queues, q, code, &code, &store_time, NULL, 0) < 0:
                                code = EXT_ADDRESS_MAX      # no extension unit: its name decides
                        if code > EXT_ADDRESS_MAX and not _coded(r, code):
                            if r.found_count == 0:
                                r.status = NO_MATCHED_MESSAGE
                            scanned += 1
                            continue
                    slot = &r.found[r.found_count]
                    if (f == NULL or physical < f.start or physical >= f.start + f.size
                            or (self.log.direct and not f.copied and physical >= rmq_load(&self.log.reusable))):
                        if loose:
                            log_file_release(f)
                        rc = 0
                        f = _file_at(self.log, physical, size, &rc) if physical >= 0 else NULL
                        loose = f != NULL
                        if rc < 0:
                            r.error = rc
                            return
                    rc = -1
                    if f != NULL and size > 0:
                        rc = _record_in(self.log, f, physical, size, &slot.view)
                    if rc < -1:
                        if loose:
                            log_file_release(f)
                        r.error = rc
                        return
                    if rc == 0 and not record_in_place(&slot.view, r.topic, r.topic_size, r.queue_id, r.offset + scanned):
                        rc = -1             # a damaged entry
                    if rc < 0:
                        r.unreadable += 1
                        if r.found_count == 0:
                            r.status = MESSAGE_WAS_REMOVING
                        if f == NULL and 0 <= physical < row_end(self.row):       # gone, as all below the next file
                            skip_below = (physical // self.row.file_size + 1) * self.row.file_size
                        scanned += 1
                        continue
                    slot.file = f
                    slot.held = loose
                    loose = False
                    r.found_count += 1
                    r.found_bytes += size
                    r.status = FOUND
                    skip_below = -1
                    scanned += 1
                if not full and (r.offset + scanned) % self.units_per_file == 0:
                    break               # upstream reads the entries of one ConsumeQueue file a call
            if loose:
                log_file_release(f)
            if scanned == 0 and r.found_count == 0 and self.follower != NULL and r.offset >= rmq_load(&q.min_offset):
                # A recovery of the writer has cut its entries off, and brings them back: the queue ends here for now.
                r.status = OFFSET_OVERFLOW_ONE
                r.max_offset = at = r.offset
            elif scanned == 0 and r.found_count == 0:
                r.status = OFFSET_FOUND_NULL
                at = (r.offset // self.units_per_file + 1) * self.units_per_file
            else:
                r.next_offset = r.offset + scanned
                return
        if not r.slave_rules:
            r.next_offset = at

    def get(self, topic, queue_id, offset, max_count=32, tags=None, *, max_bytes=None, wait=None, _slave_rules=False,
            _scan_max=None):
        """Messages of a queue from `offset` on; returns a GetResult.

        tags: "A || B", None or "*" for all: compared by hash code in the queue, then by name. A call returns at most
        get_count_max_memory messages and get_bytes_max_memory bytes (get_count_max_disk, get_bytes_max_disk where they are far
        behind), always the first one; next_offset says where to go on. Outside the queue the status says how, and next_offset
        where it begins or ends. wait: seconds to wait for a message at or behind `offset` where there is none yet, True for
        long_polling_timeout_ms; the dispatcher wakes the call, Ctrl-C ends it, StoreClosed if the store closes meanwhile.
        What is there is returned at once. None: do not wait. Raises OSError from reading.
        Durability: what is visible follows the option `visibility`. Upstream: MessageStore.getMessage.
        """
        cdef GetRequest r
        cdef int32_t[CODES_MAX] codes
        cdef Found[64] few
        cdef int64_t room
        cdef Py_ssize_t size = 0
        cdef GetResult result
        cdef int64_t begun
        cdef bint timed = (self.gets_found + self.gets_missed) % GETS_A_SAMPLE == 0
        if wait is not None and wait is not False:
            return self._get_waiting(topic, queue_id, offset, max_count, tags, max_bytes, wait)
        self._enter()
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
        r.slave_rules = _slave_rules
        r.codes = NULL
        r.codes_count = 0
        wanted = None
        if tags is not None and not isinstance(tags, str):
            raise errors.illegal("tags", tags, "give one str, 'a || b' for several, or None for all")
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
        r.memory_bytes = self.memory_bytes
        r.bytes_max_memory = self.bytes_max_memory
        r.count_max_memory = self.count_max_memory
        r.bytes_max_disk = self.bytes_max_disk
        r.count_max_disk = self.count_max_disk
        r.scan_bytes_max = self.scan_bytes_max
        if _scan_max is not None:       # entries: who may not be held longer
            r.scan_bytes_max = min(r.scan_bytes_max, <int64_t> _scan_max * UNIT_SIZE)
        room = min(r.count_max, max(r.count_max_memory, r.count_max_disk))
        r.found = few
        if room > 64:
            r.found = <Found *> malloc(room * sizeof(Found))
            if r.found == NULL:
                raise MemoryError("get")
        self._enter()
        self.calls += 1
        with nogil:
            begun = self.io.mono_ns(self.io.ctx) if timed else 0
            self._get(&r)
            _count_disk(&r)
            if timed:
                rmq_histogram_add_shared(&self.get_times, self.io.mono_ns(self.io.ctx) - begun)
        self.calls -= 1
        result = GetResult.__new__(GetResult)
        result.messages = self._views(&r, wanted)
        if r.found != few:
            free(r.found)
        if r.error < 0:
            raise OSError(-r.error, os.strerror(-r.error), f"{self.path}: {topic}, queue {queue_id}, offset {offset}")
        if r.found_count > 0:
            self.gets_found += 1
            self.got_messages += r.found_count
            self.got_bytes += r.found_bytes
            self.got_disk_messages += r.disk_count
            self.got_disk_bytes += r.disk_bytes
        else:
            self.gets_missed += 1
        result.code = r.status
        if r.status == FOUND and not result.messages:
            result.code = NO_MATCHED_MESSAGE        # equal hash codes, other names
        result.next_offset = r.next_offset
        result.min_offset = r.min_offset
        result.max_offset = r.max_offset
        result.unreadable = r.unreadable
        result.total_bytes = r.found_bytes
        result.disk_messages = r.disk_count
        result.disk_bytes = r.disk_bytes
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

    cdef object _message_at(self, int64_t offset):
        cdef RecordView v
        cdef LogFile *f = NULL
        cdef int rc
        self._enter()
        self.calls += 1
        with nogil:
            rc = record_at(self.log, offset, 0, &v, &f)
        self.calls -= 1
        if rc < -1:
            raise OSError(-rc, os.strerror(-rc), self.path)
        if rc < 0:
            return None
        return message_new(lease_new(f, self.lease_count), &v)

    def message_at(self, offset):
        """The message whose record begins at physical `offset`, or None. Upstream: lookMessageByOffset."""
        self._enter()
        return self._message_at(whole(offset, "offset", INT64_MIN, INT64_MAX))

    def message_by_id(self, msg_id):
        """The message with this offset message id (32 or 56 hex digits), or None. Raises ValueError for text that is no id."""
        self._enter()
        return self._message_at(decode_message_id(msg_id)[1])

    def _next_record(self, int64_t offset, int64_t limit):
        """For walks over the raw log: (kind, offset, size, message or None, next offset), or None at the end."""
        cdef RecordView v
        cdef RecordStatus status = RECORD_OK
        cdef LogFile *f
        cdef int error = 0
        cdef int64_t end = 0
        self._enter()
        if offset >= limit:
            return None
        self.calls += 1
        with nogil:     # the bytes may have to come from the device
            f = _file_at(self.log, offset, 0, &error)
            if f != NULL:
                end = f.start + f.size
                status = record_parse(f.map + (offset - f.start), (end if end < limit else limit) - offset, &v)
                if f.copied and status != RECORD_OK:    # the end-of-file record says where the next file begins
                    log_file_release(f)
                    f = row_find(self.row, offset, &error)
                    if f != NULL:
                        end = f.start + f.size
                        status = record_parse(f.map + (offset - f.start), (end if end < limit else limit) - offset, &v)
            if f != NULL and log_file_lost(f, offset, v.size if status == RECORD_OK else 0):
                log_file_release(f)
                f = NULL
                error = -EIO
        self.calls -= 1
        if f == NULL:
            if error < 0:
                raise OSError(-error, os.strerror(-error), self.path)
            return None
        if status == RECORD_OK and v.physical_offset == offset:
            if f.copied or end - (offset + v.size) >= BLANK_SIZE:       # else nothing fits behind it
                end = offset + v.size
            return "msg", offset, v.size, message_new(lease_new(f, self.lease_count), &v), end
        log_file_release(f)
        if status == RECORD_BLANK:
            return "blank", offset, v.size, None, end
        if status == RECORD_OK:
            raise errors.CorruptionError(self.path, offset, f"a record of offset {offset}",
                                         f"one of offset {v.physical_offset}")
        raise errors.CorruptionError(self.path, offset, "a record", f"magic code {v.magic & 0xFFFFFFFF:#x}, size {v.size}")

    @property
    def min_log_offset(self):
        """Physical offset of the first byte of the log: int (0 where it is empty)."""
        self._enter()
        return max(row_start(self.row), 0)

    @property
    def max_log_offset(self):
        """Physical offset behind the last readable record: int. Upstream: getMaxPhyOffset."""
        self._enter()
        return rmq_load(&self.log.committed)

    def _bounds(self, topic, queue_id):
        """(min, max) queue offset, or None where there is no such queue."""
        cdef Queue *q
        self._enter()
        name = utf8(topic, "topic")
        q = queues_find(self.queues, name, <int32_t> len(name), <int32_t> whole(queue_id, "queue_id", 0, INT32_MAX), False)
        if q == NULL:
            return None
        return rmq_load(&q.min_offset), rmq_load(&q.max_offset)

    def _queue_list(self):
        """Every queue that has or had an entry: list of (topic, queue id, min, max)."""
        self._enter()
        return self._all_queues()

    def _queue_ends(self):
        """{(topic, queue id): one past its last entry}; also while the store opens."""
        return {(topic, queue_id): high for topic, queue_id, _, high in self._all_queues()}

    cdef list _all_queues(self):
        cdef int64_t i
        cdef Queue *q
        found = []
        for i in range(queues_count(self.queues)):
            q = queues_at(self.queues, i)
            if rmq_load(&q.max_offset) > 0:
                found.append((q.topic[:q.topic_size].decode("utf-8", "replace"), q.queue_id, rmq_load(&q.min_offset),
                              rmq_load(&q.max_offset)))
        return found

    def raw_entry(self, topic, queue_id, queue_offset):
        """(physical offset, size, tags code) of one queue entry as stored, or None."""
        cdef unsigned char[UNIT_SIZE] unit
        cdef Queue *q
        cdef int64_t n, at
        self._enter()
        name = utf8(topic, "topic")
        q = queues_find(self.queues, name, <int32_t> len(name), <int32_t> whole(queue_id, "queue_id", 0, INT32_MAX), False)
        if q == NULL:
            return None
        at = whole(queue_offset, "queue_offset", INT64_MIN, INT64_MAX)
        self.calls += 1
        with nogil:
            n = queue_read(self.queues, q, at, unit, 1)
        self.calls -= 1
        if n < 0:
            raise OSError(-n, os.strerror(-n), self.path)
        if n == 0:
            return None
        return rmq_get64(unit), rmq_get32(unit + 8), rmq_get64(unit + 12)

    def ext_unit(self, topic, queue_id, address):
        """(found, tags code, store timestamp, filter bit map) of a ConsumeQueueExt unit by the address in a queue entry."""
        cdef unsigned char[4096] bits
        cdef int64_t tags_code = 0, store_timestamp = 0, n, at
        cdef Queue *q
        self._enter()
        name = utf8(topic, "topic")
        q = queues_find(self.queues, name, <int32_t> len(name), <int32_t> whole(queue_id, "queue_id", 0, INT32_MAX), False)
        if q == NULL:
            return False, 0, 0, b""
        at = address
        self.calls += 1
        with nogil:
            n = queue_read_ext(self.queues, q, at, &tags_code, &store_timestamp, bits, 4096)
        self.calls -= 1
        if n < 0:
            return False, 0, 0, b""
        return True, tags_code, store_timestamp, bits[:min(n, 4096)]
