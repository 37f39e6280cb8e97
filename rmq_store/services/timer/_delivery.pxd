# The copy of a timer message that is due, or the record of one that is rolled.
from libc.stdint cimport int64_t

from rmq_store.codec._record cimport RecordView
from rmq_store.services.timer._timerlog cimport Wheel

cdef enum:
    NO_ROOM = 2                     # for what a rolled message has to say


# 0 delivered, now or before a crash, or skipped and counted; NO_ROOM; -errno: try again. entered: when the timer log got it.
cdef int timer_deliver(Wheel *t, const RecordView *v, int64_t entered, bint rolled) noexcept nogil
# Whether this entry is in the queue once more, as it was rolled, or was delivered. known: it has a unit, so that the copy is
# still to be asked for.
cdef bint timer_rolled(Wheel *t, const RecordView *v, bint known) noexcept nogil
