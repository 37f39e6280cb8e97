# A flush back end of another package: rmq_backend.h.
from rmq_store.log.commitlog._log cimport Log


# how: the PyCapsule that its entry point gave. Raises BackendUnavailable, OSError.
cdef int foreign_make(Log *log, object options, object how) except -1
