# Owner of the index files of one directory: what Python holds while native threads use `index`.
cimport cython
from libc.stdint cimport int64_t

from rmq_store.base.io._io cimport IoTable
from rmq_store.queues.index._index cimport Index


@cython.final
cdef class IndexOwner:
    cdef Index *index
    cdef readonly str dir
    cdef IoTable io
    cdef readonly int64_t file_size     # bytes of each file

    cdef object _failed(self, int rc, str what)
