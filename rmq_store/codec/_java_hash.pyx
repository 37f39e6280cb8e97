"""Java's String.hashCode and what the store derives from it: tags code, index key hash. Pure; any thread with the GIL.

Over str the UTF-16 units are counted here; over UTF-8 bytes by the kernel that dispatch uses (java_hash in _text.pxd).
Source: java.lang.String, MessageExtBrokerInner.tagsString2tagsCode, IndexFile.indexKeyHashMethod.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint32_t

from rmq_store.codec._text cimport java_hash as kernel_java_hash


cdef uint32_t _hash(str text, uint32_t h):
    cdef Py_UCS4 c
    cdef uint32_t unit
    for c in text:
        unit = c
        if unit >= 0x10000:
            h = 31 * h + 0xD800 + ((unit - 0x10000) >> 10)
            unit = 0xDC00 + ((unit - 0x10000) & 0x3FF)
        h = 31 * h + unit
    return h


def java_hash(text):
    """String.hashCode of a str, or of UTF-8 bytes as Java decodes them: -2**31 ... 2**31 - 1. java_hash("TagA") is 2598919."""
    if isinstance(text, bytes):
        if PyBytes_GET_SIZE(text) > 0x7FFFFFFF:
            raise ValueError("text is longer than 2147483647 bytes")
        return kernel_java_hash(PyBytes_AS_STRING(text), <int32_t> PyBytes_GET_SIZE(text))
    return <int32_t> _hash(text, 0)


def tags_code(str tags=None):
    """The tagsCode of a queue entry for the TAGS of a message that does not wait: their String.hashCode, 0 for None and ""."""
    return 0 if not tags else <int32_t> _hash(tags, 0)


def index_key_hash(str topic not None, str key not None):
    """The keyHash of an index entry: |hashCode("topic#key")|, 0 where that is no positive int. 0 ... 2**31 - 1."""
    cdef int32_t h = <int32_t> _hash(key, _hash("#", _hash(topic, 0)))
    return 0 if h == -0x80000000 else -h if h < 0 else h
