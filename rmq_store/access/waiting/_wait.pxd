# Readers that wait for what is not there yet.
from libc.stdint cimport int64_t

from rmq_store.access.reader._query cimport StoreQuery
from rmq_store.queues.consumequeue._queue cimport Queue


cdef class StoreWait(StoreQuery):
    cdef readonly object _hubs      # WeakSet of Arrivals: close() detaches them
    cdef object problem             # why what another process puts cannot be followed: an exception, None: it can

    cdef int _sleep(self, Queue *q, int ticket, int64_t timeout_ns, bint sliced) except -1
    cdef Queue *_queue_to_wait_for(self, object topic, object queue_id) except NULL
