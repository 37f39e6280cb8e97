"""Messages as views over the mapped log (RocketMQ: MessageExt, SelectMappedBufferResult). Contract in _message.pxd.

A view was parsed once, with every length checked against the file, and keeps what it found: a record that changes underneath
can give other bytes, never bytes outside its place. It stays good as long as it lives, also after the store is closed.
"""
cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memcmp

from rmq_store.base.segment._file cimport LogFile, log_file_release
from rmq_store.codec._batch cimport BATCH_ELEMENT, BATCH_END, BatchElement, BatchReader, batch_begin, batch_next
from rmq_store.codec._inner cimport Inner, inner_of
from rmq_store.codec._layout cimport FLAG_COMPRESSED, FLAG_COMPRESSION_TYPE, FLAG_INNER_BATCH, FLAG_NEED_UNWRAP
from rmq_store.codec._properties cimport properties_dict
from rmq_store.codec._record cimport (RECORD_OK, PropertyView, RecordView, body_crc32, born_host_size, properties_scan,
                                      record_parse, store_host_size)

from rmq_store import errors
from rmq_store.codec.compression import inflate
from rmq_store.codec.message_id import host_text

cdef extern from *:
    """
    #include <pthread.h>
    #include <sys/mman.h>
    /* Writable maps do not come along to a child of fork. What views look at does, read-only: for the moment of the fork its
       maps may come along, so that no descriptor of their files is needed. Under the GIL, which the forking thread has, and its
       child: any other runs no Python. Views of one file lie side by side in the list, as a rule. */
    static rmq_lent *rmq_all_lent;
    static int rmq_lent_forks;
    static int rmq_lent_shows(const rmq_lent *l) { return l->map && !(l->next && l->next->map == l->map); }
    static void rmq_lent_come(int advice) {
        for (rmq_lent *l = rmq_all_lent; l; l = l->next)
            if (l->apart && rmq_lent_shows(l)) madvise(l->map, l->size, advice);
    }
    static void rmq_lent_before(void) {
        if (PyGILState_Check()) rmq_lent_come(MADV_DOFORK);
    }
    static void rmq_lent_forked(void) {
        rmq_lent_forks++;
        if (!PyGILState_Check()) return;
        for (rmq_lent *l = rmq_all_lent; l; l = l->next)
            if (rmq_lent_shows(l) && mprotect(l->map, l->size, PROT_READ) != 0) munmap(l->map, l->size);
    }
    static void rmq_lent_parent(void) {
        if (!PyGILState_Check()) return;
        rmq_lent_come(MADV_DONTFORK);
        for (rmq_lent *l = rmq_all_lent; l; l = l->next) __atomic_store_n(l->forked, 1, __ATOMIC_RELAXED);
    }
    static int rmq_watch_lent(void) { return pthread_atfork(rmq_lent_before, rmq_lent_parent, rmq_lent_forked); }
    static void rmq_lend(rmq_lent *l) {
        l->before = &rmq_all_lent;
        l->next = rmq_all_lent;
        if (l->next) l->next->before = &l->next;
        rmq_all_lent = l;
    }
    static void rmq_give_back(rmq_lent *l) {
        *l->before = l->next;
        if (l->next) l->next->before = l->before;
    }
    """
    int rmq_lent_forks
    int rmq_watch_lent()
    void rmq_lend(rmq_lent *l)
    void rmq_give_back(rmq_lent *l)

cdef const char *_NOTHING = b""

if rmq_watch_lent() != 0:
    raise MemoryError("no room for a fork handler")


@cython.final
@cython.no_gc       # of no circle, and a lease needs both when it goes
cdef class LeaseCount:
    pass


@cython.final
@cython.freelist(64)
@cython.no_gc
cdef class Lease:
    def __dealloc__(self):
        if self.file == NULL:
            return
        rmq_give_back(&self.lent)
        if self.forks == rmq_lent_forks:    # else it is the parent's: here its map may be another's by now, and stays
            log_file_release(self.file)
            self.count.alive -= 1

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        # No bytes of its own: each body says which ones it shows.
        PyBuffer_FillInfo(buffer, self, <void *> _NOTHING, 0, 1, flags)


cdef object lease_new(LogFile *f, LeaseCount count):
    cdef Lease lease = Lease.__new__(Lease)
    lease.file = f
    lease.count = count
    lease.forks = rmq_lent_forks
    lease.lent.map = NULL if f.copied else f.map
    lease.lent.size = f.size
    lease.lent.apart = f.writable
    lease.lent.forked = &f.forked
    rmq_lend(&lease.lent)
    count.alive += 1
    return PyMemoryView_FromObject(lease)


cdef object _body(object lease, const unsigned char *data, Py_ssize_t size):
    # A memoryview of an exporter costs two objects and a call of it; one made from a memoryview costs one, and shares the rest.
    # It holds the lease just the same. Then its bounds are set, as slicing does it.
    cdef object body = PyMemoryView_FromObject(lease)
    cdef Py_buffer *bounds = PyMemoryView_GET_BUFFER(body)
    bounds.buf = <void *> data
    bounds.len = size
    bounds.shape[0] = size
    return body


def message_of_record(record):
    """Returns the message of a whole record (Message.raw). Raises CorruptionError if the bytes are not one whole record."""
    cdef bytes kept = record
    cdef RecordView v
    if record_parse(kept, len(kept), &v) != RECORD_OK or v.size != len(kept):
        raise errors.CorruptionError("the record of a message", None, "one whole record", f"{len(kept)} bytes that are none")
    return message_new(PyMemoryView_FromObject(kept), &v)


def message_in_batch(record, place):
    """Returns message number `place`, from 1 on, of the inner batch in a whole record. Raises CorruptionError."""
    return message_of_record(record).unwrap()[place - 1]


cdef Message message_new(object lease, const RecordView *v):
    cdef Message m = Message.__new__(Message)
    m.lease = lease
    m.v = v[0]
    return m


# no_gc: what it refers to can refer back only where a caller puts a message into its own properties.
@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Message:
    """One stored message, as a read-only view. A field is copied only when a program reads it. The buffer of a message is its
    body.

    Lifetime: a message and each `body` taken from it stay valid as long as they live, also after the store was closed, and in a
    child of fork. Until then their log file stays mapped and keeps its space on the disk. `copy()`, pickle and the copy module
    make the same message with its own memory; use them to keep a message for long or to send it to another process.
    Messages are equal if their records have the same bytes; of an inner batch, if they also have the same place in it.
    Thread-safety: immutable. RocketMQ: MessageExt; names are those of the rocketmq-python clients where they have them.
    """

    @property
    def topic(self):
        """str."""
        return PyUnicode_DecodeUTF8(self.v.topic, self.v.topic_size, "replace")

    @property
    def queue_id(self):
        """int."""
        return self.v.queue_id

    @property
    def queue_offset(self):
        """Index in its queue: int; 0 for prepared and rollback messages, which are in no queue."""
        return self.v.queue_offset

    @property
    def offset(self):
        """Physical offset in the log: int."""
        return self.v.physical_offset

    @property
    def size(self):
        """Bytes of the whole record: int."""
        return self.v.size

    @property
    def body(self):
        """The stored body: read-only memoryview. bytes(message.body) copies it."""
        return _body(self.lease if self.inflated_batch is None else self.inflated_batch, self.v.body, self.v.body_size)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void *> self.v.body, self.v.body_size, 1, flags)

    @property
    def raw(self):
        """The whole record: bytes (a copy)."""
        return PyBytes_FromStringAndSize(<const char *> self.v.start, self.v.size)

    @property
    def properties_raw(self):
        """The properties as stored: bytes (a copy)."""
        return PyBytes_FromStringAndSize(self.v.properties, self.v.properties_size)

    @property
    def properties(self):
        """dict of str to str, parsed as RocketMQ does; made once."""
        if self._properties is None:
            self._properties = properties_dict(self.v.properties, self.v.properties_size)
        return self._properties

    @property
    def tags(self):
        """TAGS: str, or None."""
        cdef PropertyView p
        properties_scan(self.v.properties, self.v.properties_size, &p)
        return None if p.tags == NULL else PyUnicode_DecodeUTF8(p.tags, p.tags_size, "replace")

    @property
    def keys(self):
        """KEYS as stored, several keys separated by spaces: str, or None."""
        cdef PropertyView p
        properties_scan(self.v.properties, self.v.properties_size, &p)
        return None if p.keys == NULL else PyUnicode_DecodeUTF8(p.keys, p.keys_size, "replace")

    @property
    def unique_key(self):
        """UNIQ_KEY, the client's message id: str, or None."""
        cdef PropertyView p
        properties_scan(self.v.properties, self.v.properties_size, &p)
        return None if p.uniq_key == NULL else PyUnicode_DecodeUTF8(p.uniq_key, p.uniq_key_size, "replace")

    @property
    def flag(self):
        """The user's flag: int."""
        return self.v.flag

    @property
    def sys_flag(self):
        """MessageSysFlag bits: int."""
        return self.v.sys_flag

    @property
    def magic(self):
        """Magic code of the record, unsigned: int."""
        return self.v.magic & 0xFFFFFFFF

    @property
    def body_crc(self):
        """CRC-32 & 0x7FFFFFFF as stored, of a message in an inner batch that of its body: int."""
        return self.v.body_crc if self.place == 0 else body_crc32(self.v.body, self.v.body_size)

    @property
    def body_crc_ok(self):
        """True if the body has the stored checksum: bool. Reads the whole body; in an inner batch the body of the record."""
        cdef RecordView v
        if self.place > 0:
            return record_parse(self.v.start, self.v.size, &v) == RECORD_OK and body_crc32(v.body, v.body_size) == v.body_crc
        return body_crc32(self.v.body, self.v.body_size) == self.v.body_crc

    @property
    def born_timestamp(self):
        """ms since 1970: int."""
        return self.v.born_timestamp

    @property
    def store_timestamp(self):
        """ms since 1970: int."""
        return self.v.store_timestamp

    @property
    def born_host(self):
        """"ip:port", IPv6 as "[ip]:port": str."""
        return host_text(self.v.born_host[:born_host_size(self.v.sys_flag)])

    @property
    def store_host(self):
        """"ip:port", IPv6 as "[ip]:port": str."""
        return host_text(self.v.store_host[:store_host_size(self.v.sys_flag)])

    @property
    def reconsume_times(self):
        """int."""
        return self.v.reconsume_times

    @property
    def prepared_transaction_offset(self):
        """int."""
        return self.v.prepared_transaction_offset

    @property
    def msg_id(self):
        """Offset message id: store host and physical offset in upper-case hex: str."""
        cdef bytes host = self.v.store_host[:store_host_size(self.v.sys_flag)]
        return (host + self.v.physical_offset.to_bytes(8, "big")).hex().upper()

    def inflated(self, max_size=None):
        """Returns the body as bytes (a copy), decompressed if sys_flag says that it is compressed (zlib, lz4, zstd).

        max_size: the largest result in bytes, default 4 MiB x 16. Raises CorruptionError for a damaged or larger body.
        """
        if max_size is None:
            max_size = 64 << 20
        return inflate(bytes(self.body), self.v.sys_flag, max_size)

    def copy(self):
        """Returns the same message with its own memory: Message. It holds no file. Raises CorruptionError if the bytes of the
        view are gone, because its file was cut."""
        return message_of_record(self.raw) if self.place == 0 else message_in_batch(self.raw, self.place)

    def unwrap(self):
        """The messages of an inner batch, in their order: list of Message; of any other message the message alone.

        Each has its own body, flag, properties and queue offset. Log offset, times, hosts and `raw` are those of the record.
        Raises CorruptionError if the record is damaged. RocketMQ: MessageDecoder.decodeMessage."""
        cdef Inner inner
        cdef BatchReader reader
        cdef BatchElement e
        cdef Message m
        cdef bytes data = None
        cdef int status = BATCH_END
        cdef int32_t i = 0
        if not self.v.sys_flag & FLAG_INNER_BATCH:
            return [self]
        inner = inner_of(&self.v)
        kept = None
        if self.v.sys_flag & FLAG_COMPRESSED:
            data = inflate(bytes(self.body), self.v.sys_flag, 64 << 20)
            kept = PyMemoryView_FromObject(data)
            batch_begin(&reader, data, len(data))
        else:
            batch_begin(&reader, self.v.body, self.v.body_size)
        found = []
        while inner.count > 0:
            status = batch_next(&reader, &e)
            if status != BATCH_ELEMENT:
                break
            m = message_new(self.lease, &self.v)
            m.inflated_batch = kept
            m.v.body, m.v.body_size = e.body, e.body_size
            m.v.properties, m.v.properties_size = e.properties, e.properties_size
            m.v.flag, m.v.queue_offset = e.flag, inner.base + i
            m.v.sys_flag &= ~(FLAG_INNER_BATCH | FLAG_NEED_UNWRAP | FLAG_COMPRESSED | FLAG_COMPRESSION_TYPE)
            i += 1
            m.place = i
            found.append(m)
        if status != BATCH_END or i != inner.count:
            raise errors.CorruptionError(f"the inner batch at log offset {self.v.physical_offset}", self.v.physical_offset,
                                         f"{inner.count} whole messages", f"{i}")
        return found

    def __eq__(self, other):
        cdef Message m
        if type(other) is not Message:
            return NotImplemented
        m = <Message> other
        if self.v.size != m.v.size or self.place != m.place:
            return False
        return self.v.start == m.v.start or memcmp(self.v.start, m.v.start, self.v.size) == 0

    def __hash__(self):
        return hash((self.v.physical_offset, self.v.size, self.place))

    def __reduce__(self):
        raw = self.raw
        message_of_record(raw)      # what is gone is told to who sends it
        return (message_of_record, (raw,)) if self.place == 0 else (message_in_batch, (raw, self.place))

    def _repr_html_(self):
        from rmq_store.access.reader.shown import table_html
        return table_html("", [self])

    def __repr__(self):
        return (f"Message({self.topic!r}, queue_id={self.queue_id}, queue_offset={self.queue_offset}, offset={self.offset}, "
                f"size={self.size}, tags={self.tags!r}, keys={self.keys!r}, body={self.v.body_size} bytes)")
