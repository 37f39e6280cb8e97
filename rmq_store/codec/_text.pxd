# Text inside a record as Java sees it: UTF-8 decoded, and String.hashCode of it. Pure functions, no allocation; any thread.
from libc.stdint cimport int32_t, uint8_t, uint32_t


cdef inline int utf8_step(const uint8_t *p, const uint8_t *end, uint32_t *code) noexcept nogil:
    # The character at p, which is before end: its code point, and how many bytes it takes. A maximal broken piece, and an
    # encoded surrogate, is one U+FFFD.
    cdef uint32_t c = p[0], low = 0x80, high = 0xBF
    cdef int more = 0, n = 1
    if 0xC2 <= c <= 0xDF:
        more = 1
        c &= 0x1F
    elif 0xE0 <= c <= 0xEF:
        more = 2
        if c == 0xE0:
            low = 0xA0
        c &= 0x0F
    elif 0xF0 <= c <= 0xF4:
        more = 3
        if c == 0xF0:
            low = 0x90
        elif c == 0xF4:
            high = 0x8F
        c &= 0x07
    elif c >= 0x80:
        c = 0xFFFD
    while n <= more:
        if p + n == end or p[n] < low or p[n] > high:
            c = 0xFFFD
            break
        c = (c << 6) | (p[n] & 0x3F)
        n += 1
        low = 0x80
        high = 0xBF
    code[0] = 0xFFFD if 0xD800 <= c <= 0xDFFF else c
    return n


cdef inline int32_t java_hash(const char *text, int32_t size, int32_t start=0) noexcept nogil:
    # String.hashCode of the UTF-16 form of UTF-8 text, going on from `start` (hash of a prefix).
    cdef const uint8_t *p = <const uint8_t *> text
    cdef const uint8_t *end = p + size
    cdef uint32_t h = <uint32_t> start
    cdef uint32_t c
    while p < end:
        if p[0] < 0x80:
            h = 31 * h + p[0]
            p += 1
            continue
        p += utf8_step(p, end, &c)
        if c >= 0x10000:
            h = 31 * h + (0xD800 + ((c - 0x10000) >> 10))
            c = 0xDC00 + ((c - 0x10000) & 0x3FF)
        h = 31 * h + c
    return <int32_t> h
