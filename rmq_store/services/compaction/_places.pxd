# KEYS that are none, as a broker decides it.
from libc.stdint cimport int32_t

cdef bint is_blank(const char *text, int32_t size) noexcept nogil
