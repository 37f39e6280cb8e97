"""Where the newest message of each key of a topic is. Contract in the .pyi.

The thread that reads a table, under the table's lock. Records are found and parsed without the GIL, as by get; no Message is
made of them. RocketMQ: kv.CompactionLog, whose map goes from a key (all of KEYS) to a queue offset in the same way.
"""
import os

cimport cython
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport free, malloc

from rmq_store.access.reader._batches cimport unwrapped
from rmq_store.access.reader._checked cimport utf8
from rmq_store.access.reader._get cimport Found, GetRequest, StoreGet
from rmq_store.access.reader._message cimport Message
from rmq_store.base.segment._file cimport log_file_release
from rmq_store.codec._inner cimport BATCH_UNIT_SIZE
from rmq_store.codec._record cimport PropertyView, RecordView, properties_scan

from rmq_store import errors

cdef enum:
    NOT_READABLE = 1            # status.RunningFlags
    OFFSET_TOO_SMALL = 6
    AT_ONCE = 256
    BYTES_AT_ONCE = 1 << 20


@cython.final
@cython.no_gc
cdef class Place:
    # 48 bytes. Dead: the newest message of the key has no body, which deletes it.
    cdef int64_t offset, timestamp
    cdef int32_t queue_id
    cdef bint dead


cdef bint is_blank(const char *text, int32_t size) noexcept nogil:
    # commons-lang's StringUtils.isBlank, as a broker asks it of KEYS; of the white space that Java knows, that of ASCII.
    cdef int32_t i
    for i in range(size):
        if text[i] != 32 and not 9 <= text[i] <= 13 and not 28 <= text[i] <= 31:
            return False
    return True


@cython.final
cdef class Places:
    """Where the newest message of each key is. Thread-safety: the caller's."""

    cdef dict _of                   # key: Place
    cdef list _died, _died_before   # keys that were deleted in this round and in the one before
    cdef readonly Py_ssize_t live

    def __init__(self):
        self._of, self._died, self._died_before = {}, [], []

    def __len__(self):
        return len(self._of)

    def keys(self):
        return [key for key, place in self._of.items() if not (<Place> place).dead]

    def at(self, key):
        cdef object found = self._of.get(key)
        if found is None or (<Place> found).dead:
            return None
        return (<Place> found).queue_id, (<Place> found).offset

    def drop(self, key, queue_id, offset):
        cdef object found = self._of.get(key)
        if found is not None and (<Place> found).queue_id == queue_id and (<Place> found).offset == offset:
            self.live -= not (<Place> found).dead
            del self._of[key]

    def drop_queue(self, queue_id, below):
        cdef Place place
        gone = []
        for key, found in self._of.items():
            place = <Place> found
            if place.queue_id == queue_id and place.offset < below:
                gone.append(key)
        for key in gone:
            self.live -= not (<Place> self._of[key]).dead
            del self._of[key]

    def begin_round(self):
        cdef object found
        for key in self._died_before:
            found = self._of.get(key)
            if found is not None and (<Place> found).dead:
                del self._of[key]
        self._died_before, self._died = self._died, []

    def take(self, StoreGet store not None, topic, queue_id, begin, end, Py_ssize_t keys_max):
        cdef GetRequest r
        cdef bytes name = utf8(topic, "topic")
        cdef int64_t last = end, i
        cdef Found *slot
        cdef Message m
        r.topic, r.topic_size = name, <int32_t> len(name)
        r.queue_id, r.offset = queue_id, begin
        r.codes, r.codes_count, r.filter, r.bits, r.slave_rules, r.unwraps = NULL, 0, NULL, NULL, False, True
        r.bytes_max = r.bytes_max_memory = r.bytes_max_disk = BYTES_AT_ONCE
        r.count_max_memory = r.count_max_disk = AT_ONCE
        r.memory_bytes = INT64_MAX
        r.scan_bytes_max = AT_ONCE * BATCH_UNIT_SIZE
        r.count_max = min(<int64_t> AT_ONCE, last - r.offset)
        if r.count_max < 1:
            return begin
        store._enter()
        if store.flags & NOT_READABLE:
            raise errors.StoreNotReadable(store.path)
        r.found = <Found *> malloc(r.count_max * sizeof(Found))
        if r.found == NULL:
            raise MemoryError("table")
        store.calls += 1
        with nogil:
            store._get(&r)
        store.calls -= 1
        try:
            if r.batched:
                records = store._views(&r, None)
                r.found_count = 0           # the views have the holds now
                found, r.next_offset, _ = unwrapped(records, &r, None)
                for m in found:
                    if m.v.queue_offset < last and len(self._of) < keys_max + 1:
                        self._add(&m.v, <int32_t> r.queue_id, m.v.queue_offset)
            for i in range(r.found_count):
                slot = &r.found[i]
                if slot.queue_offset < last and len(self._of) < keys_max + 1:
                    self._add(&slot.view, <int32_t> r.queue_id, slot.queue_offset)
        finally:
            for i in range(r.found_count):
                if r.found[i].held:
                    log_file_release(r.found[i].file)
            free(r.found)
        if r.error < 0:
            raise OSError(-r.error, os.strerror(-r.error), f"{store.path}: {topic}, queue {queue_id}, offset {begin}")
        if r.status == OFFSET_TOO_SMALL:
            return -1
        return min(max(r.next_offset, r.offset), last)

    def take_one(self, Message message not None, queue_id):
        self._add(&message.v, <int32_t> queue_id, message.v.queue_offset)

    cdef int _add(self, const RecordView *v, int32_t queue_id, int64_t offset) except -1:
        # offset: in this queue. The record of a light queue's entry has the one of its own queue.
        # A message of the same queue is newer; of two queues the one that was stored later is.
        cdef PropertyView p
        cdef Place place
        cdef object found
        cdef bint dead = v.body_size == 0
        properties_scan(v.properties, v.properties_size, &p)
        if p.keys == NULL or is_blank(p.keys, p.keys_size):
            return 0
        key = PyUnicode_DecodeUTF8(p.keys, p.keys_size, "replace")
        found = self._of.get(key)
        if found is None:
            place = Place.__new__(Place)
            place.dead = True
            self._of[key] = place
        else:
            place = <Place> found
            if place.queue_id != queue_id and place.timestamp > v.store_timestamp:
                return 0
        self.live += <int> place.dead - <int> dead
        place.offset, place.timestamp = offset, v.store_timestamp
        place.queue_id, place.dead = queue_id, dead
        if dead:
            self._died.append(key)
        return 0
