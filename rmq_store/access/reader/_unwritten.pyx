"""get, where the log is stuck: messages of the pool that have no queue entry. Contract in _unwritten.pxd."""
from libc.stdint cimport int64_t
from libc.string cimport memcmp

from rmq_store.access.reader._request cimport (FOUND, NO_MATCHED_MESSAGE, Found, GetRequest, request_coded, request_full,
                                               request_passes)
from rmq_store.base.io._sync cimport rmq_load
from rmq_store.base.segment._file cimport LogFile, log_file_release
from rmq_store.codec._inner cimport Inner, inner_of
from rmq_store.codec._layout cimport FLAG_INNER_BATCH, FLAG_TRANSACTION, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rmq_store.codec._record cimport PropertyView, RecordView, properties_scan
from rmq_store.codec._text cimport java_hash
from rmq_store.log.commitlog._log cimport Log
from rmq_store.log.commitlog._unwritten cimport unwritten_walk


cdef inline bint _in_queue(const GetRequest *r, const RecordView *v) noexcept nogil:
    cdef int kind = v.sys_flag & FLAG_TRANSACTION
    return (v.queue_id == r.queue_id and v.topic_size == r.topic_size and memcmp(v.topic, r.topic, v.topic_size) == 0
            and kind != TRANSACTION_PREPARED and kind != TRANSACTION_ROLLBACK)


cdef inline bint _matches(const GetRequest *r, const RecordView *v) noexcept nogil:
    cdef PropertyView p
    if r.codes != NULL:
        properties_scan(v.properties, v.properties_size, &p)
        if not request_coded(r, 0 if p.tags == NULL else java_hash(p.tags, p.tags_size)):
            return False
    return r.filter == NULL or (r.batched and r.unwraps) or request_passes(r, v)


cdef bint get_unwritten(GetRequest *r, Log *log) noexcept nogil:
    cdef int64_t at = rmq_load(&log.dispatched), next = r.offset, count
    cdef RecordView v
    cdef Inner inner
    cdef LogFile *f
    cdef Found *slot
    r.log_end = rmq_load(&log.wrote)
    while True:
        f = unwritten_walk(log, &at, &v)
        if f == NULL:
            break
        count = 1
        if v.sys_flag & FLAG_INNER_BATCH:
            inner = inner_of(&v)
            count = max(inner.count, 1)
        if not _in_queue(r, &v) or v.queue_offset + count <= next:
            log_file_release(f)
            continue
        # What lies before it is dispatched first: the caller comes again.
        if v.queue_offset > next or request_full(r, r.found_count, count, v.physical_offset, v.size):
            log_file_release(f)
            break
        next = v.queue_offset + count
        r.batched = r.batched or (v.sys_flag & FLAG_INNER_BATCH) != 0
        if not _matches(r, &v):
            log_file_release(f)
            continue
        slot = &r.found[r.found_count]
        slot.view = v
        slot.file = f
        slot.held = True
        slot.queue_offset = v.queue_offset
        r.found_count += 1
        r.found_bytes += v.size
    if next == r.offset:
        return False
    r.status = FOUND if r.found_count > 0 else NO_MATCHED_MESSAGE
    r.next_offset = next
    r.max_offset = max(r.max_offset, next)
    return True
