# Arguments of the calls that read, checked: each error names the argument, what it was, and what to give. Under the GIL.
from libc.stdint cimport int64_t

cpdef int64_t whole(object value, str name, int64_t low, int64_t high) except? -1   # a whole number from `low` to `high`
cdef bytes utf8(object value, str name)     # text as the store has it; a str that is no text finds nothing, and is no error
