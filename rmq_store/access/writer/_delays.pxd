# Messages that are to be delivered later: whether a put asks for that, and where such a message waits until then.
from libc.stdint cimport int32_t
from libc.string cimport memchr, memcmp

from rmq_store.access.core._core cimport StoreCore

cdef enum:
    DELIVERY_ROOM = 160             # bytes: more than a copy of a waiting message, or a rolled one, can be longer than it


cdef inline bint delay_asked(const char *text, Py_ssize_t size) noexcept nogil:
    # Whether a property is DELAY, or its name begins with TIMER_DEL. delays_rewrite decides what that means.
    cdef const char *end = text + size
    cdef const char *stop
    while text < end:
        if text[0] == 68 and end - text > 6 and memcmp(text, b"DELAY\x01", 6) == 0:
            return True
        if text[0] == 84 and end - text > 9 and memcmp(text, b"TIMER_DEL", 9) == 0:
            return True
        stop = <const char *> memchr(text, 2, end - text)
        text = end if stop == NULL else stop + 1
    return False


# (topic, queue id, properties) as stored: those of the waiting form, or as they are where the message does not wait.
cdef tuple delays_rewrite(StoreCore store, str topic, int32_t queue_id, bytes properties, int32_t sys_flag)
