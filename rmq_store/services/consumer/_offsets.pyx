"""The offsets of consumer groups as native threads read and write them. Contract in _offsets.pxd.

Python keeps a cell for each offset. The cells of the first ROWS_MAX offsets are in the table, too, and live as long as it.
"""
import os

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from rmq_store.base.io._sync cimport rmq_load, rmq_load32, rmq_publish32, rmq_swap32

cdef extern from *:
    """
    static inline void *offsets_look(void **at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
    static inline void offsets_put(void **at, void *value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
    static inline int64_t offsets_swap(int64_t *at, int64_t value) { return __atomic_exchange_n(at, value, __ATOMIC_ACQ_REL); }
    static inline int offsets_cas(int64_t *at, int64_t *before, int64_t value) {
        return __atomic_compare_exchange_n(at, before, value, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    """
    void *offsets_look(void **at) noexcept nogil
    void offsets_put(void **at, void *value) noexcept nogil
    int64_t offsets_swap(int64_t *at, int64_t value) noexcept nogil
    bint offsets_cas(int64_t *at, int64_t *before, int64_t value) noexcept nogil

cdef enum:
    ROWS_FIRST = 64
    PROBES_MAX = 64             # a name that finds no place so far away is Python's: peers choose names

ROWS_MAX = 1 << 18              # offsets that native threads know; the others are Python's alone
cdef int64_t NO_OFFSET = INT64_MIN


cdef uint32_t _hash(uint32_t seed, const char *group, int32_t group_size, const char *topic, int32_t topic_size,
                    int32_t queue_id) noexcept nogil:
    # FNV-1a from a begin that no peer knows.
    cdef uint32_t h = seed
    cdef int32_t i
    for i in range(group_size):
        h = (h ^ <unsigned char> group[i]) * 16777619u
    for i in range(topic_size):
        h = (h ^ <unsigned char> topic[i]) * 16777619u
    h = (h ^ <uint32_t> queue_id) * 16777619u
    return h ^ h >> 15


cdef OffsetRow *offsets_find(OffsetTable *t, const char *group, int32_t group_size, const char *topic, int32_t topic_size,
                             int32_t queue_id) noexcept nogil:
    cdef OffsetSlots *s = <OffsetSlots *> offsets_look(<void **> &t.slots)
    cdef uint32_t hash
    cdef uint32_t i
    cdef OffsetRow *r
    if s == NULL:
        return NULL
    hash = _hash(t.seed, group, group_size, topic, topic_size, queue_id)
    for i in range(PROBES_MAX):
        r = <OffsetRow *> offsets_look(<void **> &s.rows[(hash + i) & s.mask])
        if r == NULL:
            return NULL
        if (r.hash == hash and r.queue_id == queue_id and r.group_size == group_size and r.topic_size == topic_size
                and memcmp(r.text, group, group_size) == 0 and memcmp(r.text + group_size, topic, topic_size) == 0):
            return r
    return NULL


cdef int64_t offsets_get(const OffsetRow *r) noexcept nogil:
    return rmq_load(&r.offset)


cdef bint offsets_commit(OffsetTable *t, OffsetRow *r, int64_t offset) noexcept nogil:
    cdef int64_t before = rmq_load(&r.offset)
    while before >= 0:
        if before == offset:
            return True
        if offsets_cas(&r.offset, &before, offset):
            rmq_publish32(&t.changed, 1)
            return True
    return False


cdef bint _place(OffsetSlots *s, OffsetRow *r) noexcept nogil:
    cdef uint32_t i
    cdef OffsetRow **at
    for i in range(PROBES_MAX):
        at = &s.rows[(r.hash + i) & s.mask]
        if at[0] == NULL:
            offsets_put(<void **> at, r)
            return True
    return False


@cython.final
cdef class OffsetCell:
    """The offset of one group in one queue. Any thread."""

    def __dealloc__(self):
        free(self.row.text)

    @property
    def offset(self):
        """int, or None where there is none."""
        cdef int64_t offset = rmq_load(&self.row.offset)
        return None if offset == NO_OFFSET else offset

    def set(self, int64_t offset):
        """Returns whether it was another one."""
        return offsets_swap(&self.row.offset, offset) != offset

    def take(self):
        """Removes the offset. Returns whether there was one."""
        return offsets_swap(&self.row.offset, NO_OFFSET) != NO_OFFSET


@cython.no_gc_clear         # __dealloc__ frees what the rows of _kept stand in
cdef class OffsetRows:
    """The cells of one store. Thread-safety: `cell` has one caller at a time."""

    def __cinit__(self):
        self._kept = []
        self.table.seed = int.from_bytes(os.urandom(4), "little")

    def __dealloc__(self):
        cdef OffsetSlots *s = self.table.slots
        cdef OffsetSlots *older
        while s != NULL:
            older = s.older
            free(s.rows)
            free(s)
            s = older

    def cell(self, str group not None, str topic not None, queue_id):
        """A new cell, without an offset. The caller has none for this queue."""
        cdef OffsetCell cell = OffsetCell.__new__(OffsetCell)
        cell.row.offset = NO_OFFSET
        if len(self._kept) < ROWS_MAX and 0 <= queue_id < 1 << 31:
            self._share(cell, group, topic, queue_id)
        return cell

    cdef int _share(self, OffsetCell cell, str group, str topic, int32_t queue_id) except -1:
        cdef bytes first = group.encode(errors="surrogatepass"), second = topic.encode(errors="surrogatepass")
        cdef OffsetRow *r = &cell.row
        r.text = <char *> malloc(PyBytes_GET_SIZE(first) + PyBytes_GET_SIZE(second) + 1)
        if r.text == NULL:
            raise MemoryError("offsets")
        r.group_size, r.topic_size = <int32_t> PyBytes_GET_SIZE(first), <int32_t> PyBytes_GET_SIZE(second)
        memcpy(r.text, PyBytes_AS_STRING(first), r.group_size)
        memcpy(r.text + r.group_size, PyBytes_AS_STRING(second), r.topic_size)
        r.queue_id = queue_id
        r.hash = _hash(self.table.seed, r.text, r.group_size, r.text + r.group_size, r.topic_size, queue_id)
        if self.table.slots == NULL or 2 * len(self._kept) > self.table.slots.mask:
            self._grow()
        self._kept.append(cell)
        cell.shared = _place(self.table.slots, r)
        if not cell.shared:
            self._kept.pop()
        return 0

    cdef int _grow(self) except -1:
        cdef OffsetSlots *before = self.table.slots
        cdef OffsetSlots *s = <OffsetSlots *> calloc(1, sizeof(OffsetSlots))
        cdef uint32_t i, size = 2 * (before.mask + 1) if before != NULL else ROWS_FIRST
        if s != NULL:
            s.rows = <OffsetRow **> calloc(size, sizeof(OffsetRow *))
        if s == NULL or s.rows == NULL:
            free(s)
            raise MemoryError("offsets")
        s.mask, s.older = size - 1, before
        if before != NULL:
            for i in range(before.mask + 1):
                if before.rows[i] != NULL and not _place(s, before.rows[i]):
                    continue        # found nowhere, it is Python's from now on
        offsets_put(<void **> &self.table.slots, s)
        return 0

    @property
    def changed(self):
        """Whether a native thread has set an offset since `take_changed`: bool."""
        return rmq_load32(&self.table.changed) != 0

    def take_changed(self):
        """As `changed`; asks anew from now on. What was set before this call is seen behind it."""
        return rmq_swap32(&self.table.changed, 0) != 0
