"""Offsets of groups, and heartbeats, as the network thread answers them. Contract in _consumers.pxd.

An offset that is there is read and set in its row, and written to config/consumerOffset.json as Python's commits are. The first
commit of a group in a queue is Python's, which makes the row.

A client says every 30 s what it said before. Where Python has registered just that, on this connection, and nothing of topics,
groups, subscriptions or options has changed since, Python would change nothing: it is enough to note when the client was heard.
A request that Python has still to look at goes first: nothing of one peer overtakes it.
"""
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from rmq_store.base.io._sync cimport (rmq_count, rmq_load, rmq_mutex_lock, rmq_mutex_try, rmq_mutex_unlock, rmq_publish)
from rmq_store.network._net cimport (RMQ_ANSWER_ROOM, RMQ_DONE, RMQ_ONEWAY, RMQ_PASS, rmq_answer, rmq_answer_begin,
                                     rmq_answer_end, rmq_answer_integer, rmq_connection, rmq_connection_filled,
                                     rmq_connection_id, rmq_connection_room, rmq_connection_settled, rmq_done, rmq_frame,
                                     rmq_net_now, rmq_offset, rmq_offset_decode, rmq_pull, rmq_text)
from rmq_store.network._state cimport Beat, Service
from rmq_store.network._tables cimport TopicRow, tables_subscription, tables_topic
from rmq_store.services.consumer._offsets cimport OffsetRow, offsets_commit, offsets_find, offsets_get

cdef enum:
    UPDATE_OFFSET = 15


cdef void _answer(Service *s, rmq_connection *c, const rmq_frame *f, int64_t offset) noexcept nogil:
    # offset: -1 for an answer without one
    cdef rmq_answer a
    cdef unsigned char *to = NULL if f.flag & RMQ_ONEWAY else rmq_connection_room(c, RMQ_ANSWER_ROOM)
    if to == NULL:
        return
    rmq_answer_begin(&a, to, f.serialize, 0, f.opaque, s.version, NULL)
    if offset >= 0:
        rmq_answer_integer(&a, b"offset", offset)
    rmq_connection_filled(c, rmq_answer_end(&a, 0))


# ---- offsets

cdef bint _is_group(Service *s, rmq_text group) noexcept nogil:
    cdef rmq_text none
    none.at, none.size = b"", 0
    return tables_subscription(&s.tables, group, none) != NULL


cdef OffsetRow *_row(Service *s, rmq_connection *c, rmq_text group, rmq_text topic, int32_t queue_id) noexcept nogil:
    # NULL: Python has to look.
    if s.group_offsets == NULL or queue_id < 0 or not _is_group(s, group) or not rmq_connection_settled(c):
        return NULL
    return offsets_find(s.group_offsets, group.at, group.size, topic.at, topic.size, queue_id)


cdef rmq_done query_request(Service *s, rmq_connection *c, const rmq_frame *f) noexcept nogil:
    cdef rmq_offset h
    cdef OffsetRow *r
    cdef int64_t offset
    if rmq_offset_decode(f, &h) < 0:
        return RMQ_PASS
    r = _row(s, c, h.group, h.topic, h.queue_id)
    offset = offsets_get(r) if r != NULL else -1
    if offset < 0:
        return RMQ_PASS
    rmq_count(&s.queries, 1)
    _answer(s, c, f, offset)
    return RMQ_DONE


cdef rmq_done update_request(Service *s, rmq_connection *c, const rmq_frame *f) noexcept nogil:
    cdef rmq_offset h
    cdef OffsetRow *r
    cdef TopicRow *t
    if rmq_offset_decode(f, &h) < 0 or h.offset < 0:
        return RMQ_PASS
    t = tables_topic(&s.tables, h.topic)
    if t == NULL or h.queue_id >= max(t.read_queues, t.write_queues):
        return RMQ_PASS
    r = _row(s, c, h.group, h.topic, h.queue_id)
    if r == NULL or not offsets_commit(s.group_offsets, r, h.offset):
        return RMQ_PASS
    rmq_count(&s.updates, 1)
    _answer(s, c, f, -1)
    return RMQ_DONE


cdef bint consumers_know(Service *s, const rmq_pull *h) noexcept nogil:
    cdef OffsetRow *r
    if s.group_offsets == NULL or h.queue_id < 0:
        return False
    r = offsets_find(s.group_offsets, h.group.at, h.group.size, h.topic.at, h.topic.size, h.queue_id)
    return r != NULL and offsets_get(r) >= 0


cdef bint consumers_note(Service *s, rmq_connection *c, const rmq_pull *h) noexcept nogil:
    cdef OffsetRow *r = _row(s, c, h.group, h.topic, h.queue_id)
    return r != NULL and offsets_commit(s.group_offsets, r, h.commit_offset)


# ---- heartbeats

cdef uint64_t _hash(const unsigned char *body, int32_t size) noexcept nogil:
    # FNV-1a. A peer that finds another body of the same sum deceives itself alone: it is not registered as it says.
    cdef uint64_t h = 14695981039346656037u
    cdef int32_t i
    for i in range(size):
        h = (h ^ body[i]) * 1099511628211u
    return h


cdef rmq_done heartbeat_request(Service *s, rmq_connection *c, const rmq_frame *f) noexcept nogil:
    cdef uint64_t connection = rmq_connection_id(c)
    cdef Beat *mine = &s.beats[<uint32_t> connection]
    cdef Beat b
    if s.tables.topics_count == 0 or f.fields > 0 or not rmq_connection_settled(c):
        return RMQ_PASS
    if not rmq_mutex_try(&s.beats_lock):
        return RMQ_PASS
    b = mine[0]
    rmq_mutex_unlock(&s.beats_lock)
    if (b.connection != connection or b.generation != s.tables.generation or b.size != f.body_size or b.version != f.version
            or b.hash != _hash(f.body, f.body_size)):
        return RMQ_PASS
    rmq_publish(&mine.heard_ns, rmq_net_now(s.net))
    rmq_count(&s.heartbeats, 1)
    _answer(s, c, f, -1)
    return RMQ_DONE


cdef void consumers_alive(Service *s, rmq_connection *c) noexcept nogil:
    # Where Python has the lock, the next write or heartbeat says it.
    cdef uint64_t connection = rmq_connection_id(c)
    cdef Beat *mine = &s.beats[<uint32_t> connection]
    if not rmq_mutex_try(&s.beats_lock):
        return
    if mine.connection != connection:
        mine.connection, mine.generation = connection, 0
    rmq_publish(&mine.heard_ns, rmq_net_now(s.net))
    rmq_mutex_unlock(&s.beats_lock)


cdef void _lock(Service *s) noexcept:
    if not rmq_mutex_try(&s.beats_lock):
        with nogil:
            rmq_mutex_lock(&s.beats_lock)


cdef void consumers_remember(Service *s, uint64_t connection, const unsigned char *body, int32_t size, int32_t version,
                             int64_t generation) noexcept:
    cdef Beat *b = &s.beats[<uint32_t> connection]
    cdef uint64_t hash = _hash(body, size)
    _lock(s)
    b.connection, b.hash, b.generation, b.size, b.version = connection, hash, generation, size, version
    rmq_publish(&b.heard_ns, 0)
    rmq_mutex_unlock(&s.beats_lock)


cdef void consumers_forget(Service *s, uint64_t connection) noexcept:
    cdef Beat *b = &s.beats[<uint32_t> connection]
    _lock(s)
    if b.connection == connection:
        b.generation = 0
    rmq_mutex_unlock(&s.beats_lock)


cdef int64_t consumers_heard(Service *s, uint64_t connection) noexcept:
    cdef Beat *b = &s.beats[<uint32_t> connection]
    cdef int64_t heard
    _lock(s)
    heard = rmq_load(&b.heard_ns) if b.connection == connection else 0
    rmq_mutex_unlock(&s.beats_lock)
    return heard
