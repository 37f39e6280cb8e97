"""The queues of a store (upstream: ConsumeQueue, ConsumeQueueStore). Contract in _queue.pxd.

A queue costs memory and, from its first entry on, a directory and sparse files; nothing else is kept open for it. The work is done
next door: _table finds queues, _entries takes entries in, _recover finds and moves their ends, _files and _descriptors do the I/O.
"""
import os

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc

from rmq_store.codec._record cimport rmq_get32, rmq_get64
from rmq_store.consumequeue._descriptors cimport UnitFiles
from rmq_store.consumequeue._entries cimport entries_note_unsynced, entries_publish, entries_put, entries_sync
from rmq_store.consumequeue._ext cimport ext_read
from rmq_store.consumequeue._files cimport files_add, files_cut, files_modified_ms, files_read, files_remove_dirs
from rmq_store.consumequeue._recover cimport recover_end, recover_min, recover_truncate
from rmq_store.consumequeue._state cimport QueueState, TableState, entry_append, is_ext_address, state_of
from rmq_store.consumequeue._table cimport table_at, table_done, table_find, table_init
from rmq_store.io._io cimport IoTable, rmq_io
from rmq_store.io._sync cimport EIO, ENOENT, EROFS, rmq_load, rmq_store, rmq_swap32

cdef enum:
    BIT_MAP_MAX = 32768

cdef struct QueueFiles:
    QueueState state

cdef struct QueueTable:
    TableState state


# ---- life and look-up

cdef QueueTable *queues_new(const rmq_io *io, const char *dir, const char *ext_dir, const char *tmp_dir, int64_t file_size,
                            int64_t ext_file_size, int fd_max, bint readonly) noexcept nogil:
    cdef QueueTable *t = <QueueTable *> calloc(1, sizeof(QueueTable))
    if t != NULL and table_init(&t.state, io, dir, ext_dir, tmp_dir, file_size, ext_file_size, fd_max, readonly) < 0:
        queues_free(t)
        return NULL
    return t


cdef void queues_free(QueueTable *t) noexcept nogil:
    if t != NULL:
        table_done(&t.state)
        free(t)


cdef Queue *queues_find(QueueTable *t, const char *topic, int32_t topic_size, int32_t queue_id, bint create) noexcept nogil:
    return table_find(&t.state, topic, topic_size, queue_id, create)


cdef int64_t queues_count(QueueTable *t) noexcept nogil:
    return rmq_load(&t.state.count)


cdef Queue *queues_at(QueueTable *t, int64_t i) noexcept nogil:
    return table_at(&t.state, i)


# ---- load and recovery

cdef int queue_add_file(QueueTable *t, Queue *q, int64_t start) noexcept nogil:
    return files_add(&state_of(q).entries, start)


cdef int queue_add_ext_file(QueueTable *t, Queue *q, int64_t start) noexcept nogil:
    return files_add(&state_of(q).ext, start) if t.state.ext_file_size > 0 else 0


cdef int queue_recover(QueueTable *t, Queue *q, bint thorough) noexcept nogil:
    cdef int rc = recover_end(&t.state, q, state_of(q), thorough)
    if rc >= 0 and thorough and not t.state.readonly and state_of(q).entries.end > state_of(q).entries.first:
        entries_note_unsynced(&t.state, q)
    return rc


cdef int queue_truncate(QueueTable *t, Queue *q, int64_t physical) noexcept nogil:
    return recover_truncate(&t.state, q, state_of(q), physical)


cdef int queue_correct_min(QueueTable *t, Queue *q, int64_t physical_min) noexcept nogil:
    return recover_min(&t.state, q, state_of(q), physical_min)


cdef int queue_destroy(QueueTable *table, Queue *q) noexcept nogil:
    cdef TableState *t = &table.state
    cdef QueueState *s = state_of(q)
    cdef int rc = 0
    if t.readonly:
        return -EROFS
    rmq_store(&q.max_offset, 0)
    rmq_store(&q.min_offset, 0)
    q.next_offset = 0
    q.max_physical_offset = -1
    s.next_index = 0
    s.blank_to = 0
    s.new_min = -1
    s.limit = 0
    s.entries.used = 0
    s.ext.used = 0
    rmq_swap32(&s.entries.new_dirs, 0)
    rmq_swap32(&s.ext.new_dirs, 0)
    rc = files_cut(t.cache, &s.entries, s.entries.first, False, False)
    if rc >= 0:
        rc = files_remove_dirs(t.cache, &s.entries)
    if rc >= 0 and t.ext_file_size > 0:
        rc = files_cut(t.cache, &s.ext, s.ext.first, False, False)
        if rc >= 0:
            rc = files_remove_dirs(t.cache, &s.ext)
    return rc


# ---- dispatch and durability

cdef int queue_put(QueueTable *table, Queue *q, int64_t physical, int32_t size, int64_t tags_code, int64_t store_timestamp,
                   int64_t cq_offset) noexcept nogil:
    cdef QueueState *s = state_of(q)
    if physical + size <= q.max_physical_offset:
        return 0
    if (s.entries.used < s.limit and cq_offset == s.next_index and table.state.ext_file_size == 0 and physical >= 0 and size > 0
            and q.max_physical_offset >= 0):
        entry_append(s, physical, size, tags_code)
        q.max_physical_offset = physical + size
        return 0
    return entries_put(&table.state, q, physical, size, tags_code, store_timestamp, cq_offset)


cdef int queues_publish(QueueTable *t) noexcept nogil:
    return entries_publish(&t.state)


cdef int64_t queues_gaps(QueueTable *t) noexcept nogil:
    return rmq_load(&t.state.gaps)


cdef int queues_sync(QueueTable *t, int64_t pages_min) noexcept nogil:
    return entries_sync(&t.state, pages_min)


# ---- reading

cdef int64_t queue_read(QueueTable *t, Queue *q, int64_t from_offset, unsigned char *out, int64_t count) noexcept nogil:
    cdef int64_t end = rmq_load(&q.max_offset)
    cdef int64_t got
    if count > end - from_offset:
        count = end - from_offset
    if count <= 0 or from_offset < 0:
        return 0
    got = files_read(t.state.cache, &state_of(q).entries, out, count * UNIT_SIZE, from_offset * UNIT_SIZE)
    if got < UNIT_SIZE:
        if got == -ENOENT and rmq_load(&q.max_offset) <= from_offset:
            return 0                # truncated or destroyed meanwhile
        if got >= 0:                # before the first file, or a file shorter than its length
            return 0 if from_offset * UNIT_SIZE < rmq_load(&state_of(q).entries.first) else -EIO
        return got
    return got // UNIT_SIZE


cdef int64_t queue_read_ext(QueueTable *t, Queue *q, int64_t address, int64_t *tags_code, int64_t *store_timestamp,
                            unsigned char *bit_map, int64_t bit_map_max) noexcept nogil:
    if t.state.ext_file_size == 0:
        return -ENOENT
    return ext_read(t.state.cache, &state_of(q).ext, address, tags_code, store_timestamp, bit_map, bit_map_max)


cdef int64_t queue_file_count(QueueTable *t, Queue *q) noexcept nogil:
    # Files with at least one published entry.
    cdef UnitFiles *f = &state_of(q).entries
    cdef int64_t rest = rmq_load(&q.max_offset) * UNIT_SIZE - rmq_load(&f.first)
    return (rest + f.file_size - 1) // f.file_size if rest > 0 else 0


cdef int queue_file_at(QueueTable *t, Queue *q, int64_t i, int64_t *start_offset, int64_t *end_offset,
                       int64_t *modified_ms) noexcept nogil:
    cdef UnitFiles *f = &state_of(q).entries
    cdef int64_t start = rmq_load(&f.first) + i * f.file_size
    cdef int64_t end = rmq_load(&q.max_offset) * UNIT_SIZE
    if i < 0 or start >= end:
        return -ENOENT
    start_offset[0] = start // UNIT_SIZE
    end_offset[0] = (end if end < start + f.file_size else start + f.file_size) // UNIT_SIZE
    modified_ms[0] = files_modified_ms(t.state.cache, f, start)
    return 0 if modified_ms[0] >= 0 else <int> modified_ms[0]


# ---- for Python

cdef object _each(QueueTableOwner owner, int (*step)(QueueTable *, Queue *, int64_t) noexcept nogil, int64_t physical):
    cdef QueueTable *t = owner.table
    cdef int64_t i
    cdef Queue *q = NULL
    cdef int rc = 0
    with nogil:
        for i in range(queues_count(t)):
            q = queues_at(t, i)
            rc = step(t, q, physical)
            if rc < 0:
                break
    if rc < 0:
        owner.check(rc, q.topic, q.queue_id)


cdef class QueueTableOwner:
    """The queues of one store.

    dir, ext_dir, tmp_dir: str paths; sizes in bytes; fd_max: descriptors that may be open at once; io: the I/O table.
    Thread-safety: reading from any thread; put, publish and recovery from one; sync from one. Every call that touches a file
    releases the GIL. Durability: what `sync` returned for. Lifetime: closing descriptors, and nothing else, happens when it goes.
    """

    def __cinit__(self, str dir not None, *, str ext_dir="", str tmp_dir="", int64_t file_size=6_000_000,
                  int64_t ext_file_size=0, int fd_max=512, bint readonly=False, IoTable io=None):
        self.io = IoTable() if io is None else io
        self.table = queues_new(self.io.table, os.fsencode(dir), os.fsencode(ext_dir), os.fsencode(tmp_dir), file_size,
                                ext_file_size, fd_max, readonly)
        if self.table == NULL:
            raise MemoryError("queue table")
        self.dir = dir
        self.ext_dir = ext_dir
        self.file_size = self.table.state.file_size
        self.ext_file_size = ext_file_size
        self.readonly = readonly

    def __dealloc__(self):
        queues_free(self.table)

    cdef Queue *find(self, bytes topic, int queue_id) except NULL:
        cdef Queue *q = queues_find(self.table, topic, <int32_t> len(topic), queue_id, False)
        if q == NULL:
            raise KeyError((topic, queue_id))
        return q

    cdef int check(self, int64_t rc, bytes topic, int queue_id) except -1:
        if rc < 0:
            raise OSError(<int> -rc, os.strerror(<int> -rc), f"{self.dir}/{os.fsdecode(topic)}/{queue_id}")
        return 0

    # ---- load and recovery

    def add_queue(self, bytes topic not None, int queue_id, starts=(), ext_starts=()):
        """Tells of a queue and its existing files (byte offsets, ascending). -1, or the start that leaves a gap."""
        cdef Queue *q = queues_find(self.table, topic, <int32_t> len(topic), queue_id, True)
        cdef int64_t start
        if q == NULL:
            raise MemoryError("queue")
        for start in starts:
            if queue_add_file(self.table, q, start) < 0:
                return start
        for start in ext_starts:
            if queue_add_ext_file(self.table, q, start) < 0:
                return start
        return -1

    def remove_file(self, bytes path not None):
        """Deletes a file that the table was not told of."""
        cdef const char *p = path
        cdef int rc = self.io.table.unlink(self.io.table.ctx, p)
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), os.fsdecode(path))

    def recover(self, bint thorough=False):
        """Finds the end of every queue. Returns the end of the last record that has an entry, -1: none."""
        cdef int64_t i, last = -1
        cdef Queue *q = NULL
        cdef int rc = 0
        with nogil:
            for i in range(queues_count(self.table)):
                q = queues_at(self.table, i)
                rc = queue_recover(self.table, q, thorough)
                if rc < 0:
                    break
                if q.max_physical_offset > last:
                    last = q.max_physical_offset
        if rc < 0:
            self.check(rc, q.topic, q.queue_id)
        return last

    def truncate(self, int64_t physical):
        """Removes the entries of records at or beyond `physical`, from every queue."""
        _each(self, queue_truncate, physical)

    def correct_min(self, int64_t physical):
        """Makes the first entry whose record is at or beyond `physical` the first one of its queue, for every queue."""
        _each(self, queue_correct_min, physical)

    def destroy(self, bytes topic not None, int queue_id):
        """Deletes the files of a queue; it goes on, empty, at offset 0."""
        cdef Queue *q = self.find(topic, queue_id)
        cdef int rc
        with nogil:
            rc = queue_destroy(self.table, q)
        self.check(rc, topic, queue_id)

    # ---- dispatch

    def put(self, bytes topic not None, int queue_id, int64_t physical, int size, int64_t tags_code, int64_t store_timestamp,
            int64_t cq_offset):
        """One entry, as the dispatcher puts it."""
        cdef Queue *q = queues_find(self.table, topic, <int32_t> len(topic), queue_id, True)
        cdef int rc
        if q == NULL:
            raise MemoryError("queue")
        with nogil:
            rc = queue_put(self.table, q, physical, size, tags_code, store_timestamp, cq_offset)
        self.check(rc, topic, queue_id)

    def publish(self):
        """Writes what is buffered and lets readers see it."""
        cdef int rc
        with nogil:
            rc = queues_publish(self.table)
        self.check(rc, b"", 0)

    def sync(self, int64_t pages_min=0):
        """Puts what was published on the device. After a failure every later call fails the same."""
        cdef int rc
        with nogil:
            rc = queues_sync(self.table, pages_min)
        self.check(rc, b"", 0)

    # ---- reading

    def queues(self):
        """(topic, queue id) of every queue, in order of creation."""
        cdef int64_t i
        cdef Queue *q
        out = []
        for i in range(queues_count(self.table)):
            q = queues_at(self.table, i)
            out.append((q.topic[:q.topic_size], q.queue_id))
        return out

    def offsets(self, bytes topic not None, int queue_id):
        """(min, max, next) queue offsets."""
        cdef Queue *q = self.find(topic, queue_id)
        return rmq_load(&q.min_offset), rmq_load(&q.max_offset), q.next_offset

    def max_physical_offset(self, bytes topic not None, int queue_id):
        """End of the last record that has an entry in the queue; -1: none."""
        return self.find(topic, queue_id).max_physical_offset

    def read(self, bytes topic not None, int queue_id, int64_t from_offset, int64_t count):
        """Up to `count` entries (physical offset, size, tags code), never across the end of a file."""
        cdef Queue *q = self.find(topic, queue_id)
        cdef unsigned char *units
        cdef int64_t got, i
        if count <= 0:
            return []
        if count > self.file_size // UNIT_SIZE:
            count = self.file_size // UNIT_SIZE
        units = <unsigned char *> malloc(count * UNIT_SIZE)
        if units == NULL:
            raise MemoryError("entries")
        try:
            with nogil:
                got = queue_read(self.table, q, from_offset, units, count)
            self.check(got, topic, queue_id)
            return [(rmq_get64(units + i * UNIT_SIZE), rmq_get32(units + i * UNIT_SIZE + 8),
                     rmq_get64(units + i * UNIT_SIZE + 12)) for i in range(got)]
        finally:
            free(units)

    def read_ext(self, bytes topic not None, int queue_id, int64_t address):
        """(tags code, store time in ms, filter bit map) of an ext unit, None if there is none."""
        cdef Queue *q = self.find(topic, queue_id)
        cdef unsigned char[BIT_MAP_MAX] bit_map
        cdef int64_t tags_code = 0, store_timestamp = 0, size
        with nogil:
            size = queue_read_ext(self.table, q, address, &tags_code, &store_timestamp, bit_map, BIT_MAP_MAX)
        if size == -ENOENT:
            return None
        self.check(size, topic, queue_id)
        return tags_code, store_timestamp, <bytes> bit_map[:size]

    @staticmethod
    def is_ext_address(int64_t tags_code):
        """True if the tags code of an entry is the address of an ext unit."""
        return is_ext_address(tags_code)

    def files(self, bytes topic not None, int queue_id):
        """(first queue offset, one past the last, time of modification in ms) of each file with entries."""
        cdef Queue *q = self.find(topic, queue_id)
        cdef int64_t i, start = 0, end = 0, modified = 0
        cdef int rc
        out = []
        for i in range(queue_file_count(self.table, q)):
            with nogil:
                rc = queue_file_at(self.table, q, i, &start, &end, &modified)
            self.check(rc, topic, queue_id)
            out.append((start, end, modified))
        return out

    @property
    def gaps(self):
        """Entries that were stored elsewhere than their queue offset says, or not at all."""
        return queues_gaps(self.table)

    @property
    def open_files(self):
        """Descriptors open now."""
        return self.table.state.cache.open_count
