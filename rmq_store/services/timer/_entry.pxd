# An entry of the timer's queue that is taken: it goes into the wheel, or is delivered because its slot is over.
from libc.stdint cimport int32_t, int64_t

from rmq_store.codec._record cimport RecordView
from rmq_store.services.timer._timerlog cimport Wheel

cdef enum:
    WAITS = 1                       # for dispatch, or for what comes before


# A unit for the record at this log offset, in the slot `due` or in one on the way to it. 0 or -errno.
cdef int entry_place(Wheel *t, const RecordView *v, int64_t physical, int32_t size, int64_t due, int32_t magic) noexcept nogil
# physical, size: of the record. offset: in the queue. 0; WAITS: the entry stays the next one; -errno: try again.
cdef int entry_enqueue(Wheel *t, const RecordView *v, int64_t physical, int32_t size, int64_t offset) noexcept nogil
