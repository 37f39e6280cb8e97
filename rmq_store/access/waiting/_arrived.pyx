"""Entries of a queue, for listeners that are told of each message. The thread of the listeners; nothing is changed."""
import os

from libc.stdint cimport int32_t, int64_t

from rmq_store.access.reader._checked cimport utf8
from rmq_store.access.waiting._wait cimport StoreWait
from rmq_store.base.io._sync cimport rmq_load
from rmq_store.codec._layout cimport UNIT_SIZE
from rmq_store.codec._unit cimport is_ext_address, unit_blank, unit_code, unit_physical
from rmq_store.queues.consumequeue._queue cimport Queue, queue_read, queue_read_ext, queues_find

cdef enum:
    UNITS_AT_ONCE = 64
    BIT_MAP_MAX = 32767         # of an extension unit: its size is a Java short


def arrived_entries(StoreWait store not None, topic, queue_id, int64_t begin, int64_t end):
    """([(queue offset, log offset, tags code, bit map), ...], next queue offset): some entries from `begin` on, below `end`.

    bit map: bytes, or None where the entry has no extension unit with one. Raises OSError, StoreClosed."""
    cdef unsigned char[UNITS_AT_ONCE * UNIT_SIZE] units
    cdef unsigned char[BIT_MAP_MAX] bits
    cdef const unsigned char *unit
    cdef bytes name = utf8(topic, "topic")
    cdef int32_t number = queue_id
    cdef int64_t code, stored = 0, low, n = 0, size, i
    cdef Queue *q
    store._enter()
    q = queues_find(store.queues, name, <int32_t> len(name), number, False)
    if q == NULL:
        return [], end
    low = rmq_load(&q.min_offset)
    if begin < low:
        begin = low             # cleaning was quicker
    if begin < end:
        n = min(end - begin, <int64_t> UNITS_AT_ONCE)
        store.calls += 1
        with nogil:
            n = queue_read(store.queues, q, begin, units, n)
        store.calls -= 1
    if n < 0:
        raise OSError(-n, os.strerror(-n), f"{store.path}: {topic}, queue {queue_id}, offset {begin}")
    if n == 0:
        return [], end          # the queue was emptied, or its file deleted
    found = []
    for i in range(n):
        unit = units + i * UNIT_SIZE
        if unit_blank(unit):
            continue
        code, size = unit_code(unit), 0
        if is_ext_address(code):
            store._enter()      # making a tuple may begin a collection, and that close the store
            size = queue_read_ext(store.queues, q, code, &code, &stored, bits, BIT_MAP_MAX)
        found.append((begin + i, unit_physical(unit), code, bits[:min(size, <int64_t> BIT_MAP_MAX)] if size > 0 else None))
    return found, begin + n
