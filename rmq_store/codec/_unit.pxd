# One entry of a queue: reading it, writing it, and what it can be. Pure functions; any thread. Places: _layout.pxd.
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t

from rmq_store.codec._layout cimport EXT_HASH_MIN, UNIT_AT_PHYSICAL_OFFSET, UNIT_AT_SIZE, UNIT_AT_TAGS_CODE, UNIT_FILLER
from rmq_store.codec._record cimport rmq_get32, rmq_get64, rmq_put32, rmq_put64


cdef inline int64_t unit_physical(const unsigned char *u) noexcept nogil:
    # Log offset of the record.
    return rmq_get64(u + UNIT_AT_PHYSICAL_OFFSET)


cdef inline int32_t unit_bytes(const unsigned char *u) noexcept nogil:
    # Bytes of the record.
    return rmq_get32(u + UNIT_AT_SIZE)


cdef inline int64_t unit_code(const unsigned char *u) noexcept nogil:
    # Its tagsCode: a hash, a delivery time, or an address of an extension unit.
    return rmq_get64(u + UNIT_AT_TAGS_CODE)


cdef inline void unit_put(unsigned char *u, int64_t physical, int32_t size, int64_t tags_code) noexcept nogil:
    rmq_put64(u + UNIT_AT_PHYSICAL_OFFSET, physical)
    rmq_put32(u + UNIT_AT_SIZE, size)
    rmq_put64(u + UNIT_AT_TAGS_CODE, tags_code)


cdef inline bint unit_valid(const unsigned char *u) noexcept nogil:
    # Unwritten space is zeros: its size is 0. A record that would end beyond all offsets is none.
    cdef int32_t size = unit_bytes(u)
    return size > 0 and 0 <= unit_physical(u) <= INT64_MAX - size


cdef inline bint unit_blank(const unsigned char *u) noexcept nogil:
    return unit_bytes(u) == UNIT_FILLER and unit_physical(u) == 0


cdef inline bint is_ext_address(int64_t address) noexcept nogil:
    # ConsumeQueueExt.isExtAddr: below every sign-extended 32-bit hash.
    return address < EXT_HASH_MIN


cdef inline int64_t ext_address(int64_t offset) noexcept nogil:
    return offset + INT64_MIN


cdef inline int64_t ext_offset(int64_t address) noexcept nogil:
    return address - INT64_MIN
