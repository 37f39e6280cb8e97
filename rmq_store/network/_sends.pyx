"""Sends as the network thread answers them. What is stored is what a put stores, by the same append. Properties are the
request's, in its order, and the broker's own. Contract in _sends.pxd.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from rmq_store.access.writer._arguments cimport ends_in_crc
from rmq_store.access.writer._put cimport WAIT_ACKS, WAIT_DEVICE, WAIT_IN_SYNC, WAIT_REPLICA
from rmq_store.base.io._sync cimport ETIMEDOUT, rmq_count, rmq_event_wake, rmq_load, rmq_load32
from rmq_store.codec._batch cimport BATCH_ELEMENT, BATCH_END, BatchElement, BatchReader, batch_args, batch_begin, batch_next
from rmq_store.codec._layout cimport (
    FLAG_BORN_V6, FLAG_STORE_V6, FLAG_TRANSACTION, HOST_V4_SIZE, HOST_V6_SIZE, PROPERTIES_SIZE_MAX)
from rmq_store.codec._record cimport RecordArgs, body_crc32, record_prepare, rmq_put32
from rmq_store.codec._text cimport Property, property_next
from rmq_store.log.commitlog._log cimport (
    APPEND_NEED_FILE, APPEND_NEED_ROOM, APPEND_OK, Appended, log_append, log_busy, log_lock_begin, log_lock_end_quick,
    log_reserve, log_reserve_max, log_wait_file, log_wait_room)
from rmq_store.network._net cimport (
    RMQ_ANSWER_ROOM, RMQ_DONE, RMQ_LATER, RMQ_ONEWAY, RMQ_PASS, rmq_address, rmq_answer, rmq_answer_begin, rmq_answer_end,
    rmq_connection, rmq_connection_filled, rmq_connection_peer, rmq_connection_room, rmq_connection_waited, rmq_done,
    rmq_frame, rmq_send, rmq_send_decode, rmq_text)
from rmq_store.network._settled cimport SENT, SLAVE_NOT_AVAILABLE, settled_answer, settled_later, settled_room
from rmq_store.network._state cimport BATCH_MAX, UNIQUE_MAX, Service, Waiting
from rmq_store.network._tables cimport PERM_WRITE, TopicRow, tables_queue, tables_topic
from rmq_store.queues.consumequeue._kinds cimport queue_keep_plain
from rmq_store.queues.consumequeue._queue cimport Queue, queues_find

cdef extern from "<sys/socket.h>" nogil:
    enum: AF_INET6

cdef extern from "<arpa/inet.h>" nogil:
    unsigned short ntohs(unsigned short n)

cdef enum:
    SEND_BATCH = 320
    SYSTEM_BUSY = 2
    V4_PORT = HOST_V4_SIZE - 4, V6_PORT = HOST_V6_SIZE - 4      # where a host has its port
    NAMES_MAX = 64              # properties of one message that are compared with each other


# ---- properties

cdef inline bint _named(const Property *p, const char *name, int32_t size) noexcept nogil:
    return p.name_size == size and memcmp(p.name, name, size) == 0


cdef bint _begins(const Property *p, const char *name, int32_t size) noexcept nogil:
    return p.name_size >= size and memcmp(p.name, name, size) == 0


cdef bint _is_odd(const Service *s, const Property *p) noexcept nogil:
    # A message that is more than stored: delayed, timed, half of a transaction, in light queues, or with another's checksum.
    cdef char first = p.name[0]
    if first == c"D":
        return _named(p, b"DELAY", 5)
    if first == c"T":
        return _named(p, b"TRAN_MSG", 8) or _begins(p, b"TIMER_", 6)
    if first == c"I":
        return (s.lights or s.access != NULL) and _begins(p, b"INNER_MULTI_", 12)
    return first == c"_" and _begins(p, b"__", 2)


cdef bint _is_stamped(const Service *s, const Property *p) noexcept nogil:
    # The broker's own value takes the place of the message's.
    return _named(p, b"CLUSTER", 7) or (s.compat5 and (_named(p, b"MSG_REGION", 10) or _named(p, b"TRACE_ON", 8)))


cdef bint _is_plain(const char *text, int32_t size) noexcept nogil:
    # Goes into a JSON string as it is.
    cdef int32_t i
    for i in range(size):
        if text[i] < 32 or text[i] > 126 or text[i] == c'"' or text[i] == c"\\":
            return False
    return True


cdef int32_t _rewrite(Service *s, rmq_text given, bint batch, bint *waits, rmq_text *unique) noexcept nogil:
    # The properties as they are stored, in s.properties. Their size; -1: Python has to look.
    cdef Property[NAMES_MAX] seen
    cdef int32_t n = 0, i
    cdef const char *text = given.at
    cdef const char *end = given.at + given.size if given.at != NULL else NULL
    cdef char *to = s.properties
    cdef Property *p
    if given.size > PROPERTIES_SIZE_MAX:
        return -1
    while text != NULL and n < NAMES_MAX and property_next(&text, end, &seen[n]):
        p = &seen[n]
        for i in range(n):
            if p.name_size == seen[i].name_size and memcmp(p.name, seen[i].name, p.name_size) == 0:
                return -1
        if _is_odd(s, p):
            return -1
        n += 1
        if _named(p, b"WAIT", 4):
            waits[0] = not (p.value_size == 5 and memcmp(p.value, b"false", 5) == 0)
            if not s.compat5 and not batch:
                continue
        elif _named(p, b"UNIQ_KEY", 8):
            unique.at, unique.size = p.value, p.value_size
        elif _is_stamped(s, p):
            continue
        memcpy(to, p.name, p.name_size)
        to += p.name_size
        to[0] = 1
        memcpy(to + 1, p.value, p.value_size)
        to += 1 + p.value_size
        to[0] = 2
        to += 1
    if n == NAMES_MAX:
        return -1
    memcpy(to, s.stamp, s.stamp_size)
    to += s.stamp_size
    if s.compat5:
        to[0] = 2
        to += 1
    return <int32_t> (to - s.properties)


# ---- one send

cdef struct Prepared:
    RecordArgs args
    Queue *queue
    rmq_text unique
    int32_t queue_id
    int wants                   # WAIT_ bits


cdef void _born_host(RecordArgs *a, const rmq_address *peer) noexcept nogil:
    # An IPv4 address behind an IPv6 socket is one of four bytes.
    cdef const unsigned char *v6 = <const unsigned char *> &peer.v6.sin6_addr
    if peer.any.sa_family != AF_INET6:
        memcpy(a.born_host, &peer.v4.sin_addr, 4)
        rmq_put32(a.born_host + V4_PORT, ntohs(peer.v4.sin_port))
    elif memcmp(v6, b"\0\0\0\0\0\0\0\0\0\0\xff\xff", 12) == 0:
        memcpy(a.born_host, v6 + 12, 4)
        rmq_put32(a.born_host + V4_PORT, ntohs(peer.v6.sin6_port))
    else:
        memcpy(a.born_host, v6, 16)
        rmq_put32(a.born_host + V6_PORT, ntohs(peer.v6.sin6_port))
        a.sys_flag |= FLAG_BORN_V6


cdef Queue *_queue(Service *s, TopicRow *t, int32_t queue_id) noexcept nogil:
    cdef Queue **place = tables_queue(t, queue_id)
    cdef Queue *q
    if place == NULL:
        return NULL
    if place[0] == NULL:        # of batches, if topics.json says otherwise by now: Python refuses what goes there
        q = queues_find(s.queues, t.name, t.size, queue_id, True)
        place[0] = q if q != NULL and queue_keep_plain(s.queues, q) else NULL
    return place[0]


cdef rmq_done _later(Service *s, rmq_connection *c, const rmq_frame *f) noexcept nogil:
    # There is no room: the send waits, and the ones behind it; after a while they are told, so that the client turns elsewhere.
    cdef int64_t waited = rmq_connection_waited(c)
    cdef rmq_answer a
    cdef char[128] remark
    cdef unsigned char *to
    if waited < s.patience_ns:
        return RMQ_LATER
    to = NULL if f.flag & RMQ_ONEWAY else rmq_connection_room(c, RMQ_ANSWER_ROOM)
    if to != NULL:
        snprintf(remark, 128, b"[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: %lldms",
                 <long long> (waited // 1_000_000))
        rmq_answer_begin(&a, to, f.serialize, SYSTEM_BUSY, f.opaque, s.version, remark)
        rmq_connection_filled(c, rmq_answer_end(&a, 0))
    return RMQ_DONE


cdef rmq_done _lacking(Service *s, int status, int64_t size) noexcept nogil:
    # What the append lacked is asked for, and waited for by asking again. What will not come is an error, which Python tells.
    cdef int rc
    if status == APPEND_NEED_ROOM:
        rc = log_wait_room(s.log, size, 0)
        rmq_event_wake(&s.log.commit_wanted)
    elif status == APPEND_NEED_FILE:
        if rmq_load32(&s.log.alloc.error) < 0:      # the last try, which asking again would forget: Python tries and tells
            return RMQ_PASS
        rc = log_wait_file(s.log, size, 0)
    else:
        return RMQ_PASS
    return RMQ_LATER if rc == 0 or rc == -ETIMEDOUT else RMQ_PASS


cdef bint _arguments(Service *s, RecordArgs *a, rmq_connection *c, const rmq_frame *f, const rmq_send *h) noexcept nogil:
    # All but topic, queue and properties. False: Python has to look.
    if f.body_size > rmq_load(s.body_size_max) or (s.compat5 and f.body_size == 0):
        return False
    a[0] = s.plain
    a.body, a.body_size = f.body, f.body_size
    a.flag, a.reconsume_times, a.born_timestamp = h.flag, h.reconsume_times, h.born_timestamp
    a.sys_flag |= h.sys_flag & ~(FLAG_BORN_V6 | FLAG_STORE_V6 | FLAG_TRANSACTION)
    _born_host(a, rmq_connection_peer(c))
    return h.sys_flag >= 0 and h.reconsume_times >= 0 and h.born_timestamp >= 0


cdef int32_t _queue_id(Service *s, const TopicRow *t, int32_t wanted) noexcept nogil:
    # A negative one leaves the choice to the broker. -1: Python has to look.
    if wanted >= max(t.read_queues, t.write_queues) or t.write_queues <= 0:
        return -1
    if wanted >= 0:
        return wanted
    s.turn += 1
    return <int32_t> (s.turn % t.write_queues)


cdef bint _waits_for(Service *s, Prepared *p, bint asks, bint oneway) noexcept nogil:
    # What the answer waits for. False: too few slaves are in sync, which Python tells. RocketMQ: CommitLog.calcNeedAckNums.
    cdef int in_sync = 0, acks
    p.wants = s.waits if asks else 0
    if p.wants & WAIT_IN_SYNC:
        acks = s.replicas.needed(s.replicas.of, rmq_load(&s.log.wrote), &in_sync)
        if acks < 0:
            return False
        p.wants = (p.wants | acks << WAIT_ACKS if acks > 0 else p.wants & ~WAIT_REPLICA) & ~WAIT_IN_SYNC
    if oneway:
        p.wants = 0
    return True


cdef TopicRow *_prepared(Service *s, rmq_connection *c, const rmq_frame *f, rmq_send *h, Prepared *p) noexcept nogil:
    # What one message and a batch have in common, before anything is stored. NULL: Python has to look.
    cdef TopicRow *t
    cdef rmq_text unique
    cdef bint asks = True
    if rmq_load32(s.put_checks) != 0 or rmq_send_decode(f, h) < 0 or log_busy(s.log):
        return NULL
    t = tables_topic(&s.tables, h.topic)
    if t == NULL or not t.perm & PERM_WRITE or not _arguments(s, &p.args, c, f, h):
        return NULL
    p.queue_id = _queue_id(s, t, h.queue_id)
    unique.at, unique.size = NULL, 0
    p.args.properties = s.properties
    p.args.properties_size = _rewrite(s, h.properties, f.code == SEND_BATCH, &asks, &unique)
    if p.queue_id < 0 or p.args.properties_size < 0 or unique.size > UNIQUE_MAX or not _is_plain(unique.at, unique.size):
        return NULL
    p.queue = _queue(s, t, p.queue_id)
    if p.queue == NULL:
        return NULL
    p.args.topic, p.args.topic_size, p.args.queue_id = t.name, t.size, p.queue_id
    p.unique = unique
    return t if _waits_for(s, p, asks, f.flag & RMQ_ONEWAY) else NULL


cdef bint _stored(Service *s, rmq_connection *c, const rmq_frame *f, const Prepared *p, Waiting *w) noexcept nogil:
    # It is in the log: the answer, or its place among those that wait: True.
    w.queue_id, w.opaque, w.serialize = p.queue_id, f.opaque, f.serialize
    w.unique_size = p.unique.size if s.compat5 else 0
    if w.unique_size > 0:
        memcpy(w.unique, p.unique.at, w.unique_size)
    w.wants, w.code = p.wants, SENT
    if w.wants & WAIT_REPLICA and w.wants >> WAIT_ACKS == 0 and not s.replicas.usable(s.replicas.of, w.end):
        w.wants, w.code = w.wants & ~WAIT_REPLICA, SLAVE_NOT_AVAILABLE
    if not w.wants & WAIT_DEVICE:
        s.nudge_due = True
    if w.wants:
        settled_later(s, c, w)
    elif not f.flag & RMQ_ONEWAY:
        settled_answer(s, c, w)
    return w.wants != 0


cdef rmq_done send_request(Service *s, rmq_connection *c, const rmq_frame *f) noexcept nogil:
    cdef rmq_send h
    cdef Prepared p
    cdef Appended out
    cdef Waiting w
    cdef int status
    if _prepared(s, c, f, &h, &p) == NULL or h.batch:
        return RMQ_PASS
    record_prepare(&p.args)
    if p.args.properties_total > PROPERTIES_SIZE_MAX or p.args.size > rmq_load(s.record_size_max):
        return RMQ_PASS
    if p.wants and not settled_room(s):
        return _later(s, c, f)
    p.args.body_crc = body_crc32(p.args.body, p.args.body_size)
    status = log_append(s.log, &p.args, p.queue, log_lock_begin(s.log), &out)
    if log_lock_end_quick(s.log):
        s.dispatch_due = True
    if status != APPEND_OK:
        return _later(s, c, f) if _lacking(s, status, p.args.size) == RMQ_LATER else RMQ_PASS
    rmq_count(&s.sends_long if f.code == 10 else &s.sends, 1)
    w.end, w.offset, w.queue_offset = out.offset + p.args.size, out.offset, out.queue_offset
    w.count, w.offsets = 0, NULL
    _stored(s, c, f, &p, &w)
    return RMQ_DONE


# ---- a batch: its messages in one file, in one turn of the lock

cdef int32_t _measure(Service *s, RecordArgs *a, const rmq_frame *f, int64_t *total) noexcept nogil:
    # How many messages it has, with the sum of each in s.crcs, and the bytes of their records. 0: Python has to look.
    cdef BatchReader r
    cdef BatchElement e
    cdef const char *text
    cdef Property own
    cdef int status
    cdef int32_t n = 0
    total[0] = 0
    batch_begin(&r, f.body, f.body_size)
    while True:
        status = batch_next(&r, &e)
        if status != BATCH_ELEMENT:
            return n if status == BATCH_END else 0
        text = e.properties
        if ends_in_crc(text, e.properties_size):
            return 0
        while (s.lights or s.access != NULL) and property_next(&text, e.properties + e.properties_size, &own):
            if _is_odd(s, &own):
                return 0
        if n == BATCH_MAX:
            return 0
        s.crcs[n] = body_crc32(e.body, e.body_size)
        total[0] += batch_args(a, &e)
        if a.properties_total > PROPERTIES_SIZE_MAX or a.size > rmq_load(s.record_size_max):
            return 0
        n += 1


cdef int _place(Service *s, Prepared *p, const rmq_frame *f, int64_t total, Waiting *w) noexcept nogil:
    # A status of log_append. The put lock is held.
    cdef BatchReader r
    cdef BatchElement e
    cdef Appended out
    cdef int64_t now = log_lock_begin(s.log)
    cdef int32_t n = 0
    cdef int status = log_reserve(s.log, total)
    out.offset = out.queue_offset = 0
    batch_begin(&r, f.body, f.body_size)
    while status == APPEND_OK and batch_next(&r, &e) == BATCH_ELEMENT:     # only the fence can come between
        batch_args(&p.args, &e)
        p.args.body_crc = s.crcs[n]
        status = log_append(s.log, &p.args, p.queue, now, &out)
        w.offsets[n] = out.offset
        if n == 0:
            w.offset, w.queue_offset = out.offset, out.queue_offset
        n += 1
    w.end = out.offset + p.args.size
    return status


cdef rmq_done batch_request(Service *s, rmq_connection *c, const rmq_frame *f) noexcept nogil:
    cdef rmq_send h
    cdef Prepared p
    cdef Waiting w
    cdef int64_t total
    cdef int status
    if f.body_size == 0 or s.plain.crc_property or _prepared(s, c, f, &h, &p) == NULL:
        return RMQ_PASS
    p.args.more_properties, p.args.more_properties_size = p.args.properties, p.args.properties_size
    w.count = _measure(s, &p.args, f, &total)
    if w.count == 0 or total > log_reserve_max(s.log):
        return RMQ_PASS
    if p.wants and not settled_room(s):
        return _later(s, c, f)
    w.offsets = <int64_t *> malloc(w.count * sizeof(int64_t)) if p.wants else s.offsets
    if w.offsets == NULL:
        return RMQ_PASS
    status = _place(s, &p, f, total, &w)
    if log_lock_end_quick(s.log):
        s.dispatch_due = True
    if status != APPEND_OK:
        if p.wants:
            free(w.offsets)
        return _later(s, c, f) if _lacking(s, status, total) == RMQ_LATER else RMQ_PASS
    rmq_count(&s.batches, 1)
    if not _stored(s, c, f, &p, &w) and p.wants:
        free(w.offsets)
    return RMQ_DONE
