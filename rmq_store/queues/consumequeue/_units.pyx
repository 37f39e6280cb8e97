"""Units of a queue, above all of a batch queue: searched by queue offset, log offset or time. Contract in _units.pxd.

What ascends in a queue is the log offset, and with it the queue offset and the store time; so every search is a bisection over
units that are read one by one, and the last steps of it over a block.
"""
from libc.stdint cimport INT16_MAX, int16_t, int64_t
from libc.string cimport memcpy

from rmq_store.base.io._sync cimport EIO, ENOENT, rmq_publish, rmq_publish32
from rmq_store.codec._inner cimport (BATCH_AT_COUNT, BATCH_UNIT_SIZE, batch_base, batch_bytes, batch_count,
                                     batch_physical, batch_time, batch_valid)
from rmq_store.codec._layout cimport UNIT_SIZE
from rmq_store.codec._record cimport rmq_put16
from rmq_store.codec._unit cimport unit_bytes
from rmq_store.queues.consumequeue._descriptors cimport UnitFiles
from rmq_store.queues.consumequeue._files cimport files_read, files_there
from rmq_store.queues.consumequeue._state cimport QueueState, TableState


cdef inline int64_t _key(const unsigned char *u, Key key) noexcept nogil:
    if key == BY_BASE:
        return batch_base(u) + batch_count(u)
    if key == BY_PHYSICAL:
        return batch_physical(u)
    return batch_physical(u) + batch_bytes(u) if key == BY_END else batch_time(u)


cdef int units_one(TableState *t, UnitFiles *f, unsigned char *u, int64_t at) noexcept nogil:
    cdef int64_t got = files_read(t.cache, f, u, BATCH_UNIT_SIZE, at)
    if got < 0:
        return <int> got
    return 0 if got == BATCH_UNIT_SIZE else -EIO        # the file is shorter than its length


cdef int64_t units_valid_before(TableState *t, UnitFiles *f, int64_t low, int64_t at, unsigned char *out) noexcept nogil:
    cdef unsigned char[BLOCK_UNITS * BATCH_UNIT_SIZE] block
    cdef int64_t begin, got, i
    while at > low:
        begin = max(low, at - BLOCK_UNITS * BATCH_UNIT_SIZE, (at - 1) // f.file_size * f.file_size)
        got = files_read(t.cache, f, block, at - begin, begin)
        if got < at - begin:
            return got if got < 0 else -EIO
        i = at - begin
        while i > 0:
            i -= BATCH_UNIT_SIZE
            if batch_valid(block + i):
                memcpy(out, block + i, BATCH_UNIT_SIZE)
                return begin + i
        at = begin
    return -1


cdef int64_t units_first(TableState *t, UnitFiles *f, int64_t low, int64_t high, Key key, int64_t wanted) noexcept nogil:
    cdef unsigned char[BLOCK_UNITS * BATCH_UNIT_SIZE] block
    cdef int64_t middle, valid, got, i
    cdef int rc
    while high - low > BLOCK_UNITS * BATCH_UNIT_SIZE:
        middle = valid = low + (high - low) // BATCH_UNIT_SIZE // 2 * BATCH_UNIT_SIZE
        rc = units_one(t, f, block, middle)
        if rc < 0:
            return rc
        if not batch_valid(block):
            valid = units_valid_before(t, f, low, middle, block)
            if valid < -1:
                return valid
        if valid >= 0 and _key(block, key) >= wanted:
            high = valid + BATCH_UNIT_SIZE      # it may be the one
        else:
            low = middle + BATCH_UNIT_SIZE
    while low < high:
        got = files_read(t.cache, f, block, high - low, low)
        if got < BATCH_UNIT_SIZE:
            return got if got < 0 else -EIO
        for i in range(got // BATCH_UNIT_SIZE):
            if batch_valid(block + i * BATCH_UNIT_SIZE) and _key(block + i * BATCH_UNIT_SIZE, key) >= wanted:
                return low + i * BATCH_UNIT_SIZE
        low += got // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE
    return high


cdef bint units_within(const unsigned char *u, int64_t limit) noexcept nogil:
    return batch_valid(u) and batch_base(u) + batch_count(u) <= limit


cdef int64_t units_fitting(unsigned char *units, int64_t n, int64_t at, int64_t limit, bint mend) noexcept nogil:
    cdef unsigned char *u
    cdef int64_t kept = 0, base, next, i
    cdef bint whole
    for i in range(n):
        u = units + i * BATCH_UNIT_SIZE
        base = batch_base(u)
        next = batch_base(u + BATCH_UNIT_SIZE) if i + 1 < n and units_within(u + BATCH_UNIT_SIZE, limit) else -1
        whole = units_within(u, limit)
        if at <= next <= base:
            continue                # leads too far
        if not whole or base < next < base + batch_count(u):
            if not mend or batch_bytes(u) <= 0 or batch_physical(u) < 0 or not 0 <= base < limit:
                continue
            rmq_put16(u + BATCH_AT_COUNT, <int16_t> (min(next - base, <int64_t> INT16_MAX) if next > base else 1))
        if base + batch_count(u) <= at:
            continue
        at = base + batch_count(u)
        if kept < i:
            memcpy(units + kept * BATCH_UNIT_SIZE, u, BATCH_UNIT_SIZE)
        kept += 1
    return kept


cdef int units_last_there(TableState *t, QueueState *s, int64_t end) noexcept nogil:
    cdef unsigned char[BATCH_UNIT_SIZE] u
    cdef int64_t size = BATCH_UNIT_SIZE if s.batched else UNIT_SIZE
    cdef int64_t at = end - size
    cdef int64_t got = files_there(t.cache, &s.entries, at - at % s.entries.file_size) if at >= 0 else 0
    if got > 0:
        got = files_read(t.cache, &s.entries, u, size, at)
    if got < size:
        return <int> got if got < 0 and got != -ENOENT else 0
    return batch_valid(u) if s.batched else unit_bytes(u) != 0


cdef int units_cut_off(TableState *t, QueueState *s, int64_t from_offset, int64_t end) noexcept nogil:
    cdef int there = units_last_there(t, s, end)
    if there == 0:
        rmq_publish(&s.vanished, from_offset + 1)
        rmq_publish32(&t.vanished, 1)
    return there if there < 0 else there == 0
