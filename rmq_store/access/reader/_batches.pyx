"""get of a batch queue (RocketMQ: DefaultMessageStore.getMessage over a BatchConsumeQueue). Contract in _batches.pxd.

An answer has whole records, as RocketMQ's: the first one may have messages before the offset that was asked for, and it is
taken however many it has. StoreGet.get takes the messages out and leaves out those that were not asked for.
"""
from libc.stdint cimport int64_t

from rmq_store.access.reader._look cimport record_next
from rmq_store.access.reader._message cimport Message
from rmq_store.access.reader._request cimport (FOUND, MESSAGE_WAS_REMOVING, Found, GetRequest, request_coded, request_full,
                                               request_passed, request_passes, request_unmatched)
from rmq_store.base.io._sync cimport EAGAIN, rmq_load
from rmq_store.base.segment._file cimport LogFile, log_file_release
from rmq_store.codec._inner cimport (BATCH_UNIT_SIZE, Inner, batch_base, batch_bytes, batch_code, batch_count, batch_physical,
                                     inner_of)
from rmq_store.codec._record cimport record_of_queue
from rmq_store.log.commitlog._log cimport Log
from rmq_store.queues.consumequeue._batches cimport queue_read_batches
from rmq_store.queues.consumequeue._queue cimport Queue, QueueTable

from rmq_store.errors import CorruptionError

cdef enum:
    UNITS_AT_ONCE = 64


cdef inline void _pass_over(GetRequest *r) noexcept nogil:
    # A unit without its record, or queue offsets without a unit.
    r.unreadable += 1
    if r.found_count == 0:
        r.status = MESSAGE_WAS_REMOVING


cdef int64_t scan_batches(GetRequest *r, Log *log, QueueTable *queues, Queue *q) noexcept nogil:
    cdef unsigned char[UNITS_AT_ONCE * BATCH_UNIT_SIZE] units
    cdef const unsigned char *u
    cdef int64_t at = r.offset, taken = 0, scanned = 0, n, i, physical, size, before, end
    cdef int64_t removed = rmq_load(&q.removed_below)
    cdef Inner inner
    cdef int64_t scan_max = max(r.scan_bytes_max // BATCH_UNIT_SIZE, <int64_t> 1)
    cdef LogFile *f = NULL
    cdef bint loose = False, full = False
    cdef int rc, error = 0
    cdef Found *slot
    while error == 0 and not full and scanned < scan_max:
        # two at least: the next one shows where one that is damaged reaches too far
        n = queue_read_batches(queues, q, at, units, max(min(scan_max - scanned, <int64_t> UNITS_AT_ONCE), <int64_t> 2),
                               True)
        if at > r.offset and removed != rmq_load(&q.removed_below):
            break               # it begins anew: these units may be of the new queue
        if n == -EAGAIN:
            break               # the queue ends here for now
        if n == 0 and at < r.max_offset <= rmq_load(&q.max_offset):
            _pass_over(r)           # no unit is left of what the queue has
            at = r.max_offset
        if n <= 0:
            error = <int> n
            break
        for i in range(n):
            u = units + i * BATCH_UNIT_SIZE
            physical, size = batch_physical(u), batch_bytes(u)
            full = request_full(r, taken, batch_count(u), physical, size)
            if full:
                break
            scanned += 1
            if batch_base(u) > at:
                _pass_over(r)
            before, at = at, batch_base(u) + batch_count(u)
            if r.codes != NULL and not request_coded(r, batch_code(u)):
                request_unmatched(r)
                continue
            slot = &r.found[r.found_count]
            rc = record_next(log, physical, size, &f, &loose, &slot.view)
            if rc < 0:
                error = rc
                break
            inner = Inner(-1, 0)
            if rc > 0 and record_of_queue(&slot.view, r.topic, r.topic_size, r.queue_id):
                inner = inner_of(&slot.view)
            end = inner.base + inner.count
            if inner.count == 0 or end <= before or (inner.base > before and not inner.base <= batch_base(u) < end):
                _pass_over(r)
                continue
            at = min(end, max(at, r.max_offset))        # whatever the unit says
            if r.filter != NULL and not r.unwraps and not request_passes(r, &slot.view):
                request_passed(r, physical, size)
                request_unmatched(r)
                continue
            slot.file = f
            slot.queue_offset = batch_base(u)
            slot.held = loose
            loose = False
            r.found_count += 1
            r.found_bytes += size
            r.status = FOUND
            taken += inner.count
        if at >= r.max_offset:
            break
    if loose:
        log_file_release(f)
    return error if error < 0 else at - r.offset


cdef tuple unwrapped(list records, const GetRequest *r, set wanted):
    cdef Message m
    cdef list found = []
    cdef int64_t unreadable = r.unreadable
    for record in records:
        try:
            inner = record.unwrap()
        except CorruptionError:
            unreadable += 1             # passed over, as a record is that is not there
            continue
        for m in inner:
            if m.v.queue_offset < r.offset:
                continue
            if len(found) == r.count_max:
                return found, m.v.queue_offset, unreadable
            if (wanted is None or m.tags in wanted) and (r.filter == NULL or request_passes(r, &m.v)):
                found.append(m)
    return found, r.next_offset, unreadable
