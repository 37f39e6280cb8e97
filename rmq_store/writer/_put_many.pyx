"""Putting many at once, and without waiting (upstream: putMessages, asyncPutMessage). Contract in _put_many.pxd.

Bytes on disk are those of as many single puts. Everything is checked before the first byte is placed.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

from rmq_store.codec._record cimport BLANK_SIZE, FLAG_TRANSACTION, RecordArgs, body_crc32, record_prepare
from rmq_store.commitlog._log cimport (APPEND_OK, Appended, Log, log_append, log_lock_begin, log_lock_end, log_lock_try,
                                       log_reserve)
from rmq_store.writer._put cimport PutResult, StorePut, Topic
from rmq_store.consumequeue._queue cimport Queue
from rmq_store.io._sync cimport rmq_event_wake, rmq_load32

from rmq_store import errors
from rmq_store.codec.batch import decode_batch
from rmq_store.status import PutStatus

cdef enum:
    MANY_PER_LOCK = 1024            # messages put_many stores before it lets others in

cdef tuple _STATUS = tuple(PutStatus)
cdef int _OK = PutStatus.PUT_OK
cdef object _ZERO = 0


@cython.final
cdef class PutManyResult:
    """What became of a put_many or put_batch. Offsets are made into Python objects when they are asked for."""

    def __cinit__(self):
        self.places = NULL

    def __dealloc__(self):
        free(self.places)

    @property
    def status(self):
        """PutStatus of all of them together."""
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

    def __repr__(self):
        return f"PutManyResult({self.status.name}, count={self.count})"


cdef class StorePutMany(StorePut):
    """The writing half of a store, for many messages."""

    def put_many(self, topic, messages, *, queue_id=0, tags=None, keys=None, properties=None, flag=0, sys_flag=0,
                 born_timestamp=None, born_host=None, wait=None):
        """Stores many messages of one queue under few turns of the put lock; returns a PutManyResult.

        messages: a sequence of bodies (bytes-like), or of mappings with `body` and any of tags, keys, properties, flag that
        differ from the keywords here. Everything is checked before the first byte is placed: a message that breaks a limit
        refuses them all. Others may put in between, every 1,024 messages or where the pool is full. wait: as for put, for all
        together. Bytes on disk are those of as many puts. Raises, durability, thread-safety: as put.
        """
        cdef RecordArgs a
        cdef Appended out
        cdef Topic t
        cdef Queue *q
        cdef PutManyResult r
        cdef Log *log
        cdef Py_ssize_t i, j, n, size
        cdef int64_t now = 0
        cdef int status
        cdef bint born_now = born_timestamp is None
        cdef bint wants
        self._enter()
        if self.readonly:
            raise errors.StoreNotWriteable(self.path)
        bodies = list(messages)
        n = len(bodies)
        for i in range(n):
            if type(bodies[i]) is not bytes:
                return self._put_mixed(topic, bodies, queue_id, tags, keys, properties, flag, sys_flag, born_timestamp,
                                       born_host, wait)
        kept = self._properties(&a, properties, tags, keys)
        if kept is not None and b"DELAY\x01" in kept:
            return self._put_mixed(topic, bodies, queue_id, tags, keys, properties, flag, sys_flag, born_timestamp, born_host,
                                   wait)
        wants = self.sync_mode and not (kept is not None and b"WAIT\x01false" in kept) if wait is None else wait
        t = self._topic(topic)
        q = self._queue(t, queue_id)
        a.topic = t.text
        a.topic_size = t.size
        a.queue_id = q.queue_id
        self._arguments(&a, flag, sys_flag, born_timestamp, born_host, _ZERO, _ZERO)
        for i in range(n):
            size = PyBytes_GET_SIZE(bodies[i])
            if size > self.body_size_max:
                raise errors.MessageIllegal(errors.exceeds(f"body size of message {i}", f"{size} bytes", self.body_size_max,
                                                           "split or compress it, or raise message_size_max_bytes"))
            a.body_size = <int32_t> size
            record_prepare(&a)
            self._check_size(&a)
        r = PutManyResult.__new__(PutManyResult)
        r.host = self.host
        r.places = <int64_t *> malloc(n * 2 * sizeof(int64_t) + 1)
        if r.places == NULL:
            raise MemoryError("offsets")
        log = self.log
        i = 0
        while i < n:
            status = APPEND_OK
            if not log_lock_try(log, &now):
                self.calls += 1
                with nogil:
                    now = log_lock_begin(log)
                self.calls -= 1
            if born_now:
                a.born_timestamp = now
            j = i + MANY_PER_LOCK
            while i < n and i < j:
                body = <bytes> bodies[i]
                a.body = <const unsigned char *> PyBytes_AS_STRING(body)
                a.body_size = <int32_t> PyBytes_GET_SIZE(body)
                a.body_crc = body_crc32(a.body, a.body_size)
                record_prepare(&a)
                status = log_append(log, &a, q, now, &out)
                if status != APPEND_OK:
                    break
                r.places[2 * i] = out.offset
                r.places[2 * i + 1] = out.queue_offset
                r.count = i + 1
                r.end = out.offset + a.size
                r.store_timestamp = now
                i += 1
            log_lock_end(log)
            if status != APPEND_OK:
                self._wait_for(status, a.size)
        return self._finish_many(r, wants)

    cdef object _finish_many(self, PutManyResult r, bint wants):
        r.code = _OK
        if r.count > 0 and wants:
            r.code = self._durable(r.end)
        elif self.sync_mode and rmq_load32(&self.log.flush_asleep) != 0:
            rmq_event_wake(&self.log.flush_wanted)
        return r

    def _put_mixed(self, topic, messages, queue_id, tags, keys, properties, flag, sys_flag, born_timestamp, born_host, wait):
        """put_many where bodies are not all bytes, or messages differ in more than their body: one put each, one wait."""
        cdef PutManyResult r = PutManyResult.__new__(PutManyResult)
        cdef PutResult one
        cdef bint wants = False, any_wants = False
        cdef Py_ssize_t i, n = len(messages)
        common = {"tags": tags, "keys": keys, "properties": properties, "flag": flag}
        each = []
        for i in range(n):
            message = messages[i]
            own = dict(common)
            if isinstance(message, (bytes, bytearray, memoryview)) or not hasattr(message, "keys"):
                own["body"] = message
            else:
                unknown = set(message) - {"body", *common}
                if unknown or "body" not in message:
                    raise errors.MessageIllegal(f"message {i} has {', '.join(sorted(map(repr, unknown))) or 'no body'}: give "
                                                "body and any of tags, keys, properties, flag")
                own.update(message)
            self._check_message(i, topic, own, sys_flag)
            each.append(own)
        r.host = self.host
        r.places = <int64_t *> malloc(n * 2 * sizeof(int64_t) + 1)
        if r.places == NULL:
            raise MemoryError("offsets")
        for i in range(n):
            own = each[i]
            one = self._put(topic, own["body"], queue_id, own["tags"], own["keys"], own["properties"], own["flag"], sys_flag,
                            born_timestamp, born_host, _ZERO, _ZERO, wait, &wants)
            any_wants = any_wants or wants
            r.places[2 * i] = one.offset
            r.places[2 * i + 1] = one.queue_offset
            r.count = i + 1
            r.end = one.offset + one.size
            r.store_timestamp = one.store_timestamp
        return self._finish_many(r, any_wants)

    def _check_message(self, i, topic, message, sys_flag):
        """The checks of one put without its append, so that put_many refuses all or nothing."""
        cdef RecordArgs a
        try:
            size = memoryview(message["body"]).nbytes
        except TypeError:
            raise errors.MessageIllegal(f"body of message {i} is a {type(message['body']).__name__}: give bytes or a "
                                        "contiguous buffer (encode text first)") from None
        kept = self._properties(&a, message["properties"], message["tags"], message["keys"])
        if kept is not None and b"DELAY\x01" in kept:
            _, _, kept = self._delayed(topic, 0, kept, sys_flag)
            a.properties_size = <int32_t> len(kept)
            a.properties = PyBytes_AS_STRING(kept)
        self._arguments(&a, message["flag"], sys_flag, None, None, _ZERO, _ZERO)
        a.topic_size = self._topic(topic).size
        a.body_size = <int32_t> min(size, 0x3FFFFFFF)
        record_prepare(&a)
        self._check_size(&a)

    def put_batch(self, topic, batch, *, queue_id=0, properties=None, sys_flag=0, born_timestamp=None, born_host=None,
                  reconsume_times=0, wait=None):
        """Stores an upstream-encoded batch (the body of a send-batch request) message by message; returns a PutManyResult.

        All of it lies in one commit-log file, with consecutive queue offsets and one store time, or nothing is stored.
        properties: of the batch as a whole (mapping or bytes), appended to each message's own. Raises MessageIllegal for a
        batch that is larger than message_size_max_bytes, malformed, transactional or delayed; else as put.
        Upstream: MessageStore.putMessages, MessageExtBatch.
        """
        cdef RecordArgs a
        cdef Appended out
        cdef Topic t
        cdef Queue *q
        cdef PutManyResult r
        cdef Log *log
        cdef Py_ssize_t i, n
        cdef int64_t now = 0, total = 0
        cdef int status = APPEND_OK
        cdef bint wants
        self._enter()
        if self.readonly:
            raise errors.StoreNotWriteable(self.path)
        data = bytes(batch)
        if len(data) > self.body_size_max:
            raise errors.MessageIllegal(errors.exceeds("batch size", f"{len(data)} bytes", self.body_size_max,
                                                       "send smaller batches, or raise message_size_max_bytes"))
        elements = decode_batch(data)
        n = len(elements)
        kept = self._properties(&a, properties, None, None)
        if (sys_flag & FLAG_TRANSACTION) or (kept is not None and b"DELAY\x01" in kept):
            raise errors.MessageIllegal("a batch can be neither transactional nor delayed: put such messages one by one")
        wants = self.sync_mode and not (kept is not None and b"WAIT\x01false" in kept) if wait is None else wait
        t = self._topic(topic)
        q = self._queue(t, queue_id)
        self._arguments(&a, _ZERO, sys_flag, born_timestamp, born_host, reconsume_times, _ZERO)
        a.topic = t.text
        a.topic_size = t.size
        a.queue_id = q.queue_id
        a.more_properties = a.properties
        a.more_properties_size = a.properties_size
        a.trailing_separator = False
        for element in elements:
            self._element(&a, element)
            total += record_prepare(&a)
            self._check_size(&a)
        if total > self.options.segment_size_bytes - BLANK_SIZE or (self.pool != NULL and 2 * total > self.pool.size):
            raise errors.MessageIllegal(errors.exceeds("batch in the log", f"{total} bytes",
                                                       self.options.segment_size_bytes - BLANK_SIZE, "send smaller batches"))
        r = PutManyResult.__new__(PutManyResult)
        r.host = self.host
        r.places = <int64_t *> malloc(n * 2 * sizeof(int64_t) + 1)
        if r.places == NULL:
            raise MemoryError("offsets")
        log = self.log
        while n > 0:
            if not log_lock_try(log, &now):
                self.calls += 1
                with nogil:
                    now = log_lock_begin(log)
                self.calls -= 1
            status = log_reserve(log, total)
            if status == APPEND_OK:
                for i in range(n):
                    self._element(&a, elements[i])
                    if born_timestamp is None:
                        a.born_timestamp = now
                    record_prepare(&a)
                    status = log_append(log, &a, q, now, &out)
                    if status != APPEND_OK:     # only the fence can come between
                        break
                    r.places[2 * i] = out.offset
                    r.places[2 * i + 1] = out.queue_offset
                r.count = n
                r.end = out.offset + a.size
                r.store_timestamp = now
            log_lock_end(log)
            if status == APPEND_OK:
                break
            self._wait_for(status, total)
        return self._finish_many(r, wants)

    cdef int _element(self, RecordArgs *a, object element) except -1:
        # The bytes stay alive in the caller's list.
        cdef bytes body = element.body
        cdef bytes properties = element.properties
        a.flag = element.flag
        a.body = <const unsigned char *> PyBytes_AS_STRING(body)
        a.body_size = <int32_t> PyBytes_GET_SIZE(body)
        a.body_crc = body_crc32(a.body, a.body_size)
        a.properties = PyBytes_AS_STRING(properties)
        a.properties_size = <int32_t> PyBytes_GET_SIZE(properties)
        return 0

    def put_async(self, topic, body, *, queue_id=0, tags=None, keys=None, properties=None, flag=0, sys_flag=0,
                  born_timestamp=None, born_host=None, reconsume_times=0, prepared_transaction_offset=0, wait=None):
        """As put, but returns at once with a PutFuture (result(timeout), done(), add_done_callback, awaitable under asyncio).

        The message is appended when this returns, in the order of the calls; the future completes when it is as durable as
        asked, many at a time, one wake-up a flush. A refused message raises here, not in the future.
        """
        cdef bint wants = False
        cdef PutResult r = self._put(topic, body, queue_id, tags, keys, properties, flag, sys_flag, born_timestamp, born_host,
                                     reconsume_times, prepared_transaction_offset, wait, &wants)
        if not wants:
            if self.sync_mode and rmq_load32(&self.log.flush_asleep) != 0:
                rmq_event_wake(&self.log.flush_wanted)
            return self._completer.completed(r)
        return self._completer.pending(r, r.offset + r.size)
