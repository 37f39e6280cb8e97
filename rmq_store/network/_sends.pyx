"""Sends as the network thread answers them. What is stored is what a put stores, by the same append. Properties are the
request's, in its order, and the broker's own. Contract in _sends.pxd.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from rmq_store.base.io._sync cimport (
    ETIMEDOUT, rmq_count, rmq_event_wake, rmq_fence, rmq_load, rmq_load32, rmq_publish, rmq_publish32)
from rmq_store.codec._batch cimport BATCH_ELEMENT, BATCH_END, BatchElement, BatchReader, batch_args, batch_begin, batch_next
from rmq_store.codec._layout cimport (
    FLAG_BORN_V6, FLAG_STORE_V6, FLAG_TRANSACTION, HOST_V4_SIZE, HOST_V6_SIZE, PROPERTIES_SIZE_MAX)
from rmq_store.codec._record cimport RecordArgs, body_crc32, record_prepare, rmq_put32, rmq_put64
from rmq_store.codec._text cimport Property, property_next
from rmq_store.log.commitlog._log cimport (
    APPEND_NEED_FILE, APPEND_NEED_ROOM, APPEND_OK, Appended, log_append, log_busy, log_dispatch, log_lock_begin,
    log_lock_end_quick, log_reserve, log_reserve_max, log_wait_file, log_wait_room)
from rmq_store.log.flush._flush cimport flush_all, flush_commit_try
from rmq_store.network._net cimport (
    RMQ_ANSWER_ROOM, RMQ_DONE, RMQ_LATER, RMQ_ONEWAY, RMQ_PASS, rmq_address, rmq_answer, rmq_answer_begin, rmq_answer_end,
    rmq_answer_integer, rmq_answer_text, rmq_connection, rmq_connection_filled, rmq_connection_id, rmq_connection_peer,
    rmq_connection_room, rmq_connection_waited, rmq_done, rmq_frame, rmq_net_find, rmq_net_now, rmq_send, rmq_send_decode,
    rmq_text)
from rmq_store.network._state cimport BATCH_MAX, ID_SIZE, UNIQUE_MAX, WAITING_MAX, Service, Waiting
from rmq_store.network._tables cimport PERM_WRITE, TopicRow, tables_topic
from rmq_store.queues.consumequeue._batches cimport queue_batched
from rmq_store.queues.consumequeue._queue cimport Queue, queues_find

cdef extern from "<sys/socket.h>" nogil:
    enum: AF_INET6

cdef extern from "<arpa/inet.h>" nogil:
    unsigned short ntohs(unsigned short n)

cdef enum:
    STREAM_NS = 20_000          # sends that come faster are a stream: the committer gathers them
    SEND_BATCH = 320
    SENT = 0, SYSTEM_BUSY = 2, FLUSH_DISK_TIMEOUT = 10, SERVICE_NOT_AVAILABLE = 14
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
        return s.lights and _begins(p, b"INNER_MULTI_", 12)
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


# ---- answers

cdef void _message_id(const Service *s, int64_t offset, char *out) noexcept nogil:
    # Store host and log offset, upper-case hex.
    cdef unsigned char[28] raw
    cdef int size = HOST_V6_SIZE if s.plain.sys_flag & FLAG_STORE_V6 else HOST_V4_SIZE
    cdef int i
    memcpy(raw, s.plain.store_host, size)
    rmq_put64(raw + size, offset)
    for i in range(size + 8):
        out[2 * i] = b"0123456789ABCDEF"[raw[i] >> 4]
        out[2 * i + 1] = b"0123456789ABCDEF"[raw[i] & 15]


cdef int32_t _message_ids(Service *s, const Waiting *w) noexcept nogil:
    # In s.ids, with commas between. How many bytes.
    cdef int32_t size = ID_SIZE if s.plain.sys_flag & FLAG_STORE_V6 else ID_SIZE - 24
    cdef int32_t i, at = 0
    for i in range(max(w.count, 1)):
        if i > 0:
            s.ids[at] = c","
            at += 1
        _message_id(s, w.offsets[i] if w.count > 0 else w.offset, &s.ids[at])
        at += size
    return at


cdef void _answer(Service *s, rmq_connection *c, const Waiting *w, int32_t code) noexcept nogil:
    cdef rmq_answer a
    cdef const char *remark = NULL
    cdef unsigned char *to = rmq_connection_room(c, RMQ_ANSWER_ROOM + 2 * w.unique_size + w.count * (ID_SIZE + 1))
    if to == NULL:
        return
    if code == SERVICE_NOT_AVAILABLE:
        remark = b"service not available now."
    rmq_answer_begin(&a, to, w.serialize, code, w.opaque, s.version, remark)
    if code != SERVICE_NOT_AVAILABLE:
        rmq_answer_text(&a, b"msgId", s.ids, _message_ids(s, w))
        rmq_answer_integer(&a, b"queueId", w.queue_id)
        rmq_answer_integer(&a, b"queueOffset", w.queue_offset)
        rmq_answer_text(&a, b"MSG_REGION", s.region, s.region_size)
        if s.trace_on:
            rmq_answer_text(&a, b"TRACE_ON", b"true", 4)
        else:
            rmq_answer_text(&a, b"TRACE_ON", b"false", 5)
        if w.unique_size > 0:
            rmq_answer_text(&a, b"transactionId", w.unique, w.unique_size)
    rmq_connection_filled(c, rmq_answer_end(&a, 0))


# ---- one send

cdef struct Prepared:
    RecordArgs args
    Queue *queue
    rmq_text unique
    int32_t queue_id
    bint waits                  # for the device


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
    cdef Queue *q = t.queues[queue_id]
    if q == NULL:       # of batches, if topics.json says otherwise by now: Python refuses what goes there
        q = queues_find(s.queues, t.name, t.size, queue_id, True)
        t.queues[queue_id] = NULL if q == NULL or queue_batched(q) else q
    return t.queues[queue_id]


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


cdef TopicRow *_prepared(Service *s, rmq_connection *c, const rmq_frame *f, rmq_send *h, Prepared *p) noexcept nogil:
    # What one message and a batch have in common, before anything is stored. NULL: Python has to look.
    cdef TopicRow *t
    cdef rmq_text unique
    if rmq_load32(s.put_checks) != 0 or rmq_send_decode(f, h) < 0 or log_busy(s.log):
        return NULL
    t = tables_topic(s.tables, h.topic)
    if t == NULL or not t.perm & PERM_WRITE or not _arguments(s, &p.args, c, f, h):
        return NULL
    p.queue_id = _queue_id(s, t, h.queue_id)
    p.waits = True
    unique.at, unique.size = NULL, 0
    p.args.properties = s.properties
    p.args.properties_size = _rewrite(s, h.properties, f.code == SEND_BATCH, &p.waits, &unique)
    if p.queue_id < 0 or p.args.properties_size < 0 or unique.size > UNIQUE_MAX or not _is_plain(unique.at, unique.size):
        return NULL
    p.queue = _queue(s, t, p.queue_id)
    if p.queue == NULL:
        return NULL
    p.args.topic, p.args.topic_size, p.args.queue_id = t.name, t.size, p.queue_id
    p.waits = p.waits and s.sync_mode and not f.flag & RMQ_ONEWAY
    p.unique = unique
    return t


cdef void _stored(Service *s, rmq_connection *c, const rmq_frame *f, const Prepared *p, Waiting *w) noexcept nogil:
    # It is in the log: the answer, or its place among those that wait for the device.
    w.queue_id, w.opaque, w.serialize = p.queue_id, f.opaque, f.serialize
    w.unique_size = p.unique.size if s.compat5 else 0
    if w.unique_size > 0:
        memcpy(w.unique, p.unique.at, w.unique_size)
    if p.waits:
        _wait(s, c, w)
    else:
        s.nudge_due = True
        if not f.flag & RMQ_ONEWAY:
            _answer(s, c, w, SENT)


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
    if p.waits and not _room_to_wait(s):
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
        while s.lights and property_next(&text, e.properties + e.properties_size, &own):
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
    if p.waits and not _room_to_wait(s):
        return _later(s, c, f)
    w.offsets = <int64_t *> malloc(w.count * sizeof(int64_t)) if p.waits else s.offsets
    if w.offsets == NULL:
        return RMQ_PASS
    status = _place(s, &p, f, total, &w)
    if log_lock_end_quick(s.log):
        s.dispatch_due = True
    if status != APPEND_OK:
        if p.waits:
            free(w.offsets)
        return _later(s, c, f) if _lacking(s, status, total) == RMQ_LATER else RMQ_PASS
    rmq_count(&s.batches, 1)
    _stored(s, c, f, &p, &w)
    return RMQ_DONE


# ---- those that wait for the device

cdef bint _room_to_wait(Service *s) noexcept nogil:
    cdef Waiting *more
    cdef int64_t i, room
    if s.waiting_count < s.waiting_room:
        return True
    if s.waiting_room == WAITING_MAX:
        return False
    room = max(2 * s.waiting_room, <int64_t> 256)
    more = <Waiting *> malloc(room * sizeof(Waiting))
    if more == NULL:
        return False
    for i in range(s.waiting_count):
        more[i] = s.waiting[(s.waiting_first + i) % s.waiting_room]
    free(s.waiting)
    s.waiting, s.waiting_room, s.waiting_first = more, room, 0
    return True


cdef void _wait(Service *s, rmq_connection *c, Waiting *w) noexcept nogil:
    w.connection = rmq_connection_id(c)
    w.since_ns = rmq_net_now(s.net)
    s.waiting[(s.waiting_first + s.waiting_count) % s.waiting_room] = w[0]
    s.waiting_count += 1


cdef void _settle(Service *s, int32_t code) noexcept nogil:
    # The first of those that wait.
    cdef Waiting *w = &s.waiting[s.waiting_first]
    cdef rmq_connection *c = rmq_net_find(s.net, w.connection)
    s.waiting_first = (s.waiting_first + 1) % s.waiting_room
    s.waiting_count -= 1
    if c != NULL:
        _answer(s, c, w, code)
    if w.count > 0:
        free(w.offsets)


cdef void sends_flushed(Service *s) noexcept nogil:
    cdef int64_t flushed
    while s.waiting_count > 0:
        rmq_publish32(&s.sink.armed, 1)
        rmq_fence()                     # a flush that ends from here on signals, and what ended before is seen
        flushed = rmq_load(&s.log.flushed)
        if s.waiting[s.waiting_first].end > flushed:
            if rmq_load32(&s.log.fence) == 0:
                return
            _settle(s, SERVICE_NOT_AVAILABLE)       # nothing becomes durable any more, and whoever was told is not untold
            continue
        while s.waiting_count > 0 and s.waiting[s.waiting_first].end <= flushed:
            _settle(s, SENT)


cdef bint sends_turn(Service *s) noexcept nogil:
    cdef int64_t wanted
    cdef bint dispatched = s.dispatch_due
    s.dispatch_due = False
    if dispatched:
        log_dispatch(s.log)
    if s.nudge_due:
        s.nudge_due = False
        # A commit that need not gather more comes at once where a consumer waits for it: here where it goes to the page
        # cache, as a dispatch does; by the committer, before its next look, where it waits for the device.
        if (s.held_count > 0 and s.log.pool != NULL and rmq_load(&s.log.commit_interval_max_ns) == 0
                and rmq_net_now(s.net) - s.commit_asked >= STREAM_NS):
            s.commit_asked = rmq_net_now(s.net)
            if flush_commit_try(s.log):
                log_dispatch(s.log)
                dispatched = True
            else:
                rmq_event_wake(&s.log.commit_wanted)
        if s.sync_mode and rmq_load32(&s.log.flush_asleep) != 0:
            rmq_event_wake(&s.log.flush_wanted)
    if s.waiting_count == 0:
        return dispatched
    wanted = s.waiting[(s.waiting_first + s.waiting_count - 1) % s.waiting_room].end
    if wanted > s.ahead.wanted:
        sends_flushed(s)                # arms
        rmq_publish(&s.ahead.wanted, wanted)
        rmq_fence()
        if rmq_load32(&s.ahead.asleep) != 0:
            rmq_event_wake(&s.ahead.more)
    return dispatched


cdef void sends_tick(Service *s) noexcept nogil:
    # A device that does not answer: the message is stored, and RocketMQ says how far.
    while s.waiting_count > 0 and rmq_net_now(s.net) - s.waiting[s.waiting_first].since_ns > rmq_load(s.flush_deadline_ns):
        _settle(s, FLUSH_DISK_TIMEOUT)


cdef void sends_ending(Service *s) noexcept nogil:
    if s.waiting_count > 0:
        flush_all(s.log)        # an error is a fence, which is what those who wait are told
        sends_flushed(s)
