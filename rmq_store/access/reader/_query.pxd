# Reading by key, by time and by unique id.
from libc.stdint cimport int32_t, int64_t

from rmq_store.access.reader._get cimport Found, StoreGet


cdef struct KeyRequest:
    const char *topic
    const char *key
    int64_t begin
    int64_t end
    int64_t max
    int32_t topic_size
    int32_t key_size
    int64_t *offsets
    Found *found
    int64_t found_count
    int64_t last_timestamp
    int64_t last_physical
    bint exact
    int error


cdef class StoreQuery(StoreGet):
    cdef int64_t query_batch_max, query_count_max

    cdef int _query(self, KeyRequest *r) noexcept nogil
