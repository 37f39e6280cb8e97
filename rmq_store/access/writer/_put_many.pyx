"""Putting many at once, and without waiting (RocketMQ: putMessages, asyncPutMessage). Contract in _put_many.pxd.

Bytes on disk are those of as many single puts. Everything is checked before the first byte is placed.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

from rmq_store.access.writer._arguments cimport (ARGUMENTS, arguments_method, arguments_parse, checked_wait, joined_keys,
                                                 without_crc)
from rmq_store.access.writer._delays cimport delay_asked
from rmq_store.access.writer._future cimport future_new
from rmq_store.access.writer._light cimport NUMBER_SIZE_MAX, LightPut, LightQueues, light_append
from rmq_store.access.writer._mixed cimport Mixed, MixedTurn, names_of, own_of
from rmq_store.access.writer._put cimport (GIL_RELEASE_BYTES_MIN, PUT_COPY, PutResult, StorePut, Topic, Turn, asks_to_wait,
                                           place_locked, wants_of)
from rmq_store.codec._layout cimport FLAG_TRANSACTION
from rmq_store.codec._record cimport RecordArgs, body_crc32, record_prepare
from rmq_store.log.commitlog._log cimport APPEND_OK, Appended, Log, log_append, log_reserve, log_reserve_max
from rmq_store.queues.consumequeue._queue cimport Queue

from rmq_store import errors
from rmq_store.access.writer.hooks import asked_batch, asked_many
from rmq_store.access.writer.keyed import need_keys
from rmq_store.codec.batch import decode_batch
from rmq_store.codec.timer import timed_messages
from rmq_store.status import PutStatus

cdef enum:
    MANY_PER_LOCK = 1024            # messages, or so many bytes, that put_many stores before it lets others in
    BYTES_PER_LOCK = 1 << 20

cdef tuple _STATUS = tuple(PutStatus)
cdef int _OK = PutStatus.PUT_OK
cdef object _ZERO = 0
cdef int LIGHT_ROOM = len(b"INNER_MULTI_QUEUE_OFFSET") + 2      # with its separators
cdef bytes _LIGHT = b"INNER_MULTI_DISPATCH\x01"
cdef str _SPLIT = "split or compress it, or raise message_size_max_bytes"
cdef tuple _ASKED = ("topic", "queue_id", "tags", "keys", "properties", "flag", "sys_flag", "born_timestamp", "born_host",
                     "reconsume_times")


@cython.final
cdef class PutManyResult:
    """The result of a put_many or put_batch. Offsets become Python objects when a program reads them."""

    def __cinit__(self):
        self.places = NULL

    def __dealloc__(self):
        free(self.places)

    @property
    def status(self):
        """PutStatus of all messages together."""
        return _STATUS[self.code]

    @property
    def offsets(self):
        """Physical offsets, in the order given: list of int."""
        return [self.places[2 * i] for i in range(self.count)]

    @property
    def queue_offsets(self):
        """Queue offsets, in the order given: list of int."""
        return [self.places[2 * i + 1] for i in range(self.count)]

    @property
    def msg_ids(self):
        """Offset message ids: list of str."""
        return [(self.host + o.to_bytes(8, "big")).hex().upper() for o in self.offsets]

    def __len__(self):
        return self.count

    def __reduce__(self):
        return _many_result, (self.code, self.store_timestamp, self.host, self.offsets, self.queue_offsets)

    def __repr__(self):
        return f"PutManyResult({self.status.name}, count={self.count})"


def _many_result(code, store_timestamp, host, offsets, queue_offsets):
    """A PutManyResult that was pickled."""
    cdef PutManyResult r = PutManyResult.__new__(PutManyResult)
    cdef Py_ssize_t i
    r.code = code
    r.store_timestamp = store_timestamp
    r.host = host
    r.places = <int64_t *> malloc((2 * len(offsets) + 1) * sizeof(int64_t))
    if r.places == NULL:
        raise MemoryError("places")
    for i, places in enumerate(zip(offsets, queue_offsets, strict=True)):
        r.places[2 * i], r.places[2 * i + 1] = places
        r.count = i + 1
    return r


cdef struct Piece:
    # One message of a batch: what is looked up in Python objects before the lock.
    const unsigned char *body
    const char *properties
    int32_t body_size
    int32_t properties_size
    int32_t body_crc
    int32_t flag
    const char *more        # the properties of the batch, or what the light queues of this message need
    int32_t more_size
    LightQueues *light      # NULL: none


# Whoever had to sleep for the put lock holds it without the GIL: waiting for the GIL with the lock held would stop every
# producer for as long as some other thread computes.

cdef struct Many:
    Turn turn
    int64_t *places         # of each message: address and size of its body, then offset and queue offset
    int64_t n
    int64_t done
    const Piece *pieces     # of a batch; places are its results only


cdef int _place_some(Log *log, Turn *t, int64_t now) noexcept nogil:
    # So many that others get their turn, too.
    cdef Many *m = <Many *> t
    cdef RecordArgs *a = t.args
    cdef int64_t stop = m.done + MANY_PER_LOCK
    cdef int64_t room = BYTES_PER_LOCK
    cdef int64_t *place
    cdef int status
    if t.born_now:
        a.born_timestamp = now
    while m.done < m.n and m.done < stop and room > 0:
        place = m.places + 2 * m.done
        a.body = <const unsigned char *> place[0]
        a.body_size = <int32_t> place[1]
        a.body_crc = body_crc32(a.body, a.body_size)
        t.size = record_prepare(a)
        status = log_append(log, a, t.queue, now, t.out)
        if status != APPEND_OK:
            return status
        place[0], place[1] = t.out.offset, t.out.queue_offset
        room -= a.size
        m.done += 1
    return APPEND_OK


cdef inline int32_t _piece(RecordArgs *a, const Piece *p) noexcept nogil:
    a.flag, a.body_crc = p.flag, p.body_crc
    a.body, a.body_size = p.body, p.body_size
    a.properties, a.properties_size = p.properties, p.properties_size
    a.more_properties, a.more_properties_size = p.more, p.more_size
    return record_prepare(a)


cdef int _place_batch(Log *log, Turn *t, int64_t now) noexcept nogil:
    # All of them in one file, in one turn of the lock.
    cdef Many *m = <Many *> t
    cdef int64_t i
    cdef int status = log_reserve(log, t.size)
    if t.born_now:
        t.args.born_timestamp = now
    for i in range(m.n):
        if status != APPEND_OK:         # only the fence can come between
            break
        _piece(t.args, &m.pieces[i])
        if m.pieces[i].light == NULL:
            status = log_append(log, t.args, t.queue, now, t.out)
        else:
            status = light_append(log, t.args, t.queue, now, t.out, m.pieces[i].light)
        m.places[2 * i], m.places[2 * i + 1] = t.out.offset, t.out.queue_offset
    return status


cdef int _tell_stored(StorePut store, error, PutManyResult r, Py_ssize_t n) except -1:
    # What is in the log stays, whatever came then. Whoever puts all of it again would have it twice.
    if r.count > 0:
        store._nudge()
        errors.tell_stored(error, r.offsets, r.queue_offsets, n)
    return 0


cdef int _take_places(PutManyResult r, const MixedTurn *m) noexcept:
    cdef int64_t i
    for i in range(m.done):
        r.places[2 * i], r.places[2 * i + 1] = m.each[i].offset, m.each[i].queue_offset
    r.count = m.done
    if m.done > 0:
        r.end = m.each[m.done - 1].offset + m.each[m.done - 1].args.size
        r.store_timestamp = m.store_timestamp
    return 0


cdef bint _bodies_only(list messages) noexcept:
    for message in messages:
        if type(message) is not bytes:
            return False
    return True


cdef class StorePutMany(StorePut):
    """The writing half of a store, for many messages."""

    def _light_room(self, str topic, bytes properties):
        """How many bytes a put of these properties adds for its light queues. Raises what that put would raise for them."""
        cdef list names = self.lights._wanted(topic, None, properties) if self.lights.on else None
        if not names:
            return 0
        self._enter()
        new = self.lights._new_among(self.queues, names)
        if new:
            self.lights._refuse_many(self, new)
        return LIGHT_ROOM + NUMBER_SIZE_MAX * len(names)

    def put_many(self, topic, messages, *, queue_id=0, tags=None, keys=None, properties=None, flag=0, sys_flag=0,
                 born_timestamp=None, born_host=None, deliver_at=None, delay=None, light_queues=None, wait=None):
        """Stores many messages of one queue, and takes the put lock only a few times. Returns a PutManyResult.

        messages: a sequence of bodies (bytes-like), or of mappings with `body` and any of tags, keys, properties, flag,
        deliver_at, delay, light_queues that differ from the keywords here. The call checks all messages before it stores the
        first: if one message breaks a limit, or the put lock is busy (busy_after_ms), no message is stored. Other threads may
        put in between, every 1,024 messages or when the pool is full. deliver_at, delay, wait: as for put, for all messages
        together. The bytes on disk are the same as after single puts.
        Raises, durability, thread-safety: as put. An error may come after some messages are stored: no room in the pool or on
        the disk, a failed write, a close, or the error of a signal handler. Then `stored` of the error has the places of these
        messages, from the first message on, and the messages stay stored.
        """
        cdef RecordArgs a
        cdef Appended out
        cdef Topic t
        cdef Queue *q
        cdef PutManyResult r
        cdef Many many
        cdef Py_ssize_t i, n, largest
        cdef int wants
        cdef bint bare
        self._enter()
        if self.refuses_puts:
            self._refuse_put()
        if isinstance(messages, (str, bytes, bytearray, memoryview)) or not hasattr(messages, "__iter__"):
            raise errors.MessageIllegal(f"messages is a {type(messages).__name__}: give an iterable of bodies or of mappings; "
                                        "put takes a single body")
        bodies = list(messages)
        n = len(bodies)
        if wait is not None:
            checked_wait(wait)
        if keys is not None and type(keys) is not str:
            keys = joined_keys(keys)
        if deliver_at is not None or delay is not None or not _bodies_only(bodies):
            bodies = timed_messages(bodies, properties, deliver_at, delay)
        if self.put_checks:
            bodies = self._ask(bodies, (topic, queue_id, tags, keys, properties, flag, sys_flag, born_timestamp, born_host))
        bare = light_queues is None and _bodies_only(bodies)
        kept = self._properties(&a, properties, tags, keys) if bare else None
        if not bare or (kept is not None and (delay_asked(a.properties, a.properties_size)
                                              or (self.lights.on and _LIGHT in kept))):
            return self._put_mixed(topic, bodies, queue_id, tags, keys, properties, flag, sys_flag, born_timestamp, born_host,
                                   light_queues, wait)
        wants = wants_of(self, wait, self.waits == 0 or asks_to_wait(&a))
        t = self._topic(topic)
        q = self._queue(t, queue_id)
        a.topic, a.topic_size, a.queue_id = t.text, t.size, q.queue_id
        self._arguments(&a, flag, sys_flag, born_timestamp, born_host, _ZERO, _ZERO)
        largest = self._largest(&a, bodies)
        r = PutManyResult.__new__(PutManyResult)
        r.host = self.host
        r.places = <int64_t *> malloc(n * 2 * sizeof(int64_t) + 1)
        if r.places == NULL:
            raise MemoryError("offsets")
        for i in range(n):
            r.places[2 * i], r.places[2 * i + 1] = <int64_t> PyBytes_AS_STRING(bodies[i]), PyBytes_GET_SIZE(bodies[i])
        many.turn = Turn(args=&a, queue=q, out=&out, size=0, born_now=born_timestamp is None)
        many.places, many.n, many.done, many.pieces = r.places, n, 0, NULL
        try:
            while many.done < n:
                place_locked(self, _place_some, &many.turn, largest >= GIL_RELEASE_BYTES_MIN, many.done > 0)
        except BaseException as error:
            r.count = many.done
            _tell_stored(self, error, r, n)
            raise
        r.count = n
        if n > 0:
            r.end = out.offset + a.size
            r.store_timestamp = out.store_timestamp
        return self._finish_many(r, wants)

    cdef int64_t _largest(self, RecordArgs *a, list bodies) except -1:
        # The size of the largest body. Every one is checked.
        cdef int64_t i = 0, size, largest = 0
        try:
            for i in range(len(bodies)):
                size = PyBytes_GET_SIZE(bodies[i])
                if size > self.body_size_max:
                    self._failed(errors.MessageIllegal(errors.exceeds("body size", f"{size} bytes", self.body_size_max,
                                                                      _SPLIT)))
                largest = max(largest, size)
                a.body_size = <int32_t> size
                record_prepare(a)
                self._check_size(a, False)
        except errors.PutError as error:
            error._name_message(i)
            raise
        return largest

    cdef object _finish_many(self, PutManyResult r, int wants):
        r.code = _OK
        if r.count > 0 and wants:
            r.code = self._awaited(r.end, wants)
        else:
            self._nudge()
        return r

    def _put_mixed(self, topic, messages, queue_id, tags, keys, properties, flag, sys_flag, born_timestamp, born_host,
                   light_queues, wait):
        """put_many where bodies are not all bytes, or messages differ in more than their body."""
        cdef PutManyResult r = PutManyResult.__new__(PutManyResult)
        cdef Py_ssize_t i, n = len(messages)
        cdef Mixed mixed = Mixed(n)
        cdef MixedTurn turn
        cdef int wants
        common = {"tags": tags, "keys": keys, "properties": properties, "flag": flag, "light_queues": names_of(light_queues)}
        for i in range(n):
            try:
                mixed.add(self, topic, queue_id, own_of(common, messages[i], i), sys_flag, born_timestamp, born_host)
            except errors.PutError as error:
                error._name_message(i)
                raise
        wants = wants_of(self, wait, mixed.wants)
        r.host = self.host
        r.places = <int64_t *> malloc(n * 2 * sizeof(int64_t) + 1)
        if r.places == NULL:
            raise MemoryError("offsets")
        turn.done = 0
        try:
            mixed.place(self, &turn, born_timestamp is None)
        except BaseException as error:
            _take_places(r, &turn)
            _tell_stored(self, error, r, n)
            raise
        _take_places(r, &turn)
        return self._finish_many(r, wants)

    cdef object _ask(self, what, tuple arguments):
        # Of put_many the messages, of put_batch the properties, as the hooks want them; each message has the key it needs.
        given = dict(zip(_ASKED, arguments, strict=False))
        if isinstance(what, list):
            what = asked_many(self.hooks, self.options.compat, what, given) if self.hooks else what
            return what if self.keyed is None else need_keys(self.keyed, given["topic"], given["keys"], given["properties"],
                                                             what)
        properties = (asked_batch(self.hooks, self.options.compat, {**given, "body": what}) if self.hooks
                      else given["properties"])
        if self.keyed is not None:
            need_keys(self.keyed, given["topic"], None, properties, [
                {"properties": e.properties} if b"KEYS\x01" in e.properties else b"" for e in decode_batch(what)])
        return properties

    cdef object _element(self, Piece *p, object element, object topic, bytes common):
        # One message of a batch; its bytes stay alive in the caller's list. common: properties of the batch. Returns what has
        # to stay alive as well: what the message's light queues need.
        cdef RecordArgs a
        cdef LightPut light = None
        cdef bytes body = element.body, properties = element.properties
        p.flag, p.light = element.flag, NULL
        p.body, p.body_size = <const unsigned char *> PyBytes_AS_STRING(body), <int32_t> PyBytes_GET_SIZE(body)
        p.body_crc = body_crc32(p.body, p.body_size)
        p.properties, p.properties_size = PyBytes_AS_STRING(properties), <int32_t> PyBytes_GET_SIZE(properties)
        p.more, p.more_size = NULL, 0
        if common is not None:
            p.more, p.more_size = PyBytes_AS_STRING(common), <int32_t> PyBytes_GET_SIZE(common)
        if self.lights.on and (_LIGHT in properties or (common is not None and _LIGHT in common)):
            if common:
                properties = properties + (b"" if not properties or properties.endswith(b"\x02") else b"\x02") + common
            a.properties, a.properties_size = PyBytes_AS_STRING(properties), <int32_t> PyBytes_GET_SIZE(properties)
            light = self.lights.take(self, &a, topic, None, properties, False)
        if light is None:
            return None
        p.light = &light.light
        p.properties, p.properties_size = a.properties, a.properties_size
        p.more, p.more_size = a.more_properties, a.more_properties_size
        return properties, light

    def put_batch(self, topic, batch, *, queue_id=0, properties=None, sys_flag=0, born_timestamp=None, born_host=None,
                  reconsume_times=0, wait=None):
        """Stores a batch in RocketMQ's encoding (the body of a send-batch request) message by message. Returns a PutManyResult.

        All messages lie in one commit-log file, with consecutive queue offsets and one store time, or none is stored.
        properties: of the whole batch (mapping or bytes), appended to those of each message. Raises MessageIllegal for a
        batch that is larger than message_size_max_bytes, malformed, transactional or delayed; else as put.
        RocketMQ: MessageStore.putMessages, MessageExtBatch.
        """
        cdef RecordArgs a
        cdef Appended out
        cdef Topic t
        cdef Queue *q
        cdef PutManyResult r
        cdef Many many
        cdef Piece *pieces
        cdef Py_ssize_t i, n
        cdef int64_t limit, total = 0
        cdef int wants
        self._enter()
        if self.refuses_puts:
            self._refuse_put()
        if wait is not None:
            checked_wait(wait)
        try:
            data = bytes(memoryview(batch))
        except TypeError:
            raise errors.MessageIllegal(f"batch is a {type(batch).__name__}: give bytes, as a client encodes a batch") from None
        if len(data) > self.body_size_max:
            raise errors.MessageIllegal(errors.exceeds("batch size", f"{len(data)} bytes", self.body_size_max,
                                                       "send smaller batches, or raise message_size_max_bytes"))
        if self.put_checks:
            properties = self._ask(data, (topic, queue_id, None, None, properties, 0, sys_flag, born_timestamp, born_host,
                                          reconsume_times))
        elements = decode_batch(data)
        if b"__CRC32#" in data:
            elements = [e._replace(properties=without_crc(e.properties, self.record_crc)) for e in elements]
        n = len(elements)
        kept = self._properties(&a, properties, None, None)
        delayed = kept is not None and delay_asked(a.properties, a.properties_size)
        if (sys_flag & FLAG_TRANSACTION) or delayed:
            raise errors.MessageIllegal("a batch can be neither transactional nor delayed: put such messages one by one")
        wants = wants_of(self, wait, self.waits == 0 or asks_to_wait(&a))
        t = self._topic(topic)
        q = self._queue(t, queue_id)
        self._arguments(&a, _ZERO, sys_flag, born_timestamp, born_host, reconsume_times, _ZERO)
        a.topic, a.topic_size = t.text, t.size
        a.queue_id = q.queue_id
        pieces = <Piece *> malloc(n * sizeof(Piece) + 1)
        if pieces == NULL:
            raise MemoryError("batch")
        try:
            _lights = [self._element(&pieces[i], elements[i], topic, kept) for i in range(n)]       # held until they are placed
            a.trailing_separator = False
            for i in range(n):
                total += _piece(&a, &pieces[i])
                self._check_size(&a, False)
            self._enter()
            limit = log_reserve_max(self.log)
            if total > limit:
                raise errors.MessageIllegal(errors.exceeds("batch in the log", f"{total} bytes", limit, "send smaller batches"))
            r = PutManyResult.__new__(PutManyResult)
            r.host = self.host
            r.places = <int64_t *> malloc(n * 2 * sizeof(int64_t) + 1)
            if r.places == NULL:
                raise MemoryError("offsets")
            many.turn = Turn(args=&a, queue=q, out=&out, size=total, born_now=born_timestamp is None)
            many.places, many.n, many.done, many.pieces = r.places, n, 0, pieces
            place_locked(self, _place_batch, &many.turn, total >= GIL_RELEASE_BYTES_MIN, False)
        finally:
            free(pieces)
        r.count = n
        r.end = out.offset + a.size
        r.store_timestamp = out.store_timestamp
        return self._finish_many(r, wants)


# ---- put_async, as Python calls it

cdef PyObject *_put_async(PyObject *me, PyObject *const *args, Py_ssize_t given, PyObject *names) except NULL:
    cdef StorePutMany store = <StorePutMany> me
    cdef PyObject *v[ARGUMENTS]
    arguments_parse("put_async", v, args, given, names)
    return _future_of(store, v, 0)


cdef PyObject *_put_copy(PyObject *me, PyObject *const *args, Py_ssize_t given, PyObject *names) except NULL:
    cdef PyObject *v[ARGUMENTS]
    arguments_parse("_put_copy", v, args, given, names)
    return _future_of(<StorePutMany> me, v, PUT_COPY)


cdef PyObject *_future_of(StorePutMany store, PyObject **v, int wants) except NULL:
    cdef PutResult r = store._put(v, &wants)
    if not wants:
        store._nudge()
    future = future_new(store, r, wants)
    Py_INCREF(future)
    return <PyObject *> future


arguments_method(StorePutMany, "put_async", _put_async, """Stores one message as put does, but returns a PutFuture at once.

A future has result(timeout), done(), add_done_callback and exception, and can be awaited under asyncio.

The message is appended when this call returns, in the order of the calls. The future completes when the message is as
durable as requested; one flush completes many futures with one wake-up. A refused message raises here, not in the future.
""")

arguments_method(StorePutMany, "_put_copy", _put_copy, """As put_async, for what the store itself makes of a stored message: a
retry, a dead letter, a committed message, a half message that is put again. The limits of the options do not count, which may
be lower than when that one was put; only those of the format and of a log file do.
""")
