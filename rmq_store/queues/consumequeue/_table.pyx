"""The queues of a store by name (topic bytes and queue id) and by creation. Contract in _table.pxd.

A look-up takes no lock: the directory only ever gains queues, each complete before it can be seen, and one that is full is
replaced by a larger copy while look-ups continue in the old one, or in what is left of it.
"""
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from rmq_store.base.io._io cimport rmq_io
from rmq_store.base.io._sync cimport (ENOMEM, rmq_load, rmq_load32, rmq_mutex_lock, rmq_mutex_unlock, rmq_new_lines,
                                      rmq_publish, rmq_publish32)
from rmq_store.base.segment._file cimport text_copy
from rmq_store.codec._layout cimport UNIT_SIZE
from rmq_store.codec._record cimport topic_light
from rmq_store.queues.consumequeue._descriptors cimport file_cache_free, file_cache_new
from rmq_store.queues.consumequeue._files cimport files_done, files_init
from rmq_store.queues.consumequeue._rest cimport rest_done, rest_init, rest_new
from rmq_store.queues.consumequeue._spares cimport spares_free, spares_new
from rmq_store.queues.consumequeue._state cimport (BATCH_DROP, BATCH_OPEN, BATCH_TAKE, BUFFER_COUNT, BUFFER_STRIDE, BatchStep,
                                                   BatchTopic, BatchTopics, Directory, QueueState, TableState, links_of,
                                                   marks_of, state_of)
from rmq_store.queues.consumequeue._structs cimport QueueFiles
from rmq_store.queues.consumequeue._structs cimport Queue

cdef extern from "<sys/mman.h>" nogil:
    enum: MADV_DONTNEED
    int madvise(void *at, size_t size, int advice)

cdef enum:
    DIRECTORY_FIRST = 64
    DIRECTORY_MAX = 0x3FFFFFFF
    BATCH_TOPICS_FIRST = 16
    ANY_QUEUE = -1
    LIGHT_NAME_MAX = 255
    PAGE = 4096


cdef int table_init(TableState *t, const rmq_io *io, const char *dir, const char *ext_dir, const char *tmp_dir,
                    int64_t file_size, int64_t ext_file_size, int fd_max, bint readonly) noexcept nogil:
    cdef int i
    t.io = io
    t.file_size = (file_size + UNIT_SIZE - 1) // UNIT_SIZE * UNIT_SIZE if file_size > 0 else UNIT_SIZE
    t.ext_file_size = ext_file_size
    t.readonly = readonly
    t.cache = file_cache_new(io, tmp_dir, fd_max, readonly)
    t.dir = text_copy(dir)
    t.ext_dir = text_copy(ext_dir)
    t.directory = _directory_new(DIRECTORY_FIRST)
    if not readonly:
        t.spares = spares_new(io, tmp_dir, t.file_size)
        t.memory = <unsigned char *> malloc(BUFFER_COUNT * BUFFER_STRIDE)
        t.free_buffers = <unsigned char **> malloc(BUFFER_COUNT * sizeof(unsigned char *))
    if (t.cache == NULL or t.dir == NULL or rest_init(t) < 0 or t.ext_dir == NULL or t.directory == NULL
            or (not readonly and (t.memory == NULL or t.free_buffers == NULL or t.spares == NULL))):
        return -ENOMEM
    if not readonly:
        t.free_count = BUFFER_COUNT
        for i in range(BUFFER_COUNT):
            t.free_buffers[i] = t.memory + (BUFFER_COUNT - 1 - i) * BUFFER_STRIDE
    return 0


cdef void table_done(TableState *t) noexcept nogil:
    cdef Directory *d
    cdef int64_t i
    if t.directory != NULL:
        for i in range(t.count):
            if marks_of(t.directory.order[i]).held == 0:        # rest_done frees the others
                _queue_done(t.directory.order[i])
    rest_done(t)
    while t.directory != NULL:
        d = t.directory
        t.directory = d.older
        free(d)
    file_cache_free(t.cache)
    spares_free(t.spares)
    _batch_topics_done(t)
    free(t.batch_dir)
    free(t.dir)
    free(t.ext_dir)
    free(t.memory)
    free(t.free_buffers)


cdef void _queue_done(Queue *q) noexcept nogil:
    cdef QueueState *first = <QueueState *> (<char *> q + sizeof(Queue))        # one piece of memory with the queue
    cdef QueueState *other = first.other
    files_done(&first.entries)
    files_done(&first.ext)
    if other != NULL:
        files_done(&other.entries)
        files_done(&other.ext)
        free(other)
    free(q)


cdef Directory *_directory_new(int64_t capacity) noexcept nogil:
    # `capacity` queues, in twice as many slots of each kind; one piece of memory.
    cdef Directory *d = <Directory *> calloc(1, sizeof(Directory) + capacity * (3 * sizeof(Queue *) + 2 * sizeof(int)))
    if d != NULL:
        d.mask = 2 * capacity - 1
        d.slots = <Queue **> (d + 1)
        d.order = d.slots + 2 * capacity
        d.topics = <int *> (d.order + capacity)
    return d


cdef inline uint32_t _hash(const char *topic, int32_t size, int32_t queue_id) noexcept nogil:
    cdef uint64_t h = <uint64_t> 0xCBF29CE484222325 ^ <uint32_t> queue_id
    cdef int32_t i
    for i in range(size):
        h = (h ^ <unsigned char> topic[i]) * <uint64_t> 0x100000001B3
    h *= <uint64_t> 0x9E3779B97F4A7C15
    return <uint32_t> (h >> 32)


cdef inline Queue *_look(const Directory *d, const char *topic, int32_t size, int32_t queue_id, uint32_t hash) noexcept nogil:
    cdef int64_t i = hash & d.mask
    cdef Queue *q
    while True:
        q = <Queue *> rmq_load(<int64_t *> &d.slots[i])
        if q == NULL or (q.queue_id == queue_id and marks_of(q).hash == hash and q.topic_size == size
                         and memcmp(q.topic, topic, size) == 0):
            return q
        i = (i + 1) & d.mask


cdef inline Queue *_look_topic(const Directory *d, const char *topic, int32_t size, int64_t *slot) noexcept nogil:
    # The newest queue of the topic; NULL: there is none. *slot: where it stands, or would stand.
    cdef int64_t i = _hash(topic, size, ANY_QUEUE) & d.mask
    cdef Queue *q
    cdef int at
    while True:
        slot[0] = i
        at = rmq_load32(&d.topics[i])
        q = <Queue *> rmq_load(<int64_t *> &d.order[at - 1]) if at > 0 else NULL
        if q == NULL or (q.topic_size == size and memcmp(q.topic, topic, size) == 0):
            return q
        i = (i + 1) & d.mask


cdef inline Queue *_newest(const Directory *d, const char *topic, int32_t size) noexcept nogil:
    cdef int64_t slot
    cdef Queue *q = _look_topic(d, topic, size, &slot)
    if q == NULL and topic_light(topic, size):
        q = _look(d, topic, size, 0, _hash(topic, size, 0))
    return q


cdef void _enter(Directory *d, int64_t place, Queue *q) noexcept nogil:
    # Queues are entered in the order of creation: the last one of a topic is the one its slot leads to. A light queue is the
    # only one of its name, and its number is 0: unless there is another, `topics` does without it.
    cdef int64_t i = marks_of(q).hash & d.mask
    rmq_publish(<int64_t *> &d.order[place], <int64_t> q)
    while d.slots[i] != NULL:
        i = (i + 1) & d.mask
    rmq_publish(<int64_t *> &d.slots[i], <int64_t> q)
    if q.queue_id != 0 or links_of(q).same_topic != NULL or not topic_light(q.topic, q.topic_size):
        _look_topic(d, q.topic, q.topic_size, &i)
        rmq_publish32(&d.topics[i], <int> place + 1)


cdef void _let_go(Directory *d) noexcept nogil:
    # A larger one is in its place. Its memory becomes zeros: a look-up that is still in it finds nothing, and looks there.
    cdef int64_t begin = (<int64_t> d.slots + PAGE - 1) // PAGE * PAGE
    cdef int64_t end = <int64_t> &d.topics[d.mask + 1] // PAGE * PAGE
    if end > begin:
        madvise(<void *> begin, end - begin, MADV_DONTNEED)


cdef inline BatchTopic *_batch_topic(const BatchTopics *b, const char *topic, int32_t size, int64_t *slot) noexcept nogil:
    cdef int64_t i = _hash(topic, size, ANY_QUEUE) & b.mask
    cdef BatchTopic *found
    while True:
        slot[0] = i
        found = <BatchTopic *> rmq_load(<int64_t *> &b.slots[i])
        if found == NULL or (found.size == size and memcmp(found.name, topic, size) == 0):
            return found
        i = (i + 1) & b.mask


cdef int table_batched(const TableState *t, const char *topic, int32_t topic_size) noexcept nogil:
    cdef const BatchTopics *b = <const BatchTopics *> rmq_load(<int64_t *> &t.batch_topics)
    cdef const BatchTopic *found
    cdef int64_t slot
    if b == NULL:
        return 0
    found = _batch_topic(b, topic, topic_size, &slot)
    return rmq_load32(&found.has) if found != NULL else 0


cdef int _more_batch_topics(TableState *t) noexcept nogil:
    # Room for one more.
    cdef BatchTopics *b = t.batch_topics
    cdef BatchTopics *larger
    cdef int64_t capacity = BATCH_TOPICS_FIRST if b == NULL else 2 * (b.mask + 1)
    cdef int64_t i, slot
    if b != NULL and 2 * b.count < b.mask:
        return 0
    larger = <BatchTopics *> calloc(1, sizeof(BatchTopics) + capacity * sizeof(BatchTopic *))
    if larger == NULL:
        return -ENOMEM
    larger.mask = capacity - 1
    larger.slots = <BatchTopic **> (larger + 1)
    for i in range(b.mask + 1 if b != NULL else 0):
        if b.slots[i] != NULL:
            _batch_topic(larger, b.slots[i].name, b.slots[i].size, &slot)
            larger.slots[slot] = b.slots[i]
            larger.count += 1
    larger.older = b
    rmq_publish(<int64_t *> &t.batch_topics, <int64_t> larger)
    return 0


cdef int table_set_batched(TableState *t, const char *topic, int32_t topic_size, BatchStep step) noexcept nogil:
    cdef BatchTopic *found
    cdef int64_t slot
    if _more_batch_topics(t) < 0:
        return -ENOMEM
    found = _batch_topic(t.batch_topics, topic, topic_size, &slot)
    if found == NULL:
        found = <BatchTopic *> calloc(1, sizeof(BatchTopic) + topic_size + 1)
        if found == NULL:
            return -ENOMEM
        found.size = topic_size
        found.name = <char *> (found + 1)
        memcpy(found.name, topic, topic_size)
        rmq_publish(<int64_t *> &t.batch_topics.slots[slot], <int64_t> found)
        t.batch_topics.count += 1
    if step == BATCH_DROP or (step == BATCH_TAKE and found.has == 0):
        rmq_publish32(&found.has, step)
    elif step >= BATCH_OPEN and found.has != 0:
        rmq_publish32(&found.has, 2 if step == BATCH_OPEN else 1)
    return 0


cdef void _batch_topics_done(TableState *t) noexcept nogil:
    cdef BatchTopics *b = t.batch_topics
    cdef int64_t i
    for i in range(b.mask + 1 if b != NULL else 0):
        free(b.slots[i])
    while b != NULL:
        t.batch_topics = b.older
        free(b)
        b = t.batch_topics


cdef Queue *_queue_new(TableState *t, const char *topic, int32_t topic_size, int32_t queue_id, uint32_t hash) noexcept nogil:
    # One piece of memory: the queue, its state, its topic. Of a light queue the row.
    cdef char *at
    cdef Queue *q
    if (topic_light(topic, topic_size) and topic_size <= LIGHT_NAME_MAX and t.ext_file_size == 0
            and not table_batched(t, topic, topic_size)):
        q = rest_new(t, topic, topic_size, queue_id)
        if q != NULL:
            marks_of(q).hash = hash
        return q
    at = <char *> rmq_new_lines(sizeof(Queue) + sizeof(QueueState) + topic_size + 1)
    q = <Queue *> at
    if q == NULL:
        return NULL
    q.files = <QueueFiles *> (at + sizeof(Queue))
    q.topic = at + sizeof(Queue) + sizeof(QueueState)
    memcpy(<char *> q.topic, topic, topic_size)
    q.topic_size = topic_size
    q.queue_id = queue_id
    q.max_physical_offset = -1
    marks_of(q).hash = hash
    if _state_init(t, q, state_of(q), table_batched(t, topic, topic_size) != 0) < 0:
        free(at)
        return NULL
    return q


cdef int _state_init(TableState *t, const Queue *q, QueueState *s, bint batched) noexcept nogil:
    # 0 or -ENOMEM.
    s.new_min = -1
    s.batched = batched
    if (files_init(&s.entries, t.batch_dir if batched else t.dir, q.topic, q.topic_size, q.queue_id,
                   t.batch_file_size if batched else t.file_size) < 0
            or (t.ext_file_size > 0
                and files_init(&s.ext, t.ext_dir, q.topic, q.topic_size, q.queue_id, t.ext_file_size) < 0)):
        files_done(&s.entries)
        return -ENOMEM
    s.entries.spares = NULL if batched else t.spares        # which are of the size of the others
    return 0


cdef int table_change_kind(TableState *t, Queue *q) noexcept nogil:
    # A reader may still have the state that goes out of use: it stays as it is, without a file, until the table goes, or until
    # the queue is of that kind again.
    cdef QueueState *s = state_of(q)
    cdef QueueState *other = s.other
    if other == NULL:
        other = <QueueState *> rmq_new_lines(sizeof(QueueState))
        if other == NULL:
            return -ENOMEM
        if _state_init(t, q, other, not s.batched) < 0:
            free(other)
            return -ENOMEM
        other.other = s
        s.other = other
    other.next_index = other.blank_to = 0
    other.new_min = -1
    rmq_mutex_lock(&t.sync_lock)
    other.unsynced, other.next_unsynced = s.unsynced, s.next_unsynced
    s.unsynced, s.next_unsynced = 0, NULL
    rmq_mutex_unlock(&t.sync_lock)
    rmq_publish(<int64_t *> &q.files, <int64_t> other)
    return 0


cdef Queue *_insert(TableState *t, const char *topic, int32_t topic_size, int32_t queue_id, uint32_t hash) noexcept nogil:
    # Under insert_lock. A look-up may run in the directory meanwhile, or in the one it replaces.
    cdef Directory *d = t.directory
    cdef Directory *larger
    cdef Queue *q = _look(d, topic, topic_size, queue_id, hash)
    cdef int64_t i
    if q != NULL:
        return q
    if t.count * 2 > d.mask:
        larger = _directory_new(d.mask + 1) if d.mask < DIRECTORY_MAX else NULL
        if larger == NULL:
            return NULL
        for i in range(t.count):
            _enter(larger, i, d.order[i])
        larger.older = d
        rmq_publish(<int64_t *> &t.directory, <int64_t> larger)
        _let_go(d)
        d = larger
    q = _queue_new(t, topic, topic_size, queue_id, hash)
    if q == NULL:
        return NULL
    links_of(q).same_topic = _newest(d, topic, topic_size)
    _enter(d, t.count, q)
    rmq_publish(&t.count, t.count + 1)
    return q


cdef inline Directory *_directory(TableState *t) noexcept nogil:
    return <Directory *> rmq_load(<int64_t *> &t.directory)


cdef Queue *table_find(TableState *t, const char *topic, int32_t topic_size, int32_t queue_id, bint create) noexcept nogil:
    cdef uint32_t hash = _hash(topic, topic_size, queue_id)
    cdef Directory *d = _directory(t)
    cdef Queue *q = _look(d, topic, topic_size, queue_id, hash)
    while q == NULL and d != _directory(t):
        d = _directory(t)
        q = _look(d, topic, topic_size, queue_id, hash)
    if q == NULL and create:
        rmq_mutex_lock(&t.insert_lock)
        q = _insert(t, topic, topic_size, queue_id, hash)
        rmq_mutex_unlock(&t.insert_lock)
    return q


cdef Queue *table_at(TableState *t, int64_t i) noexcept nogil:
    cdef Queue *q = NULL
    if i < 0 or i >= rmq_load(&t.count):
        return NULL
    while q == NULL:            # once more where another directory came meanwhile
        q = <Queue *> rmq_load(<int64_t *> &_directory(t).order[i])
    return q


cdef Queue *table_of_topic(TableState *t, const char *topic, int32_t topic_size) noexcept nogil:
    cdef Directory *d = _directory(t)
    cdef Queue *q = _newest(d, topic, topic_size)
    while q == NULL and d != _directory(t):
        d = _directory(t)
        q = _newest(d, topic, topic_size)
    return q
