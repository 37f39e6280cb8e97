# The offsets of consumer groups, one row for each group, topic and queue, as native threads read and write them beside Python.
#
# Python alone makes rows; they stay until the table goes. An offset is one word, so nobody needs a lock to read or to set it.
from libc.stdint cimport int32_t, int64_t, uint32_t

cdef struct OffsetRow:
    int64_t offset              # atomic; NO_OFFSET: none
    uint32_t hash
    int32_t queue_id
    int32_t group_size
    int32_t topic_size
    char *text                  # the group, and behind it, without a byte between, the topic

cdef struct OffsetSlots:
    OffsetSlots *older          # a table that was too small, which somebody may still read
    uint32_t mask
    OffsetRow **rows            # open addressing; NULL: free

cdef struct OffsetTable:
    OffsetSlots *slots          # atomic
    int changed                 # atomic: an offset was set since somebody last asked
    uint32_t seed

# NULL: there is none, or it is one that Python keeps for itself.
cdef OffsetRow *offsets_find(OffsetTable *t, const char *group, int32_t group_size, const char *topic, int32_t topic_size,
                             int32_t queue_id) noexcept nogil
cdef int64_t offsets_get(const OffsetRow *r) noexcept nogil         # negative: none that a group could have committed
# False, and nothing is changed: the row has no offset, because Python has removed it, or one that no group has committed.
cdef bint offsets_commit(OffsetTable *t, OffsetRow *r, int64_t offset) noexcept nogil

cdef class OffsetCell:
    cdef OffsetRow row
    cdef readonly bint shared       # whether native threads know it: then there is never another one for the same queue

cdef class OffsetRows:
    cdef OffsetTable table
    cdef list _kept             # of OffsetCell
    cdef int _share(self, OffsetCell cell, str group, str topic, int32_t queue_id) except -1
    cdef int _grow(self) except -1
