"""The arguments of put and put_async. Contract in _arguments.pxd."""
import sys

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject, PyTypeObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc
from libc.string cimport memchr, memcmp, memcpy

from rmq_store.codec._layout cimport PROPERTIES_SIZE_MAX

from rmq_store import errors
from rmq_store.codec.properties import CRC_PROPERTY as _CRC_PROPERTY, delete_property

cdef extern from "Python.h":
    ctypedef PyObject *(*PyCFunction)(PyObject *, PyObject *)
    ctypedef struct PyMethodDef:
        const char *ml_name
        PyCFunction ml_meth
        int ml_flags
        const char *ml_doc
    ctypedef struct Type "PyTypeObject":
        PyObject *tp_dict
    int METH_FASTCALL, METH_KEYWORDS
    object PyDescr_NewMethod(PyTypeObject *owner, PyMethodDef *method)
    void PyType_Modified(PyTypeObject *owner)
    Py_ssize_t PyTuple_GET_SIZE(PyObject *names)
    PyObject *PyTuple_GET_ITEM(PyObject *names, Py_ssize_t i)
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1

cdef str _SIGNATURE = (
    "($self, topic, body, *, queue_id=0, tags=None, keys=None, properties=None, flag=0, sys_flag=0, born_timestamp=None, "
    "born_host=None, reconsume_times=0, prepared_transaction_offset=0, delay_level=None, deliver_at=None, delay=None, "
    "light_queues=None, wait=None)\n--\n\n")

cdef tuple _NAMES = tuple(map(sys.intern, (
    "topic", "body", "queue_id", "wait", "tags", "keys", "properties", "delay_level", "deliver_at", "delay",
    "light_queues",
    "flag", "sys_flag", "born_timestamp", "born_host", "reconsume_times", "prepared_transaction_offset")))
cdef object _ZERO = 0
cdef bytes _CRC = _CRC_PROPERTY.encode()
cdef list _kept = []            # what method definitions point into
cdef PyObject *_names[ARGUMENTS]
cdef PyObject *_defaults[ARGUMENTS]

for _i in range(ARGUMENTS):
    _names[_i] = <PyObject *> _NAMES[_i]
    _defaults[_i] = <PyObject *> None
for _i in (QUEUE_ID, FLAG, SYS_FLAG, RECONSUME_TIMES, PREPARED_TRANSACTION_OFFSET):
    _defaults[_i] = <PyObject *> _ZERO
_defaults[TOPIC] = _defaults[BODY] = NULL


cdef void arguments_default(PyObject **v) noexcept:
    memcpy(v, _defaults, sizeof(_defaults))


cdef bint arguments_bare(PyObject **v) noexcept:
    return memcmp(v + TAGS, &_defaults[TAGS], (FLAG - TAGS) * sizeof(PyObject *)) == 0


cdef bint delay_given(PyObject **v) noexcept:
    return memcmp(v + DELAY_LEVEL, &_defaults[DELAY_LEVEL], (LIGHT_QUEUES - DELAY_LEVEL) * sizeof(PyObject *)) != 0


cdef bint arguments_plain(PyObject **v) noexcept:
    return memcmp(v + FLAG, &_defaults[FLAG], (ARGUMENTS - FLAG) * sizeof(PyObject *)) == 0


cpdef str joined_keys(object keys):
    """KEYS as a record has it, out of a str or an iterable of keys: str. Raises MessageIllegal."""
    if isinstance(keys, str):
        return keys
    try:
        found = None if isinstance(keys, (bytes, bytearray, memoryview)) else list(keys)
    except TypeError:
        found = None
    if found is None:
        raise errors.MessageIllegal(f"keys is a {type(keys).__name__}: give a str, or an iterable of str")
    for key in found:
        if not isinstance(key, str) or not key or " " in key:
            raise errors.MessageIllegal(f"one of keys is {key!r}: give each as a str that is not empty and has no blank, which "
                                        "separates keys")
    return " ".join(found)


cdef bint checked_wait(object wait) except -1:
    if wait is not True and wait is not False:
        raise errors.MessageIllegal(f"wait is {wait!r}: give True, False, or None for what flush_mode says")
    return wait is True


cdef bytes without_crc(bytes properties, bint record_crc):
    # An incoming checksum is another record's, or none: ours is appended when the record is encoded. Without record_crc, one at
    # the end goes, too: every reader would hold the record against it.
    if record_crc or ends_in_crc(PyBytes_AS_STRING(properties), PyBytes_GET_SIZE(properties)):
        return delete_property(properties, _CRC) if _CRC in properties else properties
    return properties


cdef int _place(object name) except -2:
    # For names that are not the interned ones; -1: no argument is called so.
    return _NAMES.index(name) if name in _NAMES else -1


cdef int arguments_parse(str function, PyObject **v, PyObject *const *args, Py_ssize_t given, PyObject *names) except -1:
    cdef Py_ssize_t i
    cdef PyObject *name
    cdef unsigned seen = 3
    cdef int k
    memcpy(v, _defaults, sizeof(_defaults))
    if given == 2:
        v[TOPIC], v[BODY] = args[0], args[1]
    elif given > 2:
        raise TypeError(f"{function}() takes 2 positional arguments, topic and body, but {given} were given")
    else:
        seen = <unsigned> given
        v[TOPIC] = args[0] if given else NULL
    if names != NULL:
        for i in range(PyTuple_GET_SIZE(names)):
            name = PyTuple_GET_ITEM(names, i)
            k = 0
            while k < ARGUMENTS and _names[k] != name:
                k += 1
            if k == ARGUMENTS:
                k = _place(<object> name)
            if k < 0:
                raise TypeError(f"{function}() got an unexpected keyword argument '{<object> name}'")
            if seen >> k & 1:
                raise TypeError(f"{function}() got multiple values for argument '{<object> name}'")
            seen |= 1 << k
            v[k] = args[given + i]
    if seen & 3 != 3:
        raise TypeError(f"{function}() is missing {' and '.join(_NAMES[k] for k in range(2) if not seen >> k & 1)}")
    return 0


cdef void arguments_method(type owner, str name, Method method, str doc) except *:
    cdef PyMethodDef *m = <PyMethodDef *> calloc(1, sizeof(PyMethodDef))     # as long as the class: for good
    cdef bytes called = name.encode(), text = (name + _SIGNATURE + doc).encode()
    if m == NULL:
        raise MemoryError("method")
    _kept.append((called, text))
    m.ml_name = called
    m.ml_meth = <PyCFunction> <void *> method
    m.ml_flags = METH_FASTCALL | METH_KEYWORDS
    m.ml_doc = text
    (<dict> (<Type *> owner).tp_dict)[name] = PyDescr_NewMethod(<PyTypeObject *> owner, m)
    PyType_Modified(<PyTypeObject *> owner)


cdef int64_t integer_of(object value, str name, int64_t low, int64_t high) except? -1:
    cdef int overflow = 0
    cdef int64_t n
    if not isinstance(value, int):
        raise errors.MessageIllegal(f"{name} is {value!r}: give an integer")
    n = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or n < low or n > high:
        raise errors.MessageIllegal(errors.exceeds(name, value, f"{low} to {high}", "give a number in that range"))
    return n


cdef const char *text_of(object value, str name, Py_ssize_t *size) except NULL:
    # UTF-8 of a property value given as a keyword; the two separator bytes cannot be stored inside one.
    cdef const char *text
    if not isinstance(value, str):
        raise errors.MessageIllegal(f"{name} is a {type(value).__name__}: give a str")
    try:
        text = PyUnicode_AsUTF8AndSize(value, size)
    except UnicodeEncodeError as error:
        raise errors.MessageIllegal(f"{name} is {value!r}: UTF-8 cannot hold surrogates, remove them") from error
    if memchr(text, 1, size[0]) != NULL or memchr(text, 2, size[0]) != NULL:
        raise errors.MessageIllegal(f"{name} is {value!r}: the bytes 0x01 and 0x02 separate properties, remove them")
    if size[0] > PROPERTIES_SIZE_MAX:
        raise errors.PropertiesSizeExceeded(errors.exceeds(f"{name} size", f"{size[0]} bytes", PROPERTIES_SIZE_MAX,
                                                           "shorten it"))
    return text
