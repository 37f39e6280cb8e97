"""Light queues of a put (RocketMQ: MultiDispatch, LmqDispatch). Contract in _light.pxd.

A light queue is a consume queue %LMQ%name/0 whose entries lead to records of other topics. The record lists the queues in
INNER_MULTI_DISPATCH. The append adds INNER_MULTI_QUEUE_OFFSET, the record's place in each, under the put lock: so dispatch, and
recovery after a crash, only copy what the record says.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from rmq_store.access.core._core cimport StoreCore
from rmq_store.access.writer._plain cimport plain_queue
from rmq_store.base.io._sync cimport rmq_count, rmq_load
from rmq_store.codec._layout cimport FLAG_TRANSACTION, TRANSACTION_COMMIT
from rmq_store.codec._light cimport light_topic
from rmq_store.codec._record cimport RecordArgs, record_prepare, topic_light, topic_spelt
from rmq_store.codec._text cimport digits_put
from rmq_store.log.commitlog._log cimport APPEND_OK, Appended, AppendStatus, Log, log_append
from rmq_store.queues.consumequeue._queue cimport Queue, QueueTable, queues_at, queues_count, queues_find

from rmq_store import errors
from rmq_store.codec.delay import parse_delay_level
from rmq_store.codec.timer import TIMER_NAMES as _TIMER_NAMES
from rmq_store.codec.properties import decode_properties, delete_property

cdef enum:
    NAME_SIZE_MAX = 255         # of a directory

cdef bytes _NAMES = b"INNER_MULTI_DISPATCH"
cdef bytes _OFFSETS = b"INNER_MULTI_QUEUE_OFFSET"
cdef str _PREFIX = "%LMQ%"
cdef str _CURE = "open the store with enable_lmq=True and enable_multi_dispatch=True"


cdef AppendStatus light_append(Log *log, RecordArgs *a, Queue *q, int64_t now, Appended *out, LightQueues *l) noexcept nogil:
    cdef int kind = a.sys_flag & FLAG_TRANSACTION
    cdef bint queued = kind == 0 or kind == TRANSACTION_COMMIT
    cdef int32_t n = l.fixed, i
    cdef AppendStatus status
    for i in range(l.count if queued else 0):
        if i > 0:
            l.text[n] = c','
            n += 1
        n += digits_put(l.text + n, l.queues[i].next_offset)
    a.more_properties_size = n if queued else l.named
    record_prepare(a)
    status = log_append(log, a, q, now, out)
    if status == APPEND_OK and queued:
        for i in range(l.count):
            if l.queues[i] != q:        # log_append has moved that one
                rmq_count(&l.queues[i].next_offset, 1)
    return status


@cython.final
@cython.no_gc_clear
cdef class LightPut:
    def __dealloc__(self):
        if self.new:
            self.rules._over(self)
        free(self.light.queues)
        free(self.light.text)

    cdef int reserve(self, QueueTable *table, list names, bint named) except -1:
        # named: INNER_MULTI_DISPATCH is to be written as well.
        cdef bytes text = _OFFSETS + b"\x01", name
        cdef LightQueues *own = &self.light
        cdef Py_ssize_t i
        if named:
            text = _NAMES + b"\x01" + b",".join(names) + b"\x02" + text
        own.fixed = <int32_t> PyBytes_GET_SIZE(text)
        own.named = own.fixed - <int32_t> PyBytes_GET_SIZE(_OFFSETS) - 1
        own.count = <int32_t> len(names)
        own.text = <char *> malloc(own.fixed + own.count * NUMBER_SIZE_MAX)
        own.queues = <Queue **> malloc(own.count * sizeof(Queue *))
        if own.text == NULL or own.queues == NULL:
            raise MemoryError("light queues")
        memcpy(own.text, PyBytes_AS_STRING(text), own.fixed)
        for i in range(own.count):
            name = names[i]
            own.queues[i] = plain_queue(table, name, 0)
        return 0


cdef list _checked(object given):
    # The full names, as bytes, of names with or without their prefix.
    cdef list names = []
    cdef bytes text
    if isinstance(given, (str, bytes)):
        raise errors.MessageIllegal(f"light_queues is {given!r}: give a list of names")
    try:
        given = list(given)
    except TypeError:
        raise errors.MessageIllegal(f"light_queues is a {type(given).__name__}: give a list of names") from None
    for name in given:
        if not isinstance(name, str) or name in ("", _PREFIX):
            raise errors.MessageIllegal(f"one of light_queues is {name!r}: give each as a str that is not empty")
        if "," in name:
            raise errors.MessageIllegal(f"one of light_queues is {name!r}: a comma separates the names in a record, so no name "
                                        "can have one: give two names, or another name")
        text = (name if name.startswith(_PREFIX) else _PREFIX + name).encode("utf-8", "surrogatepass")
        if not topic_spelt(PyBytes_AS_STRING(text), <int32_t> len(text)):
            raise errors.MessageIllegal(f"one of light_queues is {name!r}: only the characters % | A-Z a-z 0-9 _ - can be "
                                        "stored")
        if len(text) > NAME_SIZE_MAX:
            raise errors.MessageIllegal(errors.exceeds("size of a light queue's name", f"{len(text)} bytes with %LMQ%",
                                                       NAME_SIZE_MAX, "shorten it"))
        if text in names:
            raise errors.MessageIllegal(f"light_queues names {name!r} twice: give each queue once")
        names.append(text)
    return names


cdef list _listed(str value):
    # The names in a property INNER_MULTI_DISPATCH, which is stored as it is.
    cdef list names = value.rstrip(",").split(",")
    for name in names:
        if not name.startswith(_PREFIX):
            raise errors.MessageIllegal(f"the property INNER_MULTI_DISPATCH is {value!r}: begin each name in it with "
                                        f"{_PREFIX}, or give the names as light_queues")
    return names


cdef class LightRules:
    def __init__(self, options):
        self.on = options.enable_lmq and options.enable_multi_dispatch
        self.compat5 = options.compat == "5.x"
        self.count_max = options.lmq_count_max
        self.putting = {}

    cdef LightPut take(self, StoreCore store, RecordArgs *a, object topic, object names, bytes kept,
                       bint copy):
        cdef LightPut put
        # What is no str is refused later. _wanted runs code of the caller, which may close the store.
        cdef list found = self._wanted(topic, names, kept) if isinstance(topic, str) else None
        if not found:
            return None
        store._enter()
        put = LightPut.__new__(LightPut)
        put.kept = kept
        if kept is not None and _OFFSETS in kept:
            put.kept = delete_property(kept, _OFFSETS)      # another record's
            a.properties = PyBytes_AS_STRING(put.kept)
            a.properties_size = <int32_t> PyBytes_GET_SIZE(put.kept)
        self.hold(store, put, found, names is not None, copy)
        a.trailing_separator = self.compat5
        a.more_properties = put.light.text
        a.more_properties_size = put.light.fixed + put.light.count * NUMBER_SIZE_MAX
        return put

    cdef int hold(self, StoreCore store, LightPut put, list names, bint named, bint copy) except -1:
        cdef list new = self._new_among(store.queues, names)
        if new and not copy:
            self._refuse_many(store, new)
        put.reserve(store.queues, names, named)
        if new:
            self._count_rows(store.queues, &put.light)
            put.store, put.rules = store, self
            self.unsure = self.unsure or self.doubt
            for name in new:
                before = self.putting.get(name, 0)
                self.count += before == 0
                self.putting[name] = before + 1
            put.new = new
        return 0

    cdef list _wanted(self, str topic, object names, bytes kept):
        # The checked names that the call, or the property, gives; None, or empty: none.
        cdef bytes name = topic.encode("utf-8", "surrogatepass")
        cdef bint may = light_topic(PyBytes_AS_STRING(name), <int32_t> len(name))
        cdef dict known
        cdef list found
        if names is None and (kept is None or _NAMES not in kept or not may):
            return None
        known = decode_properties(kept) if kept is not None else {}
        if names is not None:
            found = _checked(names)
            if found and not self.on:
                raise errors.ServiceNotAvailable(f"the message names {len(found)} light queues, and this store has none: "
                                                 + _CURE)
            if found and not may:
                raise errors.MessageIllegal(f"topic is {topic!r}: its messages are in no light queue: put the message to "
                                            "another topic")
            if found and "INNER_MULTI_DISPATCH" in known:
                raise errors.MessageIllegal("light_queues and the property INNER_MULTI_DISPATCH are two names for one field: "
                                            "give one of them")
        else:
            found = _checked(_listed(known["INNER_MULTI_DISPATCH"])) if "INNER_MULTI_DISPATCH" in known else []
        if found and (parse_delay_level(known.get("DELAY")) > 0 or not known.keys().isdisjoint(_TIMER_NAMES)):
            raise errors.MessageIllegal("the message has a delay level or a time of delivery, and light queues, and the "
                                        "delivery of a delayed message knows its own queue only: put it without one of the "
                                        "two")
        return found

    cdef list _new_among(self, QueueTable *table, list names):
        # Those that would be light queues by this put, or by another one that is under way. None: as a rule.
        cdef list new = None
        cdef bytes name
        cdef Queue *q
        self.doubt = False
        for name in names:
            q = queues_find(table, PyBytes_AS_STRING(name), <int32_t> PyBytes_GET_SIZE(name), 0, False)
            if q == NULL or rmq_load(&q.next_offset) == 0:
                self.doubt = self.doubt or (q != NULL and name not in self.putting)
                if new is None:
                    new = []
                new.append(name)
        return new

    cdef int _refuse_many(self, StoreCore store, list new) except -1:
        cdef int64_t more = 0
        for name in new:
            more += name not in self.putting
        self._count_rows(store.queues, NULL)
        if self.count + more > self.count_max and (self.unsure or self.removed != store.queues_removed):
            self.removed = store.queues_removed
            self._recount(store.queues)
        if self.count + more > self.count_max:
            raise errors.LmqConsumeQueueNumExceeded(errors.exceeds(
                "number of light queues", f"{self.count} with {more} more", self.count_max,
                "put to those that are there, delete some, or raise lmq_count_max"))
        return 0

    cdef void _count_rows(self, QueueTable *table, const LightQueues *but) noexcept:
        # Rows that are new since the last look; `but`: without those.
        cdef int64_t end = queues_count(table)
        cdef Queue *q
        cdef int32_t i
        while self.seen < end:
            q = queues_at(table, self.seen)
            self.seen += 1
            if topic_light(q.topic, q.topic_size):
                self.count += 1
                for i in range(but.count if but != NULL else 0):
                    if but.queues[i] == q:
                        self.count -= 1

    cdef void _recount(self, QueueTable *table) noexcept:
        cdef int64_t i
        cdef Queue *q
        self.seen, self.count, self.unsure = queues_count(table), 0, False
        for i in range(self.seen):
            q = queues_at(table, i)
            if topic_light(q.topic, q.topic_size):
                self.count += rmq_load(&q.next_offset) > 0 or q.topic[:q.topic_size] in self.putting

    cdef int _over(self, LightPut put) except -1:
        # A put has ended, in whatever way.
        cdef bytes name
        cdef Queue *q
        for name in put.new:
            left = self.putting[name] - 1
            if left:
                self.putting[name] = left
                continue
            del self.putting[name]
            if put.store.queues == NULL:        # closed meanwhile
                continue
            q = queues_find(put.store.queues, PyBytes_AS_STRING(name), <int32_t> PyBytes_GET_SIZE(name), 0, False)
            self.count -= q == NULL or rmq_load(&q.next_offset) == 0
        return 0
