# What a checker has found: a bounded list of notes, which it hands out piece by piece. verification.py makes findings of them.
# One thread.
from libc.stdint cimport int32_t, int64_t

from rmq_store.codec._inner cimport inner_in_place, inner_of
from rmq_store.codec._layout cimport FLAG_INNER_BATCH
from rmq_store.codec._record cimport PropertyView, RecordView, properties_scan, record_in_place
from rmq_store.codec._text cimport Keys, java_hash, key_hash, key_next, keys_of, topic_hash
from rmq_store.queues.consumequeue._batches cimport queue_batched
from rmq_store.queues.consumequeue._queue cimport Queue

cdef enum:
    NOTES_MAX = 512         # of one piece; a checker stops some before

cdef enum Kind:
    HOLE = 0                # nothing readable from offset to a
    BODY_CRC = 1            # the record at offset, size a
    RECORD_CRC = 2
    TAIL = 3                # bytes that are not zero behind the end of the data, from offset to a
    QUEUE_MISSING = 4       # the record at offset has no entry; a: queue offset
    QUEUE_OTHER = 5         # its entry leads elsewhere; a: queue offset, b: where the entry leads
    QUEUE_TAGS = 6          # its entry has tags code b, not c
    QUEUE_WRONG = 7         # entry a of a queue leads to offset, where no such record lies; b: its size
    INDEX_MISSING = 8       # the record at offset has a key that the index does not have; a: hash
    INDEX_WRONG = 9         # entry a leads to offset, where no record has a key of hash b
    INDEX_CHAIN = 10        # entry a: previous is b, should be c
    INDEX_SLOT = 11         # slot a leads to b, should be c
    INDEX_HEADER = 12       # field a is b, should be c
    RECORD_HEADER = 13      # the record at offset, size a, claims a queue that cannot be; b: its queue offset

cdef struct Note:
    int kind
    int32_t queue_id
    int32_t topic_size
    char[256] topic
    int64_t offset
    int64_t a
    int64_t b
    int64_t c


cdef class Notes:
    cdef Note *rows
    cdef int count
    cdef void add(self, int kind, int64_t offset, int64_t a, int64_t b, int64_t c) noexcept nogil
    # With the queue that it is about.
    cdef void add_queue(self, int kind, int64_t offset, int64_t a, int64_t b, int64_t c, const char *topic, int32_t topic_size,
                        int32_t queue_id) noexcept nogil
    cdef list taken(self)


cdef inline bint note_in_place(const Queue *q, const RecordView *v, int64_t queue_offset) noexcept nogil:
    # Whether an entry of the queue, at that queue offset, may lead to the record.
    if queue_batched(q):
        return inner_in_place(v, q.topic, q.topic_size, q.queue_id, queue_offset)
    return record_in_place(v, q.topic, q.topic_size, q.queue_id, queue_offset)


cdef inline int64_t note_last(const RecordView *v) noexcept nogil:
    # The queue offset of a record's last message. Of a batch: what says too few messages does not lead there, nor what begins
    # too early.
    return v.queue_offset + (max(inner_of(v).count, 1) - 1 if v.sys_flag & FLAG_INNER_BATCH else 0)


cdef inline bint note_keyed(const RecordView *v, int32_t wanted) noexcept nogil:
    # Whether the record has a key of this hash. 5.5.1 indexes tags as well, as topic#T#tags.
    cdef PropertyView p
    cdef Keys keys
    cdef int32_t prefix = topic_hash(v.topic, v.topic_size)
    properties_scan(v.properties, v.properties_size, &p)
    keys = keys_of(p.uniq_key, p.uniq_key_size, p.keys, p.keys_size)
    while key_next(&keys):
        if key_hash(prefix, keys.key, keys.size) == wanted:
            return True
    return p.tags != NULL and key_hash(java_hash(b"T#", 2, prefix), p.tags, p.tags_size) == wanted
