"""Encode and decode one record from Python: pure functions on the kernel of _record.pxd. No clock, no I/O, no state.

Any thread that holds the GIL. Encoding writes once, straight into the destination. Whatever does not fit a record raises
MessageIllegal or PropertiesSizeExceeded before the first byte; whatever cannot be read raises CorruptionError.
"""
from array import array

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from rmq_store.codec._java_hash import index_key_hash, java_hash, tags_code
from rmq_store.codec.delay import DELAY_LEVELS_MS
from rmq_store.codec.message_id import host_text, create_message_id, host_bytes
from rmq_store.codec.properties import CRC_PROPERTY, delete_property
from rmq_store.errors import CorruptionError, MessageIllegal, PropertiesSizeExceeded, exceeds

from rmq_store.codec._delay cimport delay_tags_code
from rmq_store.codec._layout cimport (BLANK_SIZE, FLAG_BORN_V6, FLAG_STORE_V6, MAGIC_V1, MAGIC_V2, PROPERTIES_SIZE_MAX,
                                      TOPIC_SIZE_V1_MAX)
from rmq_store.codec._properties cimport java_text, properties_bytes, properties_dict, property_text
from rmq_store.codec._record cimport (RECORD_BAD_MAGIC, RECORD_BLANK, RECORD_OK, RECORD_SIZE_MISMATCH, PropertyView, RecordArgs,
                                      RecordStatus, RecordView, blank_encode, body_crc32 as kernel_body_crc32, born_host_size,
                                      properties_scan, record_crc_check, record_encode, record_parse, record_prepare,
                                      store_host_size)

__all__ = ["Blank", "DecodedRecord", "body_crc32", "decode_record", "encode_blank", "encode_into", "encode_record",
           "index_key_hash", "java_hash", "record_size", "tags_code", "verify_record_crc"]

cdef int64_t INT32_TOP = 2147483647
cdef int64_t INT64_TOP = 9223372036854775807
cdef Py_ssize_t TOPIC_SIZE_V2_MAX = 32767
cdef int64_t BODY_SIZE_MAX = INT32_TOP - 200_000    # leaves room for every other part in a totalSize of four bytes


cdef int64_t _integer(object value, str name, int64_t low, int64_t high) except? -1:
    cdef int64_t number
    try:
        number = value
    except (TypeError, OverflowError):
        number = low
        if type(value) is not int:
            raise MessageIllegal(f"{name} is {type(value).__name__}, not a whole number: give an int") from None
        raise MessageIllegal(exceeds(name, value, f"{low} to {high}", "give a number in that range")) from None
    if not low <= number <= high:
        raise MessageIllegal(exceeds(name, value, f"{low} to {high}", "give a number in that range"))
    return number


cdef bytes _topic_bytes(object topic, bint v2_allowed):
    cdef bytes out
    if isinstance(topic, bytes):
        out = topic
    elif isinstance(topic, str):
        try:
            out = (<str> topic).encode()
        except UnicodeEncodeError:
            raise MessageIllegal(f"topic {topic!r} holds a lone surrogate, which UTF-8 cannot hold: replace it") from None
    else:
        raise MessageIllegal(f"topic is {type(topic).__name__}, not text: give a str")
    if not out:
        raise MessageIllegal("topic is empty: every message has one")
    if PyBytes_GET_SIZE(out) > (TOPIC_SIZE_V2_MAX if v2_allowed else TOPIC_SIZE_V1_MAX):
        raise MessageIllegal(exceeds("topic", f"{len(out)} bytes long", TOPIC_SIZE_V2_MAX if v2_allowed else TOPIC_SIZE_V1_MAX,
                                     "shorten it" if v2_allowed else "shorten it, or use compat=\"5.x\""))
    return out


cdef int _host(unsigned char *to, object host) except -1:
    # Returns the bytes written: 8, or 20 for IPv6.
    cdef bytes packed = host_bytes(host)
    memcpy(to, PyBytes_AS_STRING(packed), PyBytes_GET_SIZE(packed))
    return <int> PyBytes_GET_SIZE(packed)


cdef str _joined_keys(object keys):
    # KEYS holds several keys with one blank between them.
    if isinstance(keys, str):
        return keys
    try:
        parts = list(keys)
    except TypeError:
        raise MessageIllegal(f"keys are {type(keys).__name__}: give a str, or several of them") from None
    for key in parts:
        if not isinstance(key, str) or not key or " " in key:
            raise MessageIllegal(f"key {key!r} is no text, empty, or holds a blank, which separates keys in a record: "
                                 "give each key as a str without blanks")
    if not parts:
        raise MessageIllegal("keys is an empty list: leave keys out, or give one")
    return " ".join(parts)


@cython.final
@cython.freelist(16)
cdef class RecordSource:
    def __cinit__(self, topic, body, *, queue_id=0, queue_offset=0, physical_offset=0, flag=0, sys_flag=0, born_timestamp=0,
                  born_host="127.0.0.1:0", store_timestamp=0, store_host="127.0.0.1:10911", reconsume_times=0,
                  prepared_transaction_offset=0, properties=None, tags=None, keys=None, compat="5.x",
                  crc_property=False):
        cdef RecordArgs *a = &self.args
        cdef bint five
        memset(a, 0, sizeof(RecordArgs))
        if compat != "5.x" and compat != "4.9":
            raise ValueError(f"compat is {compat!r}: it is \"4.9\" or \"5.x\"")
        five = compat == "5.x"
        self._topic = _topic_bytes(topic, five)
        a.topic = PyBytes_AS_STRING(self._topic)
        a.topic_size = <int32_t> PyBytes_GET_SIZE(self._topic)
        try:
            PyObject_GetBuffer(body, &self._body, PyBUF_SIMPLE)
        except (TypeError, BufferError):
            raise MessageIllegal(f"body is {type(body).__name__}: give bytes, a bytearray, or another contiguous "
                                 "buffer") from None
        self._has_body = True
        if self._body.len > BODY_SIZE_MAX:
            raise MessageIllegal(exceeds("body", f"{self._body.len} bytes long", BODY_SIZE_MAX, "split it"))
        a.body = <const unsigned char *> self._body.buf
        a.body_size = <int32_t> self._body.len
        a.body_crc = -1     # over the copied bytes: who changes a mutable body meanwhile cannot make the record wrong
        a.queue_id = <int32_t> _integer(queue_id, "queue_id", 0, INT32_TOP)
        a.flag = <int32_t> _integer(flag, "flag", -INT32_TOP - 1, INT32_TOP)
        a.sys_flag = <int32_t> _integer(sys_flag, "sys_flag", -INT32_TOP - 1, INT32_TOP) & ~(FLAG_BORN_V6 | FLAG_STORE_V6)
        if _host(a.born_host, born_host) == 20:
            a.sys_flag |= FLAG_BORN_V6
        if _host(a.store_host, store_host) == 20:
            a.sys_flag |= FLAG_STORE_V6
        a.born_timestamp = _integer(born_timestamp, "born_timestamp", -INT64_TOP - 1, INT64_TOP)
        a.reconsume_times = <int32_t> _integer(reconsume_times, "reconsume_times", -INT32_TOP - 1, INT32_TOP)
        a.prepared_transaction_offset = _integer(prepared_transaction_offset, "prepared_transaction_offset", -INT64_TOP - 1,
                                                 INT64_TOP)
        self.queue_offset = _integer(queue_offset, "queue_offset", 0, INT64_TOP)
        self.physical_offset = _integer(physical_offset, "physical_offset", 0, INT64_TOP)
        self.store_timestamp = _integer(store_timestamp, "store_timestamp", -INT64_TOP - 1, INT64_TOP)
        self._fill_properties(properties, tags, keys, five, crc_property)
        record_prepare(a)
        if a.properties_total > PROPERTIES_SIZE_MAX:
            raise PropertiesSizeExceeded(exceeds("size of the encoded properties", f"{a.properties_total} bytes",
                                                 PROPERTIES_SIZE_MAX, "put what is long into the body"))

    cdef int _fill_properties(self, properties, tags, keys, bint five, bint crc_property) except -1:
        cdef RecordArgs *a = &self.args
        cdef PropertyView found
        cdef Py_ssize_t n
        cdef bytes data = properties_bytes(properties, five)
        if crc_property and CRC_PROPERTY.encode() in data:
            data = delete_property(data, CRC_PROPERTY.encode())
        self._properties = data
        a.properties = PyBytes_AS_STRING(data)
        a.properties_size = <int32_t> PyBytes_GET_SIZE(data)
        if tags is not None or keys is not None:
            properties_scan(a.properties, a.properties_size, &found)
            if (tags is not None and found.tags != NULL) or (keys is not None and found.keys != NULL):
                raise MessageIllegal("TAGS or KEYS is given twice, as an argument and among the properties: give it once")
            # What is added is closed as the version does it; properties given as bytes alone stay as they are.
            a.trailing_separator = five
        if tags is not None:
            self._tags = tags
            a.tags = property_text(tags, "tags", None, &n)
            a.tags_size = <int32_t> min(n, PROPERTIES_SIZE_MAX + 1)
        if keys is not None:
            self._keys = _joined_keys(keys)
            a.keys = property_text(self._keys, "keys", None, &n)
            a.keys_size = <int32_t> min(n, PROPERTIES_SIZE_MAX + 1)
        a.crc_property = crc_property
        return 0

    def __dealloc__(self):
        if self._has_body:
            PyBuffer_Release(&self._body)


def encode_record(topic, body, **fields):
    """One message -> the bytes of its CommitLog record.

    topic: str (or UTF-8 bytes). body: any contiguous buffer, stored as it is. Fields, all optional: queue_id, queue_offset,
    physical_offset, flag, sys_flag, reconsume_times, prepared_transaction_offset: ints; born_timestamp, store_timestamp: ms
    since 1970; born_host, store_host: "ip:port" or "[v6]:port" (they decide the bits 0x10 and 0x20 of sys_flag); properties: a
    mapping, encoded in its order, or bytes stored as given; tags, keys: TAGS and KEYS, put behind the properties (keys: a str,
    or several); compat: "5.x" (properties end with 0x02, topics over 127 bytes make a version 2 record) or "4.9";
    crc_property: end the record with the __CRC32# property (enabledAppendPropCRC).
    Raises MessageIllegal and PropertiesSizeExceeded. Any thread. Source: MessageExtEncoder.encode.
    """
    cdef RecordSource source = RecordSource(topic, body, **fields)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, source.args.size)
    record_encode(<unsigned char *> PyBytes_AS_STRING(out), &source.args, source.queue_offset, source.physical_offset,
                  source.store_timestamp)
    return out


def encode_into(buffer, offset, topic, body, **fields):
    """Writes the record of encode_record at `offset` of a writable buffer and returns its size.

    Nothing is written where it does not fit: ValueError.
    """
    cdef RecordSource source = RecordSource(topic, body, **fields)
    cdef Py_buffer view
    cdef Py_ssize_t at = offset
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        if at < 0 or source.args.size > view.len - at:
            raise ValueError(f"the record takes {source.args.size} bytes, and {view.len - at} are left at offset {at}")
        record_encode(<unsigned char *> view.buf + at, &source.args, source.queue_offset, source.physical_offset,
                      source.store_timestamp)
    finally:
        PyBuffer_Release(&view)
    return source.args.size


def record_size(topic, body, **fields):
    """Bytes that the record of encode_record takes; the same arguments, the same errors."""
    return (<RecordSource> RecordSource(topic, body, **fields)).args.size


def encode_blank(rest):
    """The eight bytes that end a file of which `rest` bytes (8 or more) are left."""
    cdef unsigned char out[8]
    blank_encode(out, <int32_t> _integer(rest, "rest of the file", BLANK_SIZE, INT32_TOP))
    return PyBytes_FromStringAndSize(<char *> out, BLANK_SIZE)


def body_crc32(const unsigned char[::1] body not None):
    """bodyCRC of a record: CRC-32 (zlib's) & 0x7fffffff, 0 for an empty body. Source: UtilAll.crc32."""
    cdef Py_ssize_t n = body.shape[0]
    if n > INT32_TOP:
        raise MessageIllegal(exceeds("body", f"{n} bytes long", INT32_TOP, "split it"))
    return kernel_body_crc32(&body[0], <int32_t> n) if n else 0


@cython.final
cdef class Blank:
    """The end-of-file record: `size` is the whole rest of its file, as written there."""

    cdef readonly int size

    def __init__(self, size):
        self.size = size

    def __repr__(self):
        return f"Blank(size={self.size})"


@cython.final
cdef class DecodedRecord:
    """One record, read without copying: `body` is a memoryview into the buffer that was given.

    Also a mapping of its field names: record["topic"], dict(record). The buffer stays exported (a bytearray cannot change its
    size) as long as the object lives. Thread-safety: any thread; it never changes.
    """

    cdef RecordView _view
    cdef Py_buffer _buffer
    cdef object _memory
    cdef bint _held
    cdef Py_ssize_t _offset

    def __dealloc__(self):
        if self._held:
            PyBuffer_Release(&self._buffer)

    @property
    def size(self):
        return self._view.size

    @property
    def magic(self):
        return self._view.magic

    @property
    def body_crc(self):
        return self._view.body_crc

    @property
    def queue_id(self):
        return self._view.queue_id

    @property
    def flag(self):
        return self._view.flag

    @property
    def queue_offset(self):
        return self._view.queue_offset

    @property
    def physical_offset(self):
        return self._view.physical_offset

    @property
    def sys_flag(self):
        return self._view.sys_flag

    @property
    def born_timestamp(self):
        return self._view.born_timestamp

    @property
    def born_host(self):
        return host_text(PyBytes_FromStringAndSize(<const char *> self._view.born_host,
                                                   born_host_size(self._view.sys_flag)))

    @property
    def store_timestamp(self):
        return self._view.store_timestamp

    @property
    def store_host(self):
        return host_text(self._store_host())

    cdef bytes _store_host(self):
        return PyBytes_FromStringAndSize(<const char *> self._view.store_host,
                                         store_host_size(self._view.sys_flag))

    @property
    def reconsume_times(self):
        return self._view.reconsume_times

    @property
    def prepared_transaction_offset(self):
        return self._view.prepared_transaction_offset

    @property
    def body(self):
        cdef Py_ssize_t begin = self._offset + (self._view.body - self._view.start)
        return self._memory[begin:begin + self._view.body_size]

    @property
    def topic(self):
        return java_text(self._view.topic, self._view.topic_size)

    @property
    def properties_bytes(self):
        return PyBytes_FromStringAndSize(self._view.properties, self._view.properties_size)

    @property
    def properties(self):
        return properties_dict(self._view.properties, self._view.properties_size)

    @property
    def message_id(self):
        return create_message_id(self._store_host(), self._view.physical_offset)

    @property
    def body_crc_ok(self):
        """True where body_crc is that of the body (an empty body is never checked, as RocketMQ)."""
        return self._view.body_size == 0 or kernel_body_crc32(self._view.body, self._view.body_size) == self._view.body_crc

    @property
    def record_crc_ok(self):
        """Whether the __CRC32# property at the end of the record is right; None where there is none."""
        cdef int found = record_crc_check(&self._view)
        return None if found < 0 else found == 1

    def queue_tags_code(self, levels=DELAY_LEVELS_MS):
        """The tagsCode of this record's queue entry: its delivery time if it waits for one, else the hash of its TAGS.

        levels: milliseconds of each delay level. Source: CommitLog.checkMessageAndReturnSize.
        """
        cdef const int64_t[::1] table = array("q", levels or (0,))
        cdef PropertyView found
        properties_scan(self._view.properties, self._view.properties_size, &found)
        return delay_tags_code(&self._view, &found, &table[0], <int32_t> len(levels))

    def keys(self):
        return _FIELDS

    def __iter__(self):
        return iter(_FIELDS)

    def __len__(self):
        return len(_FIELDS)

    def __contains__(self, name):
        return name in _FIELDS

    def __getitem__(self, name):
        if name not in _FIELDS:
            raise KeyError(name)
        return getattr(self, name)

    def __repr__(self):
        return (f"DecodedRecord(topic={self.topic!r}, queue_id={self.queue_id}, queue_offset={self.queue_offset}, "
                f"physical_offset={self.physical_offset}, size={self.size})")


_FIELDS = ("size", "magic", "body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag", "born_timestamp",
           "born_host", "store_timestamp", "store_host", "reconsume_times", "prepared_transaction_offset", "body", "topic",
           "properties_bytes", "properties", "message_id")


def decode_record(buffer, offset=0, *, path="record"):
    """The record at `offset` of any contiguous buffer -> DecodedRecord, or Blank at the end of a file.

    Every length is checked before it is followed. Raises CorruptionError, with `path` and `offset` in it, where there is no
    whole record; CRCs are checked by the properties body_crc_ok and record_crc_ok. Any thread. Source: MessageDecoder.decode.
    """
    cdef DecodedRecord out = DecodedRecord.__new__(DecodedRecord)
    cdef RecordStatus status
    cdef Py_ssize_t left
    out._memory = memoryview(buffer).cast("B")
    PyObject_GetBuffer(out._memory, &out._buffer, PyBUF_SIMPLE)
    out._held = True
    out._offset = offset
    left = out._buffer.len - out._offset
    if out._offset < 0 or left < 0:
        raise IndexError(f"offset {offset} is outside of a buffer of {out._buffer.len} bytes")
    status = record_parse(<const unsigned char *> out._buffer.buf + out._offset, left, &out._view)
    if status == RECORD_OK:
        return out
    if status == RECORD_BLANK:
        return Blank(out._view.size)
    raise _corruption(status, &out._view, left, path, offset)


cdef object _corruption(RecordStatus status, const RecordView *v, Py_ssize_t left, object path, object offset):
    if left < BLANK_SIZE:
        return CorruptionError(path, offset, "a record", f"{left} bytes")
    if status == RECORD_BAD_MAGIC:
        return CorruptionError(path, offset, f"magic code 0x{MAGIC_V1 & 0xffffffff:08x} or 0x{MAGIC_V2 & 0xffffffff:08x}",
                               f"0x{v.magic & 0xffffffff:08x}")
    if status == RECORD_SIZE_MISMATCH:
        return CorruptionError(path, offset, f"parts that add up to {v.size} bytes", "another sum")
    return CorruptionError(path, offset, "lengths inside the record", f"size {v.size} with {left} bytes there")


def verify_record_crc(record):
    """Checks the __CRC32# property (5.x, enabledAppendPropCRC) of a record: True, False, or None where the record has none.

    Raises CorruptionError where there is no whole record. Source: CommitLog.checkMessageAndReturnSize with forceVerifyPropCRC.
    """
    found = decode_record(record)
    return None if isinstance(found, Blank) else found.record_crc_ok
