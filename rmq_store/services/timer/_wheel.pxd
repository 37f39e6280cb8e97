# The face of the timer. Contract of what is below in _timerlog.pxd.
from rmq_store.services.timer._timerlog cimport Wheel


cdef class TimerWheel:
    cdef object store
    cdef object path
    cdef Wheel *wheel
    cdef int *alive
    cdef int _free(self) except -1
