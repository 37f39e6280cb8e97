"""Held pulls by queue and tag. Contract in _held.pxd."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from rmq_store.base.io._sync cimport rmq_count, rmq_load
from rmq_store.codec._layout cimport UNIT_SIZE
from rmq_store.codec._unit cimport is_ext_address, unit_blank, unit_code
from rmq_store.log.dispatch._dispatch cimport dispatch_sleeper
from rmq_store.network._net cimport rmq_connection, rmq_connection_own, rmq_net_now
from rmq_store.network._state cimport (HELD_BUCKETS, HELD_MAX, HELD_SLOTS, HELD_TAG_BUCKETS, Held, HeldPlace, HeldQueue,
                                       HeldTag, Pull, Service)
from rmq_store.queues.consumequeue._arrivals cimport hub_take, hub_unwatch, hub_watch
from rmq_store.queues.consumequeue._queue cimport ExtWindow, Queue, queue_look_ext, queue_read

cdef enum:
    QUEUES_AT_ONCE = 256
    UNITS_AT_ONCE = 64
    TURN = 16                   # pulls of one tag that are tried in a row, before those of another
    TAGS_OF_ONE = 8             # a pull weighs one more for each so many tags

cdef int64_t SLOT_NS = 250_000_000, UNITS_OF_ROUND = 8192, TRIES_OF_ROUND = 128, EXPIRED_OF_ROUND = 64


# ---- queues

cdef HeldQueue *_find(Service *s, const Queue *q) noexcept nogil:
    cdef HeldQueue *at = s.held_queues[(<uint64_t> q >> 6) % HELD_BUCKETS]
    while at != NULL and at.queue != q:
        at = at.next
    return at


cdef HeldQueue *_queue(Service *s, Queue *q, int64_t offset) noexcept nogil:
    # NULL: no memory.
    cdef HeldQueue **bucket = &s.held_queues[(<uint64_t> q >> 6) % HELD_BUCKETS]
    cdef HeldQueue *at = _find(s, q)
    if at != NULL:
        return at
    at = <HeldQueue *> calloc(1, sizeof(HeldQueue))
    if at == NULL:
        return NULL
    if hub_watch(s.hub, q) < 0:
        free(at)
        return NULL
    at.queue, at.scanned, at.next = q, offset, bucket[0]
    at.removed = rmq_load(&q.removed_below)
    bucket[0] = at
    return at


cdef void _leave_queue(Service *s, HeldQueue *at) noexcept nogil:
    # Where it is to be looked at, that look ends it.
    cdef HeldQueue **place = &s.held_queues[(<uint64_t> at.queue >> 6) % HELD_BUCKETS]
    if at.tags != NULL or at.due:
        return
    while place[0] != at:
        place = &place[0].next
    place[0] = at.next
    hub_unwatch(s.hub, at.queue)
    free(at)


# ---- tags

cdef HeldTag **_bucket(Service *s, const HeldQueue *at, int32_t code) noexcept nogil:
    cdef uint64_t h = ((<uint64_t> at >> 6) ^ <uint32_t> code) * s.tag_seed
    return &s.held_tags[(h >> 40) % HELD_TAG_BUCKETS]


cdef HeldTag *_tag_of(Service *s, const HeldQueue *at, int32_t code) noexcept nogil:
    cdef HeldTag *t = _bucket(s, at, code)[0]
    while t != NULL and (t.at != at or t.code != code):
        t = t.next
    return t


cdef HeldTag *_tag(Service *s, HeldQueue *at, int32_t code, bint any) noexcept nogil:
    # NULL: no memory.
    cdef HeldTag *t = at.all if any else _tag_of(s, at, code)
    cdef HeldTag **bucket
    if t != NULL:
        return t
    t = <HeldTag *> calloc(1, sizeof(HeldTag))
    if t == NULL:
        return NULL
    t.at, t.code, t.any = at, code, any
    t.wakes_from = t.again_from = -1
    if any:
        at.all = t
    else:
        bucket = _bucket(s, at, code)
        t.next = bucket[0]
        bucket[0] = t
        at.tags_count += 1
    t.next_of_queue = at.tags
    if t.next_of_queue != NULL:
        t.next_of_queue.before_of_queue = t
    at.tags = t
    return t


cdef void _leave_tag(Service *s, HeldTag *t) noexcept nogil:
    # Where pulls of it are to be tried, that ends it.
    cdef HeldTag **place
    if t.first != NULL or t.wakes_from >= 0:
        return
    if t.any:
        t.at.all = NULL
    else:
        place = _bucket(s, t.at, t.code)
        while place[0] != t:
            place = &place[0].next
        place[0] = t.next
        t.at.tags_count -= 1
    if t.next_of_queue != NULL:
        t.next_of_queue.before_of_queue = t.before_of_queue
    if t.before_of_queue != NULL:
        t.before_of_queue.next_of_queue = t.next_of_queue
    else:
        t.at.tags = t.next_of_queue
    _leave_queue(s, t.at)
    free(t)


cdef void _enter(HeldTag *t, Held *h, HeldPlace *place) noexcept nogil:
    # In front: who is in the middle of its tries does not come to it.
    place.held, place.tag, place.before, place.next = h, t, NULL, t.first
    if t.first != NULL:
        t.first.before = place
    t.first = place


cdef void _leave(Service *s, HeldPlace *place) noexcept nogil:
    cdef HeldTag *t = place.tag
    if t.following == place:
        t.following = place.next
    if place.next != NULL:
        place.next.before = place.before
    if place.before != NULL:
        place.before.next = place.next
    else:
        t.first = place.next
    _leave_tag(s, t)


cdef bint _enter_all(Service *s, HeldQueue *at, Held *h) noexcept nogil:
    # A pull that continues before what was looked at (its entries cannot be read) is looked at with every message.
    cdef bint any = h.pull.codes_count == 0 or h.pull.offset < at.scanned
    cdef int32_t n = 1 if any else h.pull.codes_count
    cdef HeldTag *t
    while h.places_count < n:
        t = _tag(s, at, h.pull.codes[h.places_count], any)
        if t == NULL:
            return False
        _enter(t, h, &h.places[h.places_count])
        h.places_count += 1
    return True


# ---- pulls

cdef void _expire(Service *s, Held *h, int64_t slot) noexcept nogil:
    cdef Held **first = &s.held_slots[slot % HELD_SLOTS]
    h.slot, h.before, h.next = slot, NULL, first[0]
    if h.next != NULL:
        h.next.before = h
    first[0] = h


cdef void _expire_not(Service *s, Held *h) noexcept nogil:
    if h.next != NULL:
        h.next.before = h.before
    if h.before != NULL:
        h.before.next = h.next
    else:
        s.held_slots[h.slot % HELD_SLOTS] = h.next


cdef void _unplace(Service *s, Held *h) noexcept nogil:
    while h.places_count > 0:
        h.places_count -= 1
        _leave(s, &h.places[h.places_count])


cdef Held *held_add(Service *s, rmq_connection *c, const Pull *p) noexcept nogil:
    cdef Held *h
    cdef HeldQueue *at
    cdef char *group
    cdef Held **mine = <Held **> rmq_connection_own(c)
    cdef int64_t *weight_here = <int64_t *> &mine[1]
    cdef int64_t weight = 1 + p.codes_count // TAGS_OF_ONE, places = max(p.codes_count, 1), now = rmq_net_now(s.net)
    if s.held_weight + weight > HELD_MAX or weight_here[0] + weight > s.held_of_one or p.suspend_ns <= 0:
        return NULL
    h = <Held *> calloc(1, sizeof(Held) + places * sizeof(HeldPlace) + p.group.size)
    at = _queue(s, p.queue, p.offset) if h != NULL else NULL
    if at == NULL:
        free(h)
        return NULL
    h.pull, h.at, h.weight = p[0], at, weight
    h.places = <HeldPlace *> (h + 1)
    if not _enter_all(s, at, h):
        if h.places_count > 0:
            _unplace(s, h)          # and with the last place its queue
        else:
            _leave_queue(s, at)
        free(h)
        return NULL
    group = <char *> (h.places + places)
    memcpy(group, p.group.at, p.group.size)
    h.pull.group.at = group
    if s.held_count == 0:
        s.held_slot = now // SLOT_NS
        dispatch_sleeper(s.dispatcher, 1)
    _expire(s, h, (now + p.suspend_ns) // SLOT_NS)
    h.next_of_connection = mine[0]
    if h.next_of_connection != NULL:
        h.next_of_connection.before_of_connection = h
    mine[0] = h
    rmq_count(&s.held_count, 1)
    s.held_weight += weight
    weight_here[0] += weight
    return h


cdef void held_drop(Service *s, rmq_connection *c, Held *h) noexcept nogil:
    cdef Held **mine = <Held **> rmq_connection_own(c)
    _expire_not(s, h)
    if h.next_of_connection != NULL:
        h.next_of_connection.before_of_connection = h.before_of_connection
    if h.before_of_connection != NULL:
        h.before_of_connection.next_of_connection = h.next_of_connection
    else:
        mine[0] = h.next_of_connection
    _unplace(s, h)
    s.held_weight -= h.weight
    (<int64_t *> &mine[1])[0] -= h.weight
    free(h)
    rmq_count(&s.held_count, -1)
    if s.held_count == 0:
        dispatch_sleeper(s.dispatcher, -1)


# ---- what came

cdef void held_begin(Service *s) noexcept nogil:
    s.units_left, s.tries_left, s.expired_left = UNITS_OF_ROUND, TRIES_OF_ROUND, EXPIRED_OF_ROUND


cdef void _wake(Service *s, HeldTag *t, int64_t offset) noexcept nogil:
    if t == NULL:
        return
    if t.wakes_from >= 0:
        if t.again_from < 0:
            t.again_from = offset
        return
    t.wakes_from, t.following, t.next_waking = offset, t.first, NULL
    if s.waking_first == NULL:
        s.waking_first = s.waking_last = t
        s.waking_turn = 0
    else:
        s.waking_last.next_waking = t
        s.waking_last = t


cdef void _wake_all(Service *s, HeldQueue *at, int64_t offset) noexcept nogil:
    cdef HeldTag *t = at.tags
    while t != NULL:
        _wake(s, t, offset)
        t = t.next_of_queue


cdef void _wake_of(Service *s, HeldQueue *at, ExtWindow *window, const unsigned char *unit, int64_t offset) noexcept nogil:
    # As the scan of a get decides, by the entry alone: where that does not tell, the pulls look for themselves.
    cdef int64_t code = unit_code(unit), stored
    cdef const unsigned char *bit_map
    if is_ext_address(code) and (not s.ext_enabled or queue_look_ext(s.queues, at.queue, window, code, &code, &stored,
                                                                     &bit_map) < 0 or is_ext_address(code)):
        _wake_all(s, at, offset)
    elif unit_blank(unit):
        _wake_all(s, at, offset)
    else:
        _wake(s, _tag_of(s, at, <int32_t> code), offset)


cdef bint _scan(Service *s, HeldQueue *at) noexcept nogil:
    # Whether everything that it has was looked at, before the budget was used up.
    cdef unsigned char[UNITS_AT_ONCE * UNIT_SIZE] units
    cdef ExtWindow window
    cdef int64_t n, i, end = rmq_load(&at.queue.max_offset)
    window.at = window.size = 0
    if at.removed != rmq_load(&at.queue.removed_below):     # it was emptied
        at.removed, at.scanned = rmq_load(&at.queue.removed_below), rmq_load(&at.queue.min_offset)
    at.scanned = min(at.scanned, end)       # they wait for what is put and not dispatched
    if at.scanned < end:
        _wake(s, at.all, at.scanned)
    if at.tags_count == 0:
        at.scanned = end
    while at.scanned < end:
        if s.units_left <= 0:
            return False
        n = queue_read(s.queues, at.queue, at.scanned, units, min(end - at.scanned, <int64_t> UNITS_AT_ONCE))
        if n <= 0:
            _wake_all(s, at, at.scanned)
            at.scanned = end
            break
        for i in range(n):
            _wake_of(s, at, &window, units + i * UNIT_SIZE, at.scanned + i)
        at.scanned += n
        s.units_left -= n
    return True


cdef void _due(Service *s, HeldQueue *at) noexcept nogil:
    if at == NULL or at.due:
        return
    at.due, at.next_due = True, NULL
    if s.due_first == NULL:
        s.due_first = s.due_last = at
    else:
        s.due_last.next_due = at
        s.due_last = at


cdef void held_look(Service *s) noexcept nogil:
    cdef Queue *some[QUEUES_AT_ONCE]
    cdef HeldQueue *at
    cdef bint all
    cdef int i, n = QUEUES_AT_ONCE
    while n == QUEUES_AT_ONCE:
        n = hub_take(s.hub, some, QUEUES_AT_ONCE)
        for i in range(n):
            _due(s, _find(s, some[i]))
    while s.due_first != NULL and s.units_left > 0:
        at = s.due_first
        all = _scan(s, at)
        s.units_left -= 1
        s.due_first = at.next_due
        at.due = False
        if all:
            _leave_queue(s, at)
        else:
            _due(s, at)             # behind the others


# ---- who is to be tried

cdef HeldTag *_next_tag(Service *s) noexcept nogil:
    # That of which somebody is to be tried: tags take turns. NULL: there is none.
    cdef HeldTag *t = s.waking_first
    cdef int64_t again
    while t != NULL:
        if t.following != NULL and s.waking_turn < TURN:
            s.waking_turn += 1
            return t
        s.waking_turn = 0
        s.waking_first = t.next_waking
        t.next_waking = NULL
        if t.following != NULL:             # its turn is over
            if s.waking_first == NULL:
                s.waking_first = t
            else:
                s.waking_last.next_waking = t
            s.waking_last = t
        else:                               # all were tried
            again = t.again_from
            t.wakes_from = t.again_from = -1
            if again >= 0:
                _wake(s, t, again)
            _leave_tag(s, t)
        t = s.waking_first
    return NULL


cdef int64_t _known_from(const Held *h) noexcept nogil:
    # No entry between the pull's offset and this one matches.
    cdef int64_t offset = INT64_MAX
    cdef const HeldTag *t
    cdef int32_t i
    for i in range(h.places_count):
        t = h.places[i].tag
        if t.any:
            return h.pull.offset
        if t.wakes_from >= 0:
            offset = min(offset, t.wakes_from)
    return max(h.pull.offset, min(offset, h.at.scanned))


cdef Held *held_woken(Service *s) noexcept nogil:
    cdef HeldTag *t
    cdef Held *h
    while s.tries_left > 0:
        t = _next_tag(s)
        if t == NULL:
            return NULL
        h = t.following.held
        t.following = t.following.next
        s.tries_left -= 1
        if rmq_load(&h.pull.queue.max_offset) > h.pull.offset:
            h.pull.offset = _known_from(h)
            rmq_count(&s.tries, 1)
            return h
    return NULL


cdef void held_tick(Service *s) noexcept nogil:
    s.expired_to = rmq_net_now(s.net) // SLOT_NS


cdef Held *held_expired(Service *s) noexcept nogil:
    cdef Held *h
    while s.held_count > 0 and s.held_slot < s.expired_to:
        h = s.held_slots[s.held_slot % HELD_SLOTS]
        if h == NULL:
            s.held_slot += 1
            continue
        if s.expired_left <= 0:
            return NULL
        s.expired_left -= 1
        h.pull.offset = _known_from(h)
        rmq_count(&s.tries, 1)
        return h
    return NULL


cdef void held_later(Service *s, Held *h) noexcept nogil:
    _expire_not(s, h)
    _expire(s, h, s.expired_to + 1)


cdef bint held_left(const Service *s) noexcept nogil:
    return (s.due_first != NULL or s.waking_first != NULL
            or (s.held_count > 0 and s.held_slot < s.expired_to and s.expired_left <= 0))


cdef void held_stop(Service *s) noexcept nogil:
    # The network thread has ended, and with each connection the pulls that it held.
    cdef int64_t i
    cdef HeldQueue *at
    cdef HeldTag *t
    for i in range(HELD_BUCKETS):
        while s.held_queues[i] != NULL:
            at = s.held_queues[i]
            s.held_queues[i] = at.next
            while at.tags != NULL:
                t = at.tags
                at.tags = t.next_of_queue
                free(t)
            free(at)
    s.due_first = NULL
    s.waking_first = NULL
