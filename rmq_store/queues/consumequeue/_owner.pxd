# The Python owner of a queue table: a store keeps one and works on its `table`; offline tools and tests use its methods.
from libc.stdint cimport int64_t

from rmq_store.base.io._io cimport IoTable
from rmq_store.queues.consumequeue._queue cimport Queue, QueueTable


cdef class QueueTableOwner:
    cdef QueueTable *table
    cdef IoTable io
    cdef readonly str dir
    cdef readonly str ext_dir
    cdef readonly str batch_dir         # "": no topic has batch queues
    cdef readonly int64_t file_size
    cdef readonly int64_t ext_file_size
    cdef readonly bint readonly

    cdef Queue *find(self, bytes topic, int queue_id) except NULL
    cdef int check(self, int64_t rc, bytes topic, int queue_id) except -1
    cdef int check_queue(self, int rc, const Queue *q) except -1    # q counts only where rc is an error
