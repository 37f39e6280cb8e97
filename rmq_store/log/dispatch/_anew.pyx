"""Queues that begin anew in the log of a slave. Contract in _anew.pxd."""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from rmq_store.base.io._sync cimport (EIO, rmq_event_ticket, rmq_event_wait, rmq_event_wake, rmq_load, rmq_mutex_lock,
                                      rmq_mutex_unlock, rmq_publish)
from rmq_store.base.segment._file cimport LogFile, log_file_release, row_find
from rmq_store.codec._layout cimport FLAG_INNER_BATCH, FLAG_TRANSACTION, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rmq_store.codec._light cimport Light, light_next, light_topic, lights_of
from rmq_store.codec._record cimport (RECORD_OK, PropertyView, RecordView, properties_scan, record_parse)
from rmq_store.log.dispatch._dispatch cimport Dispatcher, dispatch_behind, dispatch_limit, dispatch_other_kind
from rmq_store.queues.consumequeue._queue cimport Queue, queue_begins_anew, queue_next, queues_find, queues_publish

cdef int64_t LOOK_BYTES = 16 << 20


cdef bint anew_wait(Dispatcher *d, int64_t timeout_ns) noexcept nogil:
    cdef int ticket = rmq_event_ticket(&d.anew)
    if rmq_load(&d.anew_at) < 0:
        rmq_event_wait(&d.anew, ticket, timeout_ns)
    return rmq_load(&d.anew_at) >= 0


cdef void _note(Dispatcher *d, Anew *found, int *count, const char *topic, int32_t size, int32_t queue_id, int64_t at,
                int64_t cq_offset, const RecordView *v) noexcept nogil:
    # One record of one queue; v NULL: of a light queue, where it is one message.
    cdef Queue *q = queues_find(d.queues, topic, size, queue_id, False)
    cdef int i
    if q == NULL:
        return
    for i in range(count[0]):
        if found[i].queue == q:
            if not found[i].confirmed and cq_offset >= found[i].next > 1 and cq_offset != found[i].behind:
                found[i].queue = NULL
            found[i].confirmed = True
            return
    if count[0] < ANEW_MAX and cq_offset < queue_next(q) and queue_begins_anew(q, at, cq_offset):
        found[count[0]] = Anew(q, at, queue_next(q), dispatch_behind(q, v) if v != NULL else cq_offset + 1, False)
        count[0] += 1


cdef void _notes(Dispatcher *d, Anew *found, int *count, const RecordView *v) noexcept nogil:
    cdef PropertyView p
    cdef Light light
    cdef int kind = v.sys_flag & FLAG_TRANSACTION
    if kind == TRANSACTION_PREPARED or kind == TRANSACTION_ROLLBACK:
        return
    _note(d, found, count, v.topic, v.topic_size, v.queue_id, v.physical_offset, v.queue_offset, v)
    if d.light and light_topic(v.topic, v.topic_size):
        properties_scan(v.properties, v.properties_size, &p)
        light = lights_of(&p)
        while light_next(&light):
            _note(d, found, count, light.name, light.size, 0, v.physical_offset, light.queue_offset, NULL)


cdef int _walk(Dispatcher *d, Anew *found, int *count) noexcept nogil:
    cdef int64_t at = d.log.dispatched, end = min(dispatch_limit(d), at + LOOK_BYTES)
    cdef LogFile *f = NULL
    cdef RecordView v
    cdef int rc = 0
    while at < end:
        if f == NULL or at >= f.start + f.size:
            log_file_release(f)
            f = row_find(d.log.row, at, &rc)
            if f == NULL:
                return rc if rc < 0 else -EIO
        if record_parse(f.map + (at - f.start), min(end, f.start + f.size) - at, &v) == RECORD_OK and v.physical_offset == at:
            _notes(d, found, count, &v)
            at += v.size
        else:
            at = f.start + f.size       # an end-of-file record, or what dispatch will say of
    log_file_release(f)
    return 0


cdef int anew_find(Dispatcher *d, Anew *found) noexcept nogil:
    cdef int i, rc, count = 0, kept = 0
    rmq_mutex_lock(&d.round_lock)
    rc = _walk(d, found, &count)
    for i in range(count):
        if found[i].queue != NULL:
            found[kept] = found[i]
            kept += 1
        elif found[i].at == d.log.dispatched:
            d.not_anew = found[i].at
    rmq_mutex_unlock(&d.round_lock)
    return rc if rc < 0 else kept


cdef int _kind(Dispatcher *d, Kind *found) noexcept nogil:
    cdef int64_t at = d.log.dispatched, end = dispatch_limit(d)
    cdef LogFile *f
    cdef Queue *q
    cdef RecordView v
    cdef int rc = queues_publish(d.queues)      # what is not written yet would be in the way
    cdef int other = 0
    if rc < 0 or at >= end:
        return min(rc, 0)
    f = row_find(d.log.row, at, &rc)
    if f == NULL:
        return rc if rc < 0 else -EIO
    if (record_parse(f.map + (at - f.start), min(end, f.start + f.size) - at, &v) == RECORD_OK and v.physical_offset == at
            and v.topic_size < <int32_t> sizeof(found.topic)):
        q = queues_find(d.queues, v.topic, v.topic_size, v.queue_id, False)
        other = q != NULL and dispatch_other_kind(d, q, &v)
    if other:
        memcpy(found.topic, v.topic, v.topic_size)
        found.topic[v.topic_size] = 0
        found.batched, found.at, found.queue_id = (v.sys_flag & FLAG_INNER_BATCH) != 0, at, v.queue_id
    log_file_release(f)
    return other


cdef int anew_kind(Dispatcher *d, Kind *found) noexcept nogil:
    cdef int rc
    rmq_mutex_lock(&d.round_lock)
    rc = _kind(d, found)
    rmq_mutex_unlock(&d.round_lock)
    return rc


cdef void anew_pass(Dispatcher *d, int64_t at) noexcept nogil:
    rmq_mutex_lock(&d.round_lock)
    d.not_anew = at
    rmq_mutex_unlock(&d.round_lock)


cdef void anew_release(Dispatcher *d) noexcept nogil:
    rmq_publish(&d.anew_at, -1)
    rmq_event_wake(&d.anew)
    rmq_event_wake(&d.log.dispatch_wanted)
