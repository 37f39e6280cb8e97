"""Bit maps of messages, made and looked at without the GIL. Contract in _bitmap.pxd."""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memset

from rmq_store.base.io._sync cimport rmq_publish, rmq_publish32
from rmq_store.filter._program cimport FILTER_TRUE, SqlFilter, filter_evaluate

BIT_MAP_BYTES_MAX = BIT_MAP_SIZE_MAX


cdef inline uint32_t _hash(const char *text, int32_t size) noexcept nogil:
    cdef uint32_t h = 2166136261
    cdef int32_t i
    for i in range(size):
        h = (h ^ <unsigned char> text[i]) * 16777619
    return h ^ (h >> 15)


cdef inline TopicFilters *_slot(const FilterSet *s, const char *topic, int32_t size) noexcept nogil:
    # That of the topic, or the empty one where it would stand.
    cdef int64_t at = _hash(topic, size) & s.mask
    cdef TopicFilters *slot = &s.slots[at]
    while slot.topic != NULL and (slot.topic_size != size or memcmp(slot.topic, topic, size) != 0):
        at = (at + 1) & s.mask
        slot = &s.slots[at]
    return slot


cdef int32_t filter_bits(const FilterSet *s, const char *topic, int32_t topic_size, const char *properties,
                         int32_t properties_size, unsigned char *bits) noexcept nogil:
    cdef const TopicFilters *slot = _slot(s, topic, topic_size)
    cdef const FilterEntry *entry
    cdef int32_t i, n, p
    if slot.topic == NULL:
        return 0
    memset(bits, 0, s.size)
    for i in range(slot.begin, slot.end):
        entry = &s.entries[i]
        if entry.program == NULL or filter_evaluate(entry.program, properties, properties_size) == FILTER_TRUE:
            for n in range(entry.bits.count):
                p = entry.bits.positions[n]
                bits[p >> 3] |= <unsigned char> (1 << (p & 7))
    return s.size


@cython.final
cdef class GroupFilter:
    """The filter of a group over a topic, as the dispatcher evaluates it. The memory behind it does not move.

    positions: the group's bits in a bit map of `size` bytes. program: None where the expression cannot be parsed. born: ms.
    """

    def __cinit__(self, str group not None, str topic not None, SqlFilter program, positions, int32_t size, int64_t born):
        cdef int32_t i, count = <int32_t> len(positions)
        if not 0 < count <= GROUP_BITS_MAX or not 0 < size <= BIT_MAP_SIZE_MAX or not all(0 <= p < 8 * size for p in positions):
            raise ValueError(f"{positions} are not the bits of a group in {size} bytes")
        self.group, self.topic, self.program = group, topic, program
        self.bits.count, self.bits.size, self.bits.born = count, size, born
        self.bits.in_force = 1
        for i in range(count):
            self.bits.positions[i] = positions[i]

    def begin(self, int64_t at, int64_t born):
        """Dispatch evaluates it from log offset `at` on. Nothing that is stored later than `born` was dispatched before."""
        self.bits.since = at
        rmq_publish(&self.bits.born, born)

    def end(self):
        """Dispatch will not evaluate it any more: reads that are under way do not look at its bits from here on."""
        rmq_publish32(&self.bits.in_force, 0)


@cython.final
cdef class FilterTable:
    """All filters for which dispatch makes bit maps. filters: of GroupFilter, for bit maps of `size` bytes."""

    def __cinit__(self, filters, int32_t size):
        cdef GroupFilter f
        self.filters = tuple(sorted(filters, key=lambda found: (found.topic, found.group)))
        self.by_sql = {}
        self.topics = []
        self.set.size = size
        for f in self.filters:
            if f.bits.size != size:
                raise ValueError(f"the bit maps of {f.group} have {f.bits.size} bytes, not {size}")
            if f.program is not None:
                self.by_sql.setdefault((f.topic, f.program.sql), f)
        self._fill()

    cdef int _fill(self) except -1:
        cdef int64_t slots = 2
        cdef int32_t i, count = <int32_t> len(self.filters)
        cdef GroupFilter f
        cdef TopicFilters *slot
        cdef bytes topic
        while slots < 2 * count:
            slots *= 2
        self.memory = calloc(1, slots * sizeof(TopicFilters) + (count + 1) * sizeof(FilterEntry))
        if self.memory == NULL:
            raise MemoryError("filters")
        self.set.slots = <TopicFilters *> self.memory
        self.set.entries = <FilterEntry *> (self.set.slots + slots)
        self.set.mask = slots - 1
        for i in range(count):
            f = self.filters[i]
            topic = f.topic.encode("utf-8", "surrogatepass")
            self.set.entries[i].program = NULL if f.program is None else &f.program.program
            self.set.entries[i].bits = &f.bits
            slot = _slot(&self.set, PyBytes_AS_STRING(topic), <int32_t> PyBytes_GET_SIZE(topic))
            if slot.topic == NULL:
                self.topics.append(topic)
                slot.topic, slot.topic_size = PyBytes_AS_STRING(topic), <int32_t> PyBytes_GET_SIZE(topic)
                slot.begin = i
            slot.end = i + 1
        return 0

    cdef GroupFilter find(self, object topic, str sql):
        return self.by_sql.get((topic, sql))

    def bit_map(self, bytes topic not None, bytes properties not None):
        """The bit map of a message with these stored properties: bytes; empty where no group has a filter of the topic."""
        cdef unsigned char[BIT_MAP_SIZE_MAX] bits
        cdef int32_t n = filter_bits(&self.set, PyBytes_AS_STRING(topic), <int32_t> len(topic), PyBytes_AS_STRING(properties),
                                     <int32_t> len(properties), bits)
        return bits[:n]

    def __dealloc__(self):
        free(self.memory)
