# Many messages under few turns of the put lock, and puts that do not wait.
from libc.stdint cimport int64_t

from rmq_store.access.writer._put cimport StorePut
from rmq_store.codec._record cimport RecordArgs

cdef struct Piece               # private to the room: one message of a batch


cdef class PutManyResult:
    cdef readonly int64_t count
    cdef readonly int64_t store_timestamp
    cdef int64_t end
    cdef int64_t *places            # count pairs: offset, queue offset
    cdef int code
    cdef bytes host


cdef class StorePutMany(StorePut):
    cdef object _finish_many(self, PutManyResult r, int wants)
    cdef int64_t _largest(self, RecordArgs *a, list bodies) except -1
    cdef object _element(self, Piece *p, object element, object topic, bytes common)
    cdef object _ask(self, what, tuple arguments)
