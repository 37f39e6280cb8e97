"""Arguments of the calls that read, checked. Contract in _checked.pxd."""
from libc.stdint cimport int64_t

from rmq_store import errors

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1


cpdef int64_t whole(object value, str name, int64_t low, int64_t high) except? -1:
    """`value` as a whole number from `low` to `high`. Raises ArgumentIllegal, which names the argument."""
    cdef int overflow = 0
    cdef int64_t number = 0
    if not isinstance(value, int):
        try:
            value = value.__index__()       # a numpy integer
        except (AttributeError, TypeError):
            raise errors.illegal(name, value, f"give a whole number, {low} to {high}") from None
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or number < low or number > high:
        raise errors.illegal(name, value, f"give a whole number, {low} to {high}")
    return number


cdef bytes utf8(object value, str name):
    if not isinstance(value, str):
        raise errors.illegal(name, value, "give a str")
    return (<str> value).encode("utf-8", "surrogatepass")
