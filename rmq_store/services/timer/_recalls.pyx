"""Recalls that are known, and which messages they name. Contract in _recalls.pxd.

Source: TimerDequeueGetMessageService (5.3.3).
"""
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from rmq_store.access.reader._look cimport record_at
from rmq_store.access.writer._put cimport find_property
from rmq_store.base.io._sync cimport ENOMEM
from rmq_store.base.segment._file cimport LogFile, log_file_release
from rmq_store.codec._record cimport RecordView
from rmq_store.log.commitlog._log cimport Log
from rmq_store.services.delivery._deliverer cimport deliver_number

cdef enum:
    PLACES_MIN = 64

cdef uint64_t HASH_BEGIN = 0xCBF29CE484222325U          # FNV-1a


cdef uint64_t _hash(uint64_t h, const char *text, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        h = (h ^ <unsigned char> text[i]) * <uint64_t> 0x100000001B3U
    return h


cdef int64_t _slot(const Recalls *r, const RecordView *v) noexcept nogil:
    # The number of its slot; -1: it has no time.
    cdef const char *text = NULL
    cdef Py_ssize_t size = 0
    cdef int64_t due = 0
    if (not find_property(v.properties, v.properties_size, b"TIMER_OUT_MS", 12, &text, &size)
            or deliver_number(text, size, &due) < 0):
        return -1
    return due // r.precision


cdef int _grow(Recalls *r) noexcept nogil:
    cdef Recalls more = r[0]
    cdef int64_t i, at
    more.places = 2 * r.places if r.places > 0 else PLACES_MIN
    more.table = <Recall *> calloc(more.places, sizeof(Recall))
    if more.table == NULL:
        return -ENOMEM
    for i in range(r.places):
        if r.table[i].size != 0:
            at = <int64_t> (r.table[i].hash % <uint64_t> more.places)
            while more.table[at].size != 0:
                at = (at + 1) % more.places
            more.table[at] = r.table[i]
    free(r.table)
    r[0] = more
    return 0


cdef int recalls_add(Recalls *r, const RecordView *v) noexcept nogil:
    cdef const char *key = NULL
    cdef Py_ssize_t size = 0
    cdef int64_t slot = _slot(r, v), at
    cdef uint64_t h
    if slot < 0 or not find_property(v.properties, v.properties_size, b"TIMER_DEL_UNIQKEY", 17, &key, &size):
        return 0
    if 2 * (r.used + 1) > r.places and _grow(r) < 0:
        return -ENOMEM
    h = _hash(_hash(HASH_BEGIN, key, size), <const char *> &slot, sizeof(slot))
    at = <int64_t> (h % <uint64_t> r.places)
    while r.table[at].size != 0:
        if r.table[at].physical == v.physical_offset:
            return 0
        at = (at + 1) % r.places
    r.table[at].hash, r.table[at].physical, r.table[at].size = h, v.physical_offset, v.size
    r.used += 1
    return 0


cdef int recalls_name(const Recalls *r, Log *log, const RecordView *v) noexcept nogil:
    cdef const char *topic = NULL
    cdef const char *key = NULL
    cdef const char *gone = NULL
    cdef Py_ssize_t topic_size = 0, key_size = 0, gone_size = 0
    cdef RecordView d
    cdef LogFile *f = NULL
    cdef int64_t slot, at
    cdef uint64_t h
    cdef bint found
    cdef int rc
    if (r.used == 0 or not find_property(v.properties, v.properties_size, b"UNIQ_KEY", 8, &key, &key_size)
            or not find_property(v.properties, v.properties_size, b"REAL_TOPIC", 10, &topic, &topic_size)):
        return 0
    slot = _slot(r, v)
    h = _hash(_hash(_hash(HASH_BEGIN, topic, topic_size), b"+", 1), key, key_size)
    h = _hash(h, <const char *> &slot, sizeof(slot))
    at = <int64_t> (h % <uint64_t> r.places)
    while r.table[at].size != 0:
        if r.table[at].hash == h:
            rc = record_at(log, r.table[at].physical, r.table[at].size, &d, &f)
            if rc == 0:
                found = (find_property(d.properties, d.properties_size, b"TIMER_DEL_UNIQKEY", 17, &gone, &gone_size)
                         and gone_size == topic_size + 1 + key_size and memcmp(gone, topic, topic_size) == 0
                         and gone[topic_size] == 43 and memcmp(gone + topic_size + 1, key, key_size) == 0
                         and _slot(r, &d) == slot)
                log_file_release(f)
                f = NULL
                if found:
                    return 1
            elif rc != -1:
                return rc
        at = (at + 1) % r.places
    return 0


cdef void recalls_forget(Recalls *r) noexcept nogil:
    free(r.table)
    r.table = NULL
    r.places = r.used = 0
