"""Search of a queue by store time (RocketMQ: getOffsetInQueueByTime). Contract in _time.pxd."""
from libc.stdint cimport int32_t, int64_t

from rmq_store.base.io._sync cimport EIO, ENOENT, ENOMEM, rmq_load
from rmq_store.codec._layout cimport UNIT_SIZE
from rmq_store.codec._unit cimport unit_bytes, unit_physical
from rmq_store.queues.consumequeue._batches cimport batches_by_time
from rmq_store.queues.consumequeue._files cimport files_pass_gone
from rmq_store.queues.consumequeue._owner cimport QueueTableOwner
from rmq_store.queues.consumequeue._queue cimport Queue, QueueTable, queue_file_at, queue_file_count, queue_read
from rmq_store.queues.consumequeue._rest cimport state_hold, state_let
from rmq_store.queues.consumequeue._state cimport QueueState, TableState
from rmq_store.queues.consumequeue._units cimport units_last_there

cdef enum:
    BLOCK_UNITS = 64
    TRIES = 4

cdef struct Search:
    # What a search looks at, and the block of entries it read last: the walk over equal times is one read per block.
    QueueTable *table
    Queue *queue
    StoreTime store_time
    void *ctx
    int64_t block_from
    int64_t block_count
    int64_t physical                # of the entry looked at last
    int64_t error                   # -errno of a read that failed
    unsigned char[BLOCK_UNITS * UNIT_SIZE] block

cdef struct FileSpan:
    int64_t start                   # queue offsets of its first entry and behind its last published one
    int64_t end


cdef int64_t _time_at(Search *x, int64_t index, bint look_first, int64_t physical_min) noexcept nogil:
    # Store time of the record an entry leads to, -1 if unreadable. look_first: -2, without asking the log, if it is below its
    # start.
    cdef const unsigned char *u
    cdef int64_t when
    if not x.block_from <= index < x.block_from + x.block_count:
        x.block_from = index - index % BLOCK_UNITS
        x.block_count = queue_read(x.table, x.queue, x.block_from, x.block, BLOCK_UNITS)
        if x.block_count >= 0 and x.block_from + x.block_count <= index:
            # The block begins before the file does, or ends with another file: read from the entry itself.
            x.block_from = index
            x.block_count = queue_read(x.table, x.queue, index, x.block, BLOCK_UNITS)
        if x.block_count <= 0:
            x.error = x.block_count if x.block_count < 0 else -EIO
            x.block_count = 0
            return -1
    u = x.block + (index - x.block_from) * UNIT_SIZE
    x.physical = unit_physical(u)
    if look_first and x.physical < physical_min:
        return -2
    when = x.store_time(x.ctx, x.physical, unit_bytes(u))
    if when < -2:               # no answer about the record: it could not be read
        x.error = when
        return -1
    return when


cdef int64_t _file_by_modification(QueueTable *t, Queue *q, int64_t timestamp, FileSpan *out) noexcept nogil:
    # 4.9: the first file last modified at or after `timestamp`, else the last one. 1: found, 0: there is none.
    cdef int64_t i, modified, count = queue_file_count(t, q)
    cdef int rc
    for i in range(count):
        rc = queue_file_at(t, q, i, &out.start, &out.end, &modified)
        if rc < 0:
            return rc
        if modified >= timestamp:
            break
    return 1 if count > 0 else 0


cdef int64_t _file_by_store_time(Search *x, int64_t timestamp, TimeRule rule, FileSpan *out) noexcept nogil:
    # 5.x: LOWER the first whose last record is at or after `timestamp`, else the last; UPPER the last whose first is not
    # after it.
    cdef QueueTable *t = x.table
    cdef Queue *q = x.queue
    cdef int64_t i, when, modified, count = queue_file_count(t, q)
    cdef int rc
    for i in range(count):
        rc = queue_file_at(t, q, i if rule == TIME_LOWER else count - 1 - i, &out.start, &out.end, &modified)
        if rc < 0:
            return rc
        if rule == TIME_LOWER and i == count - 1:
            return 1
        when = _time_at(x, out.end - 1 if rule == TIME_LOWER else out.start, False, 0)
        if x.error < 0:
            return x.error
        if when <= 0:
            when = -1               # RocketMQ does not know the time of such a file
        if (when >= timestamp) if rule == TIME_LOWER else (when <= timestamp):
            return 1
    return 0


cdef int64_t _nearest(Search *x, int64_t timestamp, int64_t physical_min, const FileSpan *span, int64_t low) noexcept nogil:
    cdef int64_t high = span.end - 1
    cdef int64_t left = -1, right = -1, left_time = -1, right_time = -1, middle, when
    while high >= low:
        middle = (low + high) // 2
        when = _time_at(x, middle, True, physical_min)
        if x.error < 0:
            return x.error
        if when == -2:
            left = middle
            low = middle + 1
        elif when < 0:
            return 0
        elif when == timestamp:
            return middle
        elif when > timestamp:
            right = middle
            right_time = when
            high = middle - 1
        else:
            left = middle
            left_time = when
            low = middle + 1
    if left_time == -1:
        return right if right >= 0 else _before(span.start)
    if right_time == -1:
        return left
    return right if timestamp - left_time > right_time - timestamp else left


cdef inline int64_t _before(int64_t start) noexcept nogil:
    # What RocketMQ's arithmetic makes of "no entry": one before the file, and 0 in the first.
    return start - 1 if start > 0 else 0


cdef int64_t _equals(Search *x, int64_t timestamp, int64_t at, int64_t first, int64_t last, int64_t step) noexcept nogil:
    # From one of the entries with this time to the first (step -1) or the last (step 1) of them in a row.
    while first <= at + step <= last and _time_at(x, at + step, False, 0) == timestamp:
        at += step
    return at if x.error == 0 else x.error


cdef int64_t _bound(Search *x, int64_t timestamp, int64_t physical_min, TimeRule rule, const FileSpan *span,
                    int64_t low) noexcept nogil:
    cdef int64_t floor = low, last = span.end - 1, high = span.end - 1
    cdef int64_t left = -1, right = -1, middle, when
    when = _time_at(x, last, False, 0)
    if x.error < 0:
        return x.error
    if when < timestamp:
        return last + 1 if rule == TIME_LOWER else last
    # An entry below the first valid one may still be the last of its file.
    when = _time_at(x, floor if floor <= last else last, False, 0)
    if x.error < 0:
        return x.error
    if when > timestamp:
        return span.start if rule == TIME_LOWER else 0
    while high >= low:
        middle = (low + high) // 2
        when = _time_at(x, middle, True, physical_min)
        if x.error < 0:
            return x.error
        if when == -2:
            left = middle
            low = middle + 1
        elif when < 0:
            return 0
        elif when == timestamp:
            return _equals(x, timestamp, middle, floor, last, -1 if rule == TIME_LOWER else 1)
        elif when > timestamp:
            right = middle
            high = middle - 1
        else:
            left = middle
            low = middle + 1
    if rule == TIME_LOWER:
        return right if right >= 0 else _before(span.start)
    return left if left >= 0 else _before(span.start)


cdef int64_t queue_offset_by_time(QueueTable *t, Queue *q, int64_t timestamp, int64_t physical_min, TimeRule rule,
                                  StoreTime store_time, void *ctx) noexcept nogil:
    # A file that is deleted under the search is no error: the queue begins later now, or anew, and is searched again.
    cdef QueueState *s = state_hold(<TableState *> t, q)
    cdef int64_t first, removed, end, found
    cdef int there, tries = 0
    if s == NULL:
        return -ENOMEM
    while True:
        first, removed = rmq_load(&s.entries.first), rmq_load(&q.removed_below)
        end = rmq_load(&q.max_offset)           # of a queue that goes it falls to 0 before the rest is said
        if s.batched:           # 4.9 has no batch queues
            found = batches_by_time(<TableState *> t, q, s, timestamp, rule == TIME_UPPER)
        else:
            found = _offset_by_time(t, q, timestamp, physical_min, rule, store_time, ctx)
        if found < 0 and (<TableState *> t).cache.following:
            files_pass_gone((<TableState *> t).cache, &s.entries, &q.removed_below, removed)
            there = units_last_there(<TableState *> t, s, rmq_load(&s.batch_end) if s.batched else end * UNIT_SIZE)
            if there == 0:
                found = rmq_load(&q.min_offset)         # cut off, or the queue has begun anew: the follower looks again soon
            elif there > 0 and (found == -ENOENT or found == -EIO) and tries < TRIES:
                tries += 1              # its file or its entry came between the two looks
                continue
        if found >= 0 or (first == rmq_load(&s.entries.first) and removed == rmq_load(&q.removed_below)
                          and end <= rmq_load(&q.max_offset)):
            break
    state_let(<TableState *> t, q)
    return found


cdef int64_t _offset_by_time(QueueTable *t, Queue *q, int64_t timestamp, int64_t physical_min, TimeRule rule,
                             StoreTime store_time, void *ctx) noexcept nogil:
    cdef Search x
    cdef FileSpan span
    cdef int64_t low, found
    x.table = t
    x.queue = q
    x.store_time = store_time
    x.ctx = ctx
    x.block_from = x.block_count = x.error = 0
    if rule == TIME_NEAREST:
        found = _file_by_modification(t, q, timestamp, &span)
    else:
        found = _file_by_store_time(&x, timestamp, rule, &span)
    if found < 0:
        return found
    low = rmq_load(&q.min_offset)
    if found > 0:
        if low < span.start:
            low = span.start
        if rule == TIME_NEAREST:
            found = _nearest(&x, timestamp, physical_min, &span, low)
        else:
            found = _bound(&x, timestamp, physical_min, rule, &span, low)
    if rule == TIME_NEAREST or found < 0:
        return found
    # ConsumeQueueStore keeps the answer within the queue.
    if found < rmq_load(&q.min_offset):
        found = rmq_load(&q.min_offset)
    if found > rmq_load(&q.max_offset):
        found = rmq_load(&q.max_offset)
    return found


# ---- for Python: offline tools and tests

cdef class _Asker:
    cdef object ask
    cdef object error


cdef int64_t _ask(void *ctx, int64_t physical, int32_t size) noexcept nogil:
    with gil:
        asker = <_Asker> ctx
        try:
            return asker.ask(physical, size)
        except Exception as e:
            asker.error = e
            return -1


def offset_by_time(QueueTableOwner owner not None, bytes topic, int queue_id, int64_t timestamp, store_time, *,
                   int64_t physical_min=0, str rule="lower"):
    """The queue offset that RocketMQ's search gives for a store time in ms.

    `store_time(physical, size)` answers the store time of a record, -1 where it cannot be read; what it raises is raised.
    `physical_min`: where the log begins. `rule`: "nearest" (4.9), "lower" or "upper" (5.x).
    Any thread. Source: ConsumeQueue.getOffsetInQueueByTime.
    """
    cdef Queue *q = owner.find(topic, queue_id)
    cdef QueueTable *t = owner.table
    cdef TimeRule r = {"nearest": TIME_NEAREST, "lower": TIME_LOWER, "upper": TIME_UPPER}[rule]
    cdef _Asker asker = _Asker()
    cdef void *ctx = <void *> asker
    cdef int64_t found
    asker.ask = store_time
    with nogil:
        found = queue_offset_by_time(t, q, timestamp, physical_min, r, _ask, ctx)
    if asker.error is not None:
        raise asker.error
    owner.check(found, topic, queue_id)
    return found
