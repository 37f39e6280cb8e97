"""The I/O table a store works with: the real system calls, or a probe for tests."""


cdef extern from "rmq_io.h" nogil:
    const rmq_io *rmq_io_system()


cdef class IoTable:
    """Owner of one table of system calls; this class is the real one.

    Thread-safety: immutable. Lifetime: a store keeps a reference as long as any of its threads runs.
    """

    def __cinit__(self):
        self.table = rmq_io_system()
