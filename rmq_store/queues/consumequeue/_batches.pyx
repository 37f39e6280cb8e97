"""Batch queues: units of 46 bytes, searched by queue offset, log offset or time. Contract in _batches.pxd.

How a unit is searched for: _units.pyx.
"""
from libc.stdint cimport INT64_MAX, int32_t, int64_t

from rmq_store.base.io._sync cimport EAGAIN, EIO, ENOENT, ENOMEM, rmq_load, rmq_load32, rmq_publish
from rmq_store.base.segment._file cimport text_copy
from rmq_store.codec._inner cimport (BATCH_UNIT_SIZE, batch_base, batch_bytes, batch_code, batch_count, batch_physical,
                                     batch_time, batch_valid)
from rmq_store.codec._layout cimport UNIT_FILLER, UNIT_SIZE
from rmq_store.codec._unit cimport unit_put
from rmq_store.queues.consumequeue._descriptors cimport UnitFiles
from rmq_store.queues.consumequeue._files cimport (files_cut, files_drop_first, files_next_data, files_pass_gone,
                                                   files_read)
from rmq_store.queues.consumequeue._state cimport BATCH_DROP, BATCH_OPEN, QueueState, TableState, marks_of, state_of
from rmq_store.queues.consumequeue._structs cimport Queue, QueueTable
from rmq_store.queues.consumequeue._table cimport table_batched
from rmq_store.queues.consumequeue._units cimport (BLOCK_UNITS, BY_BASE, BY_END, BY_PHYSICAL, BY_TIME, units_first,
                                                   units_fitting, units_cut_off, units_one,
                                                   units_valid_before, units_within)

cdef enum:
    BLOCKS_BEHIND = 16
    FILES_HALVED = 3                # after a stop in order

# ---- which queues are batch queues

cdef bint queue_batched(const Queue *q) noexcept nogil:
    return rmq_load32(&marks_of(q).held) == 0 and state_of(q).batched        # no light queue is one


cdef bint topic_batched(QueueTable *table, const char *topic, int32_t topic_size) noexcept nogil:
    return table_batched(<TableState *> table, topic, topic_size) != BATCH_DROP


cdef bint topic_takes_batches(QueueTable *table, const char *topic, int32_t topic_size) noexcept nogil:
    return table_batched(<TableState *> table, topic, topic_size) == BATCH_OPEN


cdef int queues_batch_dir(QueueTable *table, const char *dir, int64_t file_size) noexcept nogil:
    cdef TableState *t = <TableState *> table
    if t.batch_dir == NULL:
        t.batch_dir = text_copy(dir)
        t.batch_file_size = (file_size + BATCH_UNIT_SIZE - 1) // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE
    return 0 if t.batch_dir != NULL else -ENOMEM


cdef void queues_batch(QueueTable *table, int64_t physical, int64_t base, int32_t count) noexcept nogil:
    cdef TableState *t = <TableState *> table
    t.batch_of, t.batch_base, t.batch_count = physical, base, count


# ---- reading

cdef int64_t _there(TableState *t, UnitFiles *f, int64_t from_offset, int64_t at, const unsigned char *units,
                    int64_t n) noexcept nogil:
    # Following: how many of the n units that were read from place `at` on are there; 0 too where they do not say what is at
    # this queue offset. No unit may have it: then the one before is there, and ends in front of it.
    cdef unsigned char[BATCH_UNIT_SIZE] before
    cdef int64_t i = 0
    while i < n and batch_valid(units + i * BATCH_UNIT_SIZE):
        i += 1
    if i > 0 and batch_base(units) + batch_count(units) > from_offset:
        if batch_base(units) <= from_offset or at <= rmq_load(&f.first):
            return i
        if units_one(t, f, before, at - BATCH_UNIT_SIZE) >= 0 and batch_valid(before):
            return i
    return 0


cdef int64_t _around(TableState *t, UnitFiles *f, int64_t first, int64_t end, int64_t at, int64_t from_offset, int64_t limit,
                     unsigned char *out, int64_t count, bint mend) noexcept nogil:
    # Damage has led the search to place `at`, or no unit holds from_offset: from the next unit before on that ends there.
    cdef unsigned char[BATCH_UNIT_SIZE] u
    cdef int64_t begin = at, got, n
    while True:
        begin = units_valid_before(t, f, first, begin, u)
        if begin < -1:
            return begin
        if begin == -1 or (units_within(u, limit) and batch_base(u) + batch_count(u) <= from_offset):
            break
    at = first if begin < 0 else begin + BATCH_UNIT_SIZE
    while at < end:
        got = files_read(t.cache, f, out, min(count * BATCH_UNIT_SIZE, end - at), at)
        if got < BATCH_UNIT_SIZE:
            return got if got < 0 else -EIO
        n = units_fitting(out, got // BATCH_UNIT_SIZE, from_offset, limit, mend)
        if n > 0:
            return n
        at += got // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE
    return 0


cdef int64_t _look(TableState *t, UnitFiles *f, int64_t first, int64_t end, int64_t from_offset, int64_t limit,
                   unsigned char *out, int64_t count, bint mend, bint all_there) noexcept nogil:
    # all_there: units may be missing, not damaged; -EAGAIN where those are that say what is at from_offset.
    cdef int64_t at = units_first(t, f, first, end, BY_BASE, from_offset + 1) if first < end else end
    cdef int64_t got = 0, n = 0
    if at < 0:
        return at
    if at < end:
        got = files_read(t.cache, f, out, min(count * BATCH_UNIT_SIZE, end - at), at)
    if got < 0:
        return got
    if all_there:
        got = _there(t, f, from_offset, at, out, got // BATCH_UNIT_SIZE) * BATCH_UNIT_SIZE
        if got == 0:
            return -EAGAIN
    if got >= BATCH_UNIT_SIZE and units_within(out, limit) and batch_base(out) <= from_offset:
        n = units_fitting(out, got // BATCH_UNIT_SIZE, from_offset, limit, mend)
    return n if n > 0 else _around(t, f, first, end, at, from_offset, limit, out, count, mend)


cdef int64_t queue_read_batches(QueueTable *table, Queue *q, int64_t from_offset, unsigned char *out, int64_t count,
                                bint mend) noexcept nogil:
    cdef TableState *t = <TableState *> table
    cdef QueueState *s = state_of(q)
    cdef UnitFiles *f = &s.entries
    cdef int64_t end, first, removed, got
    cdef bint following = t.cache.following, damaged = False
    cdef int cut_off
    if from_offset < 0 or count <= 0 or not s.batched:      # meanwhile it became a queue of the other kind
        return 0
    while True:
        removed = rmq_load(&q.removed_below)
        if from_offset >= rmq_load(&q.max_offset):
            return 0
        end = rmq_load(&s.batch_end)
        first = rmq_load(&f.first)
        got = _look(t, f, first, end, from_offset, rmq_load(&q.max_offset), out, count, mend, following and not damaged)
        if got > 0:
            return got
        if got == -ENOENT and following:
            files_pass_gone(t.cache, f, &q.removed_below, removed)
        if first != rmq_load(&f.first) or removed != rmq_load(&q.removed_below):
            damaged = False         # deleted with the log that it led to, while it was searched: from the first that is left;
            continue                # or the queue begins anew
        if following and not damaged and (got == -EAGAIN or got == -ENOENT):
            cut_off = units_cut_off(t, s, from_offset, end)
            if cut_off != 0:        # or the queue has begun anew: the follower goes back there
                return cut_off if cut_off < 0 else -EAGAIN
            damaged = True          # if it is not there once more: else it came between the two looks
            continue
        if got == -ENOENT and rmq_load(&q.max_offset) <= from_offset:
            return 0                # truncated or destroyed meanwhile
        return got if got < 0 else 0


cdef int64_t batches_read(TableState *t, Queue *q, QueueState *s, int64_t from_offset, unsigned char *out,
                          int64_t count) noexcept nogil:
    cdef unsigned char[BLOCK_UNITS * BATCH_UNIT_SIZE] block
    cdef const unsigned char *u
    cdef int64_t end = rmq_load(&q.max_offset), n = 0, got, i
    if from_offset < rmq_load(&q.min_offset):
        return 0
    if count > end - from_offset:
        count = end - from_offset
    while n < count:
        got = queue_read_batches(<QueueTable *> t, q, from_offset + n, block, BLOCK_UNITS, False)
        if got < 0:
            return n if got == -EAGAIN else got
        if got == 0:
            while n < count and rmq_load(&q.max_offset) >= end:     # else it was truncated meanwhile
                unit_put(out + n * UNIT_SIZE, 0, UNIT_FILLER, 0)
                n += 1
            return n
        for i in range(got):
            u = block + i * BATCH_UNIT_SIZE
            while n < count and from_offset + n < batch_base(u):
                unit_put(out + n * UNIT_SIZE, 0, UNIT_FILLER, 0)
                n += 1
            while n < count and from_offset + n < batch_base(u) + batch_count(u):
                unit_put(out + n * UNIT_SIZE, batch_physical(u), batch_bytes(u), batch_code(u))
                n += 1
    return n


cdef int64_t _by_time(TableState *t, UnitFiles *f, int64_t low, int64_t end, int64_t timestamp, bint upper) noexcept nogil:
    # The place of the unit, between places `low` and `end`, or -errno. RocketMQ's lower bound takes the last file that does not
    # begin later, and of that file the last unit where all of it is at or before the time.
    cdef unsigned char[BATCH_UNIT_SIZE] u
    cdef int64_t at, start, begin
    cdef int rc
    if upper:
        at = units_first(t, f, low, end, BY_TIME, timestamp + 1) if timestamp < INT64_MAX else end
        return at if at <= low else at - BATCH_UNIT_SIZE
    start = (end - 1) // f.file_size * f.file_size
    while True:
        begin = max(start, low)
        rc = units_one(t, f, u, begin)
        if rc < 0:
            return rc
        if batch_time(u) <= timestamp or begin == low:
            break
        start -= f.file_size
    at = units_first(t, f, begin, min(start + f.file_size, end), BY_TIME, timestamp)
    if at < 0 or batch_time(u) > timestamp:
        return at if at < 0 else begin
    begin = min(start + f.file_size, end) - BATCH_UNIT_SIZE
    rc = units_one(t, f, u, begin)
    return rc if rc < 0 else (begin if batch_time(u) <= timestamp else at)


cdef int64_t batches_by_time(TableState *t, Queue *q, QueueState *s, int64_t timestamp, bint upper) noexcept nogil:
    cdef unsigned char[BATCH_UNIT_SIZE] u
    cdef UnitFiles *f = &s.entries
    cdef int64_t first = rmq_load(&f.first), end = rmq_load(&s.batch_end), at
    cdef int rc
    if first >= end or rmq_load(&q.min_offset) >= rmq_load(&q.max_offset):
        return rmq_load(&q.max_offset)
    at = units_first(t, f, first, end, BY_BASE, rmq_load(&q.min_offset) + 1)
    if at >= 0:
        at = _by_time(t, f, at, end, timestamp, upper)
    rc = units_one(t, f, u, at) if at >= 0 else <int> at
    return batch_base(u) if rc >= 0 else rc


# ---- ends

cdef void _end_at(Queue *q, QueueState *s, int64_t position, const unsigned char *last, int64_t index) noexcept nogil:
    # last: the unit before `position`, NULL: none, and the queue continues at queue offset `index`.
    if last != NULL:
        index = batch_base(last) + batch_count(last)
    s.entries.used = 0
    s.limit = s.batch_limit = 0
    s.new_min = -1
    s.blank_to = 0
    s.next_index = index
    q.max_physical_offset = batch_physical(last) + batch_bytes(last) if last != NULL else -1
    q.next_offset = index
    rmq_publish(&q.max_offset, index)
    rmq_publish(&s.batch_end, position)


cdef int _set_end(TableState *t, Queue *q, QueueState *s, int64_t position, int64_t index) noexcept nogil:
    # index: where the queue continues if no unit is left.
    cdef unsigned char[BATCH_UNIT_SIZE] u
    cdef int rc
    if position <= s.entries.first:
        _end_at(q, s, position, NULL, index)
        return 0
    rc = units_one(t, &s.entries, u, position - BATCH_UNIT_SIZE)
    if rc >= 0:
        _end_at(q, s, position, u, 0)
    return rc


cdef int64_t _walk(TableState *t, UnitFiles *f, int64_t position) noexcept nogil:
    # Behind the last unit from `position` on that is one and continues the one before it; -errno.
    cdef unsigned char[BLOCK_UNITS * BATCH_UNIT_SIZE] block
    cdef const unsigned char *u
    cdef int64_t physical = 0, base = 0, got, i
    while position < f.end:
        got = files_read(t.cache, f, block, min(<int64_t> BLOCK_UNITS * BATCH_UNIT_SIZE, f.end - position), position)
        if got < BATCH_UNIT_SIZE:
            return got if got < 0 else -EIO
        for i in range(got // BATCH_UNIT_SIZE):
            u = block + i * BATCH_UNIT_SIZE
            if not batch_valid(u) or batch_physical(u) < physical or batch_base(u) < base:
                return position + i * BATCH_UNIT_SIZE
            physical, base = batch_physical(u) + batch_bytes(u), batch_base(u) + batch_count(u)
        position += got // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE
    return position


cdef int64_t _halved(TableState *t, UnitFiles *f, int64_t start) noexcept nogil:
    # After a stop in order: behind the last unit of the file that begins at `start`.
    cdef unsigned char[BATCH_UNIT_SIZE] u
    cdef int64_t low = 0, high = f.file_size // BATCH_UNIT_SIZE, middle
    cdef int rc
    while low < high:
        middle = (low + high) // 2
        rc = units_one(t, f, u, start + middle * BATCH_UNIT_SIZE)
        if rc < 0:
            return rc
        if batch_valid(u):
            low = middle + 1
        else:
            high = middle
    return start + low * BATCH_UNIT_SIZE


cdef int64_t _stopped(TableState *t, UnitFiles *f) noexcept nogil:
    # After a stop in order: the end behind full files. Damage in the last few files is met here, as in other queues.
    cdef unsigned char[BATCH_UNIT_SIZE] u
    cdef int64_t start = max(f.first, f.end - FILES_HALVED * f.file_size)
    cdef int rc
    while start < f.end:
        rc = units_one(t, f, u, start)
        if rc < 0 or not batch_valid(u):
            return rc if rc < 0 else start
        rc = units_one(t, f, u, start + f.file_size - BATCH_UNIT_SIZE)
        if rc < 0:
            return rc
        if not batch_valid(u):
            return _halved(t, f, start)
        start += f.file_size
    return start


cdef int _something_behind(TableState *t, UnitFiles *f, int64_t position) noexcept nogil:
    # 1 where a stop in order cannot have left this end: something stands behind it; 0; -errno. Not all of a file is looked at,
    # as one that was copied has no holes.
    cdef unsigned char[BLOCK_UNITS * BATCH_UNIT_SIZE] block
    cdef int64_t got, i
    cdef int left = BLOCKS_BEHIND
    if position < f.end - f.file_size:
        return 1                    # a whole file without a unit
    while position < f.end and left > 0:
        position = files_next_data(t.cache, f, position)
        if position < 0:
            return <int> position
        if position >= f.end:
            break
        got = files_read(t.cache, f, block, BLOCK_UNITS * BATCH_UNIT_SIZE, position)
        if got <= 0:
            return <int> got if got < 0 else -EIO
        for i in range(got):
            if block[i] != 0:
                return 1
        position += got
        left -= 1
    return 0


cdef int _safe_behind(TableState *t, UnitFiles *f, int64_t position, int64_t safe) noexcept nogil:
    # 1 where a unit that must be on the device stands behind the end that was found, in the same file: it is damage; 0; -errno.
    cdef unsigned char[BLOCK_UNITS * BATCH_UNIT_SIZE] block
    cdef const unsigned char *u
    cdef int64_t stop = position - position % f.file_size + f.file_size
    cdef int64_t got, i
    while position < stop and position < f.end:
        got = files_next_data(t.cache, f, position)
        if got < 0:
            return <int> got
        position = got - got % BATCH_UNIT_SIZE
        if position >= stop:
            break
        got = files_read(t.cache, f, block, min(<int64_t> BLOCK_UNITS * BATCH_UNIT_SIZE, stop - position), position)
        if got < BATCH_UNIT_SIZE:
            return <int> got if got < 0 else -EIO
        for i in range(got // BATCH_UNIT_SIZE):
            u = block + i * BATCH_UNIT_SIZE
            if batch_valid(u) and batch_physical(u) < safe:
                return 1
        position += got // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE
    return 0


cdef int batches_find(TableState *t, Queue *q, QueueState *s, int64_t safe) noexcept nogil:
    cdef UnitFiles *f = &s.entries
    cdef unsigned char[BATCH_UNIT_SIZE] u
    cdef int64_t start = f.end - f.file_size, position
    cdef int rc = 0, spoilt
    if f.first == f.end:
        rmq_publish(&q.min_offset, 0)
        _end_at(q, s, f.first, NULL, 0)
        return 0
    while safe >= 0 and start > f.first:        # after a crash: the last file that begins with a unit that is on the device
        rc = units_one(t, f, u, start)
        if rc < 0:
            return rc
        if batch_valid(u) and batch_physical(u) < safe:
            break
        start -= f.file_size
    position = _stopped(t, f) if safe < 0 else _walk(t, f, start)
    if position < 0:
        return <int> position
    spoilt = _something_behind(t, f, position) if safe < 0 else _safe_behind(t, f, position, safe)
    if spoilt < 0:
        return spoilt
    f.synced = start if safe >= 0 else position
    rmq_publish(&f.written, position)
    rc = _set_end(t, q, s, position, 0)
    if rc >= 0 and position > f.first:
        rc = units_one(t, f, u, f.first)
        if rc >= 0:
            rmq_publish(&q.min_offset, batch_base(u) if batch_valid(u) else 0)
    elif rc >= 0:
        rmq_publish(&q.min_offset, 0)
    return rc if rc < 0 else spoilt


cdef int _shortened(TableState *t, Queue *q, QueueState *s, int64_t position, int64_t index) noexcept nogil:
    cdef int rc = _set_end(t, q, s, position, index)
    if rc < 0:
        return rc
    if s.entries.synced > position:
        s.entries.synced = position
    rmq_publish(&s.entries.written, position)
    if q.min_offset > s.next_index:
        rmq_publish(&q.min_offset, s.next_index)
    return 0


cdef int batches_back(TableState *t, Queue *q, QueueState *s, int64_t index) noexcept nogil:
    cdef int64_t position = units_first(t, &s.entries, s.entries.first, s.batch_end, BY_BASE, index + 1)
    return <int> position if position < 0 else _shortened(t, q, s, position, index)


cdef int batches_truncate(TableState *t, Queue *q, QueueState *s, int64_t physical) noexcept nogil:
    cdef UnitFiles *f = &s.entries
    cdef unsigned char[BATCH_UNIT_SIZE] u
    cdef int64_t position, index = 0, end = s.batch_end
    cdef int rc = 0
    if f.first == f.end:
        _end_at(q, s, f.first, NULL, 0)
        return 0
    position = units_first(t, f, f.first, end, BY_END, physical + 1) if physical < INT64_MAX else end
    if position < 0:
        return <int> position
    if position == f.first and position < end:      # no unit is left: the queue continues where the first one was
        rc = units_one(t, f, u, position)
        index = batch_base(u)
    if rc >= 0:                         # positions go first: nobody reads what is about to vanish
        rc = _shortened(t, q, s, position, index)
    if rc >= 0 and position != end and not t.readonly:
        rc = files_cut(t.cache, f, position, BATCH_UNIT_SIZE, f.first > 0)
    return rc


cdef int batches_min(TableState *t, Queue *q, QueueState *s, int64_t physical_min) noexcept nogil:
    cdef unsigned char[BATCH_UNIT_SIZE] u
    cdef UnitFiles *f = &s.entries
    cdef int64_t end = rmq_load(&s.batch_end), first, position, low
    cdef int rc
    first = rmq_load(&f.first)
    if first >= end:
        return 0
    position = units_first(t, f, first, end, BY_PHYSICAL, physical_min)
    if position < 0:
        return <int> position
    # All of it is deleted: the queue counts as empty, and keeps its offset. Not max_offset, which may have moved meanwhile.
    rc = units_one(t, f, u, position if position < end else end - BATCH_UNIT_SIZE)
    if rc < 0:
        return rc
    low = batch_base(u) if position < end else batch_base(u) + batch_count(u)
    if low > rmq_load(&q.min_offset):
        rmq_publish(&q.min_offset, low)
    return 0


cdef int batches_drop(TableState *t, Queue *q, QueueState *s, int64_t physical_min) noexcept nogil:
    # deleteExpiredFileByOffset: the first offset that may be read moves before a file goes; what is not synced yet stays.
    cdef unsigned char[BATCH_UNIT_SIZE] u
    cdef UnitFiles *f = &s.entries
    cdef int64_t behind
    cdef int dropped = 0
    cdef int rc = batches_min(t, q, s, physical_min)
    while rc >= 0:
        behind = rmq_load(&f.first) + f.file_size
        if behind >= rmq_load(&f.end) or behind >= rmq_load(&s.batch_end) or behind > rmq_load(&f.synced):
            break
        rc = units_one(t, f, u, behind - BATCH_UNIT_SIZE)
        if rc >= 0 and not batch_valid(u):
            rc = units_one(t, f, u, behind)         # damaged: the unit behind it says whether all before it goes
        if rc < 0 or not batch_valid(u) or batch_physical(u) >= physical_min:
            break
        rc = files_drop_first(t.cache, f)
        if rc >= 0:
            dropped += 1
            rc = t.io.sync_dir(t.io.ctx, f.dir)
    return rc if rc < 0 else dropped
