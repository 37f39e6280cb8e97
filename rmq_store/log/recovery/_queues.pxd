# How far the queues lead, found out and made true while a store opens. The opening thread only.
from rmq_store.base.segment._file cimport FileRow
from rmq_store.queues.consumequeue._owner cimport QueueTableOwner


cdef class QueueRecovery:
    # The row belongs to the store; it is borrowed while the store opens.
    cdef QueueTableOwner owner
    cdef FileRow *row
    cdef int threads        # for many queues, the caller's counted
    cdef void attach(self, QueueTableOwner owner, FileRow *row, int threads)
