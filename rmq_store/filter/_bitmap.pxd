# Bit maps of messages: for each group with a SQL92 filter of the topic, whether the message fulfils it (RocketMQ:
# CommitLogDispatcherCalcBitMap, and the queue's half of ExpressionMessageFilter). bloom.py says which bits a group has.
#
# A FilterTable never changes: the control plane makes another one. The dispatcher evaluates it for each record, without the GIL;
# readers look at one GroupFilter of it.
from libc.stdint cimport int32_t, int64_t

from rmq_store.filter._program cimport FilterProgram, SqlFilter


cdef enum:
    BIT_MAP_SIZE_MAX = 1200     # bytes: 1000 groups with an error of 1 %
    GROUP_BITS_MAX = 7          # an error of 1 %

cdef struct GroupBits:
    int64_t born                # ms: only records stored later are known to have the group's bits
    int64_t since               # log offset from which on this process has dispatched with it
    int in_force                # atomic: 0 before dispatch ceases to evaluate it
    int32_t size                # bytes of a bit map
    int32_t count
    int32_t[GROUP_BITS_MAX] positions

cdef struct TopicFilters:
    const char *topic           # NULL: an empty slot
    int32_t topic_size
    int32_t begin, end          # of its filters

cdef struct FilterEntry:
    const FilterProgram *program    # NULL: a text that is not understood here, but may be elsewhere. Its bits are always set
    const GroupBits *bits

cdef struct FilterSet:
    TopicFilters *slots         # open addressing
    FilterEntry *entries
    int64_t mask
    int32_t size                # bytes of a bit map


# The bit map of a record: its size; 0: no group has a filter of the topic. bits: room for BIT_MAP_SIZE_MAX bytes.
cdef int32_t filter_bits(const FilterSet *s, const char *topic, int32_t topic_size, const char *properties,
                         int32_t properties_size, unsigned char *bits) noexcept nogil


cdef inline bint bits_missed(const GroupBits *g, const unsigned char *bit_map, int64_t size, int64_t stored) noexcept nogil:
    # Whether a bit map says that the message, stored at `stored`, does not fulfil the group's filter. One that is not known to
    # speak of it never does.
    cdef int32_t i, p
    if size != g.size or stored <= g.born:
        return False
    for i in range(g.count):
        p = g.positions[i]
        if not bit_map[p >> 3] & (1 << (p & 7)):
            return True
    return False


cdef class GroupFilter:
    cdef GroupBits bits
    cdef readonly str topic
    cdef readonly str group
    cdef readonly SqlFilter program     # None: not understood


cdef class FilterTable:
    cdef FilterSet set
    cdef tuple filters          # keeps what the set points to
    cdef dict by_sql
    cdef list topics
    cdef void *memory

    cdef int _fill(self) except -1
    cdef GroupFilter find(self, object topic, str sql)
