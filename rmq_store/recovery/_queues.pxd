# How far the queues lead, found out and made true while a store opens. The opening thread only.
from rmq_store.consumequeue._owner cimport QueueTableOwner
from rmq_store.segment._file cimport FileRow


cdef class QueueRecovery:
    # The row belongs to the store; it is borrowed while the store opens.
    cdef QueueTableOwner owner
    cdef FileRow *row
    cdef void attach(self, QueueTableOwner owner, FileRow *row)
