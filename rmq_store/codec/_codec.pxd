# The checked arguments of one message, shared by the Python-facing encoders.
from cpython.buffer cimport Py_buffer
from libc.stdint cimport int64_t

from rmq_store.codec._record cimport RecordArgs


cdef class RecordSource:
    # Owns what args points to; args went through record_prepare. One thread; nothing in it is visible to Python code.
    cdef RecordArgs args
    cdef int64_t queue_offset
    cdef int64_t physical_offset
    cdef int64_t store_timestamp
    cdef Py_buffer _body
    cdef bint _has_body
    cdef object _topic
    cdef object _properties
    cdef object _tags
    cdef object _keys

    cdef int _fill_properties(self, properties, tags, keys, bint five, bint crc_property) except -1
