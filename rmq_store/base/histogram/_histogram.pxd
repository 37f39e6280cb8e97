# Log-linear histogram of nanoseconds (native/include/rmq_histogram.h is the contract) and the Python owner of one.
from libc.stdint cimport int64_t


cdef extern from "rmq_histogram.h" nogil:
    enum: RMQ_HISTOGRAM_SLOTS, RMQ_HISTOGRAM_STEPS
    ctypedef struct rmq_histogram:
        int64_t count, total, highest, below
        int64_t *counts
    int rmq_histogram_slot(int64_t value)
    int64_t rmq_histogram_low(int slot)
    void rmq_histogram_add(rmq_histogram *h, int64_t value)
    void rmq_histogram_add_shared(rmq_histogram *h, int64_t value)
    void rmq_histogram_merge(rmq_histogram *to, const rmq_histogram *source)
    int64_t rmq_histogram_highest(const rmq_histogram *h)
    int64_t rmq_histogram_lowest(const rmq_histogram *h)
    int64_t rmq_histogram_quantile(const rmq_histogram *h, double q)


cdef class Histogram:
    cdef rmq_histogram *h
