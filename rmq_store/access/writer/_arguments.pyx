"""The arguments of put and put_async. Contract in _arguments.pxd."""
import sys

from cpython.object cimport PyObject, PyTypeObject
from libc.stdlib cimport calloc
from libc.string cimport memcmp, memcpy

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


cdef bytes without_crc(bytes properties):
    # An incoming checksum is another record's, or none: ours is appended when the record is encoded.
    return delete_property(properties, _CRC) if _CRC in properties else properties


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
