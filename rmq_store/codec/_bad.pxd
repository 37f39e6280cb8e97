# Why a record is bad: one list for recovery, walks, verify, repair and scrub. codec/bad.py has the same names with a sentence
# each; tests/codec/test_bad.py compares them. Pure functions: no clock, no I/O, no Python; any thread.
from rmq_store.codec._record cimport (RECORD_BAD_MAGIC, RECORD_OK, RecordStatus, RecordView, body_crc32, record_crc_check,
                                      topic_fits)

cdef enum Bad:
    BAD_NOT = 0
    BAD_ZEROS = 1           # nothing was ever written there
    BAD_MAGIC = 2
    BAD_SIZE = 3            # a length is impossible, or the parts do not add up
    BAD_PLACE = 4           # its physicalOffset is another one
    BAD_BODY_CRC = 5
    BAD_RECORD_CRC = 6      # __CRC32#, where it has one or one is required
    BAD_FIELD = 7           # a topic or a queue that no store writes
    BAD_TORN = 8            # a sector of its end never reached the device


cdef inline Bad parse_bad(RecordStatus status, const RecordView *v) noexcept nogil:
    # What record_parse found. An end-of-file record is a record here: the caller asks for it first.
    if status == RECORD_OK:
        return BAD_NOT
    if status == RECORD_BAD_MAGIC:
        return BAD_ZEROS if v.magic == 0 and v.size == 0 else BAD_MAGIC
    return BAD_SIZE


cdef inline Bad body_bad(const RecordView *v) noexcept nogil:
    return BAD_BODY_CRC if v.body_size > 0 and body_crc32(v.body, v.body_size) != v.body_crc else BAD_NOT


cdef inline Bad crc_bad(const RecordView *v, bint required) noexcept nogil:
    # Both checksums. required: a record without __CRC32# is bad.
    cdef Bad bad = body_bad(v)
    cdef int found
    if bad != BAD_NOT:
        return bad
    found = record_crc_check(v)
    return BAD_RECORD_CRC if found == 0 or (required and found < 0) else BAD_NOT


cdef inline Bad field_bad(const RecordView *v) noexcept nogil:
    # What no checksum of RocketMQ's covers, and dispatch steps over.
    return BAD_FIELD if v.queue_id < 0 or v.queue_offset < 0 or not topic_fits(v.topic, v.topic_size) else BAD_NOT
