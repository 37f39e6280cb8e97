"""Owner of a queue table, and its face for Python. The table's contract is _queue.pxd; nothing here is on a message's way."""
import os

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport strlen

from rmq_store.base.io._io cimport IoTable
from rmq_store.base.io._sync cimport EAGAIN, ENOENT, ENOMEM, rmq_load
from rmq_store.codec._inner cimport (BATCH_UNIT_SIZE, batch_base, batch_bytes, batch_code, batch_count, batch_physical,
                                     batch_time)
from rmq_store.codec._layout cimport UNIT_SIZE
from rmq_store.codec._unit cimport is_ext_address, unit_bytes, unit_code, unit_physical
from rmq_store.queues.consumequeue._batches cimport queue_read_batches, queues_batch_dir, topic_batched
from rmq_store.queues.consumequeue._kinds cimport CHANGE_NOT, topic_set_batched
from rmq_store.queues.consumequeue._queue cimport (Queue, QueueTable, queue_add_ext_file, queue_add_file, queue_correct_min,
                                                   queue_cut, queue_destroy, queue_file_at, queue_file_count, queue_find_end,
                                                   queue_put, queue_read, queue_read_ext, queue_truncate, queues_at,
                                                   queues_count, queues_find, queues_free, queues_gaps, queues_new,
                                                   queues_bit_map, queues_publish, queues_sync)
from rmq_store.queues.consumequeue._rest cimport rest_states
from rmq_store.queues.consumequeue._state cimport BATCH_OPEN, BATCH_TAKE, TableState

cdef extern from "rmq_queue_dirs.h" nogil:
    ctypedef struct rmq_queue_dir:
        int32_t queue_id
        int64_t first
        int64_t count
    ctypedef struct rmq_topic_dir:
        const char *name
        int odd
        int64_t count
        rmq_queue_dir *queues
    int rmq_queue_dirs_list(const char *base, rmq_topic_dir *topics, int64_t count, int64_t file_size, int64_t highest)

cdef enum:
    BIT_MAP_MAX = 32768


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


cdef int _add_topic(QueueTable *t, const rmq_topic_dir *topic) noexcept nogil:
    cdef const rmq_queue_dir *found
    cdef Queue *q
    cdef int64_t i, k
    cdef int rc = 0
    for i in range(topic.count):
        found = &topic.queues[i]
        q = queues_find(t, topic.name, <int32_t> strlen(topic.name), found.queue_id, True)
        if q == NULL:
            return -ENOMEM
        for k in range(found.count):
            rc = queue_add_file(t, q, found.first + k * (<TableState *> t).file_size)
            if rc < 0:
                return rc
    return 0


@cython.no_gc_clear     # the I/O table is needed to the end: closing the descriptors is a call of it
cdef class QueueTableOwner:
    """The queues of one store.

    dir, ext_dir, tmp_dir: str paths; sizes in bytes; fd_max: descriptors that may be open at once; io: the I/O table.
    Thread-safety: reading from any thread; put, publish and recovery from one; sync from one. Every call that touches a file
    releases the GIL. Durability: what `sync` returned for. Lifetime: closing descriptors, and nothing else, happens when it
    goes.
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
        self.file_size = (<TableState *> self.table).file_size
        self.ext_file_size = ext_file_size
        self.batch_dir = ""
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
            base = self.batch_dir if topic and topic_batched(self.table, topic, <int32_t> len(topic)) else self.dir
            raise OSError(<int> -rc, os.strerror(<int> -rc), f"{base}/{os.fsdecode(topic)}/{queue_id}")
        return 0

    cdef int check_queue(self, int rc, const Queue *q) except -1:
        return 0 if rc >= 0 else self.check(rc, q.topic, q.queue_id)

    # ---- load and recovery

    def batched(self, str dir not None, int64_t file_size, topics not None, bint said=True):
        """Queues of these topics (names: bytes) are batch queues, whose files of `file_size` bytes lie in `dir`, also of those
        that a call before named. said: as config/topics.json says, else it is about to. False: a topic has queues of another
        kind, and keeps them."""
        cdef bytes name, base = os.fsencode(dir)
        cdef int rc = queues_batch_dir(self.table, base, file_size)
        self.batch_dir = dir
        for name in sorted(topics):
            if rc == 0:
                rc = topic_set_batched(self.table, name, <int32_t> len(name), BATCH_TAKE, CHANGE_NOT)
            if rc == 0 and said:
                rc = topic_set_batched(self.table, name, <int32_t> len(name), BATCH_OPEN, CHANGE_NOT)
        if rc < 0:
            raise MemoryError("batch topics")
        return rc == 0

    def is_batched(self, bytes topic not None):
        """True if queues of this topic are batch queues."""
        return topic_batched(self.table, topic, <int32_t> len(topic))

    def read_batches(self, bytes topic not None, int queue_id, int64_t from_offset, int64_t count):
        """Up to `count` units of a batch queue, from the one with queue offset `from_offset` on: (physical offset, size, tags
        code, store time, queue offset of the first message, messages). Never across the end of a file."""
        cdef Queue *q = self.find(topic, queue_id)
        cdef unsigned char[64 * BATCH_UNIT_SIZE] units
        cdef const unsigned char *u
        cdef int64_t got, i
        with nogil:
            got = queue_read_batches(self.table, q, from_offset, units, min(count, <int64_t> 64), False)
            if got == -EAGAIN:
                got = 0
        self.check(got, topic, queue_id)
        found = []
        for i in range(got):
            u = units + i * BATCH_UNIT_SIZE
            found.append((batch_physical(u), batch_bytes(u), batch_code(u), batch_time(u), batch_base(u), batch_count(u)))
        return found

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

    def add_plain(self, list topics not None, int64_t highest):
        """Tells of all queues of these topics (names: bytes), as their directories list them, where nothing else lies there: no
        other names, sizes or gaps, no file that begins beyond `highest`. Returns the other topics, of which it told nothing."""
        cdef int64_t i, count = len(topics)
        cdef bytes name
        cdef bytes base = os.fsencode(self.dir)
        cdef const char *c_base = base
        cdef rmq_topic_dir *found = <rmq_topic_dir *> calloc(count + 1, sizeof(rmq_topic_dir))
        cdef int rc
        if found == NULL:
            raise MemoryError("topics")
        try:
            for i in range(count):
                name = topics[i]                # the list keeps it
                found[i].name = PyBytes_AS_STRING(name)
            with nogil:
                rc = rmq_queue_dirs_list(c_base, found, count, self.file_size, highest)
                for i in range(count):
                    if rc >= 0 and not found[i].odd:
                        rc = _add_topic(self.table, &found[i])
            if rc < 0:
                raise MemoryError("queues")
            return [topics[i] for i in range(count) if found[i].odd]
        finally:
            for i in range(count):
                free(found[i].queues)
            free(found)

    def remove_file(self, bytes path not None):
        """Deletes a file that the table was not told of."""
        cdef const char *p = path
        cdef int rc = self.io.table.unlink(self.io.table.ctx, p)
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), os.fsdecode(path))

    def recover(self, bint thorough=False, int64_t safe=0):
        """Finds the end of every queue, and takes away what stands behind it where the table is writable and `thorough`.

        thorough: as after a crash; safe: the log offset below which all entries are known to be on the device.
        Returns the end of the last record that has an entry, -1: none."""
        cdef int64_t i, last = -1
        cdef Queue *q = NULL
        cdef int rc = 0
        with nogil:
            for i in range(queues_count(self.table)):
                q = queues_at(self.table, i)
                rc = queue_find_end(self.table, q, safe if thorough else -1)
                if rc >= 0 and thorough and not self.readonly:
                    rc = queue_cut(self.table, q)
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
        """Deletes the files of a queue; it continues, empty, at offset 0."""
        cdef Queue *q = self.find(topic, queue_id)
        cdef int rc
        with nogil:
            rc = queue_destroy(self.table, q)
        self.check(rc, topic, queue_id)

    # ---- dispatch

    def put(self, bytes topic not None, int queue_id, int64_t physical, int size, int64_t tags_code, int64_t store_timestamp,
            int64_t cq_offset, bytes bit_map=None):
        """One entry, as the dispatcher puts it."""
        cdef Queue *q = queues_find(self.table, topic, <int32_t> len(topic), queue_id, True)
        cdef int rc
        if q == NULL:
            raise MemoryError("queue")
        if bit_map is not None:
            queues_bit_map(self.table, physical, bit_map, <int> len(bit_map))
        with nogil:
            rc = queue_put(self.table, q, physical, size, tags_code, store_timestamp, cq_offset)
        queues_bit_map(self.table, -1, NULL, 0)
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
            return [(unit_physical(units + i * UNIT_SIZE), unit_bytes(units + i * UNIT_SIZE),
                     unit_code(units + i * UNIT_SIZE)) for i in range(got)]
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
    def light_in_use(self):
        """Light queues that have more than their row now: they are in use, were a moment ago, or wait to be synced."""
        return rest_states(<TableState *> self.table)

    @property
    def open_files(self):
        """Descriptors open now."""
        return (<TableState *> self.table).cache.open_count
