"""Client batches from Python: read one, and expand one as the store does. The C side is _batch.pxd.

Pure functions; any thread that holds the GIL. Expansion writes every record once, straight into the result.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t

from rmq_store.errors import MessageIllegal, PropertiesSizeExceeded, exceeds
from rmq_store.fields import NamedTuple

from rmq_store.codec._codec cimport RecordSource
from rmq_store.codec._layout cimport PROPERTIES_SIZE_MAX
from rmq_store.codec._record cimport RecordArgs, record_encode


class BatchMessage(NamedTuple):
    """One message of a client batch; `properties` as they are encoded."""

    body: bytes
    properties: bytes
    flag: int


cdef object _refusal(int64_t status, int64_t position):
    if status == BATCH_PROPERTIES_SIZE:
        return PropertiesSizeExceeded(exceeds(
            f"size of the properties of the message at byte {position} of the batch together with those of the batch",
            "more", PROPERTIES_SIZE_MAX, "put what is long into the body"))
    return MessageIllegal(f"the batch cannot be read at byte {position}: a length leads out of it, or the parts of a message "
                          "do not add up to its totalSize: encode it with encode_batch, or as RocketMQ's clients do")


def decode_batch(batch):
    """The messages of a client batch -> list of BatchMessage, the bytes copied.

    Raises MessageIllegal where the batch is empty, or a length leads out of it or is not right. Source:
    MessageDecoder.decodeMessages.
    """
    cdef const unsigned char[::1] data = batch
    cdef BatchReader r
    cdef BatchElement e
    cdef int status
    cdef list out = []
    if data.shape[0] == 0:
        raise MessageIllegal("the batch is empty: give at least one message")
    batch_begin(&r, &data[0], data.shape[0])
    while True:
        status = batch_next(&r, &e)
        if status == BATCH_END:
            return out
        if status < 0:
            raise _refusal(status, r.at - &data[0])
        out.append(BatchMessage(PyBytes_FromStringAndSize(<const char *> e.body, e.body_size),
                                PyBytes_FromStringAndSize(e.properties, e.properties_size), e.flag))


def expand_batch(batch, topic, *, properties=None, **fields):
    """A client batch -> the bytes of its records, one behind the other, as the store places them.

    properties: of the batch as a whole (a mapping, or bytes), stored behind those of each message. fields: as encode_record,
    common to all; queue_offset and physical_offset are those of the first record. preparedTransactionOffset is always 0.
    Raises MessageIllegal, PropertiesSizeExceeded. Source: MessageExtEncoder.encode(MessageExtBatch).
    """
    cdef const unsigned char[::1] data = batch
    cdef RecordSource source
    cdef RecordArgs *a
    cdef BatchReader r
    cdef BatchElement e
    cdef int64_t total, count
    cdef int64_t at = 0
    cdef int64_t queue_offset
    cdef bytes out
    cdef unsigned char *p
    if "tags" in fields or "keys" in fields:
        raise TypeError("tags and keys belong to single messages: encode them into each one's properties")
    if data.shape[0] == 0:
        raise MessageIllegal("the batch is empty: give at least one message")
    source = RecordSource(topic, b"", properties=properties, **fields)
    a = &source.args
    a.more_properties = a.properties
    a.more_properties_size = a.properties_size
    a.prepared_transaction_offset = 0
    a.trailing_separator = False
    count = batch_measure(a, &data[0], data.shape[0], &total)
    if count < 0:
        raise _refusal(count, total)
    out = PyBytes_FromStringAndSize(NULL, total)
    p = <unsigned char *> PyBytes_AS_STRING(out)
    queue_offset = source.queue_offset
    batch_begin(&r, &data[0], data.shape[0])
    while batch_next(&r, &e) == BATCH_ELEMENT:
        batch_args(a, &e)
        record_encode(p + at, a, queue_offset, source.physical_offset + at, source.store_timestamp)
        at += a.size
        queue_offset += 1
    return out
