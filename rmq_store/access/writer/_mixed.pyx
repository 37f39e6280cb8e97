"""Messages of one put_many that differ in more than their body. Contract in _mixed.pxd."""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from rmq_store.access.writer._arguments cimport joined_keys
from rmq_store.access.writer._delays cimport delay_asked
from rmq_store.access.writer._light cimport LightPut, light_append
from rmq_store.access.writer._put cimport (GIL_RELEASE_BYTES_MIN, StorePut, Topic, Turn, asks_to_wait, place_locked)
from rmq_store.codec._record cimport RecordArgs, body_crc32, record_prepare
from rmq_store.log.commitlog._log cimport APPEND_OK, Appended, Log, log_append

from rmq_store import errors

cdef enum:
    MANY_PER_LOCK = 1024            # messages, or so many bytes, that are stored before others are let in
    BYTES_PER_LOCK = 1 << 20

cdef object _ZERO = 0


cdef int _place_mixed(Log *log, Turn *t, int64_t now) noexcept nogil:
    cdef MixedTurn *m = <MixedTurn *> t
    cdef int64_t stop = m.done + MANY_PER_LOCK
    cdef int64_t room = BYTES_PER_LOCK
    cdef int status
    cdef Each *e
    while m.done < m.n and m.done < stop and room > 0:
        e = &m.each[m.done]
        t.size = e.args.size
        if t.born_now:
            e.args.born_timestamp = now
        if e.light == NULL:
            status = log_append(log, &e.args, e.queue, now, t.out)
        else:
            status = light_append(log, &e.args, e.queue, now, t.out, e.light)
        if status != APPEND_OK:
            return status
        e.offset, e.queue_offset = t.out.offset, t.out.queue_offset
        m.store_timestamp = t.out.store_timestamp
        room -= e.args.size
        m.done += 1
    return APPEND_OK


cdef dict own_of(dict common, object message, Py_ssize_t i):
    # What message i of a put_many has, of its own or of the keywords.
    own = dict(common)
    if isinstance(message, (bytes, bytearray, memoryview)) or not hasattr(message, "keys"):
        own["body"] = message
        return own
    unknown = set(message) - {"body", *common}
    if unknown or "body" not in message:
        raise errors.MessageIllegal(f"message {i} has {', '.join(sorted(map(repr, unknown))) or 'no body'}: give "
                                    "body and any of tags, keys, properties, flag, light_queues")
    own.update(message)
    own["light_queues"] = names_of(own["light_queues"])
    if own["keys"] is not None:
        own["keys"] = joined_keys(own["keys"])
    return own


cdef object names_of(object light_queues):
    # An iterator gives its names once, and they are looked at twice.
    return list(light_queues) if hasattr(light_queues, "__next__") else light_queues


@cython.final
cdef class Mixed:
    """Checked, and ready to be placed."""

    def __cinit__(self, int64_t room):
        self.kept = []
        self.each = <Each *> calloc(room + 1, sizeof(Each))
        if self.each == NULL:
            raise MemoryError("messages")

    def __dealloc__(self):
        free(self.each)

    cdef int add(self, StorePut store, object topic, object queue_id, dict own, object sys_flag, object born_timestamp,
                 object born_host) except -1:
        cdef Each *e = &self.each[self.n]
        cdef RecordArgs *a = &e.args
        cdef Topic real = store._topic(topic)
        cdef Topic t = real
        cdef bytes body = self._body(store, own["body"])
        cdef LightPut light = None
        kept = store._properties(a, own["properties"], own["tags"], own["keys"])
        if own["light_queues"] is not None or (store.lights.on and kept is not None):
            light = store.lights.take(store, a, topic, own["light_queues"], kept, False)
            if light is not None:
                e.light = &light.light
        if kept is not None and delay_asked(a.properties, a.properties_size):
            topic, queue_id, kept = store._delayed(real, queue_id, kept, sys_flag)
            a.properties, a.properties_size = PyBytes_AS_STRING(kept), <int32_t> PyBytes_GET_SIZE(kept)
            t = store._topic(topic)
        self.wants = self.wants or kept is None or asks_to_wait(a)
        store._arguments(a, own["flag"], sys_flag, born_timestamp, born_host, _ZERO, _ZERO)
        e.queue = store._queue(t, queue_id)
        a.topic, a.topic_size, a.queue_id = t.text, t.size, e.queue.queue_id
        a.body, a.body_size = <const unsigned char *> PyBytes_AS_STRING(body), <int32_t> PyBytes_GET_SIZE(body)
        if t is not real:
            store._check_delivered(a, real, False)
        record_prepare(a)
        store._check_size(a, False)
        if a.body_size < GIL_RELEASE_BYTES_MIN:
            a.body_crc = body_crc32(a.body, a.body_size)
        else:
            with nogil:
                a.body_crc = body_crc32(a.body, a.body_size)
        self.largest = max(self.largest, a.body_size)
        self.kept.append((kept, body, own, t, light))
        self.n += 1
        return 0

    cdef bytes _body(self, StorePut store, object body):
        # What is not bytes is copied: somebody may change it before it is placed.
        if type(body) is bytes:
            size = len(body)
        else:
            try:
                view = memoryview(body)
            except TypeError:
                view = None
            if view is None or not view.c_contiguous:
                raise errors.MessageIllegal(f"body of message {self.n} is a {type(body).__name__}: give bytes or a contiguous "
                                            "buffer (encode text first)")
            size = view.nbytes
        if size > store.body_size_max:
            store._failed(errors.MessageIllegal(errors.exceeds(
                f"body size of message {self.n}", f"{size} bytes", store.body_size_max,
                "split or compress it, or raise message_size_max_bytes")))
        return body if type(body) is bytes else bytes(view)

    cdef int place(self, StorePut store, MixedTurn *m, bint born_now) except -1:
        cdef RecordArgs a               # nothing of it is looked at
        cdef Appended out
        m.turn = Turn(args=&a, queue=NULL, out=&out, size=0, born_now=born_now)
        m.each, m.n, m.done = self.each, self.n, 0
        while m.done < m.n:
            place_locked(store, _place_mixed, &m.turn, self.largest >= GIL_RELEASE_BYTES_MIN, m.done > 0)
        return 0
