"""Consume queues and index files made anew out of parts of a log, as dispatch would have made them, but in any order.

An entry's place in its queue is the record's queueOffset, so parts of a log can be worked at by different processes at once,
and again: each writes the same bytes to the same places. RocketMQ's rules are those of dispatch/_dispatch.pyx.
"""
import os

from array import array

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

from rmq_store.access.bulk._walk cimport (STEP_BAD, STEP_RECORD, VERIFY_NONE, Walk, walk_begin, walk_next, walk_take,
                                          window_close, window_open)
from rmq_store.base.io._io cimport IoTable, rmq_io, rmq_pwrite_all
from rmq_store.base.io._sync cimport EEXIST, ENOMEM
from rmq_store.codec._delay cimport delay_tags_code
from rmq_store.codec._layout cimport FLAG_TRANSACTION, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, UNIT_SIZE
from rmq_store.codec._record cimport PropertyView, RecordView, properties_scan, topic_fits
from rmq_store.codec._text cimport Keys, key_hash, key_next, keys_of, topic_hash
from rmq_store.codec._unit cimport unit_put
from rmq_store.queues.index._file cimport (IndexFile, index_file_create, index_file_put, index_file_release, index_file_sync)

from rmq_store.codec.delay import DELAY_LEVELS_MS as _LEVELS_MS
from rmq_store.errors import CorruptionError


cdef extern from *:
    """
    #include <fcntl.h>
    """
    enum: O_RDWR, O_CREAT, O_NOFOLLOW

cdef enum:
    RUN = 2048              # entries of a queue that gather before they are written
    PIECE = 1 << 20         # of the log, read at once: what stays in a core's cache while its records are looked at
    PATH_MAX = 4096

cdef struct Run:
    # A queue's entries that are not written yet: they follow each other from queue offset `first`.
    char *topic
    unsigned char *units
    int64_t first
    int64_t low             # of all its entries
    int64_t high
    int64_t count
    int64_t removed_below   # records that begin below get no entry: the queue was removed after them
    int32_t used
    int32_t topic_size
    int32_t queue_id

cdef struct Queues:
    const rmq_io *io
    const char *dir
    const int64_t *delay_ms
    Run *runs
    int32_t *slots          # open addressing, number of the run + 1
    int64_t n
    int64_t capacity
    int64_t mask
    int64_t file_size
    const Run *broken       # the queue whose entry at log offset `place` does not follow the one before
    int64_t place
    int64_t found
    int32_t delay_levels


cdef inline uint32_t _hash(const char *topic, int32_t size, int32_t queue_id) noexcept nogil:
    cdef uint32_t h = <uint32_t> 0x811C9DC5 ^ (<uint32_t> queue_id * <uint32_t> 16777619)
    cdef int32_t i
    for i in range(size):
        h = (h ^ <unsigned char> topic[i]) * <uint32_t> 16777619
    return h ^ (h >> 15)


cdef int _grow(Queues *q) noexcept nogil:
    cdef int64_t wanted = 64 if q.capacity == 0 else 2 * q.capacity
    cdef Run *runs = <Run *> realloc(q.runs, wanted * sizeof(Run))
    cdef int32_t *slots
    cdef int64_t i, at
    if runs == NULL:
        return -ENOMEM
    q.runs = runs
    slots = <int32_t *> calloc(2 * wanted, sizeof(int32_t))
    if slots == NULL:
        return -ENOMEM
    free(q.slots)
    q.slots = slots
    q.mask = 2 * wanted - 1
    q.capacity = wanted
    for i in range(q.n):
        at = _hash(runs[i].topic, runs[i].topic_size, runs[i].queue_id) & q.mask
        while slots[at] != 0:
            at = (at + 1) & q.mask
        slots[at] = <int32_t> (i + 1)
    return 0


cdef Run *_run(Queues *q, const char *topic, int32_t size, int32_t queue_id) noexcept nogil:
    cdef int64_t at
    cdef Run *r
    if q.n == q.capacity and _grow(q) < 0:
        return NULL
    at = _hash(topic, size, queue_id) & q.mask
    while q.slots[at] != 0:
        r = &q.runs[q.slots[at] - 1]
        if r.queue_id == queue_id and r.topic_size == size and memcmp(r.topic, topic, size) == 0:
            return r
        at = (at + 1) & q.mask
    r = &q.runs[q.n]
    r.topic = <char *> malloc(size + 1)
    if r.topic == NULL:
        return NULL
    memcpy(r.topic, topic, size)
    r.topic[size] = 0
    r.topic_size = size
    r.queue_id = queue_id
    r.units = NULL
    r.used = 0
    r.count = 0
    r.first = r.low = r.high = r.removed_below = 0
    q.n += 1
    q.slots[at] = <int32_t> q.n
    return r


cdef int _write(Queues *q, const Run *r, const unsigned char *units, int64_t position, int64_t size) noexcept nogil:
    # Bytes of one queue file. The file and its directories appear when they are needed; whoever comes second finds them.
    cdef char[PATH_MAX] path
    cdef int64_t start = position - position % q.file_size
    cdef int n = snprintf(path, PATH_MAX, b"%s/%s", q.dir, r.topic)
    cdef int fd, rc
    fd = -1
    while True:
        if n + 40 > PATH_MAX:
            return -36                  # ENAMETOOLONG
        n = snprintf(path, PATH_MAX, b"%s/%s/%d/%020lld", q.dir, r.topic, r.queue_id, <long long> start)
        fd = q.io.open(q.io.ctx, path, O_RDWR | O_CREAT | O_NOFOLLOW, 0o644)
        if fd != -2:                    # ENOENT: a directory is missing
            break
        snprintf(path, PATH_MAX, b"%s/%s", q.dir, r.topic)
        rc = q.io.mkdir(q.io.ctx, path, 0o755)
        if rc < 0 and rc != -EEXIST:
            return rc
        snprintf(path, PATH_MAX, b"%s/%s/%d", q.dir, r.topic, r.queue_id)
        rc = q.io.mkdir(q.io.ctx, path, 0o755)
        if rc < 0 and rc != -EEXIST:
            return rc
    if fd < 0:
        return fd
    rc = 0
    if q.io.size(q.io.ctx, fd) < q.file_size:
        rc = q.io.ftruncate(q.io.ctx, fd, q.file_size)
    if rc >= 0:
        rc = rmq_pwrite_all(q.io, fd, units, size, position - start)
    q.io.close(q.io.ctx, fd)
    return rc


cdef int _flush(Queues *q, Run *r) noexcept nogil:
    cdef int64_t position = r.first * UNIT_SIZE, left = <int64_t> r.used * UNIT_SIZE, size
    cdef const unsigned char *units = r.units
    cdef int rc
    while left > 0:
        size = q.file_size - position % q.file_size
        if size > left:
            size = left
        rc = _write(q, r, units, position, size)
        if rc < 0:
            return rc
        units += size
        position += size
        left -= size
    r.used = 0
    return 0


cdef int _entry(Queues *q, const RecordView *v) noexcept nogil:
    cdef PropertyView p
    cdef Run *r
    cdef int kind = v.sys_flag & FLAG_TRANSACTION
    cdef int rc
    if kind == TRANSACTION_PREPARED or kind == TRANSACTION_ROLLBACK:
        return 0
    if (not topic_fits(v.topic, v.topic_size) or v.queue_id < 0
            or not 0 <= v.queue_offset <= INT64_MAX // UNIT_SIZE - q.file_size):
        return 0
    r = _run(q, v.topic, v.topic_size, v.queue_id)
    if r == NULL:
        return -ENOMEM
    if v.physical_offset < r.removed_below:
        return 0
    if r.units == NULL:
        r.units = <unsigned char *> malloc(RUN * UNIT_SIZE)
        if r.units == NULL:
            return -ENOMEM
    if r.count > 0 and v.queue_offset != r.high + 1:
        q.broken = r
        q.place = v.physical_offset
        q.found = v.queue_offset
        return -EEXIST
    if r.used == RUN:
        rc = _flush(q, r)
        if rc < 0:
            return rc
    if r.used == 0:
        r.first = v.queue_offset
    properties_scan(v.properties, v.properties_size, &p)
    unit_put(r.units + r.used * UNIT_SIZE, v.physical_offset, v.size, delay_tags_code(v, &p, q.delay_ms, q.delay_levels))
    r.used += 1
    if r.count == 0:
        r.low = v.queue_offset
    r.high = v.queue_offset
    r.count += 1
    return 0


cdef class _Part:
    # One part of a log file, open. It is read, not mapped: to copy pieces into the core's cache costs less than the page faults
    # of a map and a miss in memory for each record's head and properties. And a file that is cut meanwhile is no SIGBUS.
    cdef Walk walk
    cdef IoTable owner
    cdef str path
    cdef bint opened
    cdef int step               # the last of walk_next

    def __cinit__(self, piece):
        cdef int rc
        cdef bytes name
        cdef const char *text
        cdef int64_t begin, end
        _, path, start, first, last, newest, aligned = piece
        self.owner = IoTable()
        self.path = path
        name = os.fsencode(path)
        text = name
        self.walk.start = start
        self.walk.newest = newest
        self.walk.verify = VERIFY_NONE
        self.walk.max_record = 8 << 20
        begin = first - start
        end = last - start
        cdef bint known = aligned
        with nogil:
            rc = window_open(&self.walk.w, self.owner.table, text, False)
            if rc >= 0:
                self.opened = True
                self.walk.w.piece = PIECE
                rc = walk_begin(&self.walk, begin, end, known)
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), path)

    def __dealloc__(self):
        if self.opened:
            window_close(&self.walk.w)

    cdef inline bint next(self, RecordView *v) noexcept nogil:
        # Whether there is another record; if not, stopped() says why.
        self.step = walk_next(&self.walk, v)
        if self.step != STEP_RECORD:
            return False
        walk_take(&self.walk, v)
        return True

    cdef int stopped(self) except -1:
        # Damage and errors are raised; the end is none.
        if self.step == STEP_BAD:
            raise CorruptionError(self.path, self.walk.start + self.walk.bad_begin, "a whole record",
                                  f"none before {self.walk.start + self.walk.bad_end}: audit the store")
        if self.step < 0:
            raise OSError(-self.step, os.strerror(-self.step), self.path)
        return 0

    cdef object ends(self):
        # (first record, behind the last one, records end before the part begins?) for the check that parts meet.
        first = None if self.walk.first < 0 else self.walk.start + self.walk.first
        return first, self.walk.start + (self.walk.tail if self.walk.tail >= 0 else self.walk.at)


def queue_part(piece, directory, int64_t file_size, levels=_LEVELS_MS, removed=()):
    """Writes the queue entries of one part of a log; returns ([(topic, queue id, low, high, count)], first, position).

    piece: (broker, path, start, begin, end, newest, aligned). directory: that of the queues. removed: (topic, queue id, log
    offset) of queues whose records below that offset get no entry. low, high: queue offsets. first, position: log offsets of
    the first record and behind the last one. Idempotent, and safe beside others at other parts. Raises CorruptionError for
    damage in the log, also where a queue's offset does not follow the one before, OSError, MemoryError. Nothing is synced.
    """
    cdef _Part part = _Part(piece)
    cdef Queues q
    cdef RecordView v
    cdef int rc = 0
    cdef int64_t i
    cdef Run *r
    cdef bytes text
    cdef const int64_t[::1] table = array("q", levels or (0,))
    cdef bytes name = os.fsencode(directory)
    q.io = part.owner.table
    q.dir = name
    q.delay_ms = &table[0]
    q.delay_levels = <int32_t> len(levels)
    q.runs = NULL
    q.slots = NULL
    q.broken = NULL
    q.n = q.capacity = q.mask = 0
    q.file_size = file_size
    try:
        for topic, queue_id, below in removed:
            text = topic.encode()
            r = _run(&q, text, <int32_t> len(text), queue_id)
            if r == NULL:
                raise MemoryError
            r.removed_below = below
        with nogil:
            while rc >= 0 and part.next(&v):
                rc = _entry(&q, &v)
            for i in range(q.n):
                if rc >= 0:
                    rc = _flush(&q, &q.runs[i])
        if q.broken != NULL:
            raise CorruptionError(part.path, q.place, f"queue offset {q.broken.high + 1} of "
                                  f"{q.broken.topic[:q.broken.topic_size].decode()}/{q.broken.queue_id}", q.found)
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), os.fspath(directory))
        part.stopped()
        rows = [(q.runs[i].topic[:q.runs[i].topic_size].decode("utf-8"), q.runs[i].queue_id, q.runs[i].low, q.runs[i].high,
                 q.runs[i].count) for i in range(q.n) if q.runs[i].count > 0]
        first, position = part.ends()
        return rows, first, position
    finally:
        for i in range(q.n):
            free(q.runs[i].topic)
            free(q.runs[i].units)
        free(q.runs)
        free(q.slots)


# ---- the index

cdef int64_t _keys(const RecordView *v, IndexFile *f, int64_t skip, int64_t room) noexcept nogil:
    # Puts the keys of a record from `skip` on, at most `room`, into f (NULL: none); returns how many there are.
    cdef PropertyView p
    cdef Keys keys
    cdef int32_t prefix
    cdef int64_t n = 0
    if v.sys_flag & FLAG_TRANSACTION == TRANSACTION_ROLLBACK:
        return 0
    properties_scan(v.properties, v.properties_size, &p)
    keys = keys_of(p.uniq_key, p.uniq_key_size, p.keys, p.keys_size)
    prefix = topic_hash(v.topic, v.topic_size) if f != NULL else 0
    while key_next(&keys):
        if f != NULL and n >= skip and n < skip + room:
            index_file_put(f, key_hash(prefix, keys.key, keys.size), v.physical_offset, v.store_timestamp)
        n += 1
    return n


def count_keys(piece):
    """Index entries of one part of a log: (count, first, position). Errors as queue_part."""
    cdef _Part part = _Part(piece)
    cdef RecordView v
    cdef int64_t n = 0
    with nogil:
        while part.next(&v):
            n += _keys(&v, NULL, 0, 0)
    part.stopped()
    first, position = part.ends()
    return n, first, position


def index_part(pieces, directory, tmp, int64_t name, int32_t slots, int32_t entries_max, int64_t skip, int64_t take):
    """Makes one index file, called `name`, of the keys in `pieces` but for the first `skip`, at most `take`; returns how many.

    The file is made in directory `tmp`, synced and renamed into `directory`; made again, it replaces itself.
    """
    cdef _Part part
    cdef RecordView v
    cdef IndexFile *f = NULL
    cdef IoTable owner = IoTable()
    cdef int rc
    cdef int64_t done = 0, found, before
    cdef bytes to = os.fsencode(directory), by = os.fsencode(tmp)
    cdef const char *to_text = to
    cdef const char *by_text = by
    with nogil:
        rc = index_file_create(owner.table, to_text, by_text, name, slots, entries_max, 0, 0, &f)
    if rc < 0:
        raise OSError(-rc, os.strerror(-rc), os.fspath(directory))
    try:
        for piece in pieces:
            if done == take:
                break
            part = _Part(piece)
            with nogil:
                while done < take and part.next(&v):
                    before = skip
                    found = _keys(&v, f, skip, take - done)
                    if found <= before:
                        skip -= found
                    else:
                        skip = 0
                        found -= before
                        done += found if found < take - done else take - done
            if done < take:
                part.stopped()
        with nogil:
            rc = index_file_sync(f)
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), os.fspath(directory))
    finally:
        index_file_release(f)
    return done
