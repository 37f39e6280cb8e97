"""Inner batches (RocketMQ: MessageSysFlag.INNER_BATCH_FLAG, BatchConsumeQueue.assignQueueOffset). Contract in _inner.pxd.

The messages are the body of one record, as a client encodes a batch. The record has the queue offset of the first of them, also
as the property INNER_BASE, and their number as INNER_NUM. As of light queues, the size of the record is known only under the
put lock, where the queue offset is; the checks before it use the largest size that is possible.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from rmq_store.access.writer._arguments cimport checked_wait
from rmq_store.access.writer._delays cimport delay_asked
from rmq_store.access.writer._put cimport GIL_RELEASE_BYTES_MIN, StorePut, Topic, Turn, asks_to_wait, place_locked, wants_of
from rmq_store.access.writer._put_many cimport PutManyResult, StorePutMany
from rmq_store.base.io._sync cimport rmq_count, rmq_mutex_lock, rmq_mutex_unlock
from rmq_store.codec._inner cimport INNER_COUNT_MAX
from rmq_store.codec._layout cimport FLAG_COMPRESSED, FLAG_INNER_BATCH, FLAG_NEED_UNWRAP, FLAG_TRANSACTION
from rmq_store.codec._record cimport RecordArgs, body_crc32, record_prepare
from rmq_store.codec._text cimport digits_put
from rmq_store.log.commitlog._log cimport APPEND_OK, Appended, Log, log_append, log_lock_begin, log_lock_end, log_reserve_max
from rmq_store.queues.consumequeue._batches cimport topic_takes_batches
from rmq_store.queues.consumequeue._kinds cimport CHANGE_ALL, CHANGE_NOT, CHANGE_UNUSED, Change, topic_set_batched
from rmq_store.queues.consumequeue._owner cimport QueueTableOwner
from rmq_store.queues.consumequeue._queue cimport Queue, QueueTable, queues_find, queues_hold_sync, queues_let_sync
from rmq_store.queues.consumequeue._state cimport BATCH_CLOSE, BATCH_DROP, BATCH_OPEN, BATCH_TAKE, BatchStep

from rmq_store import errors
from rmq_store.access.writer._put_many import _many_result
from rmq_store.codec.batch import decode_batch, encode_batch
from rmq_store.codec.compression import inflate
from rmq_store.codec.properties import decode_properties, delete_property, encode_properties

cdef enum:
    TEXT_MAX = 64                   # INNER_NUM and INNER_BASE with the largest numbers

cdef object _ZERO = 0

cdef struct InnerTurn:
    Turn turn
    char text[TEXT_MAX]
    int32_t fixed                   # the number behind INNER_BASE goes from here on
    int32_t count
    QueueTable *table
    bint gone                       # the topic has no batch queues any more


cdef int _number_batch(RecordArgs *a, InnerTurn *it, int32_t count) except -1:
    # Of the largest size that the record may get.
    cdef bytes text = b"INNER_NUM\x01%d\x02INNER_BASE\x01" % count
    it.fixed, it.count = <int32_t> PyBytes_GET_SIZE(text), count
    memcpy(it.text, PyBytes_AS_STRING(text), it.fixed)
    a.more_properties, a.more_properties_size = it.text, it.fixed + 20
    record_prepare(a)
    return 0


cdef int _place(Log *log, Turn *t, int64_t now) noexcept nogil:
    cdef InnerTurn *it = <InnerTurn *> t
    cdef int status
    if not topic_takes_batches(it.table, t.args.topic, t.args.topic_size):
        it.gone = True              # meanwhile: nothing is stored
        return APPEND_OK
    if t.born_now:
        t.args.born_timestamp = now
    t.args.more_properties_size = it.fixed + digits_put(it.text + it.fixed, t.queue.next_offset)
    record_prepare(t.args)
    status = log_append(log, t.args, t.queue, now, t.out)
    if status == APPEND_OK:
        rmq_count(&t.queue.next_offset, it.count - 1)
    return status


cdef int32_t _number(object value, str name) except -1:
    if not isinstance(value, int):
        raise errors.MessageIllegal(f"{name} is {value!r}: give an integer")
    if not 0 <= value <= 0x7FFFFFFF:
        raise errors.MessageIllegal(errors.exceeds(name, value, f"0 to {0x7FFFFFFF}", "give a number in that range"))
    return <int32_t> value


cdef bytes _encoded(object batch):
    if isinstance(batch, (bytes, bytearray, memoryview)):
        return bytes(batch)
    if isinstance(batch, str) or not hasattr(batch, "__iter__"):
        raise errors.MessageIllegal(f"batch is a {type(batch).__name__}: give an iterable of messages, or bytes as a client "
                                    "encodes a batch")
    return encode_batch(batch)


cdef object _of_all(list elements, object given):
    # The properties of the record: a queue has one tags code for all messages, and the index the keys of the record.
    cdef dict known = decode_properties(given) if given is not None else {}
    cdef list own = [decode_properties(e.properties) for e in elements]
    tags = {p.get("TAGS") for p in own}
    if "TAGS" not in known and len(tags) > 1:
        raise errors.MessageIllegal(f"the messages of the inner batch have {len(tags)} different tags, and a queue has one "
                                    "tags code for all of them: give all messages the same tags, or TAGS in properties")
    if "TAGS" not in known and tags != {None}:
        known["TAGS"] = tags.pop()
    keys = " ".join(dict.fromkeys(key for p in own for key in p.get("KEYS", "").split()))
    if "KEYS" not in known and keys:
        known["KEYS"] = keys
    return known


cdef int _step(StorePut store, const char *topic, int32_t size, BatchStep step) noexcept nogil:
    # Dispatch and sync stand still while queues change their kind: no entry is on its way. As topic_set_batched.
    cdef Change change = CHANGE_ALL if store.dispatcher.mirrors else CHANGE_UNUSED      # nobody puts to a slave
    cdef int rc
    if store.readonly or step == BATCH_OPEN:
        return topic_set_batched(store.queues, topic, size, step, CHANGE_NOT)
    rmq_mutex_lock(&store.dispatcher.round_lock)
    queues_hold_sync(store.queues)
    log_lock_begin(store.log)
    rc = topic_set_batched(store.queues, topic, size, step, change)
    log_lock_end(store.log)
    queues_let_sync(store.queues)
    rmq_mutex_unlock(&store.dispatcher.round_lock)
    return rc


cdef object _no_batch_queues(str topic):
    return errors.MessageIllegal(f"{topic} has no batch queues, so it takes no inner batch: make it a topic with batch queues "
                                 "first (topic_table.set_queue_type, `rmqstore topics set --queue-type BatchCQ`), or use "
                                 "put_batch")


cdef class StorePutInner(StorePutMany):
    """The writing half of a store, for inner batches."""

    def __cinit__(self):
        self.batch_names = set()

    @property
    def batch_topics(self):
        """The topics that have batch queues, as config/topics.json says: frozenset of str."""
        return frozenset(self.batch_names)

    def _has_batch_queues(self, topic):
        """Whether the topic is one of batch_topics; looks at no other."""
        return topic in self.batch_names

    def _take_batches(self, directory, file_size, topics):
        """While the store opens: where batch queues lie, and which topics have them."""
        self.batch_dir, self.batch_file_size = directory, file_size
        self.batch_names.update(topics)

    def _batch_topic(self, str topic not None, str step not None):
        """"take": queues of the topic are batch queues, new ones and those without messages; or ArgumentIllegal is raised as it
        has others. "open": topics.json says so, and puts may come. "close": topics.json is about to say so no more, and no put
        comes; or ArgumentIllegal is raised as the batch queues have messages. "drop": topics.json does not say so."""
        cdef bytes name = topic.encode("utf-8", "surrogatepass")
        cdef const char *text = name
        cdef int32_t size = <int32_t> PyBytes_GET_SIZE(name)
        cdef BatchStep then
        cdef int rc
        self._enter()
        then = {"take": BATCH_TAKE, "open": BATCH_OPEN, "close": BATCH_CLOSE, "drop": BATCH_DROP}[step]
        if step == "take":
            (<QueueTableOwner> self.queues_owner).batched(self.batch_dir, self.batch_file_size, (), False)
        self.calls += 1
        with nogil:
            rc = _step(self, text, size, then)
        self.calls -= 1
        if rc < 0:
            raise MemoryError("batch topics")
        if rc > 0 and step == "take":
            raise errors.illegal("queue.type", "BatchCQ", f"{topic} has, or had, queues of the type SimpleCQ since the "
                                 "store was opened: use another topic, or delete this one and open the store again")
        if rc > 0 and step != "open":
            raise errors.illegal("topic", topic, "its batch queues have messages, and a store that has them is not opened "
                                 "without the topic's entry: use delete_topics, which deletes the queues as well")
        if step == "open":
            self.batch_names.add(topic)
        elif step != "take":
            self.batch_names.discard(topic)

    def put_inner_batch(self, topic, batch, *, queue_id=0, properties=None, sys_flag=0, born_timestamp=None, born_host=None,
                        reconsume_times=0, wait=None):
        """Stores several messages as one record, an inner batch. The topic needs batch queues. Returns a PutManyResult.

        batch: an iterable of messages (bodies, or mappings with `body`, `properties`, `flag`), or bytes as a client encodes a
        batch. With a compression type in sys_flag: these bytes, compressed. The messages have consecutive queue offsets, one
        log offset and one store time. properties: of the record (mapping or bytes). Without TAGS and KEYS there, the record
        gets the tags that all messages have, and the keys of all. Raises MessageIllegal for a topic without batch queues, a
        batch that is malformed, empty, larger than message_size_max_bytes or than 32767 messages, messages with different
        tags, and for a batch that is transactional or delayed; else as put.
        Durability, thread-safety: as put. RocketMQ: MessageStore.putMessage of a message with INNER_BATCH_FLAG.
        """
        cdef RecordArgs a
        cdef Appended out
        cdef InnerTurn it
        cdef Topic t
        cdef Queue *q
        cdef PutManyResult r
        cdef bytes data
        cdef int64_t limit
        cdef int32_t number
        cdef int wants
        self._enter()
        if self.refuses_puts:
            self._refuse_put()
        if wait is not None:
            checked_wait(wait)
        data = _encoded(batch)
        if len(data) > self.body_size_max:
            self._failed(errors.MessageIllegal(errors.exceeds("batch size", f"{len(data)} bytes", self.body_size_max,
                                                              "send smaller batches, or raise message_size_max_bytes")))
        _number(sys_flag, "sys_flag")
        sys_flag &= ~(FLAG_INNER_BATCH | FLAG_NEED_UNWRAP)
        plain = inflate(data, sys_flag, 64 << 20) if sys_flag & FLAG_COMPRESSED else data
        if self.put_checks:
            properties = self._ask(plain, (topic, queue_id, None, None, properties, 0, sys_flag, born_timestamp, born_host,
                                           reconsume_times))
        elements = decode_batch(plain)
        if not elements:
            raise errors.MessageIllegal("the batch is empty: give at least one message")
        if len(elements) > INNER_COUNT_MAX:
            raise errors.MessageIllegal(errors.exceeds("messages of an inner batch", len(elements), INNER_COUNT_MAX,
                                                       "put smaller batches"))
        given = properties if properties is None or type(properties) is bytes else encode_properties(properties)
        for name in (b"INNER_NUM", b"INNER_BASE"):
            if given is not None and name in given:
                given = delete_property(given, name)        # another record's
        kept = self._properties(&a, _of_all(elements, given) or None, None, None)
        if (sys_flag & FLAG_TRANSACTION) or (kept is not None and delay_asked(a.properties, a.properties_size)):
            raise errors.MessageIllegal("an inner batch can be neither transactional nor delayed: put such messages one by one")
        wants = wants_of(self, wait, self.waits == 0 or asks_to_wait(&a))
        t = self._topic(topic)
        if topic not in self.batch_names:
            raise _no_batch_queues(topic)
        number = _number(queue_id, "queue_id")
        self._enter()
        q = queues_find(self.queues, t.text, t.size, number, True)
        if q == NULL:
            raise MemoryError("queue")
        self._arguments(&a, _ZERO, sys_flag, born_timestamp, born_host, reconsume_times, _ZERO)
        a.sys_flag |= FLAG_INNER_BATCH | FLAG_NEED_UNWRAP
        a.topic, a.topic_size, a.queue_id = t.text, t.size, q.queue_id
        a.body, a.body_size = <const unsigned char *> PyBytes_AS_STRING(data), <int32_t> PyBytes_GET_SIZE(data)
        a.body_crc = body_crc32(a.body, a.body_size)
        a.trailing_separator = self.compat5
        _number_batch(&a, &it, <int32_t> len(elements))
        self._check_size(&a, False)
        limit = log_reserve_max(self.log)
        if a.size > limit:
            raise errors.MessageIllegal(errors.exceeds("batch in the log", f"{a.size} bytes", limit, "send smaller batches"))
        it.turn.args, it.turn.queue, it.turn.out, it.turn.size = &a, q, &out, a.size
        it.turn.born_now = born_timestamp is None
        it.table, it.gone = self.queues, False
        place_locked(self, _place, &it.turn, a.size >= GIL_RELEASE_BYTES_MIN, False)
        if it.gone:
            raise _no_batch_queues(topic)
        r = _many_result(0, out.store_timestamp, self.host, [out.offset] * it.count,
                         [out.queue_offset + i for i in range(it.count)])
        r.end = out.offset + a.size
        return self._finish_many(r, wants)
