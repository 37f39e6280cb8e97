# Reading by key, by time and by unique id.
from libc.stdint cimport int64_t

from rmq_store.reader._get cimport StoreGet


cdef struct KeyRequest


cdef class StoreQuery(StoreGet):
    cdef int64_t query_batch_max, query_count_max

    cdef int _query(self, KeyRequest *r) noexcept nogil
