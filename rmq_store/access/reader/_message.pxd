# Message views over the mapped log, and the leases that keep the map in place under them.
from libc.stdint cimport int32_t, int64_t

from rmq_store.base.io._io cimport IoTable
from rmq_store.base.segment._file cimport LogFile
from rmq_store.codec._record cimport RecordView


cdef extern from *:
    """
    #include <stddef.h>
    typedef struct rmq_lent { struct rmq_lent *next, **before; void *map; size_t size; int apart; int *forked; } rmq_lent;
    """
    ctypedef struct rmq_lent:
        # What a lease shows, in the list of all: it comes along to a child of fork.
        void *map               # NULL: memory that comes along
        size_t size
        int apart               # the map does not come along by itself
        int *forked             # set in the parent

cdef class LeaseCount:
    # How many leases of one store are alive. Shared by the store and its leases, so that it outlives the store; the last lease
    # unmaps by the I/O table.
    cdef int64_t alive
    cdef IoTable io


cdef class Lease:
    # One hold on one file for all views a call made over it. They have it as a memoryview, from which those of bodies are made.
    cdef LogFile *file
    cdef LeaseCount count
    cdef rmq_lent lent
    cdef int forks              # how many there had been when it was made


cdef class Message:
    cdef object lease           # memoryview of a Lease, or of the bytes of a copied record
    cdef RecordView v
    cdef dict _properties
    cdef object inflated_batch  # of a message in a compressed inner batch: memoryview of the bytes that it lies in
    cdef int32_t place          # of a message in an inner batch: its number there, from 1 on; 0: it is a record of its own


cdef object lease_new(LogFile *f, LeaseCount count)     # takes over the caller's hold
cdef Message message_new(object lease, const RecordView *v)
