"""Records on their way into a log. Contract in _rows.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy

from rmq_store.access.writer._light cimport NUMBER_SIZE_MAX, LightPut, LightQueues, light_append
from rmq_store.access.writer._put cimport StorePut, Topic, Turn, place_locked
from rmq_store.base.io._sync cimport rmq_count, rmq_load, rmq_publish
from rmq_store.codec._inner cimport Inner, inner_of
from rmq_store.codec._layout cimport FLAG_INNER_BATCH, FLAG_TRANSACTION, RECORD_FIXED_SIZE, TRANSACTION_COMMIT
from rmq_store.codec._light cimport Light, light_next, light_topic, lights_of
from rmq_store.codec._record cimport (RECORD_OK, PropertyView, RecordView, properties_scan, record_parse,
                                      record_prepare, topic_fits)
from rmq_store.codec._text cimport digits_put
from rmq_store.log.commitlog._log cimport APPEND_OK, Log, log_append
from rmq_store.queues.consumequeue._batches cimport queue_batched, topic_takes_batches
from rmq_store.queues.consumequeue._queue cimport Queue, queues_find

from rmq_store.codec.properties import delete_property
from rmq_store.errors import MessageIllegal, StoreStateError

cdef bytes _OFFSETS = b"INNER_MULTI_QUEUE_OFFSET"

cdef enum:
    MANY_PER_LOCK = 1024            # records, or so many bytes, that are appended before others are let in
    BYTES_PER_LOCK = 1 << 20


cdef int rows_begin(Rows *r, StorePut store, const unsigned char[::1] data, Fill fill, Continues continues) except -1:
    r.size = data.shape[0]
    r.p = &data[0] if r.size > 0 else NULL
    r.fill = fill
    r.continues = continues
    r.plain = store.plain
    r.table = store.queues
    r.crc = store.record_crc
    r.queues = NULL
    r.count = r.done = r.at = r.end = 0
    r.first = -1
    r.refused = 0
    r.lights = r.batches = False
    r.lit = NULL
    r.held = NULL
    r.turn = Turn(args=&r.args, queue=NULL, out=&r.out, size=0, born_now=False)
    store._enter()
    return 0


cdef Queue *_queue(StorePut store, dict known, const RecordView *v) except NULL:
    name = PyBytes_FromStringAndSize(v.topic, v.topic_size)
    found = known.get(name)
    if found is None:
        found = known[name] = store._topic(name.decode("utf-8", "surrogateescape"))
    return store._queue(<Topic> found, v.queue_id)


cdef inline Light _lights(const RecordView *v) noexcept nogil:
    # The light queues that the record is in, as dispatch sees them.
    cdef PropertyView p
    cdef int kind = v.sys_flag & FLAG_TRANSACTION
    properties_scan(v.properties, v.properties_size, &p)
    if not light_topic(v.topic, v.topic_size) or not (kind == 0 or kind == TRANSACTION_COMMIT):
        p.light_names = NULL
    return lights_of(&p)


cdef int _hold(Rows *r, object kept) except -1:
    # `kept` lives as long as the rows.
    if r.held == NULL:
        held = []
        Py_INCREF(held)
        r.held = <PyObject *> held
    (<list> r.held).append(kept)
    return 0


cdef int _light(Rows *r, StorePut store, int64_t i) except -1:
    # The i-th record, r.v, is in light queues: as a new message it gets a place in each, else it has to continue them.
    cdef RecordView *v = &r.v
    cdef LightPut put = None
    cdef Light light = _lights(v)
    cdef bytes kept
    names = []
    while light_next(&light):
        if topic_fits(light.name, light.size):
            names.append(PyBytes_FromStringAndSize(light.name, light.size))
    if r.continues != NULL:
        put = LightPut.__new__(LightPut)
        store.lights.hold(store, put, names, False, False)
    else:
        kept = PyBytes_FromStringAndSize(r.args.properties, r.args.properties_size)
        try:
            put = store.lights.take(store, &r.args, PyBytes_FromStringAndSize(v.topic, v.topic_size).decode(), None, kept,
                                    False)
        except MessageIllegal:          # names that no put would take
            put = None
        kept = delete_property(kept, _OFFSETS) if put is None else put.kept
        r.lit[i].properties, r.lit[i].properties_size = PyBytes_AS_STRING(kept), <int32_t> PyBytes_GET_SIZE(kept)
        _hold(r, kept)
    if put is not None:
        r.lit[i].light = &put.light
        _hold(r, put)
    return 0


cdef Queue *_batch_queue(StorePut store, dict known, const RecordView *v, bint as_is) except NULL:
    # Of a record that is an inner batch. Raises StoreStateError.
    cdef bytes name = PyBytes_FromStringAndSize(v.topic, v.topic_size)
    cdef Inner inner = inner_of(v)
    cdef Topic t = known.get(name)
    cdef Queue *q
    if t is None:
        t = known[name] = store._topic(name.decode("utf-8", "surrogateescape"))
    q = queues_find(store.queues, t.text, t.size, v.queue_id, True)
    if q == NULL:
        raise MemoryError("queue")
    if not queue_batched(q) or not topic_takes_batches(store.queues, t.text, t.size):
        raise StoreStateError(f"message {v.queue_offset} of {name.decode('utf-8', 'replace')}/{v.queue_id} is an inner batch, "
                              f"and this topic has no batch queues in {store.path}: make it a topic with batch queues first "
                              "(`rmqstore topics set --queue-type BatchCQ`)")
    if inner.count == 0 or (as_is and inner.base != v.queue_offset):
        raise StoreStateError(f"message {v.queue_offset} of {name.decode('utf-8', 'replace')}/{v.queue_id} says that it is an "
                              "inner batch, and its properties INNER_NUM and INNER_BASE do not say of which messages: copy "
                              "the other topics")
    return q


cdef int _inner(Rows *r, StorePut store, int64_t i) except -1:
    # The i-th record, r.v, is an inner batch and gets a new place: all its properties but INNER_BASE are kept.
    if _lights(&r.v).names != NULL and store.lights.on:
        raise StoreStateError(f"message {r.v.queue_offset} of {PyBytes_FromStringAndSize(r.v.topic, r.v.topic_size).decode()}/"
                              f"{r.v.queue_id} is an inner batch in light queues, which no put makes: copy the other topics, "
                              "or the whole store with `rmqstore backup` and `rmqstore restore`")
    cdef bytes kept = delete_property(PyBytes_FromStringAndSize(r.args.properties, r.args.properties_size), b"INNER_BASE")
    r.lit[i].properties, r.lit[i].properties_size = PyBytes_AS_STRING(kept), <int32_t> PyBytes_GET_SIZE(kept)
    r.lit[i].inner = inner_of(&r.v).count
    return _hold(r, kept)


cdef inline void _number_inner(Rows *r, int64_t base) noexcept nogil:
    # base: queue offset of the first message; the largest one where it is not known yet.
    memcpy(r.inner, b"INNER_BASE\x01", 11)
    r.args.more_properties = r.inner
    r.args.more_properties_size = 11 + digits_put(r.inner + 11, base)
    record_prepare(&r.args)


cdef inline void _lighten(Rows *r, int64_t i) noexcept nogil:
    # r.args of the i-th record, for its light queues or as an inner batch: of the largest size that it may get.
    cdef Lit *lit = &r.lit[i]
    if lit.properties == NULL:
        return
    r.args.properties, r.args.properties_size = lit.properties, lit.properties_size
    if lit.inner > 0:
        r.args.trailing_separator = r.plain.trailing_separator
        _number_inner(r, INT64_MAX)
        return
    if lit.light != NULL:
        r.args.trailing_separator = r.plain.trailing_separator
        r.args.more_properties = lit.light.text
        r.args.more_properties_size = lit.light.fixed + lit.light.count * NUMBER_SIZE_MAX
    record_prepare(&r.args)


cdef bint _continue_lights(Rows *r, LightQueues *l, bint move) noexcept nogil:
    # Under the put lock: whether a record that keeps its places continues its light queues; or moves them on, behind it.
    cdef Light light = _lights(&r.v)
    cdef int64_t i = 0
    cdef Queue *q
    while light_next(&light):
        if not topic_fits(light.name, light.size):
            continue
        q = l.queues[i]
        i += 1
        if move:
            rmq_publish(&q.next_offset, light.queue_offset + 1)
        elif light.queue_offset != q.next_offset and (q.next_offset != 0 or rmq_load(&q.max_offset) != 0):
            return False        # one that never had a message begins where its first record says
    return True


cdef int rows_check(Rows *r, StorePut store) except? -2:
    cdef int64_t capacity = 0
    cdef Queue **grown
    cdef Queue *q = NULL
    cdef int wrong
    cdef bint inner
    cdef RecordView *v = &r.v
    known = {}
    if store.refuses_puts:
        store._refuse_put()
    r.at = 0
    while r.at < r.size:
        if record_parse(r.p + r.at, r.size - r.at, v) != RECORD_OK or v.queue_id < 0:
            return ROW_NO_RECORD
        r.args = r.plain
        wrong = r.fill(v, &r.args, r.crc)
        if wrong != 0:
            return wrong
        if r.count == capacity:
            capacity = max(4096, 2 * r.count)
            grown = <Queue **> realloc(r.queues, capacity * sizeof(Queue *))
            if grown == NULL:
                raise MemoryError("records")
            r.queues = grown
        inner = (v.sys_flag & FLAG_INNER_BATCH) != 0
        if inner and not r.batches:
            raise StoreStateError(f"message {v.queue_offset} of {PyBytes_FromStringAndSize(v.topic, v.topic_size).decode()}/"
                                  f"{v.queue_id} has the flag of an inner batch (0x80): put inner batches by put_inner_batch")
        if (inner and r.continues == NULL) or (r.lights and _lights(v).names != NULL):
            if r.lit == NULL:
                r.lit = <Lit *> calloc(r.size // RECORD_FIXED_SIZE + 1, sizeof(Lit))    # for as many as there can be
                if r.lit == NULL:
                    raise MemoryError("records")
            if inner and r.continues == NULL:
                _inner(r, store, r.count)
            else:
                _light(r, store, r.count)
            _lighten(r, r.count)
        store._check_size(&r.args, r.continues != NULL)      # as it is: what a broker took is not refused
        if inner:
            q = _batch_queue(store, known, v, r.continues != NULL)
        elif q == NULL or v.queue_id != q.queue_id or v.topic_size != q.topic_size or \
                memcmp(v.topic, q.topic, v.topic_size) != 0:
            q = _queue(store, known, v)
        r.queues[r.count] = q
        r.count += 1
        r.at += v.size
    r.at = 0
    return 0


cdef int _place_some(Log *log, Turn *t, int64_t now) noexcept nogil:
    # So many that others get their turn, too.
    cdef Rows *r = <Rows *> t
    cdef int64_t stop = r.done + MANY_PER_LOCK
    cdef int64_t room = BYTES_PER_LOCK
    cdef LightQueues *light
    cdef int status
    while r.done < r.count and r.done < stop and room > 0:
        record_parse(r.p + r.at, r.size - r.at, &r.v)
        r.args = r.plain
        r.fill(&r.v, &r.args, r.crc)
        light = r.lit[r.done].light if r.lit != NULL else NULL
        if r.lit != NULL:
            _lighten(r, r.done)
        t.size = r.args.size
        if r.continues != NULL:
            r.refused = r.continues(log, r.queues[r.done], &r.v)
            if r.refused == 0 and light != NULL and not _continue_lights(r, light, False):
                r.refused = ROW_LIGHT_NOT_NEXT
            if r.refused != 0:
                break
            now = r.v.store_timestamp
        if r.v.sys_flag & FLAG_INNER_BATCH and not topic_takes_batches(r.table, r.v.topic, r.v.topic_size):
            r.refused = ROW_NOT_BATCHED         # meanwhile: nothing of it is stored
            break
        if r.lit != NULL and r.lit[r.done].inner > 0:
            _number_inner(r, r.queues[r.done].next_offset)
        if light != NULL and r.continues == NULL:
            status = light_append(log, &r.args, r.queues[r.done], now, &r.out, light)
        else:
            status = log_append(log, &r.args, r.queues[r.done], now, &r.out)
        if status != APPEND_OK:
            return status
        if light != NULL and r.continues != NULL:
            _continue_lights(r, light, True)
        if r.v.sys_flag & FLAG_INNER_BATCH:
            rmq_count(&r.queues[r.done].next_offset, inner_of(&r.v).count - 1)
        if r.first < 0:
            r.first = r.out.offset
        r.end = r.out.offset + r.args.size
        room -= r.args.size
        r.at += r.v.size
        r.done += 1
    return APPEND_OK


cdef int rows_append(Rows *r, StorePut store) except? -2:
    while r.done < r.count and r.refused == 0:
        place_locked(store, _place_some, &r.turn, True, True)
    return r.refused


cdef void rows_end(Rows *r) noexcept:
    free(r.queues)
    free(r.lit)
    Py_XDECREF(r.held)
    r.queues, r.lit, r.held = NULL, NULL, NULL
