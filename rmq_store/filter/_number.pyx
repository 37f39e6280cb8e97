"""Numbers in the text of properties, as Java reads them; see _number.pxd"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport strtod
from libc.string cimport memcmp, memcpy

from rmq_store.codec._text cimport utf8_step

cdef enum:
    DIGITS_MAX = 800            # significant digits beyond these only say whether the number is exact
    EXPONENT_MAX = 1_000_000    # beyond it, and beyond what 32767 bytes of digits can move, a number is infinite or zero

# The zeros of the decimal digits that lie between U+0080 and U+FFFF (Character.digit; Unicode 13, as in Java 17).
cdef uint32_t[36] ZEROS = [
    0x660, 0x6F0, 0x7C0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xB66, 0xBE6, 0xC66, 0xCE6, 0xD66, 0xDE6, 0xE50, 0xED0, 0xF20, 0x1040,
    0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90, 0x1B50, 0x1BB0, 0x1C40, 0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0,
    0xA9F0, 0xAA50, 0xABF0, 0xFF10]
cdef double[23] TENS = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
                        1e19, 1e20, 1e21, 1e22]


cdef int _digit(const uint8_t **at, const uint8_t *end) noexcept nogil:
    # The digit at *at, which moves behind it; -1: none.
    cdef uint32_t code
    cdef int i
    if at[0][0] < 0x80:
        code = at[0][0] - <uint32_t> 48
        at[0] += 1
        return <int> code if code <= 9 else -1
    at[0] += utf8_step(at[0], end, &code)
    for i in range(36):
        if ZEROS[i] <= code <= ZEROS[i] + 9:
            return <int> (code - ZEROS[i])
    return -1


cdef bint java_whole(const char *text, int32_t size, int64_t limit, int64_t *value) noexcept nogil:
    cdef const uint8_t *p = <const uint8_t *> text
    cdef const uint8_t *end = p + size
    cdef uint64_t most = <uint64_t> limit
    cdef uint64_t sum = 0
    cdef bint negative = False
    cdef int digit
    if p < end and (p[0] == c'-' or p[0] == c'+'):
        negative = p[0] == c'-'
        most += negative
        p += 1
    if p == end:
        return False
    while p < end:
        digit = _digit(&p, end)
        if digit < 0 or sum > most // 10 or sum * 10 + <uint64_t> digit > most:
            return False
        sum = sum * 10 + <uint64_t> digit
    if negative:
        value[0] = -<int64_t> (sum - 1) - 1 if sum > 0 else 0
    else:
        value[0] = <int64_t> sum
    return True


cdef const char *_exponent(const char *p, const char *end, int64_t *exponent) noexcept nogil:
    # Sign and digits behind E or P. Returns the place behind them; NULL: there are no digits.
    cdef bint negative = False
    cdef int64_t value = 0
    if p < end and (p[0] == c'-' or p[0] == c'+'):
        negative = p[0] == c'-'
        p += 1
    if p == end or not c'0' <= p[0] <= c'9':
        return NULL
    while p < end and c'0' <= p[0] <= c'9':
        if value < EXPONENT_MAX:
            value = value * 10 + (p[0] - c'0')
        p += 1
    exponent[0] = -value if negative else value
    return p


cdef inline int _hexadecimal(char c) noexcept nogil:
    if c'0' <= c <= c'9':
        return c - c'0'
    if c'a' <= c <= c'f' or c'A' <= c <= c'F':
        return (c | 0x20) - c'a' + 10
    return -1


cdef struct Digits:
    # What _collect finds: digits without zeros at their front, at most DIGITS_MAX, and by how many places the point moves.
    char[DIGITS_MAX + 32] text
    int count
    int64_t moved
    bint some
    bint rest               # a digit that is not kept is not zero


cdef const char *_collect(const char *p, const char *end, bint hexadecimal, Digits *d) noexcept nogil:
    # Digits with at most one point among them. Returns the place behind them.
    cdef bint point = False
    cdef bint is_digit
    d.count = 0
    d.moved = 0
    d.some = d.rest = False
    while p < end:
        if p[0] == c'.' and not point:
            point = True
            p += 1
            continue
        is_digit = _hexadecimal(p[0]) >= 0 if hexadecimal else c'0' <= p[0] <= c'9'
        if not is_digit:
            break
        d.some = True
        if d.count == DIGITS_MAX:
            d.rest = d.rest or p[0] != c'0'
            d.moved += not point
        elif d.count > 0 or p[0] != c'0':
            d.text[d.count] = p[0]
            d.count += 1
            d.moved -= point
        else:
            d.moved -= point
        p += 1
    return p


cdef double _rounded(Digits *d, int64_t exponent, bint hexadecimal) noexcept nogil:
    # strtod of the digits as a whole number with an exponent: without a point no locale matters.
    cdef char[DIGITS_MAX + 64] text
    cdef char[20] reversed_
    cdef int n = 0, i = 0
    if hexadecimal:
        memcpy(text, b"0x", 2)
        n = 2
    memcpy(text + n, d.text, d.count)
    n += d.count
    if d.rest:              # more than half, or less: one digit says it
        text[n] = c'1'
        n += 1
        exponent -= 4 if hexadecimal else 1
    text[n] = c'p' if hexadecimal else c'e'
    n += 1
    if exponent < 0:
        text[n] = c'-'
        n += 1
        exponent = -exponent
    while exponent > 0 or i == 0:
        reversed_[i] = <char> (c'0' + exponent % 10)
        exponent //= 10
        i += 1
    while i > 0:
        i -= 1
        text[n] = reversed_[i]
        n += 1
    text[n] = 0
    return strtod(text, NULL)


cdef bint _simple(const Digits *d, int64_t exponent, double *value) noexcept nogil:
    # Few digits and a small exponent: one exact operation rounds right.
    cdef int64_t whole = 0
    cdef int i
    if d.count > 15 or exponent < -22 or exponent > 22:
        return False
    for i in range(d.count):
        whole = whole * 10 + (d.text[i] - c'0')
    value[0] = <double> whole / TENS[-exponent] if exponent < 0 else <double> whole * TENS[exponent]
    return True


cdef bint java_double(const char *text, int32_t size, double *value) noexcept nogil:
    cdef const char *p = text
    cdef const char *end = text + size
    cdef Digits d
    cdef int64_t exponent = 0
    cdef bint negative = False, hexadecimal
    while p < end and <uint8_t> p[0] <= 32:
        p += 1
    while end > p and <uint8_t> (end - 1)[0] <= 32:
        end -= 1
    if p < end and (p[0] == c'-' or p[0] == c'+'):
        negative = p[0] == c'-'
        p += 1
    if end - p == 3 and memcmp(p, b"NaN", 3) == 0:
        value[0] = strtod(b"nan", NULL)
        return True
    if end - p == 8 and memcmp(p, b"Infinity", 8) == 0:
        value[0] = strtod(b"-inf" if negative else b"inf", NULL)
        return True
    hexadecimal = end - p > 2 and p[0] == c'0' and (p[1] | 0x20) == c'x'
    p = _collect(p + 2 if hexadecimal else p, end, hexadecimal, &d)
    if not d.some:
        return False
    if p < end and (p[0] | 0x20) == (c'p' if hexadecimal else c'e'):
        p = _exponent(p + 1, end, &exponent)
        if p == NULL:
            return False
    elif hexadecimal:
        return False                # Java wants the exponent there
    if p < end and ((p[0] | 0x20) == c'd' or (p[0] | 0x20) == c'f'):
        p += 1
    if p != end:
        return False
    exponent += d.moved * (4 if hexadecimal else 1)
    if d.count == 0:
        value[0] = 0.0
    elif hexadecimal or not _simple(&d, exponent, value):
        value[0] = _rounded(&d, exponent, hexadecimal)
    if negative:
        value[0] = -value[0]
    return True


cdef int java_order(double left, double right) noexcept nogil:
    cdef int64_t a, b
    if left < right:
        return -1
    if left > right:
        return 1
    if left != left:
        return 0 if right != right else 1
    if right != right:
        return -1
    memcpy(&a, &left, 8)            # equal: only the signs of zeros can tell them apart
    memcpy(&b, &right, 8)
    return 0 if a == b else -1 if a < b else 1
