# Looking at the units of a queue, above all of a batch queue. Places are byte offsets in the row of its files; results may be
# -errno. Any thread.
from libc.stdint cimport int64_t

from rmq_store.queues.consumequeue._descriptors cimport UnitFiles
from rmq_store.queues.consumequeue._state cimport QueueState, TableState

cdef enum:
    BLOCK_UNITS = 88

cdef enum Key:
    BY_BASE                         # queue offset behind the unit
    BY_PHYSICAL                     # log offset of its record
    BY_END                          # log offset behind its record
    BY_TIME

# The unit at a place.
cdef int units_one(TableState *t, UnitFiles *f, unsigned char *u, int64_t at) noexcept nogil
# The place of the last unit in [low, at) that is one, copied to `out`; -1: there is none.
cdef int64_t units_valid_before(TableState *t, UnitFiles *f, int64_t low, int64_t at, unsigned char *out) noexcept nogil
# The place of the first unit in [low, high) whose key is at or beyond `wanted`; high: there is none. What is damaged, and no
# unit any more, leads the search nowhere.
cdef int64_t units_first(TableState *t, UnitFiles *f, int64_t low, int64_t high, Key key, int64_t wanted) noexcept nogil
# Whether it is a unit of a queue that ends at queue offset `limit`.
cdef bint units_within(const unsigned char *u, int64_t limit) noexcept nogil
# Leaves of these units those that lead on from queue offset `at`. mend: also those that only lie about how many messages they
# have; these end where the next one begins, and the caller asks the record. How many.
cdef int64_t units_fitting(unsigned char *units, int64_t n, int64_t at, int64_t limit, bint mend) noexcept nogil

# Following, of a queue of either kind: whether the unit that ends at place `end` is there, in a file of that name: 1, 0 or
# -errno. Where a unit and the queue's last one are gone, a recovery of the writer has cut them off, and brings them back, or
# the queue begins anew. A unit that is gone while the last one is there is damaged.
cdef int units_last_there(TableState *t, QueueState *s, int64_t end) noexcept nogil
# Whether the unit of this queue offset, which was not there, is cut off so: 1: yes, and the follower is told to go back there;
# 0: it is damaged, or deleted, or came meanwhile; -errno.
cdef int units_cut_off(TableState *t, QueueState *s, int64_t from_offset, int64_t end) noexcept nogil
