"""Pulls as the network thread answers them. Contract in _pulls.pxd.

Records go from the mapped log to the socket without a copy in between, under the readers' hold on their file, which ends with
the call: what a socket does not take at once is copied. So no peer, however slow, keeps a file from being cleaned.
"""
from libc.stdint cimport int32_t, int64_t, uint32_t

from rmq_store.access.reader._get cimport get_count_disk, get_found
from rmq_store.access.reader._request cimport (FOUND, MESSAGE_WAS_REMOVING, NO_MATCHED_MESSAGE, NO_MESSAGE_IN_QUEUE,
                                               OFFSET_FOUND_NULL, OFFSET_OVERFLOW_ONE, GetCounts, GetRequest)
from rmq_store.base.io._sync cimport rmq_add, rmq_count, rmq_load, rmq_load32
from rmq_store.base.segment._file cimport log_file_release
from rmq_store.codec._layout cimport UNIT_SIZE
from rmq_store.codec._text cimport java_hash
from rmq_store.codec._unit cimport unit_physical
from rmq_store.network._consumers cimport consumers_know, consumers_note
from rmq_store.network._held cimport held_add, held_drop, held_expired, held_later, held_left, held_look, held_woken
from rmq_store.network._net cimport (RMQ_ANSWER_ROOM, RMQ_DONE, RMQ_ONEWAY, RMQ_PASS, iovec, rmq_answer, rmq_answer_begin,
                                     rmq_answer_end, rmq_answer_integer, rmq_answer_text, rmq_connection, rmq_connection_id,
                                     rmq_connection_own, rmq_connection_parts, rmq_connection_pass,
                                     rmq_connection_slow, rmq_done, rmq_frame, rmq_net_find, rmq_net_now, rmq_pull,
                                     rmq_pull_decode, rmq_text, rmq_text_is)
from rmq_store.network._state cimport CODES_MAX, FOUND_MAX, NOTED, Held, Pull, Service
from rmq_store.network._tables cimport (PERM_READ, SubscriptionRow, TopicRow, tables_queue, tables_subscription, tables_topic,
                                        text_hash)
from rmq_store.queues.consumequeue._queue cimport Queue, queue_read, queues_find

cdef enum:
    COMMIT_OFFSET = 1           # bits of sysFlag
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    PULL_FOUND = 0              # codes of answers
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    NOT_READABLE = 1            # status.RunningFlags
    LOOKS_MAX = 4               # of a held pull, each as long as one of a get, for which other peers wait
    BODY_MAX = (1 << 24) - (1 << 20)
    NOTE_ROOM = 2048

cdef int64_t MS = 1_000_000, SECOND = 1_000_000_000, SUSPEND_MAX_MS = 3_600_000

cdef extern from *:
    """
    static const char *const pull_names[] = {"FOUND", "NO_MATCHED_MESSAGE", "MESSAGE_WAS_REMOVING", "OFFSET_FOUND_NULL",
        "OFFSET_OVERFLOW_BADLY", "OFFSET_OVERFLOW_ONE", "OFFSET_TOO_SMALL", "NO_MATCHED_LOGIC_QUEUE", "NO_MESSAGE_IN_QUEUE"};
    """
    const char *const *pull_names       # of GetStatus, in its order


# ---- what a pull asks for

cdef bint _parse_tags(rmq_text text, Pull *p) noexcept nogil:
    # "a || b", trimmed as Java trims. False: too many.
    cdef const char *at = text.at
    cdef const char *end = text.at + text.size
    cdef const char *stop
    cdef const char *last
    p.codes_count = 0
    if text.at == NULL or text.size == 0 or rmq_text_is(text, b"*", 1):
        return True
    while at <= end:
        stop = at
        while stop < end and not (stop + 1 < end and stop[0] == c"|" and stop[1] == c"|"):
            stop += 1
        last = stop
        while at < last and <unsigned char> at[0] <= 32:
            at += 1
        while at < last and <unsigned char> (last - 1)[0] <= 32:
            last -= 1
        if at < last:
            if p.codes_count == CODES_MAX:
                return False
            p.codes[p.codes_count] = java_hash(at, <int32_t> (last - at))
            p.codes_count += 1
        at = stop + 2
    return p.codes_count > 0


cdef bint _subscribed(Service *s, const rmq_pull *h, Pull *p) noexcept nogil:
    # Which tags; False: Python has to look.
    cdef SubscriptionRow *row
    cdef rmq_text none
    cdef int32_t i
    if h.sys_flag & SUBSCRIPTION:
        none.at, none.size = b"", 0
        if h.expression_type.size > 0 and not rmq_text_is(h.expression_type, b"TAG", 3):
            return False
        return tables_subscription(&s.tables, h.group, none) != NULL and _parse_tags(h.subscription, p)
    row = tables_subscription(&s.tables, h.group, h.topic)
    if row == NULL or row.version < h.sub_version or row.codes_count > CODES_MAX or h.topic.size == 0:
        return False
    p.codes_count = row.codes_count
    for i in range(row.codes_count):
        p.codes[i] = row.codes[i]
    return True


cdef bint _is_cold(Service *s, const Pull *p) noexcept nogil:
    # A message so far from the log's end that it may have to come from the device: this thread must not wait for that.
    cdef unsigned char[UNIT_SIZE] unit
    cdef int64_t warm_from = rmq_load(&s.log.committed) - rmq_load(s.memory_bytes)
    return warm_from > 0 and queue_read(s.queues, p.queue, p.offset, unit, 1) == 1 and unit_physical(unit) < warm_from


cdef rmq_done pull_request(Service *s, rmq_connection *c, const rmq_frame *f) noexcept nogil:
    cdef rmq_pull h
    cdef Pull p
    cdef TopicRow *t
    cdef Queue **place
    cdef int32_t status
    cdef int64_t ms
    cdef bint commits
    if f.flag & RMQ_ONEWAY or rmq_load32(s.flags) & NOT_READABLE:
        return RMQ_PASS
    if rmq_pull_decode(f, &h) < 0 or h.sys_flag & CLASS_FILTER or h.offset < 0:
        return RMQ_PASS
    t = tables_topic(&s.tables, h.topic)
    if t == NULL or not t.perm & PERM_READ or h.queue_id < 0 or h.queue_id >= t.read_queues or not _subscribed(s, &h, &p):
        return RMQ_PASS
    place = tables_queue(t, h.queue_id)
    if place == NULL:
        return RMQ_PASS
    if place[0] == NULL:
        place[0] = queues_find(s.queues, t.name, t.size, h.queue_id, True)
    p.queue = place[0]
    if p.queue == NULL:
        return RMQ_PASS
    p.group, p.generation = h.group, s.tables.generation
    p.offset, p.connection, p.opaque, p.serialize = h.offset, rmq_connection_id(c), f.opaque, f.serialize
    p.count_max = max(h.count_max, 1)
    p.bytes_max = h.bytes_max if 0 < h.bytes_max < BODY_MAX else BODY_MAX
    ms = min(max(h.suspend_ms, <int64_t> 0), SUSPEND_MAX_MS)
    p.suspend_ns = ms * MS if s.long_polling else s.short_polling_ns
    if _is_cold(s, &p):
        return RMQ_PASS
    commits = h.sys_flag & COMMIT_OFFSET and h.commit_offset >= 0
    if commits and s.access != NULL:        # a note would have no signature: the first offset goes with its request
        if not consumers_know(s, &h):
            return RMQ_PASS
        consumers_note(s, c, &h)            # else the next pull tells it
        commits = False
    status = _try(s, c, &p, (h.sys_flag & SUSPEND) != 0, True)
    if status < 0:
        return RMQ_PASS
    rmq_count(&s.pulls_lite if f.code == 361 else &s.pulls, 1)
    if commits:
        _note_offset(s, c, &h)
    return RMQ_DONE


cdef void _note_offset(Service *s, rmq_connection *c, const rmq_pull *h) noexcept nogil:
    # The consumer says in passing how far it is, and says it again by a request of its own every five seconds: where the former
    # is Python's, Python hears of it once a second.
    cdef char[NOTE_ROOM] note
    cdef rmq_answer a
    cdef uint32_t hash
    cdef int64_t *noted
    cdef int32_t size
    if consumers_note(s, c, h):
        return
    hash = text_hash(h.topic, text_hash(h.group, 2166136261u + <uint32_t> h.queue_id))
    noted = s.noted[hash % NOTED]
    if (noted[0] == hash and rmq_net_now(s.net) - noted[1] < SECOND) or h.group.size + h.topic.size > NOTE_ROOM - 512:
        return
    rmq_answer_begin(&a, <unsigned char *> note, 1, 15, 0, s.version, NULL)
    rmq_answer_text(&a, b"consumerGroup", h.group.at, h.group.size)
    rmq_answer_text(&a, b"topic", h.topic.at, h.topic.size)
    rmq_answer_integer(&a, b"queueId", h.queue_id)
    rmq_answer_integer(&a, b"commitOffset", h.commit_offset)
    size = rmq_answer_end(&a, 0)
    note[8 + 12] = RMQ_ONEWAY       # not an answer, but a request
    if rmq_connection_pass(c, note, size) == 0:
        noted[0], noted[1] = hash, rmq_net_now(s.net)


# ---- reading and answering

cdef int32_t _code(const GetRequest *r) noexcept nogil:
    if r.status == FOUND:
        return PULL_FOUND
    if r.status == NO_MATCHED_MESSAGE or r.status == MESSAGE_WAS_REMOVING:
        return PULL_RETRY_IMMEDIATELY
    if r.status == OFFSET_FOUND_NULL or r.status == OFFSET_OVERFLOW_ONE:
        return PULL_NOT_FOUND
    if r.status == NO_MESSAGE_IN_QUEUE and r.offset == 0:
        return PULL_NOT_FOUND
    return PULL_OFFSET_MOVED


cdef void _count(GetCounts *counts, GetRequest *r) noexcept nogil:
    if r.found_count == 0:
        rmq_add(&counts.missed, 1)
        return
    get_count_disk(r)
    rmq_add(&counts.found, 1)
    rmq_add(&counts.messages, r.found_count)
    rmq_add(&counts.bytes, r.found_bytes)
    if r.disk_count > 0:
        rmq_add(&counts.disk_messages, r.disk_count)
        rmq_add(&counts.disk_bytes, r.disk_bytes)


cdef void _get(Service *s, Pull *p, GetRequest *r) noexcept nogil:
    r.topic, r.topic_size, r.queue_id = p.queue.topic, p.queue.topic_size, p.queue.queue_id
    r.codes = p.codes if p.codes_count > 0 else NULL
    r.codes_count = p.codes_count
    r.filter, r.bits = NULL, NULL
    r.offset, r.bytes_max = p.offset, p.bytes_max
    r.count_max = min(p.count_max, FOUND_MAX)
    r.slave_rules = r.unwraps = False
    r.memory_bytes = rmq_load(s.memory_bytes)
    r.bytes_max_memory, r.count_max_memory = rmq_load(s.bytes_max_memory), rmq_load(s.count_max_memory)
    r.bytes_max_disk, r.count_max_disk = rmq_load(s.bytes_max_disk), rmq_load(s.count_max_disk)
    r.scan_bytes_max = rmq_load(s.scan_bytes_max)
    r.units_per_file, r.ext_enabled = s.units_per_file, s.ext_enabled
    r.found = s.found
    r.status = NO_MATCHED_MESSAGE
    get_found(r, s.log, s.queues, False)


cdef void _let_go(GetRequest *r) noexcept nogil:
    cdef int64_t i
    for i in range(r.found_count):
        if r.found[i].held:
            log_file_release(r.found[i].file)


cdef void _answer(Service *s, rmq_connection *c, const Pull *p, GetRequest *r, int32_t code) noexcept nogil:
    cdef iovec[FOUND_MAX + 2] parts
    cdef unsigned char[RMQ_ANSWER_ROOM] head
    cdef rmq_answer a
    cdef const unsigned char *start
    cdef int n = 2
    cdef int64_t i, bytes = 0
    if code == PULL_FOUND and not rmq_connection_slow(c):
        for i in range(r.found_count):
            start = r.found[i].view.start
            bytes += r.found[i].view.size
            if n > 2 and <const unsigned char *> parts[n - 1].iov_base + parts[n - 1].iov_len == start:
                parts[n - 1].iov_len += r.found[i].view.size
                continue
            parts[n].iov_base, parts[n].iov_len = <void *> start, r.found[i].view.size
            n += 1
        rmq_count(&s.pulled_messages, r.found_count)
        rmq_count(&s.pulled_bytes, bytes)
    elif code == PULL_FOUND:            # nothing more is kept for a peer that does not read: it asks again
        code, r.next_offset = PULL_RETRY_IMMEDIATELY, r.offset
    rmq_answer_begin(&a, head, p.serialize, code, p.opaque, s.version, pull_names[r.status])
    rmq_answer_integer(&a, b"suggestWhichBrokerId", 0)
    rmq_answer_integer(&a, b"nextBeginOffset", r.next_offset)
    rmq_answer_integer(&a, b"minOffset", r.min_offset)
    rmq_answer_integer(&a, b"maxOffset", r.max_offset)
    parts[1].iov_base = head
    parts[1].iov_len = rmq_answer_end(&a, <int32_t> bytes)
    rmq_connection_parts(c, parts, n)


cdef int32_t _try(Service *s, rmq_connection *c, Pull *p, bint may_hold, bint first) noexcept nogil:
    # 0: answered; 1: held, or to stay held; -1, at first only: Python has to look.
    cdef GetRequest r
    cdef int32_t code, looks = 0
    while True:
        _get(s, p, &r)
        if r.error < 0:
            _let_go(&r)
            if first:
                return -1
            r.found_count, r.status = 0, MESSAGE_WAS_REMOVING       # the client asks again, and Python then tells the error
        code = _code(&r)
        if first and code == PULL_OFFSET_MOVED:
            return -1
        if r.error == 0:
            _count(s.gets, &r)
        if first or not may_hold or code != PULL_RETRY_IMMEDIATELY or r.error < 0:
            break
        p.offset = r.next_offset        # what came does not match: the search continues behind it,
        if rmq_load(&p.queue.max_offset) <= p.offset:
            return 1
        looks += 1
        if looks == LOOKS_MAX:          # and the client continues it where there is much more, as no other arrival might come
            break
    if may_hold and code == PULL_NOT_FOUND and (not first or _hold(s, c, p)):
        return 1
    _answer(s, c, p, &r, code)
    _let_go(&r)
    return 0


# ---- those that are held

cdef bint _hold(Service *s, rmq_connection *c, const Pull *p) noexcept nogil:
    # False: it cannot be held, and is answered at once.
    cdef Held *h = held_add(s, c, p)
    if h == NULL:
        return False
    # What came between the look and the watch was not told to anybody: it is looked at again.
    if rmq_load(&p.queue.max_offset) > p.offset and _try(s, c, &h.pull, True, False) == 0:
        held_drop(s, c, h)
    return True


cdef bint _still_allowed(Service *s, Pull *p) noexcept nogil:
    # The tables may have changed since it was held.
    cdef TopicRow *t
    cdef rmq_text topic, none
    if p.generation == s.tables.generation:
        return True
    topic.at, topic.size = p.queue.topic, p.queue.topic_size
    none.at, none.size = b"", 0
    t = tables_topic(&s.tables, topic)
    if (t == NULL or not t.perm & PERM_READ or p.queue.queue_id >= t.read_queues
            or tables_subscription(&s.tables, p.group, none) == NULL):
        return False
    p.generation = s.tables.generation
    return True


cdef void _ask_again(Service *s, rmq_connection *c, const Pull *p) noexcept nogil:
    # Python tells the client what is not as it was.
    cdef GetRequest r
    r.status, r.next_offset, r.found_count = NO_MATCHED_MESSAGE, p.offset, 0
    r.min_offset, r.max_offset = rmq_load(&p.queue.min_offset), rmq_load(&p.queue.max_offset)
    _answer(s, c, p, &r, PULL_RETRY_IMMEDIATELY)


cdef void _again(Service *s, Held *h, bint over) noexcept nogil:
    cdef rmq_connection *c = rmq_net_find(s.net, h.pull.connection)
    if c == NULL:               # it goes with its connection
        if over:
            held_later(s, h)
    elif not _still_allowed(s, &h.pull):
        _ask_again(s, c, &h.pull)
        held_drop(s, c, h)
    elif _try(s, c, &h.pull, not over, False) == 0:
        held_drop(s, c, h)


cdef void pulls_arrived(Service *s) noexcept nogil:
    cdef Held *h
    held_look(s)
    while True:
        h = held_woken(s)
        if h == NULL:
            return
        _again(s, h, False)


cdef bint pulls_more(Service *s) noexcept nogil:
    cdef Held *h
    if held_left(s):
        pulls_arrived(s)
    while True:
        h = held_expired(s)
        if h == NULL:
            return held_left(s)
        _again(s, h, True)


cdef void pulls_closed(Service *s, rmq_connection *c) noexcept nogil:
    cdef Held **mine = <Held **> rmq_connection_own(c)
    while mine[0] != NULL:
        held_drop(s, c, mine[0])
