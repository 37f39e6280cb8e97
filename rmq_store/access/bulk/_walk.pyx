"""Finding records in a part of a CommitLog file. Contract, and why it can begin anywhere, in _walk.pxd."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr

from rmq_store.base.io._io cimport rmq_io, rmq_pread_all
from rmq_store.base.io._sync cimport ENOMEM
from rmq_store.codec._bad cimport (BAD_BODY_CRC, BAD_NOT, BAD_PLACE, BAD_SIZE, Bad, body_bad, crc_bad, field_bad, parse_bad)
from rmq_store.codec._layout cimport (BLANK_SIZE, FLAG_BORN_V6, FLAG_STORE_V6, HOST_V6_MORE, MAGIC_BLANK, MAGIC_FIRST_BYTE,
                                      MAGIC_V1, MAGIC_V2, RECORD_AT_BODY, RECORD_AT_BODY_SIZE, RECORD_AT_MAGIC,
                                      RECORD_AT_SYS_FLAG, RECORD_FIXED_SIZE, RECORD_HEAD_SIZE, RECORD_PLACED_SIZE)
from rmq_store.codec._record cimport (RECORD_OK, RecordStatus, RecordView, head_magic, head_physical, head_size,
                                      record_crc_check, record_parse, rmq_get16, rmq_get32)


cdef extern from *:
    """
    #include <fcntl.h>
    """
    enum: O_RDONLY, O_NOFOLLOW

cdef enum:
    CHUNK = 1 << 20
    WINDOW = 8 << 20
    SHORT = -1000000        # a position that is no position and no errno: the bytes are not in a pinned window


# ---- bytes

cdef int window_open(Window *w, const rmq_io *io, const char *path, bint mapped) noexcept nogil:
    cdef int rc
    w.io = io
    w.map = NULL
    w.buffer = NULL
    w.at = w.length = w.capacity = 0
    w.piece = WINDOW
    w.pinned = False
    w.error = 0
    w.fd = io.open(io.ctx, path, O_RDONLY | O_NOFOLLOW, 0)
    if w.fd < 0:
        return w.fd
    w.size = io.size(io.ctx, w.fd)
    rc = <int> w.size if w.size < 0 else 0
    if rc == 0 and mapped and w.size > 0:
        rc = io.mmap(io.ctx, w.fd, 0, w.size, False, <void **> &w.map)
        if rc < 0:
            w.map = NULL
    if rc < 0:
        window_close(w)
    return rc


cdef void window_close(Window *w) noexcept nogil:
    if w.map != NULL:
        w.io.munmap(w.io.ctx, w.map, w.size)
    if w.fd >= 0:
        w.io.close(w.io.ctx, w.fd)
    free(w.buffer)
    w.map = NULL
    w.buffer = NULL
    w.length = w.capacity = 0
    w.fd = -1


cdef const unsigned char *window_at(Window *w, int64_t at, int64_t need, int64_t *available) noexcept nogil:
    cdef unsigned char *grown
    cdef int64_t got, wanted
    if need > w.size - at:
        need = w.size - at
    available[0] = 0
    if need < 0 or at < 0:
        return NULL
    if w.map != NULL:
        available[0] = w.size - at
        return w.map + at
    if not (w.at <= at and at + need <= w.at + w.length):
        if w.pinned:
            return NULL
        wanted = need if need > w.piece else w.piece
        if wanted > w.size - at:
            wanted = w.size - at
        if wanted > w.capacity:
            grown = <unsigned char *> realloc(w.buffer, wanted)
            if grown == NULL:
                w.error = -ENOMEM
                return NULL
            w.buffer = grown
            w.capacity = wanted
        w.length = 0
        got = rmq_pread_all(w.io, w.fd, w.buffer, wanted, at)
        if got < 0:
            w.error = <int> got
            return NULL
        w.at = at
        w.length = got
        if got < need:              # the file is shorter than it was: that is all there is
            w.size = at + got
    available[0] = w.at + w.length - at
    return w.buffer + (at - w.at)


# ---- candidates

cdef int64_t _field(Walk *k, int64_t at, int size) noexcept nogil:
    # A big-endian number of 1, 2 or 4 bytes, none below 0; read by itself, the window stays where it is. 0 beyond the file's
    # end, and where w.error tells.
    cdef unsigned char[4] b
    cdef int64_t n, got = rmq_pread_all(k.w.io, k.w.fd, b, size, at)
    if got < size:
        if got < 0:
            k.w.error = <int> got
        return 0
    n = rmq_get32(b) if size == 4 else rmq_get16(b) if size == 2 else <signed char> b[0]
    return n if n > 0 else 0


cdef int _adds_up(Walk *k, int64_t at, const unsigned char *head, int64_t size) noexcept nogil:
    # 1 where the lengths of the parts sum up to `size`, as record_parse asks, 0, -errno. Told without the bytes between them: a
    # head may claim gibibytes of nothing, and so may the next one, some bytes on.
    cdef int32_t hosts = rmq_get32(head + RECORD_AT_SYS_FLAG)
    cdef int length = 1 if head_magic(head) == MAGIC_V1 else 2       # of the topic's length
    cdef int64_t end = at + size
    if hosts & FLAG_BORN_V6:
        at += HOST_V6_MORE
    if hosts & FLAG_STORE_V6:
        at += HOST_V6_MORE
    at += RECORD_AT_BODY + _field(k, at + RECORD_AT_BODY_SIZE, 4)
    if at < end:
        at += length + _field(k, at, length)
    if at < end:
        at += 2 + _field(k, at, 2)
    return k.w.error if k.w.error != 0 else at == end


cdef int64_t _record_at(Walk *k, int64_t at, RecordView *v) noexcept nogil:
    # The size of the record at `at` if it is a candidate, 0 if not; SHORT; -errno.
    cdef int64_t available, size
    cdef int rc
    cdef const unsigned char *p = window_at(&k.w, at, RECORD_FIXED_SIZE, &available)
    if p == NULL:
        return k.w.error if k.w.error != 0 else SHORT
    if available < RECORD_FIXED_SIZE:
        return 0
    size = head_size(p)
    if size < RECORD_FIXED_SIZE or size > k.w.size - at or head_physical(p) != k.start + at:
        return 0
    if size > available:
        rc = _adds_up(k, at, p, size)
        if rc <= 0:
            return rc
        p = window_at(&k.w, at, size, &available)
        if p == NULL:
            return k.w.error if k.w.error != 0 else SHORT
    if record_parse(p, available if available < k.w.size - at else k.w.size - at, v) != RECORD_OK:
        return 0
    return size


cdef int64_t _next_magic(Walk *k, int64_t begin, int64_t end) noexcept nogil:
    # The first place in [begin, end) whose bytes 4 to 7 are a record's magic code; end: none; -errno. Holes are stepped over.
    cdef int64_t at = begin, available, data
    cdef int32_t magic
    cdef const unsigned char *p
    cdef const unsigned char *hit
    cdef bint fresh = True
    while at < end:
        if fresh:
            data = k.w.io.next_data(k.w.io.ctx, k.w.fd, at + RECORD_AT_MAGIC)
            if data - RECORD_HEAD_SIZE > at:       # an error is negative, and no reason to stop: what is read decides
                at = data - RECORD_HEAD_SIZE
                if at >= end:
                    return end
        p = window_at(&k.w, at, RECORD_HEAD_SIZE, &available)      # and what else is there: to ask for more would read it again
        if p == NULL:
            return k.w.error
        if available < RECORD_HEAD_SIZE:
            return end
        if available > CHUNK:
            available = CHUNK
        hit = <const unsigned char *> memchr(p + RECORD_AT_MAGIC, MAGIC_FIRST_BYTE, available - (RECORD_HEAD_SIZE - 1))
        if hit == NULL:
            at += available - (RECORD_HEAD_SIZE - 1)
            fresh = True
            continue
        fresh = False
        at += hit - p - RECORD_AT_MAGIC
        if at >= end:
            return end
        magic = rmq_get32(hit)
        if magic == MAGIC_V1 or magic == MAGIC_V2:
            return at
        at += 1
    return end


cdef int64_t _candidate(Walk *k, int64_t begin, int64_t end, int64_t *size) noexcept nogil:
    cdef RecordView v
    cdef int64_t at = begin
    while True:
        at = _next_magic(k, at, end)
        if at < 0:
            return at
        if at >= end:
            return -1
        size[0] = _record_at(k, at, &v)
        if size[0] > 0:
            return at
        if size[0] < 0:
            return size[0]
        at += 1


cdef int64_t walk_candidate(Walk *k, int64_t begin, int64_t end) noexcept nogil:
    cdef int64_t size
    return _candidate(k, begin, end, &size)


# ---- where to begin

cdef int _blank_at(Walk *k, int64_t at) noexcept nogil:
    cdef int64_t available
    cdef const unsigned char *p = window_at(&k.w, at, BLANK_SIZE, &available)
    if p == NULL:
        return k.w.error
    return available >= BLANK_SIZE and head_magic(p) == MAGIC_BLANK


cdef int _look_back(Walk *k, int64_t begin) noexcept nogil:
    # Sets k.at to where a sequential walk comes first at or behind `begin`: 1; 0: it cannot be told from here; -errno.
    cdef int64_t low = begin - k.max_record if begin > k.max_record else 0
    cdef int64_t at = low, size = 0
    cdef int64_t expected = 0 if low == 0 else -1
    cdef int blank
    while True:
        at = _candidate(k, at, begin if begin > expected else expected, &size)
        if at < -1:
            return <int> at
        if at == -1:
            break
        if at < expected:
            return 0
        if at > expected >= 0:          # a bad region, or the end of the file and what a former crash left behind it
            blank = _blank_at(k, expected)
            if blank < 0:
                return blank
            if blank:
                k.at = k.end
                return 1
        expected = at + size
        at += 1
    if expected >= begin:
        k.at = expected
        return 1
    blank = _blank_at(k, expected) if expected >= 0 else 0
    if blank < 0:
        return blank
    at = -1 if blank else walk_candidate(k, begin, k.end)
    if at < -1:
        return <int> at
    k.at = k.end if at == -1 else at
    return 1 if expected >= 0 or at == -1 else 0


cdef int walk_begin(Walk *k, int64_t begin, int64_t end, bint aligned) noexcept nogil:
    cdef RecordView v
    cdef int step
    cdef int verify = k.verify
    k.first = k.tail = k.bad_begin = k.bad_end = -1
    k.end = end if end < k.w.size else k.w.size
    k.at = begin
    if begin == 0 or aligned or begin >= k.end:
        return 0
    step = _look_back(k, begin)
    if step != 0:
        return step if step < 0 else 0
    k.at = 0
    k.verify = VERIFY_NONE          # where the records are does not depend on what else is wrong with them
    while k.at < begin:
        step = walk_next(k, &v)
        if step < 0:
            return step
        if step == STEP_END:
            k.at = k.end
            break
        if step == STEP_RECORD:
            k.at += v.size
    k.verify = verify
    k.tail = k.bad_begin = k.bad_end = -1
    return 0


# ---- steps

cdef bint _whole(Walk *k, const RecordView *v) noexcept nogil:
    # For the newest record of all: has its writer, who may be at it, written all of it? What is not written is zero. Properties
    # may have zeros of their own, so those tell only where a writer may be at it still, and no checksum covers them.
    if v.store_timestamp == 0 or v.topic_size == 0:
        return False
    if memchr(v.topic, 0, v.topic_size) != NULL:
        return False
    if (v.store_timestamp >= k.whole_before and v.properties_size > 0
            and memchr(v.properties, 0, v.properties_size) != NULL and record_crc_check(v) != 1):
        return False
    return body_bad(v) == BAD_NOT


cdef int _followed(Walk *k, int64_t at) noexcept nogil:
    # Whether another record begins at `at`, or the file ends: 1, 0, SHORT, -errno. The next record is begun when this one is
    # whole, so its head is enough.
    cdef int64_t available
    cdef const unsigned char *p = window_at(&k.w, at, RECORD_PLACED_SIZE, &available)
    cdef int32_t magic
    if p == NULL:
        return k.w.error if k.w.error != 0 else SHORT
    if available < BLANK_SIZE:
        return 1
    magic = head_magic(p)
    if magic == MAGIC_BLANK:
        return 1
    return (magic == MAGIC_V1 or magic == MAGIC_V2) and available >= RECORD_PLACED_SIZE and head_physical(p) == k.start + at


cdef int _bad(Walk *k, Bad kind, int64_t begin) noexcept nogil:
    # Nothing good at `begin`. To the next candidate; where none is, the newest file's data ends here.
    cdef int64_t next_one
    if k.w.pinned:
        return STEP_PAUSE
    next_one = walk_candidate(k, begin + 1, k.w.size)
    if next_one < -1:
        return <int> next_one
    if next_one < 0:
        if k.newest:
            k.tail = begin
            k.at = k.w.size
            return STEP_END
        next_one = k.w.size
    k.bad_begin = begin
    k.bad_end = next_one
    k.bad_kind = kind
    k.at = next_one
    return STEP_BAD


cdef int walk_next(Walk *k, RecordView *v) noexcept nogil:
    cdef int64_t available, size
    cdef const unsigned char *p
    cdef RecordStatus status
    cdef Bad bad
    cdef int followed
    if k.at >= k.end or k.at + BLANK_SIZE > k.w.size:
        return STEP_END
    p = window_at(&k.w, k.at, RECORD_FIXED_SIZE, &available)
    if p == NULL:
        return k.w.error if k.w.error != 0 else STEP_PAUSE
    if available < BLANK_SIZE:
        return STEP_END
    if head_magic(p) == MAGIC_BLANK:
        k.at = k.w.size
        return STEP_END
    size = head_size(p)
    if size > available >= RECORD_FIXED_SIZE and size <= k.w.size - k.at and head_magic(p) in (MAGIC_V1, MAGIC_V2):
        followed = _adds_up(k, k.at, p, size)
        if followed <= 0:
            return followed if followed < 0 else _bad(k, BAD_SIZE, k.at)
        p = window_at(&k.w, k.at, size, &available)
        if p == NULL:
            return k.w.error if k.w.error != 0 else STEP_PAUSE
    if available > k.w.size - k.at:
        available = k.w.size - k.at
    status = record_parse(p, available, v)
    if status != RECORD_OK:
        return _bad(k, parse_bad(status, v), k.at)
    if v.physical_offset != k.start + k.at:
        return _bad(k, BAD_PLACE, k.at)
    if k.newest:
        followed = _followed(k, k.at + v.size)
        if followed < 0:
            return STEP_PAUSE if followed == SHORT else followed
        if not followed:
            # The window may have moved.
            p = window_at(&k.w, k.at, v.size, &available)
            if p == NULL:
                return k.w.error if k.w.error != 0 else STEP_PAUSE
            record_parse(p, v.size, v)
            if not _whole(k, v):
                return _bad(k, BAD_BODY_CRC, k.at)
        elif k.w.map == NULL:
            p = window_at(&k.w, k.at, v.size, &available)
            if p == NULL:
                return k.w.error if k.w.error != 0 else STEP_PAUSE
            record_parse(p, v.size, v)
    if k.verify != VERIFY_NONE:
        bad = field_bad(v)
        if bad == BAD_NOT and k.verify == VERIFY_CRC:
            bad = crc_bad(v, False)
        if bad != BAD_NOT:
            return _wrong(k, v, bad)
    return STEP_RECORD


cdef int _wrong(Walk *k, const RecordView *v, Bad kind) noexcept nogil:
    # A record whose place and size are right, and whose content is not.
    k.bad_begin = k.at
    k.bad_end = k.at + v.size
    k.bad_kind = kind
    k.at = k.bad_end
    return STEP_BAD
