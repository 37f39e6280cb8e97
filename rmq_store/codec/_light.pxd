# The light queues that a record is in besides its own, out of its properties (RocketMQ: MultiDispatch, LmqDispatch):
# INNER_MULTI_DISPATCH has their names and INNER_MULTI_QUEUE_OFFSET the record's queue offset in each, both with commas between.
# Pure functions, no allocation; any thread.
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memchr, memcmp

from rmq_store.codec._record cimport PropertyView, topic_light

cdef enum:
    LIGHT_DIGITS_MAX = 18       # so many fit into 64 bits, whatever they are


cdef inline bint light_topic(const char *topic, int32_t size) noexcept nogil:
    # Whether messages of that topic may be in light queues: not what only waits there, or was in them before.
    return not ((size >= 7 and memcmp(topic, b"%RETRY%", 7) == 0) or (size >= 8 and memcmp(topic, b"rmq_sys_", 8) == 0)
                or (size >= 8 and memcmp(topic, b"RMQ_SYS_", 8) == 0)
                or (size == 19 and memcmp(topic, b"SCHEDULE_TOPIC_XXXX", 19) == 0))


cdef struct Light:
    # One after the other; `name`, `size` and `queue_offset` are the present one.
    const char *name
    int32_t size
    int64_t queue_offset
    const char *names           # what is left
    const char *names_end
    const char *offsets
    const char *offsets_end


cdef inline int32_t _pieces(const char *text, int32_t *size) noexcept nogil:
    # How many String.split(",") makes, which leaves out empty ones at the end; *size becomes the size without them.
    cdef int32_t i, n = 1
    while size[0] > 0 and text[size[0] - 1] == c',':
        size[0] -= 1
    for i in range(size[0]):
        n += text[i] == c','
    return n if size[0] > 0 else 0


cdef inline Light lights_of(const PropertyView *p) noexcept nogil:
    # None where a property is missing, or where there are more of one than of the other, as RocketMQ.
    cdef Light l
    cdef int32_t names = p.light_names_size, offsets = p.light_offsets_size
    cdef bint paired = (p.light_names != NULL and p.light_offsets != NULL
                        and _pieces(p.light_names, &names) == _pieces(p.light_offsets, &offsets))
    l.name = NULL
    l.size = 0
    l.queue_offset = -1
    l.names = p.light_names if paired else NULL
    l.names_end = l.names + names if paired else NULL
    l.offsets = p.light_offsets
    l.offsets_end = p.light_offsets + offsets if paired else NULL
    return l


cdef inline const char *_piece_end(const char *text, const char *end) noexcept nogil:
    cdef const char *stop = <const char *> memchr(text, c',', end - text) if text < end else NULL
    return stop if stop != NULL else end


cdef inline int64_t _number(const char *text, const char *end) noexcept nogil:
    # Of decimal digits alone; -1: it is none.
    cdef int64_t n = 0
    if text >= end or end - text > LIGHT_DIGITS_MAX:
        return -1
    while text < end:
        if not c'0' <= text[0] <= c'9':
            return -1
        n = n * 10 + (text[0] - c'0')
        text += 1
    return n


cdef inline bint light_next(Light *l) noexcept nogil:
    # False: no more. A name that is no light queue's, and a number that is none, are passed over: only what the append numbered
    # gets an entry.
    cdef const char *stop
    while l.names != NULL and l.names < l.names_end:
        stop = _piece_end(l.names, l.names_end)
        l.name = l.names
        l.size = <int32_t> (stop - l.names)
        l.names = stop + 1
        stop = _piece_end(l.offsets, l.offsets_end)
        l.queue_offset = _number(l.offsets, stop)
        l.offsets = stop + 1
        if l.queue_offset >= 0 and topic_light(l.name, l.size):
            return True
    return False
