# UTF-8 text as Java decodes it, copied for readers that want it well-formed. Pure functions, any thread.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef inline bint _ascii(const char *text, int64_t size) noexcept nogil:
    cdef uint64_t word, all_bits = 0
    cdef int64_t i = 0
    cdef unsigned char tail = 0
    while i + 8 <= size:
        memcpy(&word, text + i, 8)
        all_bits |= word
        i += 8
    while i < size:
        tail |= <unsigned char> text[i]
        i += 1
    return (all_bits & <uint64_t> 0x8080808080808080) == 0 and tail < 0x80


cdef inline int64_t text_copy(char *to, const char *text, int64_t size) noexcept nogil:
    # Writes the text to `to` (NULL: only counts) with U+FFFD for each maximal broken piece and each encoded surrogate; returns
    # the bytes that takes, at most three times `size`.
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef const uint8_t *begin
    cdef uint32_t c, low, high
    cdef int64_t out = 0
    cdef int more, _i
    cdef bint broken
    if _ascii(text, size):
        if to != NULL:
            memcpy(to, text, size)
        return size
    p = <const uint8_t *> text
    end = p + size
    while p < end:
        begin = p
        c = p[0]
        p += 1
        low = 0x80
        high = 0xBF
        broken = False
        more = 0
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
            broken = True
        for _i in range(more):
            if p == end or p[0] < low or p[0] > high:
                broken = True
                break
            c = (c << 6) | (p[0] & 0x3F)
            p += 1
            low = 0x80
            high = 0xBF
        if not broken and more == 2 and 0xD800 <= c <= 0xDFFF:
            broken = True
        if broken:
            if to != NULL:
                memcpy(to + out, b"\xef\xbf\xbd", 3)
            out += 3
        else:
            if to != NULL:
                memcpy(to + out, begin, p - begin)
            out += p - begin
    return out


cdef extern from "arpa/inet.h" nogil:
    enum: AF_INET6
    const char *inet_ntop(int family, const void *address, char *to, unsigned size)


cdef inline int _number(char *to, int64_t v) noexcept nogil:
    cdef char[24] digits
    cdef int n = 0, out = 0
    cdef uint64_t u = <uint64_t> v
    if v < 0:
        to[0] = 45
        out = 1
        u = -u
    while True:
        digits[n] = <char> (48 + u % 10)
        n += 1
        u //= 10
        if u == 0:
            break
    while n > 0:
        n -= 1
        to[out] = digits[n]
        out += 1
    return out


cdef inline int host_copy(char *to, const unsigned char *host, bint v6) noexcept nogil:
    # The 8 or 20 bytes of a record as "ip:port" or "[v6]:port", at most 64 bytes; returns how many.
    cdef int out = 0, i
    cdef int32_t port
    if v6:
        to[0] = 91
        inet_ntop(AF_INET6, host, to + 1, 63)
        while to[out] != 0:
            out += 1
        to[out] = 93
        out += 1
    else:
        for i in range(4):
            if i > 0:
                to[out] = 46
                out += 1
            out += _number(to + out, host[i])
    i = 16 if v6 else 4
    port = <int32_t> ((<uint32_t> host[i] << 24) | (<uint32_t> host[i + 1] << 16) | (<uint32_t> host[i + 2] << 8) | host[i + 3])
    to[out] = 58
    return out + 1 + _number(to + out + 1, port)
