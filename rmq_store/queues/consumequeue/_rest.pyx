"""Light queues at rest. Contract in _rest.pxd.

What a row has: the queue's published offsets, the end of its last record, and which files it has. What its state has besides is
the same for every queue that is at rest: all entries are written, published, and on the device (or the table is read-only).

Two rows share their cache lines: each has the first half of every line of a Queue. Nothing is lost by that but what padding is
for, and a light queue is not what a put counts on for its speed.

States lie in chunks, which go back to the system when they are empty: a hundred thousand queues that got a message in one
second leave no memory behind. The last IDLE_MAX queues that were used keep their state, and the descriptors of their files.
"""
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset, strlen

from rmq_store.base.io._sync cimport (ENOMEM, rmq_load, rmq_load32, rmq_mutex_lock, rmq_mutex_unlock,
                                      rmq_publish32)
from rmq_store.codec._layout cimport UNIT_SIZE
from rmq_store.queues.consumequeue._descriptors cimport UnitFiles, descriptor_close
from rmq_store.queues.consumequeue._files cimport files_init_at
from rmq_store.queues.consumequeue._state cimport (IDLE_MAX, Chunk, Piece, QueueState, Rest, TableState, links_of, marks_of,
                                                   state_of)
from rmq_store.queues.consumequeue._structs cimport Queue, QueueFiles

cdef extern from "<sys/mman.h>" nogil:
    enum: PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS
    void *mmap(void *at, size_t size, int protection, int flags, int fd, long offset)
    int munmap(void *at, size_t size)

cdef enum:
    LINE = 64
    HALF = 32
    PIECE_SIZE = 262144
    NAMES_SIZE = 4096
    CHUNK_SIZE = 32768
    CHUNK_HEAD = 64
    NAME_MAX = 255
    FILE_NUMBER_MAX = 0x7FFFFFFF


cdef int rest_init(TableState *t) noexcept nogil:
    cdef int64_t name = <int64_t> strlen(t.dir) + NAME_MAX + 14
    t.rest = <Rest *> calloc(1, sizeof(Rest))
    if t.rest == NULL:
        return -ENOMEM
    # The chunk that it is of, the state, the name of its directory.
    t.rest.state_size = (<int64_t> (sizeof(Chunk *) + sizeof(QueueState)) + name + 15) // 16 * 16
    return 0


cdef void rest_done(TableState *t) noexcept nogil:
    cdef Rest *r = t.rest
    cdef Chunk *c
    cdef Piece *p
    if r == NULL:
        return
    while r.chunks != NULL:
        c = r.chunks
        r.chunks = c.next
        munmap(c, CHUNK_SIZE)
    while r.pieces != NULL:
        p = r.pieces
        r.pieces = p.older
        munmap(p, PIECE_SIZE)
    free(r)
    t.rest = NULL


cdef void *_pages(size_t n) noexcept nogil:
    # Not malloc's: what a program allocates between would keep them, and they what it frees.
    cdef void *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    return NULL if <int64_t> at == -1 else at


# ---- rows

cdef char *_piece(Rest *r, int64_t n) noexcept nogil:
    # n bytes, n a multiple of a line, at a line's begin.
    cdef Piece *p = r.pieces
    cdef char *at
    if p == NULL or PIECE_SIZE - p.used < n:
        p = <Piece *> _pages(PIECE_SIZE)
        if p == NULL:
            return NULL
        p.older = r.pieces
        p.used = LINE
        r.pieces = p
    at = <char *> p + p.used
    p.used += n
    return at


cdef Queue *_row(Rest *r) noexcept nogil:
    cdef char *at = r.row
    if at != NULL:
        r.row = NULL
        return <Queue *> (at + HALF)
    at = _piece(r, 4 * LINE)
    r.row = at
    return <Queue *> at


cdef char *_name(Rest *r, const char *topic, int size) noexcept nogil:
    cdef char *at
    if r.names_left < size + 1:
        at = _piece(r, NAMES_SIZE)
        if at == NULL:
            return NULL
        r.names, r.names_left = at, NAMES_SIZE
    at = r.names
    r.names += size + 1
    r.names_left -= size + 1
    memcpy(at, topic, size)
    at[size] = 0
    return at


cdef Queue *rest_new(TableState *t, const char *topic, int topic_size, int queue_id) noexcept nogil:
    cdef const char *name = NULL
    cdef Queue *q = NULL
    rmq_mutex_lock(&t.rest.lock)
    name = _name(t.rest, topic, topic_size)
    if name != NULL:
        q = _row(t.rest)
    rmq_mutex_unlock(&t.rest.lock)
    if q == NULL:
        return NULL
    q.topic = name
    q.topic_size = topic_size
    q.queue_id = queue_id
    q.max_physical_offset = -1
    marks_of(q).held = HELD
    links_of(q).table = t
    return q


# ---- states: memory

cdef void _in_front(Rest *r, Chunk *c) noexcept nogil:
    c.previous = NULL
    c.next = r.chunks
    if r.chunks != NULL:
        r.chunks.previous = c
    else:
        r.last = c
    r.chunks = c


cdef void _out(Rest *r, Chunk *c) noexcept nogil:
    if c.previous != NULL:
        c.previous.next = c.next
    else:
        r.chunks = c.next
    if c.next != NULL:
        c.next.previous = c.previous
    else:
        r.last = c.previous


cdef void _behind(Rest *r, Chunk *c) noexcept nogil:
    c.next = NULL
    c.previous = r.last
    if r.last != NULL:
        r.last.next = c
    else:
        r.chunks = c
    r.last = c


cdef inline int _places(const Rest *r) noexcept nogil:
    return <int> ((CHUNK_SIZE - CHUNK_HEAD) // r.state_size)


cdef QueueState *_take(Rest *r) noexcept nogil:
    cdef Chunk *c = r.chunks
    cdef void *at
    if c == NULL or c.used == _places(r):
        at = _pages(CHUNK_SIZE)
        if at == NULL:
            return NULL
        c = <Chunk *> at
        _in_front(r, c)
    if c.free != NULL:
        at = c.free
        c.free = (<void **> at)[0]
    else:
        at = <char *> c + CHUNK_HEAD + c.fresh * r.state_size
        c.fresh += 1
    c.used += 1
    if c.used == _places(r):
        _out(r, c)
        _behind(r, c)
    r.states += 1
    memset(at, 0, r.state_size)
    (<Chunk **> at)[0] = c
    return <QueueState *> (<char *> at + sizeof(Chunk *))


cdef void _give(Rest *r, QueueState *s) noexcept nogil:
    cdef void *at = <char *> s - sizeof(Chunk *)
    cdef Chunk *c = (<Chunk **> at)[0]
    (<void **> at)[0] = c.free
    c.free = at
    c.used -= 1
    r.states -= 1
    _out(r, c)
    if c.used == 0 and r.chunks != NULL:
        munmap(c, CHUNK_SIZE)
    else:
        _in_front(r, c)


cdef int rest_states(TableState *t) noexcept nogil:
    cdef int n
    rmq_mutex_lock(&t.rest.lock)
    n = t.rest.states
    rmq_mutex_unlock(&t.rest.lock)
    return n


# ---- states: what is in them

cdef QueueState *_state_of_row(TableState *t, Queue *q) noexcept nogil:
    cdef QueueState *s = _take(t.rest)
    cdef UnitFiles *f
    cdef int64_t end = rmq_load(&q.max_offset)
    if s == NULL:
        return NULL
    f = &s.entries
    files_init_at(f, <char *> (s + 1), t.dir, q.topic, q.topic_size, q.queue_id, t.file_size)
    f.spares = t.spares
    f.first = links_of(q).first_file * t.file_size
    f.end = f.first + links_of(q).files * t.file_size
    f.written = f.synced = end * UNIT_SIZE
    s.next_index = end
    s.new_min = -1
    q.files = <QueueFiles *> s
    return s


cdef bint _says_no_more(const TableState *t, const Queue *q, const QueueState *s) noexcept nogil:
    # Than its row would: the state may go. Nobody holds it.
    cdef const UnitFiles *f = &s.entries
    return (not t.cache.following and rmq_load32(&s.unsynced) == 0 and not s.deleting and rmq_load(&s.vanished) == 0
            and not s.dirty and rmq_load32(&f.new_dirs) == 0 and f.buffer == NULL and s.new_min < 0
            and s.blank_to <= s.next_index and s.waiting[0].size == 0 and s.next_index == rmq_load(&q.max_offset)
            and f.end // t.file_size <= FILE_NUMBER_MAX
            and ((f.first == f.end and s.next_index == 0)
                 or (f.written == s.next_index * UNIT_SIZE and (t.readonly or f.synced == f.written))))


cdef void _rest(TableState *t, Queue *q) noexcept nogil:
    # Its descriptors go as well: they are known by the state.
    cdef QueueState *s = state_of(q)
    cdef int64_t start = s.entries.first
    links_of(q).first_file = <int> (start // t.file_size)
    links_of(q).files = <int> ((s.entries.end - start) // t.file_size)
    while start < s.entries.end:
        descriptor_close(t.cache, &s.entries, start)
        start += t.file_size
    q.files = NULL
    _give(t.rest, s)


cdef void _idle(TableState *t, Queue *q) noexcept nogil:
    # Nobody uses its state any more: it stays for a while, and the one that was put there longest ago goes.
    cdef Rest *r = t.rest
    cdef Queue *other
    if state_of(q).idle_at != 0:
        return
    other = r.idle[r.idle_next]
    r.idle[r.idle_next] = q
    r.idle_next = (r.idle_next + 1) % IDLE_MAX
    state_of(q).idle_at = 1
    if other != NULL:
        # Held, or with something to say: whoever ends that lets it go, and so brings it here again.
        state_of(other).idle_at = 0
        if marks_of(other).held == HELD and _says_no_more(t, other, state_of(other)):
            _rest(t, other)


cdef QueueState *_hold(TableState *t, Queue *q) noexcept nogil:
    cdef QueueState *s = state_of(q)
    if s == NULL:
        s = _state_of_row(t, q)
    if s != NULL:
        rmq_publish32(&marks_of(q).held, marks_of(q).held + 1)
    return s


cdef QueueState *rest_hold(TableState *t, Queue *q) noexcept nogil:
    cdef QueueState *s
    rmq_mutex_lock(&t.rest.lock)
    s = _hold(t, q)
    rmq_mutex_unlock(&t.rest.lock)
    return s


cdef void _let(TableState *t, Queue *q) noexcept nogil:
    rmq_publish32(&marks_of(q).held, marks_of(q).held - 1)
    if marks_of(q).held == HELD:
        _idle(t, q)


cdef void rest_let(TableState *t, Queue *q) noexcept nogil:
    rmq_mutex_lock(&t.rest.lock)
    _let(t, q)
    rmq_mutex_unlock(&t.rest.lock)


cdef QueueState *rest_hold_dispatch(TableState *t, Queue *q) noexcept nogil:
    cdef QueueState *s
    rmq_mutex_lock(&t.rest.lock)
    s = _hold(t, q)
    if s != NULL:
        rmq_publish32(&marks_of(q).held, marks_of(q).held | HELD_BY_DISPATCH)
    rmq_mutex_unlock(&t.rest.lock)
    return s


cdef void rest_published(TableState *t, Queue *q) noexcept nogil:
    rmq_mutex_lock(&t.rest.lock)
    rmq_publish32(&marks_of(q).held, marks_of(q).held & ~HELD_BY_DISPATCH)
    _let(t, q)
    rmq_mutex_unlock(&t.rest.lock)
