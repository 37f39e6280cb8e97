# Reading by key, by time and by unique id.
from rmq_store.reader._get cimport StoreGet


cdef struct KeyRequest


cdef class StoreQuery(StoreGet):
    cdef int _query(self, KeyRequest *r) noexcept nogil
