# Entries of the queue that an open reads a second time: which of them need not be taken again. The opening thread fills this,
# the timer's thread asks, in the order of the queue.
from libc.stdint cimport int64_t

from rmq_store.services.timer._timerlog cimport Wheel

# Of which records from `begin`, a queue offset, on the timer log has units. 0 or -errno.
cdef int again_units(Wheel *t, int64_t begin, int64_t last) noexcept nogil
# True: the record at this log offset has a unit.
cdef bint again_has(Wheel *t, int64_t physical) noexcept nogil
# The messages that were rolled are in the queue once more. Fills t.rolled with those of entries from `begin` on whose unit came
# into the timer log at `entered` ms or later. 0 or -errno.
cdef int again_rolled(Wheel *t, int64_t begin, int64_t entered) noexcept nogil
# Queue offset of the first entry whose record lies at `physical` or behind. -errno.
cdef int64_t again_entry(Wheel *t, int64_t physical) noexcept nogil
# 1: an earlier process gave the record at this log offset another unit, after `entered` ms. 0 or -errno. Reads the timer log.
cdef int again_later(Wheel *t, int64_t physical, int64_t entered) noexcept nogil
# The log offset of the record of the first unit that came in the same tick as the last one, and that tick in ms. 0 or -errno.
cdef int again_last_tick(Wheel *t, int64_t *physical, int64_t *entered) noexcept nogil
cdef void again_free(Wheel *t) noexcept nogil
