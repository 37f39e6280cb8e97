# UTF-8 text as Java decodes it, copied for readers that want it well-formed. Pure functions, any thread.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from rmq_store.codec._text cimport utf8_step


cdef inline bint all_ascii(const char *text, int64_t size) noexcept nogil:
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


cdef inline int64_t _decoded_copy(char *to, const char *text, int64_t size) noexcept nogil:
    cdef const uint8_t *p = <const uint8_t *> text
    cdef const uint8_t *end = p + size
    cdef const char *replacement = b"\xef\xbf\xbd"
    cdef uint32_t c
    cdef int64_t out = 0
    cdef int n, wide
    while p < end:
        n = utf8_step(p, end, &c)
        wide = 3 if c == 0xFFFD else n
        if to != NULL:
            memcpy(to + out, replacement if c == 0xFFFD else <const char *> p, wide)
        out += wide
        p += n
    return out


cdef inline int64_t text_copy(char *to, const char *text, int64_t size) noexcept nogil:
    # Writes the text to `to` (NULL: only counts) with U+FFFD for each maximal broken piece and each encoded surrogate; returns
    # the bytes that takes, at most three times `size`.
    if not all_ascii(text, size):
        return _decoded_copy(to, text, size)
    if to != NULL:
        memcpy(to, text, size)
    return size


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
