# The face of the timer. Contract of what is below in _timerlog.pxd.
from libc.stdint cimport int64_t

from rmq_store.services.delivery._deliverer cimport DeliveryThread
from rmq_store.services.timer._timerlog cimport Wheel


cdef class TimerWheel(DeliveryThread):
    cdef object path
    cdef Wheel *wheel
    cdef readonly object damaged_at
    cdef readonly int64_t unread
    cdef int _load(self, int64_t known_ms, int64_t known_end, int64_t known_offset, int64_t mark, again) except -1
    cdef int _load_offset(self, int64_t known_offset, int64_t mark, int64_t last, bint damaged, again) except -1
    cdef int _check(self, int64_t rc) except -1
