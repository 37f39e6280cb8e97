"""Tables of topics and subscriptions for the network thread. Contract in _tables.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from rmq_store.base.io._sync cimport rmq_add, rmq_load
from rmq_store.network._net cimport rmq_text
from rmq_store.queues.consumequeue._queue cimport Queue

cdef extern from *:
    """
    static inline void *shard_swap(void **at, void *value) { return __atomic_exchange_n(at, value, __ATOMIC_ACQ_REL); }
    static inline void *shard_look(void **at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
    """
    void *shard_swap(void **at, void *value) noexcept nogil
    void *shard_look(void **at) noexcept nogil


cdef uint32_t text_hash(rmq_text t, uint32_t before) noexcept nogil:
    # FNV-1a. The rows are the control plane's own names: a peer cannot choose them so that they meet.
    cdef uint32_t h = before
    cdef int32_t i
    for i in range(t.size):
        h = (h ^ <unsigned char> t.at[i]) * 16777619u
    return h


cdef inline uint32_t _shard(uint32_t hash) noexcept nogil:
    return (hash * 2654435761u) >> 24       # others of its bits choose the place in the shard


cdef int shard_of(bytes name) except -1:
    cdef rmq_text text
    text.at, text.size = PyBytes_AS_STRING(name), <int32_t> PyBytes_GET_SIZE(name)
    return _shard(text_hash(text, 2166136261u))


cdef list shards_of(object topics, object subscriptions):
    rows = [([], []) for _ in range(SHARDS)]
    for row in topics:
        rows[shard_of(row[0].encode())][0].append(row)
    for row in subscriptions:
        rows[shard_of(row[0].encode())][1].append(row)
    return rows


cdef uint32_t _mask(Py_ssize_t count):
    cdef uint32_t size = 8
    while size < 2 * count:
        size *= 2
    return size - 1


cdef char *_copy(bytes text) except NULL:
    cdef char *copy = <char *> malloc(PyBytes_GET_SIZE(text) + 1)
    if copy == NULL:
        raise MemoryError("table")
    memcpy(copy, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text) + 1)
    return copy


cdef Shard *shard_new(object topics, object subscriptions) except NULL:
    # topics: (name, perm, read queues, write queues); subscriptions: (group, topic, version, hash codes of tags, none for all).
    cdef Shard *t = <Shard *> calloc(1, sizeof(Shard))
    if t == NULL:
        raise MemoryError("table")
    topics, subscriptions = list(topics), list(subscriptions)
    t.topics_mask, t.subscriptions_mask = _mask(len(topics)), _mask(len(subscriptions))
    t.topics_count = len(topics)
    try:
        t.topics = <TopicRow *> calloc(t.topics_mask + 1, sizeof(TopicRow))
        t.subscriptions = <SubscriptionRow *> calloc(t.subscriptions_mask + 1, sizeof(SubscriptionRow))
        if t.topics == NULL or t.subscriptions == NULL:
            raise MemoryError("table")
        for name, perm, read, write in topics:
            _add_topic(t, name.encode(), perm, read, write)
        for group, topic, version, codes in subscriptions:
            _add_subscription(t, group.encode(), topic.encode(), version, tuple(codes))
    except BaseException:
        shard_free(t)
        raise
    return t


cdef int _add_topic(Shard *t, bytes name, int32_t perm, int32_t read, int32_t write) except -1:
    cdef rmq_text text
    cdef TopicRow *row
    cdef uint32_t at
    text.at, text.size = PyBytes_AS_STRING(name), <int32_t> PyBytes_GET_SIZE(name)
    at = text_hash(text, 2166136261u) & t.topics_mask
    while t.topics[at].name != NULL:
        at = (at + 1) & t.topics_mask
    row = &t.topics[at]
    row.queues = <Queue ***> calloc(_pages(max(read, write)), sizeof(Queue **))
    if row.queues == NULL:
        raise MemoryError("table")
    row.perm, row.read_queues, row.write_queues, row.size = perm, read, write, text.size
    row.name = _copy(name)
    return 0


cdef int _add_subscription(Shard *t, bytes group, bytes topic, version, tuple codes) except -1:
    cdef rmq_text text
    cdef SubscriptionRow *row
    cdef uint32_t at
    cdef int32_t i
    text.at, text.size = PyBytes_AS_STRING(group), <int32_t> PyBytes_GET_SIZE(group)
    at = text_hash(text, 2166136261u)
    text.at, text.size = PyBytes_AS_STRING(topic), <int32_t> PyBytes_GET_SIZE(topic)
    at = text_hash(text, at) & t.subscriptions_mask
    while t.subscriptions[at].group != NULL:
        at = (at + 1) & t.subscriptions_mask
    row = &t.subscriptions[at]
    row.version, row.codes_count = version, <int32_t> len(codes)
    if codes:
        row.codes = <int32_t *> malloc(len(codes) * sizeof(int32_t))
        if row.codes == NULL:
            raise MemoryError("table")
        for i in range(row.codes_count):
            row.codes[i] = codes[i]
    row.group_size, row.topic_size = <int32_t> PyBytes_GET_SIZE(group), text.size
    row.group = _copy(group + topic)
    return 0


cdef int32_t _pages(int32_t queues) noexcept nogil:
    return max(queues - 1, 0) // QUEUES_PAGE + 1


cdef void _free_queues(TopicRow *t) noexcept nogil:
    cdef int32_t i
    if t.queues != NULL:
        for i in range(_pages(max(t.read_queues, t.write_queues))):
            free(t.queues[i])
    free(t.queues)


cdef Queue **tables_queue(TopicRow *t, int32_t queue_id) noexcept nogil:
    cdef Queue ***page = &t.queues[queue_id // QUEUES_PAGE]
    if page[0] == NULL:
        page[0] = <Queue **> calloc(QUEUES_PAGE, sizeof(Queue *))
        if page[0] == NULL:
            return NULL
    return &page[0][queue_id % QUEUES_PAGE]


cdef void shard_free(Shard *t) noexcept nogil:
    cdef uint32_t i
    if t == NULL:
        return
    if t.topics != NULL:
        for i in range(t.topics_mask + 1):
            _free_queues(&t.topics[i])
            free(<void *> t.topics[i].name)
    if t.subscriptions != NULL:
        for i in range(t.subscriptions_mask + 1):
            free(t.subscriptions[i].codes)
            free(<void *> t.subscriptions[i].group)
    free(t.topics)
    free(t.subscriptions)
    free(t)


cdef void tables_tell(Tables *t, int shard, Shard *made) noexcept nogil:
    shard_free(<Shard *> shard_swap(<void **> &t.told[shard], made))


cdef void tables_told(Tables *t) noexcept nogil:
    rmq_add(&t.made, 1)


cdef void tables_take(Tables *t) noexcept nogil:
    # The number first: what is told meanwhile is newer than it says, and is looked at again.
    cdef int64_t made = rmq_load(&t.made)
    cdef Shard *new
    cdef int i
    if made == t.generation:
        return
    for i in range(SHARDS):
        if shard_look(<void **> &t.told[i]) == NULL:
            continue
        new = <Shard *> shard_swap(<void **> &t.told[i], NULL)
        t.topics_count += new.topics_count - (t.shards[i].topics_count if t.shards[i] != NULL else 0)
        shard_free(t.shards[i])
        t.shards[i] = new
    t.generation = made


cdef void tables_free(Tables *t) noexcept nogil:
    cdef int i
    for i in range(SHARDS):
        shard_free(t.shards[i])
        shard_free(t.told[i])


cdef TopicRow *tables_topic(const Tables *tables, rmq_text name) noexcept nogil:
    cdef uint32_t hash = text_hash(name, 2166136261u)
    cdef const Shard *t = tables.shards[_shard(hash)]
    cdef uint32_t at
    cdef TopicRow *row
    if t == NULL:
        return NULL
    at = hash & t.topics_mask
    while t.topics[at].name != NULL:
        row = &t.topics[at]
        if row.size == name.size and memcmp(row.name, name.at, name.size) == 0:
            return row
        at = (at + 1) & t.topics_mask
    return NULL


cdef SubscriptionRow *tables_subscription(const Tables *tables, rmq_text group, rmq_text topic) noexcept nogil:
    cdef uint32_t hash = text_hash(group, 2166136261u)
    cdef const Shard *t = tables.shards[_shard(hash)]
    cdef uint32_t at
    cdef SubscriptionRow *row
    if t == NULL:
        return NULL
    at = text_hash(topic, hash) & t.subscriptions_mask
    while t.subscriptions[at].group != NULL:
        row = &t.subscriptions[at]
        if (row.group_size == group.size and row.topic_size == topic.size and memcmp(row.group, group.at, group.size) == 0
                and memcmp(row.group + group.size, topic.at, topic.size) == 0):
            return row
        at = (at + 1) & t.subscriptions_mask
    return NULL
