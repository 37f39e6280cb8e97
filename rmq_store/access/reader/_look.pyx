"""Look-ups by position: one record, the bounds of queues, single entries (RocketMQ: lookMessageByOffset); see _look.pxd"""
import os

from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t

from rmq_store.access.reader._checked cimport utf8, whole
from rmq_store.access.reader._message cimport LeaseCount, lease_new, message_new
from rmq_store.base.io._sync cimport EIO, rmq_load
from rmq_store.base.segment._file cimport (LogFile, log_file_copied, log_file_lost, log_file_release, row_absent, row_find,
                                           row_start)
from rmq_store.codec._layout cimport BLANK_SIZE, UNIT_SIZE
from rmq_store.codec._record cimport RECORD_BLANK, RECORD_OK, RecordStatus, RecordView, head_size, record_parse, topic_light
from rmq_store.codec._unit cimport unit_bytes, unit_code, unit_physical
from rmq_store.log.commitlog._log cimport Log, log_copy
from rmq_store.log.commitlog._unwritten cimport log_readable
from rmq_store.log.recovery._scan cimport scan_next_good
from rmq_store.queues.consumequeue._queue cimport Queue, queue_read, queue_read_ext, queues_at, queues_count, queues_find

from rmq_store import errors
from rmq_store.codec.message_id import decode_message_id


cdef LogFile *log_recent(Log *log, int64_t offset, int64_t size) noexcept nogil:
    cdef unsigned char[4] head
    cdef LogFile *f
    if size == 0:
        if not log_copy(log, offset, 4, head):
            return NULL
        size = head_size(head)
    if size <= 0 or offset < rmq_load(&log.reusable) or size > rmq_load(&log.committed) - offset:
        return NULL
    f = log_file_copied(log.io, offset, size)
    if f != NULL and not log_copy(log, offset, size, f.map):
        log_file_release(f)
        return NULL
    return f


cdef int record_at(Log *log, int64_t offset, int64_t size, RecordView *v, LogFile **file) noexcept nogil:
    cdef int error = 0
    cdef int rc
    cdef LogFile *f
    if offset < 0 or size < 0:
        return -1
    f = file_at(log, offset, size, &error)
    if f == NULL:
        return error if error < -1 else -1
    rc = record_in(log, f, offset, size, v)
    if rc == 0:
        file[0] = f
        return 0
    log_file_release(f)
    return rc


cdef class StoreLook(StorePutInner):
    """The part of a store that looks up by position."""

    def __cinit__(self):
        self.lease_count = LeaseCount.__new__(LeaseCount)

    @property
    def leases(self):
        """The number of groups of message views that are alive: int."""
        return self.lease_count.alive

    def _lease_total(self):
        return self.lease_count.alive

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
        """Returns the message whose record begins at log offset `offset`, or None. It looks into the log alone: a message that
        only a compaction log has is not found. RocketMQ: lookMessageByOffset."""
        self._enter()
        return self._message_at(whole(offset, "offset", INT64_MIN, INT64_MAX))

    def message_by_id(self, msg_id):
        """Returns the message with this offset message id (32 or 56 hex digits), or None. Raises ValueError for other text.

        The id is a place in the log. So the result is None once cleaning has deleted the record, also where a compaction log
        still has the message (there its id is another place): use message_by_unique_key or query_key. RocketMQ answers the
        same (lookMessageByOffset)."""
        self._enter()
        return self._message_at(decode_message_id(msg_id)[1])

    def _next_record(self, int64_t offset, int64_t limit):
        """For walks over the raw log: (kind, offset, size, message or None, next offset), or None at the end. Kind "missing":
        the file up to the next offset is not there."""
        cdef RecordView v
        cdef RecordStatus status = RECORD_OK
        cdef LogFile *f
        cdef int error = 0
        cdef int64_t end = 0, at
        self._enter()
        if offset >= limit:
            return None
        self.calls += 1
        with nogil:     # the bytes may have to come from the device
            f = file_at(self.log, offset, 0, &error)
            if f != NULL:
                end = f.start + f.size
                status = record_parse(f.map + (offset - f.start), (end if end < limit else limit) - offset, &v)
                if f.copied and status == RECORD_BLANK and f.size == BLANK_SIZE:        # which the file lacks
                    end = offset + v.size
                elif f.copied and status != RECORD_OK:  # the end-of-file record says where the next file begins
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
            if not row_absent(self.row, offset):
                return None
            end = row_start(self.row) + ((offset - row_start(self.row)) // self.row.file_size + 1) * self.row.file_size
            return "missing", offset, min(end, limit) - offset, None, end
        if status == RECORD_OK and v.physical_offset == offset:
            if f.copied or end - (offset + v.size) >= BLANK_SIZE:       # else nothing fits behind it
                end = offset + v.size
            return "msg", offset, v.size, message_new(lease_new(f, self.lease_count), &v), end
        if status != RECORD_BLANK and self.options.skip_holes:
            if not row_absent(self.row, offset):
                with nogil:
                    at = scan_next_good(f, offset + 1, end if end < limit else limit, False)
                end = at if at >= 0 else end
            log_file_release(f)
            return "missing", offset, min(end, limit) - offset, None, end
        log_file_release(f)
        if status == RECORD_BLANK:
            return "blank", offset, v.size, None, end
        if status == RECORD_OK:
            raise errors.CorruptionError(self.path, offset, f"a record of offset {offset}",
                                         f"one of offset {v.physical_offset}")
        raise errors.CorruptionError(self.path, offset, "a record", f"magic code {v.magic & 0xFFFFFFFF:#x}, size {v.size}")

    @property
    def min_log_offset(self):
        """Physical offset of the first byte of the log: int (0 if the log is empty)."""
        self._enter()
        return max(row_start(self.row), 0)

    @property
    def max_log_offset(self):
        """Physical offset of the end of the last readable record: int. Where the pool cannot be written, that is the end of
        what the pool has. RocketMQ: getMaxPhyOffset."""
        self._enter()
        return log_readable(self.log)

    cdef Queue *_find(self, object topic, object queue_id) except? NULL:
        # NULL: no such queue. The arguments come first, as their conversion may be Python code that closes the store; whoever
        # calls this has converted its own before.
        cdef bytes name = utf8(topic, "topic")
        cdef int32_t number = <int32_t> whole(queue_id, "queue_id", 0, INT32_MAX)
        self._enter()
        return queues_find(self.queues, name, <int32_t> len(name), number, False)

    def _bounds(self, topic, queue_id):
        """(min, max) queue offset, or None where there is no such queue."""
        cdef Queue *q = self._find(topic, queue_id)
        cdef int64_t low, high
        if q == NULL:
            return None
        low, high = rmq_load(&q.min_offset), rmq_load(&q.max_offset)
        return low, high

    def _queue_list(self):
        """Every queue that has or had an entry: list of (topic, queue id, min, max)."""
        self._enter()
        return self._all_queues()

    def _queue_ends(self):
        """{(topic, queue id): one past its last entry}; also while the store opens."""
        return {(topic, queue_id): high for topic, queue_id, _, high in self._all_queues()}

    def _topic_widths(self, int64_t known):
        """(how many queues have or had an entry, {topic: one past its highest of them}), light queues left out, which are of no
        topic. {}: that number is `known`. Also while the store closes."""
        cdef int64_t i = 0, count = 0
        cdef int32_t number
        cdef bytes name
        cdef Queue *q
        widths = {}
        for i in range(queues_count(self.queues) if self.queues != NULL else 0):
            q = queues_at(self.queues, i)
            count += rmq_load(&q.max_offset) > 0 and not topic_light(q.topic, q.topic_size)
        i = 0
        while count != known and self.queues != NULL and i < queues_count(self.queues):
            q = queues_at(self.queues, i)
            i += 1
            if rmq_load(&q.max_offset) > 0 and not topic_light(q.topic, q.topic_size):
                number, name = q.queue_id, q.topic[:q.topic_size]
                topic = name.decode("utf-8", "replace")
                widths[topic] = max(widths.get(topic, 0), number + 1)
        return count, widths

    cdef list _all_queues(self):
        cdef int64_t i = 0, low, high
        cdef int32_t number
        cdef bytes name
        cdef Queue *q
        found = []
        while self.queues != NULL and i < queues_count(self.queues):
            q = queues_at(self.queues, i)
            low, high, number = rmq_load(&q.min_offset), rmq_load(&q.max_offset), q.queue_id
            if high > 0:
                name = q.topic[:q.topic_size]
                found.append((name.decode("utf-8", "replace"), number, low, high))      # which may begin a collection
            i += 1
        if self.queues == NULL:
            self._refuse()
        return found

    def raw_entry(self, topic, queue_id, queue_offset):
        """Returns (physical offset, size, tags code) of one queue entry as stored, or None."""
        cdef unsigned char[UNIT_SIZE] unit
        cdef int64_t n, at = whole(queue_offset, "queue_offset", INT64_MIN, INT64_MAX)
        cdef Queue *q = self._find(topic, queue_id)
        if q == NULL:
            return None
        self.calls += 1
        with nogil:
            n = queue_read(self.queues, q, at, unit, 1)
        self.calls -= 1
        if n < 0:
            raise OSError(-n, os.strerror(-n), self.path)
        if n == 0:
            return None
        return unit_physical(unit), unit_bytes(unit), unit_code(unit)

    def ext_unit(self, topic, queue_id, address):
        """Returns (found, tags code, store timestamp, filter bit map) of the ConsumeQueueExt unit at this address."""
        cdef unsigned char[4096] bits
        cdef int64_t tags_code = 0, store_timestamp = 0, n, at = whole(address, "address", INT64_MIN, INT64_MAX)
        cdef Queue *q = self._find(topic, queue_id)
        if q == NULL:
            return False, 0, 0, b""
        self.calls += 1
        with nogil:
            n = queue_read_ext(self.queues, q, at, &tags_code, &store_timestamp, bits, 4096)
        self.calls -= 1
        if n < 0:
            return False, 0, 0, b""
        return True, tags_code, store_timestamp, bits[:min(n, 4096)]
