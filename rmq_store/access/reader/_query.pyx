"""Reading by key, by time and by unique id (RocketMQ: DefaultMessageStore.queryMessage, getOffsetInQueueByTime).

Any thread; searching runs without the GIL. Every record that an index or queue leads to is checked before it is returned.
"""
import os

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from rmq_store.access.reader._checked cimport utf8, whole
from rmq_store.access.reader._get cimport Found, StoreGet
from rmq_store.access.reader._look cimport record_at
from rmq_store.access.reader._message cimport lease_new, message_new
from rmq_store.base.io._sync cimport EIO, ENOENT, RMQ_SWEEP_THREADS, rmq_load, rmq_sweep_all
from rmq_store.base.segment._file cimport LogFile, log_file_lost, log_file_release, row_find, row_start
from rmq_store.codec._layout cimport UNIT_SIZE
from rmq_store.codec._record cimport PropertyView, RecordView, properties_scan
from rmq_store.codec._text cimport Keys, key_next, keys_of
from rmq_store.codec._unit cimport unit_physical
from rmq_store.log.commitlog._log cimport Log
from rmq_store.queues.consumequeue._queue cimport (Queue, QueueTable, queue_read, queue_same_topic, queues_at,
                                                   queues_count, queues_of_topic)
from rmq_store.queues.consumequeue._time cimport TIME_LOWER, TIME_NEAREST, TIME_UPPER, TimeRule, queue_offset_by_time
from rmq_store.queues.index._index cimport index_query_message

from rmq_store import errors


cdef enum:
    NO_ENTRY = -2

cdef dict _BOUNDARIES = {"lower": TIME_LOWER, "upper": TIME_UPPER, "nearest": TIME_NEAREST}


@cython.final
cdef class QueryResult:
    """The result of a query by key: messages in log order, and how far the index was. RocketMQ: QueryMessageResult."""

    cdef readonly list messages
    cdef readonly int64_t index_last_timestamp
    cdef readonly int64_t index_last_offset

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
        return (f"QueryResult({len(self.messages)} messages, index_last_timestamp={self.index_last_timestamp}, "
                f"index_last_offset={self.index_last_offset})")


cdef int64_t _store_time(void *ctx, int64_t physical, int32_t size) noexcept nogil:
    # For the search by time: the store time of the record an entry leads to; -1: it leads to none, or it has none; -errno: it
    # cannot be read.
    cdef RecordView v
    cdef LogFile *f = NULL
    cdef int rc = record_at(<Log *> ctx, physical, size, &v, &f)
    if rc < 0:
        return rc
    log_file_release(f)
    return v.store_timestamp if v.store_timestamp >= 0 else -1      # of no clock, and of no errno either


cdef struct Oldest:
    QueueTable *table
    Log *log
    int64_t *times          # by queue: of the first message there is; -1: it has none, NO_ENTRY: the queue never had an entry


cdef int _find_oldest(void *ctx, int64_t i) noexcept nogil:
    # Of one queue, beside others.
    cdef Oldest *o = <Oldest *> ctx
    cdef unsigned char[UNIT_SIZE] unit
    cdef Queue *q = queues_at(o.table, i)
    cdef int64_t got
    o.times[i] = NO_ENTRY
    if rmq_load(&q.max_offset) == 0:
        return 0
    got = queue_read(o.table, q, rmq_load(&q.min_offset), unit, 1)
    o.times[i] = -1
    if got > 0:
        got = o.times[i] = _store_time(o.log, unit_physical(unit), 0)
    return <int> got if got < -1 else 0


cdef int64_t _store_time_at(void *ctx, int64_t physical) noexcept nogil:
    return _store_time(ctx, physical, 0)


cdef bint _carries(const RecordView *v, const KeyRequest *r) noexcept nogil:
    # Hash codes lead to the record; whether it is the message that was asked for, only its own bytes tell.
    cdef PropertyView p
    cdef Keys keys
    if v.topic_size != r.topic_size or memcmp(v.topic, r.topic, r.topic_size) != 0:
        return False
    properties_scan(v.properties, v.properties_size, &p)
    keys = keys_of(p.uniq_key, p.uniq_key_size, p.keys, p.keys_size)
    while key_next(&keys):
        if keys.size == r.key_size and memcmp(keys.key, r.key, r.key_size) == 0:
            return True
    return False


cdef class StoreQuery(StoreGet):
    """The looking-up half of reading."""

    def _apply(self, options):
        StoreGet._apply(self, options)
        self.query_batch_max = options.query_batch_max
        self.query_count_max = options.query_count_max

    cdef int _query(self, KeyRequest *r) noexcept nogil:
        # Offsets of records with the key's hash code, then the records: each is checked again before it is returned.
        cdef int64_t n, i
        cdef int rc
        cdef Found *slot
        r.found_count = 0
        n = index_query_message(self.index, r.topic, r.topic_size, r.key, r.key_size, r.begin, r.end, r.offsets, r.max,
                                _store_time_at, <void *> self.log, &r.last_timestamp, &r.last_physical)
        for i in range(n):
            slot = &r.found[r.found_count]
            rc = record_at(self.log, r.offsets[i], 0, &slot.view, &slot.file)
            if rc < -1:
                return rc
            if rc == 0 and r.exact and not _carries(&slot.view, r):
                log_file_release(slot.file)
            elif rc == 0:
                r.found_count += 1
        return <int> n if n < 0 else 0

    def query_key(self, topic, key, max_count=None, begin_time=0, end_time=None, *, exact=True):
        """Finds the messages of `topic` with `key` in KEYS or as UNIQ_KEY. Returns a QueryResult.

        max_count: default query_count_max, at most query_batch_max. begin_time, end_time: store times in ms since 1970; the
        index knows them to the second. The query finds the newest messages first; the result is in log order. exact: False also
        returns messages that only have an equal hash code, as RocketMQ's store does. Empty if index_enabled is False. Of a
        compaction topic the result begins with what only the compaction log has (docs/compaction-topics.md).
        """
        cdef KeyRequest r
        cdef QueryResult result
        cdef int rc = 0
        cdef bint whole_log
        cdef int64_t i
        self._enter()
        topic_text = utf8(topic, "topic")
        key_text = utf8(key, "key")
        r.topic = topic_text
        r.topic_size = <int32_t> len(topic_text)
        r.key = key_text
        r.key_size = <int32_t> len(key_text)
        r.begin = whole(begin_time, "begin_time", INT64_MIN, INT64_MAX)
        r.end = INT64_MAX if end_time is None else whole(end_time, "end_time", INT64_MIN, INT64_MAX)
        r.max = self.query_count_max if max_count is None else whole(max_count, "max_count", 0, INT64_MAX)
        if r.max > self.query_batch_max:
            r.max = self.query_batch_max
        r.exact = exact
        result = QueryResult.__new__(QueryResult)
        result.messages = []
        self._enter()
        if self.index == NULL or r.max <= 0:
            return result
        r.offsets = <int64_t *> malloc(r.max * (sizeof(int64_t) + sizeof(Found)))
        if r.offsets == NULL:
            raise MemoryError("query")
        r.found = <Found *> (r.offsets + r.max)
        whole_log = row_start(self.row) <= 0        # asked here: what follows may run a collection that closes the store
        self.calls += 1
        with nogil:
            rc = self._query(&r)
        self.calls -= 1
        for i in range(r.found_count):
            result.messages.append(message_new(lease_new(r.found[i].file, self.lease_count), &r.found[i].view))
        free(r.offsets)
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), self.path)
        result.index_last_timestamp = r.last_timestamp
        result.index_last_offset = r.last_physical
        # A log that still begins at 0 lacks nothing.
        older = None if whole_log else getattr(self, "_older_keys", None)       # of the class with the services
        if older is not None and len(result.messages) < r.max:
            there = {(m.queue_id, m.queue_offset) for m in result.messages}
            result.messages[:0] = [m for m in older(topic, key, r.begin, r.end, r.max - len(result.messages))
                                   if (m.queue_id, m.queue_offset) not in there]
        return result

    def message_by_unique_key(self, topic, unique_key):
        """Returns the newest message of `topic` with this UNIQ_KEY (the message id of the client), or None."""
        found = [m for m in self.query_key(topic, unique_key) if m.unique_key == unique_key]
        return found[len(found) - 1] if found else None

    def _by_time(self, topic, queue_id, when, TimeRule rule):
        cdef int64_t offset, low, timestamp = whole(when, "timestamp", INT64_MIN, INT64_MAX)
        cdef Queue *q = self._find(topic, queue_id)
        if q == NULL:
            return 0
        self.calls += 1
        with nogil:
            low = row_start(self.row)
            offset = queue_offset_by_time(self.queues, q, timestamp, low if low > 0 else 0, rule, _store_time,
                                          <void *> self.log)
        self.calls -= 1
        if offset < 0:
            raise OSError(-offset, os.strerror(-offset), f"{self.path}: {topic}, queue {queue_id}")
        return offset

    def log_bytes(self, offset, size_max=1 << 20):
        """Returns the raw log from `offset` on, which may lie in a record: bytes. They end after size_max bytes, at the end
        of their file, or at max_log_offset; there the call returns b"". Raises ValueError for an offset outside of the log,
        OSError.

        The returned bytes never change later, so the call is suited to copy a log. RocketMQ: getCommitLogData.
        """
        cdef LogFile *f
        cdef int64_t low, end, size, at = whole(offset, "offset", INT64_MIN, INT64_MAX)
        cdef int64_t most = whole(size_max, "size_max", INT64_MIN, INT64_MAX)
        cdef int error = 0
        cdef char *to
        if most < 1:
            raise errors.illegal("size_max", size_max, "give 1 or more bytes")
        self._enter()
        low, end = row_start(self.row), rmq_load(&self.log.committed)
        if not (low <= at <= end if low >= 0 else at == end):
            raise ValueError(f"offset is {offset}: the log goes from {max(low, 0)} to {end}")
        size = min(most, end - at, self.row.file_size - (at - low) % self.row.file_size)
        if size <= 0:
            return b""
        found = PyBytes_FromStringAndSize(NULL, size)
        to = PyBytes_AS_STRING(found)
        self.calls += 1
        with nogil:
            # Never out of the pool: behind an end-of-file record that has what no file gets.
            f = row_find(self.row, at, &error)
            if f != NULL:
                memcpy(to, f.map + (at - f.start), size)
                if log_file_lost(f, at, size):
                    error = -EIO
                log_file_release(f)
            elif error == 0:
                error = -ENOENT     # deleted since the look above
        self.calls -= 1
        if error == -ENOENT:
            raise ValueError(f"offset is {offset}: the log goes from {self.min_log_offset} to {end}")
        if error < 0:
            raise OSError(-error, os.strerror(-error), f"{self.path}: log offset {offset}")
        return found

    def offset_by_time(self, topic, queue_id, timestamp, *, boundary=None):
        """Returns the queue offset for a store time (ms since 1970): int; 0 if there is no such queue.

        boundary: "lower" = the first message stored at this time or later, "upper" = the last message stored at this time or
        earlier, "nearest" = the rule of 4.9, which also uses modification times of files. Default: "nearest" with compat 4.9,
        else "lower".
        RocketMQ: getOffsetInQueueByTime.
        """
        if boundary is None:
            boundary = "lower" if self.compat5 else "nearest"
        if boundary not in _BOUNDARIES:
            raise errors.illegal("boundary", boundary, "give 'lower', 'upper' or 'nearest'")
        return self._by_time(topic, queue_id, timestamp, _BOUNDARIES[boundary])

    def _lower_bound(self, topic, queue_id, timestamp):
        return self._by_time(topic, queue_id, timestamp, TIME_LOWER)

    def min_offset(self, topic, queue_id):
        """First queue offset that can be read: int; -1 if there is no such queue. RocketMQ: getMinOffsetInQueue."""
        bounds = self._bounds(topic, queue_id)
        return -1 if bounds is None else bounds[0]

    def max_offset(self, topic, queue_id):
        """One past the last readable queue offset: int; 0 if there is no such queue. RocketMQ: getMaxOffsetInQueue."""
        bounds = self._bounds(topic, queue_id)
        return 0 if bounds is None else bounds[1]

    def total(self, topic, queue_id):
        """Number of readable messages of a queue: int. RocketMQ: getMessageTotalInQueue."""
        bounds = self._bounds(topic, queue_id)
        return 0 if bounds is None else bounds[1] - bounds[0]

    def earliest_time(self, topic=None, queue_id=None):
        """Store time (ms since 1970) of the oldest message of a queue, or without arguments of the log: int; -1 if none.

        RocketMQ: getEarliestMessageTime.
        """
        if topic is None:
            message = self._message_at(self.min_log_offset)
            return -1 if message is None else message.store_timestamp
        bounds = self._bounds(topic, queue_id)      # of the log alone
        entry = None if bounds is None else self.raw_entry(topic, queue_id, bounds[0])
        message = None if entry is None else self._message_at(entry[0])
        return -1 if message is None else message.store_timestamp

    def _queues_of(self, topic):
        """The queues of one topic that have or had an entry, and no look at others: sorted list of (queue id, min, max)."""
        cdef bytes name = utf8(topic, "topic")
        cdef int64_t low, high
        cdef int32_t number
        cdef Queue *q
        found = []
        self._enter()
        q = queues_of_topic(self.queues, name, <int32_t> len(name))
        while q != NULL:
            low, high, number = rmq_load(&q.min_offset), rmq_load(&q.max_offset), q.queue_id
            q = queue_same_topic(q)
            if high > 0:
                found.append((number, low, high))       # which may begin a collection, and that close the store
                self._enter()
        found.sort()
        return found

    def _queue_total(self):
        """How many queues have or had an entry: int."""
        cdef int64_t i, total = 0
        self._enter()
        for i in range(queues_count(self.queues)):
            total += rmq_load(&queues_at(self.queues, i).max_offset) > 0
        return total

    def _queue_rows(self, topic=None):
        """What `stat` shows, of one topic or all: sorted list of (topic, queue id, min, max, earliest_time). OSError."""
        cdef int64_t i, count, low, high, failed = 0
        cdef int32_t number
        cdef bytes name
        cdef Oldest oldest
        cdef Queue *q
        cdef int rc
        if topic is not None:
            return [(topic, at, *ends, self.earliest_time(topic, at)) for at, *ends in self._queues_of(topic)]
        self._enter()
        count = queues_count(self.queues)
        oldest.table, oldest.log = self.queues, self.log
        oldest.times = <int64_t *> malloc(max(count, 1) * sizeof(int64_t))
        if oldest.times == NULL:
            raise MemoryError("times")
        try:
            self.calls += 1
            with nogil:
                rc = rmq_sweep_all(count, _find_oldest, &oldest, RMQ_SWEEP_THREADS, &failed)
            self.calls -= 1
            if rc < 0:
                raise OSError(-rc, os.strerror(-rc), self.path)
            found = []
            for i in range(count):
                self._enter()
                q = queues_at(self.queues, i)
                if oldest.times[i] > NO_ENTRY:
                    low, high, number = rmq_load(&q.min_offset), rmq_load(&q.max_offset), q.queue_id
                    name = q.topic[:q.topic_size]
                    found.append((name.decode("utf-8", "replace"), number, low, high, oldest.times[i]))
        finally:
            free(oldest.times)
        found.sort()
        return found
