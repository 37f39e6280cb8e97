# Which back end a log gets.
from rmq_store.log.commitlog._log cimport Log


# The one that options.flush_backend names. how: what backend.choose_backend has found out about it. Raises OSError.
cdef int backend_use(Log *log, object options, object how) except -1
