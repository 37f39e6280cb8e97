# A slot of the timer wheel that is over.
from libc.stdint cimport int64_t

from rmq_store.services.timer._timerlog cimport Wheel

# Delivers its messages in the order of their units, and clears it. 0; -errno: try again, it goes on where it was.
cdef int slot_deliver(Wheel *t, int64_t time_ms) noexcept nogil
