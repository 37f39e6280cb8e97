# The arguments of a put, which has seventeen and mostly gets three. Compiled methods hold a reference to each, given or not,
# which is a seventh of a put; here they are pointers in an array, borrowed from the caller, laid over one of defaults.
from cpython.object cimport PyObject
from libc.stdint cimport int64_t
from libc.string cimport memcmp

cdef enum:
    TOPIC, BODY, QUEUE_ID, WAIT,
    TAGS, KEYS, PROPERTIES, DELAY_LEVEL, DELIVER_AT, DELAY, LIGHT_QUEUES,
    FLAG, SYS_FLAG, BORN_TIMESTAMP, BORN_HOST, RECONSUME_TIMES, PREPARED_TRANSACTION_OFFSET,    # seldom given
    ARGUMENTS

ctypedef PyObject *(*Method)(PyObject *me, PyObject *const *args, Py_ssize_t given, PyObject *names) except NULL

# An integer in [low, high], and the UTF-8 of a property's value; `name` is for the MessageIllegal that they raise.
cdef int64_t integer_of(object value, str name, int64_t low, int64_t high) except? -1
cdef const char *text_of(object value, str name, Py_ssize_t *size) except NULL
cpdef str joined_keys(object keys)         # KEYS as stored, out of a str or an iterable of str
cdef bint checked_wait(object wait) except -1
# Without the property __CRC32#, wherever it stands if record_crc is on.
cdef bytes without_crc(bytes properties, bint record_crc)
cdef void arguments_default(PyObject **v) noexcept
# What a call gave, as vectorcall hands it on; raises TypeError as Python functions do.
cdef int arguments_parse(str function, PyObject **v, PyObject *const *args, Py_ssize_t given, PyObject *names) except -1
cdef bint arguments_bare(PyObject **v) noexcept        # none that makes properties
cdef bint delay_given(PyObject **v) noexcept             # a delay of any kind
cdef bint arguments_plain(PyObject **v) noexcept       # none of those that are seldom given
# Makes `method` the method `name` of a class. doc: its text, without the signature.
cdef void arguments_method(type owner, str name, Method method, str doc) except *


cdef inline bint ends_in_crc(const char *text, Py_ssize_t size) noexcept nogil:
    # Whether readers would take the end of a record with these properties for its checksum.
    return (size >= 20 and memcmp(text + size - 20, b"__CRC32#\x01", 9) == 0
            or size >= 19 and memcmp(text + size - 19, b"__CRC32#\x01", 9) == 0)
