# Errors that pass by themselves (native/include/rmq_want.h has the contract).
from libc.stdint cimport int64_t


cdef extern from "rmq_want.h" nogil:
    const int64_t RMQ_WANT_RETRY_NS
    bint rmq_is_full(int rc)
    bint rmq_is_want(int rc)
    bint rmq_is_want_of_open(int rc)
