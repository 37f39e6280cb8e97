# A client batch (the body of a send-batch request), walked without copying and with every bound checked. Pure functions: no
# clock, no I/O, no allocation, no Python; any thread.
#
#   # field              bytes        the store makes of each element one record: own flag, body and properties, everything else
#   1 totalSize          4            (queue id, sysFlag, hosts, times) from the request; its properties are followed by those
#   2 magicCode = 0      4            of the batch as a whole. All elements of a batch lie in one file.
#   3 bodyCRC = 0        4
#   4 flag               4
#   5 bodyLength         4
#   6 body               n
#   7 propertiesLength   2
#   8 properties         n
#
# Source: MessageDecoder.encodeMessage, MessageExtEncoder.encode(MessageExtBatch).
from libc.stdint cimport int32_t, int64_t

from rmq_store.codec._layout cimport (ELEMENT_AT_BODY, ELEMENT_AT_BODY_SIZE, ELEMENT_AT_FLAG, ELEMENT_AT_SIZE,
                                      ELEMENT_FIXED_SIZE, PROPERTIES_SIZE_MAX)
from rmq_store.codec._record cimport RecordArgs, record_prepare, rmq_get16, rmq_get32

cdef enum BatchStatus:
    BATCH_END = 0
    BATCH_ELEMENT = 1
    BATCH_BAD_SIZE = -1             # a length is negative, leads past the end, or the parts add up to something else
    BATCH_PROPERTIES_SIZE = -2      # properties of an element and of the batch exceed 32767 bytes together

cdef struct BatchElement:
    # Pointers lead into the caller's bytes.
    const unsigned char *body
    const char *properties
    int32_t body_size
    int32_t properties_size
    int32_t flag

cdef struct BatchReader:
    const unsigned char *at         # the next element; after an error the bad one
    const unsigned char *end


cdef inline void batch_begin(BatchReader *r, const unsigned char *data, int64_t size) noexcept nogil:
    r.at = data
    r.end = data + size


cdef inline BatchStatus batch_next(BatchReader *r, BatchElement *out) noexcept nogil:
    # Stricter than RocketMQ in one thing: it never looks at totalSize, here it must be right.
    cdef int64_t left = r.end - r.at
    cdef int64_t total
    if left == 0:
        return BATCH_END
    if left < ELEMENT_FIXED_SIZE:
        return BATCH_BAD_SIZE
    total = rmq_get32(r.at + ELEMENT_AT_SIZE)
    out.flag = rmq_get32(r.at + ELEMENT_AT_FLAG)
    out.body_size = rmq_get32(r.at + ELEMENT_AT_BODY_SIZE)
    if total < ELEMENT_FIXED_SIZE or total > left or out.body_size < 0 or out.body_size > total - ELEMENT_FIXED_SIZE:
        return BATCH_BAD_SIZE
    out.body = r.at + ELEMENT_AT_BODY
    out.properties_size = rmq_get16(out.body + out.body_size)
    out.properties = <const char *> (out.body + out.body_size + 2)
    if out.properties_size < 0 or out.properties_size != total - ELEMENT_FIXED_SIZE - out.body_size:
        return BATCH_BAD_SIZE
    r.at += total
    return BATCH_ELEMENT


cdef inline int32_t batch_args(RecordArgs *a, const BatchElement *e) noexcept nogil:
    # Puts an element into the arguments that all records of the batch share (more_properties: those of the batch). Returns the
    # size of its record. The body's CRC is left to record_encode.
    a.body = e.body
    a.body_size = e.body_size
    a.body_crc = -1
    a.properties = e.properties
    a.properties_size = e.properties_size
    a.flag = e.flag
    return record_prepare(a)


cdef inline int64_t batch_measure(RecordArgs *a, const unsigned char *data, int64_t size, int64_t *total) noexcept nogil:
    # Walks the whole batch before anything is written. Returns the number of elements, and in *total the bytes of their
    # records; or a negative BatchStatus, and in *total the position of the bad element in `data`.
    cdef BatchReader r
    cdef BatchElement e
    cdef int status
    cdef int64_t count = 0
    cdef int64_t sum = 0
    batch_begin(&r, data, size)
    while True:
        total[0] = r.at - data
        status = batch_next(&r, &e)
        if status == BATCH_END:
            total[0] = sum
            return count
        if status < 0:
            return status
        sum += batch_args(a, &e)
        if a.properties_total > PROPERTIES_SIZE_MAX:
            return BATCH_PROPERTIES_SIZE
        count += 1
