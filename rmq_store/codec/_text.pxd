# Text inside a record as Java sees it: UTF-8 decoded, String.hashCode, properties one by one, a message's keys and their hash
# codes. Pure functions, no allocation; any thread. Source: MessageDecoder, IndexService and IndexFile (4.9.8, 5.3.3).
from libc.stdint cimport INT32_MIN, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr


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
    # String.hashCode of the UTF-16 form of UTF-8 text, continuing from `start` (hash of a prefix).
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


cdef inline int32_t digits_put(char *to, int64_t n) noexcept nogil:
    # Writes a number that is not negative; returns how many digits it has.
    cdef char turned[20]
    cdef int32_t size = 0, i
    while size == 0 or n > 0:
        turned[size] = <char> (c'0' + n % 10)
        n //= 10
        size += 1
    for i in range(size):
        to[i] = turned[size - 1 - i]
    return size


cdef struct Property:
    const char *name
    const char *value
    int32_t name_size
    int32_t value_size


cdef inline bint property_next(const char **at, const char *end, Property *p) noexcept nogil:
    # The next of stored properties between *at and end, as MessageDecoder.string2messageProperties finds them: each ends at
    # 0x02 or the end, the first 0x01 splits, an empty name or value is none. *at moves behind it. False: no more.
    cdef const char *text = at[0]
    cdef const char *stop
    cdef const char *split
    while text < end:
        stop = <const char *> memchr(text, 2, end - text)
        if stop == NULL:
            stop = end
        split = <const char *> memchr(text, 1, stop - text)
        if split != NULL and split > text and split + 1 < stop:
            p.name = text
            p.name_size = <int32_t> (split - text)
            p.value = split + 1
            p.value_size = <int32_t> (stop - split - 1)
            at[0] = stop + 1
            return True
        text = stop + 1
    return False


cdef struct Keys:
    # A message's keys one after the other; `key` and `size` are the present one.
    const char *key
    const char *unique
    const char *words           # what is left of KEYS
    const char *end
    int32_t unique_size
    int32_t size


cdef inline Keys keys_of(const char *unique, int32_t unique_size, const char *words, int32_t words_size) noexcept nogil:
    # UNIQ_KEY, then each of the words of KEYS, which blanks separate. NULL: the message has no such property.
    cdef Keys k
    k.key = NULL
    k.size = 0
    k.unique = unique
    k.unique_size = unique_size
    k.words = words
    k.end = words + words_size if words != NULL else NULL
    return k


cdef inline bint key_next(Keys *k) noexcept nogil:
    cdef const char *stop
    if k.unique != NULL:
        k.key = k.unique
        k.size = k.unique_size
        k.unique = NULL
        return True
    while k.words < k.end and k.words[0] == 32:
        k.words += 1
    if k.words >= k.end:
        return False
    k.key = k.words
    stop = <const char *> memchr(k.words, 32, k.end - k.words)
    k.words = stop if stop != NULL else k.end
    k.size = <int32_t> (k.words - k.key)
    return True


cdef inline int32_t topic_hash(const char *topic, int32_t size) noexcept nogil:
    # Hash of "topic#", which the keys of a topic continue from.
    return java_hash(b"#", 1, java_hash(topic, size))


cdef inline int32_t key_hash(int32_t prefix, const char *key, int32_t size) noexcept nogil:
    # IndexFile.indexKeyHashMethod of "topic#key": Math.abs, and 0 for the one number that has no positive counterpart.
    # prefix: topic_hash of the topic.
    cdef int32_t h = java_hash(key, size, prefix)
    if h >= 0:
        return h
    return -h if h != INT32_MIN else 0
