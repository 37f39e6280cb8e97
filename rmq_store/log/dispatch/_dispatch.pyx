"""Following the log into queues and index (RocketMQ: ReputMessageService, CommitLogDispatcher). Contract in _dispatch.pxd."""
from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from rmq_store.base.histogram._histogram cimport rmq_histogram_add
from rmq_store.base.io._sync cimport (EIO, ENOMEM, ETIMEDOUT, rmq_add32, rmq_count, rmq_event_ticket, rmq_event_wait,
                                      rmq_event_wake, rmq_fence, rmq_load, rmq_load32, rmq_mutex_lock, rmq_mutex_try,
                                      rmq_mutex_unlock, rmq_pause, rmq_publish, rmq_publish32, rmq_thread_join,
                                      rmq_thread_start)
from rmq_store.base.io._want cimport RMQ_WANT_RETRY_NS, rmq_is_full, rmq_is_want
from rmq_store.base.segment._file cimport log_file_lost, log_file_release, row_find
from rmq_store.codec._delay cimport delay_tags_code
from rmq_store.codec._inner cimport Inner, inner_of
from rmq_store.codec._layout cimport BLANK_SIZE, FLAG_INNER_BATCH, FLAG_TRANSACTION, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rmq_store.codec._light cimport Light, light_next, light_topic, lights_of
from rmq_store.codec._record cimport (RECORD_BAD_SIZE, RECORD_BLANK, RECORD_OK, RECORD_SIZE_MISMATCH, PropertyView,
                                      RecordStatus, RecordView, properties_scan, record_parse, record_prefetch_next, topic_fits)
from rmq_store.filter._bitmap cimport FilterSet, filter_bits
from rmq_store.log.commitlog._log cimport FENCE_WRITE, PIN_DISPATCH, Log, log_fence, log_make_way, log_pin, log_unpin
from rmq_store.log.pool._pool cimport pool_at
from rmq_store.queues.consumequeue._batches cimport queue_batched, queues_batch, topic_takes_batches
from rmq_store.queues.consumequeue._queue cimport (Queue, QueueTable, queue_begins_anew, queue_next, queue_put, queues_bit_map,
                                                   queues_find, queues_have_place, queues_publish,
                                                   queues_sync_failed)
from rmq_store.queues.index._index cimport Index, index_put


cdef enum:
    ROUND_BYTES = 1 << 20           # positions and queues are published at least this often

cdef int64_t POLL_NS = 200_000
cdef int64_t IDLE_BEFORE_SLEEP = 50
cdef int EAGER_SLEEPS = 64      # sleeps without a timeout after the last reader that waited
cdef int EAGER_SPINS = 100      # looks before each of them: a stream of puts must not pay a wake-up each
cdef int64_t STREAM_NS = 20_000     # appends that come faster are a stream: the dispatcher's work, not the appender's


cdef Dispatcher *dispatcher_new(Log *log, QueueTable *queues, Index *index) noexcept nogil:
    cdef Dispatcher *d = <Dispatcher *> calloc(1, sizeof(Dispatcher))
    if d != NULL:
        d.log = log
        d.queues = queues
        d.index = index
        d.stopped_at = d.anew_at = d.not_anew = d.nameless_at = -1
    return d


cdef void dispatcher_free(Dispatcher *d) noexcept nogil:
    if d != NULL:
        log_file_release(d.file)
        free(d.delay_ms)
        free(d)


cdef int64_t dispatch_limit(Dispatcher *d) noexcept nogil:
    cdef int64_t limit = rmq_load(&d.log.flushed) if d.log.durable_only else rmq_load(&d.log.committed)
    cdef int64_t confirm = rmq_load(&d.log.confirm)
    return confirm if confirm < limit else limit


cdef inline Queue *_queue(Dispatcher *d, const RecordView *v, bint *illegal) noexcept nogil:
    cdef uint32_t h = <uint32_t> v.queue_id * <uint32_t> 2654435761 + <uint32_t> v.topic_size
    cdef Queue *q
    if v.topic_size > 0:
        h ^= (<uint32_t> <unsigned char> v.topic[v.topic_size - 1]) * 31 + <unsigned char> v.topic[v.topic_size >> 1]
    h = (h ^ (h >> 15)) & (QUEUE_CACHE_SIZE - 1)
    q = d.cache[h]
    if (q != NULL and q.queue_id == v.queue_id and q.topic_size == v.topic_size
            and memcmp(q.topic, v.topic, v.topic_size) == 0):
        return q
    # A name that would lead out of its directory never becomes one, whatever a log says. This is asked first: a topic that
    # somebody waits for has a queue in memory, whatever its name.
    if not topic_fits(v.topic, v.topic_size) or v.queue_id < 0:
        illegal[0] = True
        return NULL
    q = queues_find(d.queues, v.topic, v.topic_size, v.queue_id, True)
    d.cache[h] = q
    return q


cdef void _nameless(Dispatcher *d, const RecordView *v) noexcept nogil:
    rmq_count(&d.bad_records, 1)
    if d.nameless_at < 0:
        rmq_publish(&d.nameless_at, v.physical_offset)


cdef inline Queue *_light_queue(Dispatcher *d, const Light *l) noexcept nogil:
    # NULL: no memory. A name that would lead out of its directory never becomes one: topic_fits was asked before.
    return queues_find(d.queues, l.name, l.size, 0, True)


cdef inline bint _anew(Dispatcher *d, const Queue *q, int64_t physical, int64_t cq_offset) noexcept nogil:
    # True where dispatch has to wait, as this queue has other messages at that place, and a master begins it anew.
    return d.mirrors and cq_offset < queue_next(q) and queue_begins_anew(q, physical, cq_offset) and physical != d.not_anew


cdef bint dispatch_other_kind(Dispatcher *d, const Queue *q, const RecordView *v) noexcept nogil:
    # Inner batches are in batch queues, and plain messages are not. A first message of a queue says of which kind it is.
    cdef bint inner = (v.sys_flag & FLAG_INNER_BATCH) != 0
    if inner == queue_batched(q) and (not inner or topic_takes_batches(d.queues, v.topic, v.topic_size)):
        return False
    return ((v.queue_offset == 0 or (inner and queue_next(q) == 0)) and v.physical_offset >= q.max_physical_offset
            and v.physical_offset >= q.removed_below and v.physical_offset != d.not_anew)


cdef int _lights(Dispatcher *d, const RecordView *v, const PropertyView *p, int64_t tags_code) noexcept nogil:
    # The entries in light queues. One that is there already is not doubled (queue_put).
    cdef Light light = lights_of(p)
    cdef Queue *q
    cdef int rc
    while light_next(&light):
        if not topic_fits(light.name, light.size):
            _nameless(d, v)
            continue
        q = _light_queue(d, &light)
        if q == NULL:
            return -ENOMEM
        if _anew(d, q, v.physical_offset, light.queue_offset):
            return ANEW
        rc = queue_put(d.queues, q, v.physical_offset, v.size, tags_code, v.store_timestamp, light.queue_offset)
        if rc < 0:
            return rc
    return 0


cdef int _reserve_lights(Dispatcher *d, const RecordView *v) noexcept nogil:
    # dispatch_reserve for the light queues of one record.
    cdef PropertyView p
    cdef Light light
    cdef Queue *q
    properties_scan(v.properties, v.properties_size, &p)
    light = lights_of(&p)
    while light_next(&light):
        if not topic_fits(light.name, light.size):
            continue
        q = _light_queue(d, &light)
        if q == NULL:
            return -ENOMEM
        if (v.physical_offset >= q.removed_below and q.next_offset <= light.queue_offset
                and queues_have_place(d.queues, light.queue_offset, v.physical_offset)):
            rmq_publish(&q.next_offset, light.queue_offset + 1)
    return 0


cdef void _batch(Dispatcher *d, const Queue *q, const RecordView *v) noexcept nogil:
    # Of a batch queue: which messages the record has.
    cdef Inner inner
    if queue_batched(q):
        inner = inner_of(v)
        queues_batch(d.queues, v.physical_offset if inner.count > 0 and inner.base == v.queue_offset else -1, inner.base,
                     inner.count)


cdef int64_t dispatch_behind(const Queue *q, const RecordView *v) noexcept nogil:
    cdef Inner inner
    if not queue_batched(q):
        return v.queue_offset + 1
    inner = inner_of(v)
    return v.queue_offset + (inner.count if inner.count > 0 and inner.base == v.queue_offset else 1)


cdef int _record(Dispatcher *d, const RecordView *v) noexcept nogil:
    cdef PropertyView p
    cdef Queue *q
    cdef int kind = v.sys_flag & FLAG_TRANSACTION
    cdef int64_t tags_code
    cdef int rc
    cdef bint illegal = False
    properties_scan(v.properties, v.properties_size, &p)
    if kind != TRANSACTION_PREPARED and kind != TRANSACTION_ROLLBACK:
        q = _queue(d, v, &illegal)
        if illegal:
            _nameless(d, v)
            return 0
        if q == NULL:
            return -ENOMEM
        if _anew(d, q, v.physical_offset, v.queue_offset) or (d.mirrors and dispatch_other_kind(d, q, v)):
            return ANEW
        if d.filters != NULL:
            queues_bit_map(d.queues, v.physical_offset, d.bit_map, filter_bits(
                d.filters, v.topic, v.topic_size, v.properties, v.properties_size, d.bit_map))
        tags_code = delay_tags_code(v, &p, d.delay_ms, d.delay_levels)
        if v.sys_flag & FLAG_INNER_BATCH:
            _batch(d, q, v)
        rc = queue_put(d.queues, q, v.physical_offset, v.size, tags_code, v.store_timestamp, v.queue_offset)
        if rc >= 0 and d.light and p.light_names != NULL and light_topic(v.topic, v.topic_size):
            queues_bit_map(d.queues, -1, NULL, 0)       # it is of the record's own topic
            rc = _lights(d, v, &p, tags_code)
        if rc != 0:
            return rc
        d.put_timestamp = v.store_timestamp
        if v.physical_offset >= d.counted:      # a round that fails behind this counts it once
            rmq_count(&q.records, 1)
            rmq_count(&q.bytes, v.size)
            d.counted = v.physical_offset + v.size
    if d.index != NULL and v.physical_offset >= d.indexed and kind != TRANSACTION_ROLLBACK and (
            p.uniq_key != NULL or p.keys != NULL):
        rc = index_put(d.index, v.topic, v.topic_size, p.uniq_key, p.uniq_key_size, p.keys, p.keys_size, v.physical_offset,
                       v.store_timestamp)
        if rc < 0:
            d.index_failed = True
            return rc
        d.indexed = v.physical_offset + v.size      # a round that fails behind this enters the keys once
    return 0


cdef inline bint _held_back(Dispatcher *d, int64_t at) noexcept nogil:
    # By durable_only or the confirm offset. `committed` is read first: that it moves meanwhile is no reason.
    cdef int64_t committed = rmq_load(&d.log.committed)
    return at < committed and dispatch_limit(d) <= at


cdef int _round(Dispatcher *d, int64_t limit) noexcept nogil:
    # Dispatches up to ROUND_BYTES. Positions move only after the queue entries are written.
    cdef Log *log = d.log
    cdef int64_t at = log.dispatched
    cdef int64_t stop = at + ROUND_BYTES
    cdef int64_t end, published
    cdef RecordView v
    cdef RecordStatus status
    cdef int rc = 0
    # What was written around the page cache would have to be read back from the device: it is taken from the pool.
    cdef bint pinned = log.direct and log_pin(log, PIN_DISPATCH, at)
    cdef unsigned char *place
    while at < limit and at < stop:
        if d.file == NULL or at < d.file.start or at >= d.file.start + d.file.size:
            log_file_release(d.file)
            d.file = row_find(log.row, at, &rc)
            if d.file == NULL:
                rc = rc if rc < 0 else -EIO
                break
        end = d.file.start + d.file.size
        if end - at < BLANK_SIZE and limit >= end:
            at = end            # nothing fits there, not even the end-of-file record
            continue
        place = pool_at(log.pool, at) if pinned else d.file.map + (at - d.file.start)
        status = record_parse(place, (limit if limit < end else end) - at, &v)
        if not pinned and log_file_lost(d.file, at, v.size if status == RECORD_OK else 0):
            rc = -EIO
            break
        if status == RECORD_OK and v.physical_offset == at:
            record_prefetch_next(&v, (limit if limit < end else end) - at)
            rc = _record(d, &v)
            if rc != 0:
                break
            at += v.size
            rmq_count(&d.records, 1)
        elif status == RECORD_BLANK:
            at = end
        elif status == RECORD_SIZE_MISMATCH:
            rmq_count(&d.bad_records, 1)
            at += v.size
        elif status == RECORD_BAD_SIZE and limit < end and (limit - at < 8 or at + v.size > limit):
            break       # the limit cuts through this record: it is dispatched when all of it may be
        else:
            # Unreadable, or a record of another place. RocketMQ's master continues behind what it has of this file.
            d.stopped_at = at
            rmq_count(&d.bad_records, 1)
            at = end if end < limit else limit
    published = queues_publish(d.queues)
    if published < 0 and rc == 0:
        rc = <int> published
    if published >= 0:
        rmq_publish(&d.last_timestamp, d.put_timestamp)
        rmq_publish(&log.dispatched, at)
    if rc == ANEW:
        rmq_publish(&d.anew_at, at)
        rmq_event_wake(&d.anew)
    if pinned:
        # The pool is kept from here on, so that producers wait for the dispatcher rather than leave it to the device; not where
        # something else holds it back.
        if rc < 0 or published < 0 or _held_back(d, at) or not log_pin(log, PIN_DISPATCH, at):
            log_unpin(log, PIN_DISPATCH)
        else:
            rmq_event_wake(&log.room)
    return rc


cdef int dispatch_to(Dispatcher *d, int64_t limit) noexcept nogil:
    cdef int rc
    cdef int64_t before = -1
    while d.log.dispatched < limit and d.log.dispatched != before:
        before = d.log.dispatched
        rc = _round(d, limit)
        if rc != 0:
            return rc
    if d.log.dispatched < limit and limit == rmq_load(&d.log.wrote):
        # What seems to lead over the log's end is no record, and nothing more will come of it: new ones begin there.
        rmq_count(&d.bad_records, 1)
        rmq_publish(&d.log.dispatched, limit)
    return 0


cdef int dispatch_reserve(Dispatcher *d, int64_t end) noexcept nogil:
    cdef int64_t at = d.log.dispatched
    cdef LogFile *f = NULL
    cdef RecordView v
    cdef RecordStatus status
    cdef Queue *q
    cdef bint illegal
    cdef int kind, rc = 0
    while at < end and rc >= 0:
        if f == NULL or at >= f.start + f.size:
            log_file_release(f)
            f = row_find(d.log.row, at, &rc)
            if f == NULL:
                return rc if rc < 0 else -EIO
        status = record_parse(f.map + (at - f.start), f.start + f.size - at, &v)
        if status != RECORD_OK:
            at = f.start + f.size       # an end-of-file record: recovery has walked here
            continue
        kind = v.sys_flag & FLAG_TRANSACTION
        illegal = False
        if kind != TRANSACTION_PREPARED and kind != TRANSACTION_ROLLBACK:
            q = _queue(d, &v, &illegal)
            if (q != NULL and v.physical_offset >= q.removed_below and q.next_offset <= v.queue_offset
                    and queues_have_place(d.queues, v.queue_offset, v.physical_offset)):
                rmq_publish(&q.next_offset, dispatch_behind(q, &v))
            elif q == NULL and not illegal:
                rc = -ENOMEM
            if rc >= 0 and d.light and light_topic(v.topic, v.topic_size):
                rc = _reserve_lights(d, &v)
        at += v.size
    log_file_release(f)
    return rc


cdef int64_t dispatch_filters(Dispatcher *d, const FilterSet *filters, int64_t *newest) noexcept nogil:
    cdef int64_t at
    rmq_mutex_lock(&d.round_lock)
    d.filters = filters
    queues_bit_map(d.queues, -1, NULL, 0)
    at = rmq_load(&d.log.dispatched)
    newest[0] = max(d.put_timestamp, rmq_load(&d.log.wrote_timestamp), d.log.io.wall_ms(d.log.io.ctx))
    rmq_mutex_unlock(&d.round_lock)
    return at


cdef void dispatch_waiter(Dispatcher *d, int change) noexcept nogil:
    rmq_add32(&d.waiters, change)
    if change > 0:
        rmq_add32(&d.waits, 1)


cdef void dispatch_sleeper(Dispatcher *d, int change) noexcept nogil:
    dispatch_waiter(d, change)
    rmq_add32(&d.log.readers, change)


cdef void _hold_log(Dispatcher *d, int rc) noexcept nogil:
    # While a full disk stops it, producers, who are quicker, would take each file's worth that is freed there; and as what is
    # not dispatched is never cleaned, nobody would free more. RocketMQ keeps 10 % of the disk for this (DISK_FULL).
    cdef int held = rc if rmq_is_full(rc) and (d.index_with_log if d.index_failed else d.queues_with_log) else 0
    if rmq_load32(&d.log.alloc.held) != held:
        rmq_publish32(&d.log.alloc.held, held)


cdef int _told_round(Dispatcher *d, int64_t limit) noexcept nogil:
    # round_lock is held. A round, and all who care told of it.
    cdef int64_t before = d.log.dispatched
    cdef bint pauses
    cdef int rc
    if before >= limit:
        return 0
    if d.ahead_of != NULL:
        d.ahead(d.ahead_of)
    d.index_failed = False
    rc = _round(d, limit)
    _hold_log(d, rc)
    if d.log.dispatched > before:
        rmq_histogram_add(&d.lag_times, (d.log.io.wall_ms(d.log.io.ctx) - d.last_timestamp) * 1_000_000)
    # For a want dispatch pauses: the entries are kept, and the records that they come from are safe in the log. A failed sync,
    # as of a directory whose files were deleted, is none.
    pauses = rmq_is_want(rc) and not queues_sync_failed(d.queues)
    rmq_publish32(&d.want, -rc if pauses else 0)
    if rc < 0 and not pauses:
        log_fence(d.log, rc, FENCE_WRITE)       # first: who sees the error tells the fence's
        rmq_publish32(&d.error, -rc)
    rmq_event_wake(&d.moved)
    return rc


cdef void _dispatch_here(void *dispatcher) noexcept nogil:
    # What this leaves, for whatever reason, is the dispatcher's.
    cdef Dispatcher *d = <Dispatcher *> dispatcher
    cdef int64_t now = d.log.io.mono_ns(d.log.io.ctx)
    if rmq_mutex_try(&d.round_lock):
        if now - d.here_ns >= STREAM_NS and rmq_load32(&d.error) == 0:
            _told_round(d, dispatch_limit(d))
        d.here_ns = now
        rmq_mutex_unlock(&d.round_lock)
    if rmq_load(&d.log.dispatched) < dispatch_limit(d) or rmq_load32(&d.error) != 0:
        rmq_event_wake(&d.log.dispatch_wanted)


cdef inline bint _spin(Dispatcher *d) noexcept nogil:
    # True where something came while it looked.
    cdef int _i
    for _i in range(EAGER_SPINS):
        if rmq_load(&d.log.dispatched) < dispatch_limit(d):
            return True
        rmq_pause()
    return False


cdef void *_run(void *arg) noexcept nogil:
    # Active, it looks every 200 us; after 10 ms without work it sleeps until an append, a commit or a flush wakes it. While
    # somebody waits for messages it sleeps so at once: the 200 us would be the reader's.
    cdef Dispatcher *d = <Dispatcher *> arg
    cdef Log *log = d.log
    cdef int64_t limit, before, moved = 0, idle = 0
    cdef int ticket, rc, waits = 0, eager = 0
    # From the first record on: producers that fill the pool before this thread has run would leave it to read the device.
    if log.direct and not log.durable_only and rmq_load(&log.confirm) == INT64_MAX:
        log_pin(log, PIN_DISPATCH, log.dispatched)
    while rmq_load32(&d.stop) == 0 and rmq_load32(&d.error) == 0:
        ticket = rmq_event_ticket(&log.dispatch_wanted)
        limit = dispatch_limit(d)
        before = rmq_load(&log.dispatched)
        if before < limit:
            idle = 0
            log_make_way(log, limit - before, &moved)
            rmq_mutex_lock(&d.round_lock)
            rc = _told_round(d, limit) if rmq_load32(&d.error) == 0 else 0
            rmq_mutex_unlock(&d.round_lock)
            if rmq_is_want(rc) or rc == ANEW:
                # ANEW: the thread that settles the queue wakes this one.
                rmq_event_wait(&log.dispatch_wanted, ticket, RMQ_WANT_RETRY_NS)
            elif rc == 0 and rmq_load(&log.dispatched) == before:
                rmq_event_wait(&log.dispatch_wanted, ticket, POLL_NS)
            continue
        if rmq_load32(&d.waiters) > 0 or rmq_load32(&d.waits) != waits:
            waits = rmq_load32(&d.waits)
            eager = EAGER_SLEEPS
        if eager > 0:
            if _spin(d):
                continue
            eager -= 1
        elif idle < IDLE_BEFORE_SLEEP:
            idle += 1
            rmq_event_wait(&log.dispatch_wanted, ticket, POLL_NS)
            continue
        rmq_publish32(&log.dispatch_asleep, 1)
        rmq_fence()
        if rmq_load(&log.dispatched) >= dispatch_limit(d) and rmq_load32(&d.stop) == 0:
            rmq_event_wait(&log.dispatch_wanted, ticket, -1)
        rmq_publish32(&log.dispatch_asleep, 0)
        idle = 0
    rmq_event_wake(&d.moved)
    return NULL


cdef void dispatch_ahead(Dispatcher *d, void (*ahead)(void *of) noexcept nogil, void *of) noexcept nogil:
    rmq_mutex_lock(&d.round_lock)
    d.ahead, d.ahead_of = ahead, of
    rmq_mutex_unlock(&d.round_lock)


cdef int dispatcher_start(Dispatcher *d) noexcept nogil:
    cdef int rc
    d.log.dispatcher = d
    d.log.dispatch_here = _dispatch_here
    rc = rmq_thread_start(&d.thread, _run, d, b"rmq-dispatch")
    d.running = rc == 0
    return rc


cdef int dispatcher_stop(Dispatcher *d) noexcept nogil:
    cdef int rc = 0
    rmq_publish32(&d.stop, 1)
    rmq_event_wake(&d.log.dispatch_wanted)
    if d.running:
        rc = rmq_thread_join(&d.thread)
        d.running = False
    return rc


cdef int dispatch_wait(Dispatcher *d, int64_t position, int64_t timeout_ns) noexcept nogil:
    cdef int64_t deadline = d.log.io.mono_ns(d.log.io.ctx) + timeout_ns
    cdef int64_t now
    cdef int ticket
    if rmq_load(&d.log.dispatched) < position:
        rmq_event_wake(&d.log.dispatch_wanted)  # once: each failed round wakes this thread, which must not cut its pause short
    while True:
        ticket = rmq_event_ticket(&d.moved)
        if rmq_load(&d.log.dispatched) >= position:
            return 0
        if rmq_load32(&d.error) != 0:
            return -rmq_load32(&d.error)
        now = d.log.io.mono_ns(d.log.io.ctx)
        if now >= deadline:
            return -ETIMEDOUT
        rmq_event_wait(&d.moved, ticket, deadline - now)
