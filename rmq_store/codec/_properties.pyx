"""Properties string <-> mapping. Contract in _properties.pxd; the public names are in properties.py.

Any thread that holds the GIL; no state. The bytes are made in two passes over the mapping and written once.
Source: MessageDecoder.messageProperties2String and string2messageProperties (4.9.8, 5.3.3).
"""
import codecs
from collections.abc import Mapping

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memchr, memcmp, memcpy

from rmq_store.errors import MessageIllegal, PropertiesSizeExceeded, exceeds

from rmq_store.codec._layout cimport PROPERTIES_SIZE_MAX
from rmq_store.codec._text cimport Property, property_next


cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL


cdef str _called(str what, object name):
    return what if name is None else f"{what} {name!r}"


cdef const char *property_text(object text, str what, object name, Py_ssize_t *size) except NULL:
    cdef const char *data
    if not isinstance(text, str):
        raise MessageIllegal(f"{_called(what, name)} is {type(text).__name__}, not text: give a str")
    try:
        data = PyUnicode_AsUTF8AndSize(text, size)
    except UnicodeEncodeError as error:
        raise MessageIllegal(f"{_called(what, name)} holds a lone surrogate at position {error.start}, which UTF-8 cannot "
                             "hold: replace it") from None
    if size[0] == 0:
        raise MessageIllegal(f"{_called(what, name)} is empty, which a record cannot hold: leave the property out")
    if memchr(data, 1, size[0]) != NULL or memchr(data, 2, size[0]) != NULL:
        raise MessageIllegal(f"{_called(what, name)} holds the character 0x01 or 0x02, which separates properties in a record: "
                             "remove it")
    return data


cdef bytes _encode(dict mapping, bint trailing):
    cdef Py_ssize_t total = 0
    cdef Py_ssize_t name_size, value_size
    cdef const char *name_data
    cdef const char *value_data
    cdef bytes out
    cdef char *p
    for name, value in mapping.items():
        if value is None:
            continue
        property_text(name, "the property name", name, &name_size)
        property_text(value, "the value of property", name, &value_size)
        total += name_size + value_size + 2
    if total > 0 and not trailing:
        total -= 1
    if total > PROPERTIES_SIZE_MAX:
        raise PropertiesSizeExceeded(_too_long(total))
    out = PyBytes_FromStringAndSize(NULL, total)
    p = PyBytes_AS_STRING(out)
    for name, value in mapping.items():
        if value is None:
            continue
        name_data = PyUnicode_AsUTF8AndSize(name, &name_size)
        value_data = PyUnicode_AsUTF8AndSize(value, &value_size)
        memcpy(p, name_data, name_size)
        p += name_size
        p[0] = 1
        memcpy(p + 1, value_data, value_size)
        p += 1 + value_size
        total -= name_size + value_size + 2
        if total >= 0:
            p[0] = 2
            p += 1
    return out


cdef str _too_long(Py_ssize_t size):
    return exceeds("size of the encoded properties", f"{size} bytes", PROPERTIES_SIZE_MAX,
                   "put what is long into the body")


cdef bytes properties_bytes(object properties, bint trailing):
    cdef Py_buffer view
    cdef bytes out
    if properties is None:
        return b""
    if type(properties) is dict:
        return _encode(<dict> properties, trailing)
    if isinstance(properties, bytes):
        out = bytes(properties)
    elif isinstance(properties, Mapping):
        return _encode(dict(properties), trailing)
    else:
        try:
            PyObject_GetBuffer(properties, &view, PyBUF_SIMPLE)
        except (TypeError, BufferError):
            raise MessageIllegal(f"properties are {type(properties).__name__}: give a mapping of str to str, or bytes to be "
                                 "stored as they are") from None
        out = PyBytes_FromStringAndSize(<char *> view.buf, view.len)
        PyBuffer_Release(&view)
    if PyBytes_GET_SIZE(out) > PROPERTIES_SIZE_MAX:
        raise PropertiesSizeExceeded(_too_long(PyBytes_GET_SIZE(out)))
    return out


def _replace_as_java(error):
    # Java makes one U+FFFD of an encoded surrogate (ED A0..BF xx), where Python makes one of each byte.
    data = error.object
    end = error.end
    at = error.start
    if data[at] == 0xED and at + 1 < len(data) and 0xA0 <= data[at + 1] <= 0xBF:
        end = at + 2
        if end < len(data) and 0x80 <= data[end] <= 0xBF:
            end += 1
    return "\ufffd", end


codecs.register_error("rmq_store.java", _replace_as_java)


cdef str java_text(const char *text, Py_ssize_t size):
    return PyUnicode_DecodeUTF8(text, size, "rmq_store.java")


# The few names that nearly all messages carry: made once, with their hash, instead of once a message.
cdef list _known = [None] * 64


cdef str _name(const char *text, Py_ssize_t size):
    cdef Py_ssize_t length
    cdef const char *have
    cdef Py_ssize_t place = (size * 7 + <unsigned char> text[0] + 5 * <unsigned char> text[size - 1]) & 63
    known = _known[place]
    if known is not None:
        have = PyUnicode_AsUTF8AndSize(known, &length)
        if length == size and memcmp(have, text, size) == 0:
            return known
    known = java_text(text, size)
    if size <= 32 and known.isascii():
        _known[place] = known
    return known


cdef dict properties_dict(const char *text, Py_ssize_t size):
    cdef const char *end = text + size
    cdef Property p
    cdef dict out = {}
    while property_next(&text, end, &p):
        out[_name(p.name, p.name_size)] = java_text(p.value, p.value_size)
    return out


def encode_properties(mapping, compat="5.x"):
    """Properties -> the bytes a record holds, in the mapping's order; None values are left out.

    mapping: of str to str. bytes-like: checked for size and returned as given. None: no properties.
    compat: "5.x" ends with 0x02, "4.9" does not. Raises MessageIllegal (a name or value that is no text, empty, or holds 0x01,
    0x02 or a lone surrogate) and PropertiesSizeExceeded (more than 32767 bytes). Any thread.
    Source: MessageDecoder.messageProperties2String.
    """
    if compat not in ("4.9", "5.x"):
        raise ValueError(f"compat is {compat!r}: it is \"4.9\" or \"5.x\"")
    return properties_bytes(mapping, compat == "5.x")


def decode_properties(data):
    """The properties bytes of a record -> dict of str to str, in their order, of a name that comes twice the last value.

    Never raises for what the bytes say: a piece without 0x01, with an empty name or an empty value is left out, malformed UTF-8
    becomes U+FFFD. Any thread. Source: MessageDecoder.string2messageProperties.
    """
    cdef const unsigned char[::1] view
    if isinstance(data, bytes):
        return properties_dict(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    view = data
    return properties_dict(<const char *> &view[0], view.shape[0]) if view.shape[0] else {}


def decode_text(data):
    """UTF-8 bytes -> str as Java decodes them: every malformed piece becomes U+FFFD. Never raises for what the bytes say."""
    cdef bytes raw = bytes(data)
    return java_text(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
