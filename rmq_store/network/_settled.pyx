"""Sends that are stored: their answers, and what these wait for. Contract in _settled.pxd."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from rmq_store.access.writer._ahead cimport ahead_replicate
from rmq_store.access.writer._put cimport WAIT_ACKS, WAIT_DEVICE, WAIT_REPLICA, log_never_sent
from rmq_store.base.io._sync cimport (ETIMEDOUT, rmq_event_wake, rmq_fence, rmq_load, rmq_load32, rmq_publish,
                                      rmq_publish32)
from rmq_store.codec._layout cimport FLAG_STORE_V6, HOST_V4_SIZE, HOST_V6_SIZE
from rmq_store.codec._record cimport rmq_put64
from rmq_store.log.commitlog._log cimport log_dispatch
from rmq_store.log.flush._flush cimport flush_all, flush_commit_try
from rmq_store.network._net cimport (RMQ_ANSWER_ROOM, rmq_answer, rmq_answer_begin, rmq_answer_end, rmq_answer_integer,
                                     rmq_answer_text, rmq_connection, rmq_connection_filled, rmq_connection_id,
                                     rmq_connection_room, rmq_net_find, rmq_net_now)
from rmq_store.network._state cimport ID_SIZE, WAITING_MAX, Service, Waiting

cdef enum:
    STREAM_NS = 20_000          # sends that come faster are a stream: the committer gathers them
    ENDING_NS = 1_000_000_000   # so long the end waits for slaves


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


cdef void settled_answer(Service *s, rmq_connection *c, const Waiting *w) noexcept nogil:
    cdef int32_t code = w.code
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


# ---- those that wait for the device, or for slaves

cdef bint settled_room(Service *s) noexcept nogil:
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


cdef void settled_later(Service *s, rmq_connection *c, Waiting *w) noexcept nogil:
    w.connection = rmq_connection_id(c)
    w.since_ns = rmq_net_now(s.net)
    if w.wants & WAIT_REPLICA:
        s.replicate, s.acks = w.end, max(s.acks, w.wants >> WAIT_ACKS)
    s.waiting[(s.waiting_first + s.waiting_count) % s.waiting_room] = w[0]
    s.waiting_count += 1


cdef void _settle(Service *s) noexcept nogil:
    # The first of those that wait.
    cdef Waiting *w = &s.waiting[s.waiting_first]
    cdef rmq_connection *c = rmq_net_find(s.net, w.connection)
    s.waiting_first = (s.waiting_first + 1) % s.waiting_room
    s.waiting_count -= 1
    if s.durable_count > 0:
        s.durable_count -= 1
    if c != NULL:
        settled_answer(s, c, w)
    if w.count > 0:
        free(w.offsets)


cdef void _note_durable(Service *s) noexcept nogil:
    # Those that are on the device by now: from here on slaves may be late. All of them, however long the first one waits.
    cdef int64_t flushed = rmq_load(&s.log.flushed)
    cdef Waiting *w
    while s.durable_count < s.waiting_count:
        w = &s.waiting[(s.waiting_first + s.durable_count) % s.waiting_room]
        if w.wants & WAIT_DEVICE:
            if w.end > flushed:
                return
            w.wants &= ~WAIT_DEVICE
            w.since_ns = rmq_net_now(s.net)
        s.durable_count += 1


cdef bint _done(Service *s, Waiting *w) noexcept nogil:
    # As a put waits: for the device, then for slaves.
    cdef int rc
    if w.wants & WAIT_DEVICE:
        if rmq_load(&s.log.flushed) < w.end:
            if rmq_load32(&s.log.fence) == 0:
                return False
            w.code = SERVICE_NOT_AVAILABLE      # nothing becomes durable any more, and whoever was told is not untold
            return True
    if w.wants & WAIT_REPLICA:
        rc = s.replicas.wait(s.replicas.of, w.end, max(w.wants >> WAIT_ACKS, 1), 0)
        if rc != 0 and log_never_sent(s.log, w.end):
            w.code = SERVICE_NOT_AVAILABLE
            return True
        if rc == -ETIMEDOUT:
            return False
        if rc != 0:
            w.code = FLUSH_SLAVE_TIMEOUT
    return True


cdef void settled_look(Service *s) noexcept nogil:
    while s.waiting_count > 0:
        rmq_publish32(&s.sink.armed, 1)
        rmq_fence()                     # what ends from here on signals, and what ended before is seen
        _note_durable(s)
        if not _done(s, &s.waiting[s.waiting_first]):
            return
        while s.waiting_count > 0 and _done(s, &s.waiting[s.waiting_first]):
            _settle(s)


cdef void _ask(Service *s, int64_t wanted) noexcept nogil:
    # The log up to `wanted` is to be on the device, and slaves are to have what they have to acknowledge.
    cdef bint here = s.log.pool == NULL and not s.log.durable_only      # slaves may have it: this thread waits for nothing
    cdef bint replicates = s.replicate > s.ahead.replicate
    s.asked = wanted
    if s.waits & WAIT_DEVICE:
        rmq_publish(&s.ahead.wanted, wanted)
    if replicates:
        ahead_replicate(&s.ahead, s.replicate, s.acks)
    rmq_fence()
    if (s.waits & WAIT_DEVICE or not here) and rmq_load32(&s.ahead.asleep) != 0:
        rmq_event_wake(s.ahead.more)
    if replicates and here:
        s.replicas.push(s.replicas.of, s.replicate)
    settled_look(s)                     # arms


cdef bint settled_turn(Service *s) noexcept nogil:
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
    if wanted > s.asked:
        _ask(s, wanted)
    return dispatched


cdef void settled_tick(Service *s) noexcept nogil:
    # A device or a slave that does not answer: the message is stored, and RocketMQ says how far.
    cdef Waiting *w
    cdef int64_t late
    settled_look(s)
    while s.waiting_count > 0:
        w = &s.waiting[s.waiting_first]
        late = rmq_net_now(s.net) - w.since_ns
        if w.wants & WAIT_DEVICE:
            if late <= rmq_load(s.flush_deadline_ns):
                return
            w.wants &= ~WAIT_DEVICE
            w.since_ns += rmq_load(s.flush_deadline_ns)
            if w.code == SENT:
                w.code = FLUSH_DISK_TIMEOUT
            if not _done(s, w):
                continue
        elif late <= s.replicas.timeout_ns:
            return
        elif not _done(s, w):
            w.code = FLUSH_SLAVE_TIMEOUT
        _settle(s)


cdef void settled_ending(Service *s) noexcept nogil:
    cdef Waiting *last
    if s.waiting_count == 0:
        return
    if s.waits & WAIT_DEVICE:
        flush_all(s.log)        # an error is a fence, which is what those who wait are told
    last = &s.waiting[(s.waiting_first + s.waiting_count - 1) % s.waiting_room]
    if last.wants & WAIT_REPLICA:
        s.replicas.wait(s.replicas.of, last.end, max(last.wants >> WAIT_ACKS, 1), min(s.replicas.timeout_ns, ENDING_NS))
    settled_look(s)
    while s.waiting_count > 0:
        if not _done(s, &s.waiting[s.waiting_first]):
            s.waiting[s.waiting_first].code = FLUSH_SLAVE_TIMEOUT
        _settle(s)
