# What the network thread knows of topics and subscriptions. Python makes shards, each with the rows of a part of the names, and
# the thread takes them one by one: a change costs the rows of its shard, and all others stay as they are.
from libc.stdint cimport int32_t, int64_t, uint32_t

from rmq_store.network._net cimport rmq_text
from rmq_store.queues.consumequeue._queue cimport Queue

cdef enum:
    PERM_WRITE = 2
    PERM_READ = 4
    QUEUES_PAGE = 64
    SHARDS = 256

cdef struct TopicRow:
    const char *name
    int32_t size
    int32_t perm
    int32_t read_queues
    int32_t write_queues
    Queue ***queues             # the thread's, in pages of QUEUES_PAGE: made and looked up when they are first asked for

cdef struct SubscriptionRow:
    const char *group           # and behind it, without a byte between, the topic
    int32_t group_size
    int32_t topic_size
    int32_t codes_count         # 0: all messages
    int32_t *codes              # hash codes of tags
    int64_t version

cdef struct Shard:
    TopicRow *topics            # open addressing; name NULL: free
    SubscriptionRow *subscriptions
    uint32_t topics_mask
    uint32_t subscriptions_mask
    int64_t topics_count

cdef struct Tables:
    Shard *shards[SHARDS]       # of the network thread; NULL: empty
    Shard *told[SHARDS]         # atomic: what Python has made since
    int64_t generation          # that of `made` when the thread last looked
    int64_t made                # atomic: how often Python has told something
    int64_t topics_count        # in shards

cdef int shard_of(bytes name) except -1     # of a topic, or of a group with its subscriptions
cdef list shards_of(object topics, object subscriptions)        # all shards: (topics, subscriptions)
# Rows whose names are of one shard.
cdef Shard *shard_new(object topics, object subscriptions) except NULL
cdef void shard_free(Shard *t) noexcept nogil
cdef void tables_tell(Tables *t, int shard, Shard *made) noexcept nogil     # under the GIL
cdef void tables_told(Tables *t) noexcept nogil                             # behind the last of a change
cdef void tables_take(Tables *t) noexcept nogil                             # the network thread: what was told
cdef void tables_free(Tables *t) noexcept nogil                             # what it has, not itself
cdef Queue **tables_queue(TopicRow *t, int32_t queue_id) noexcept nogil      # its place; NULL: no memory
cdef TopicRow *tables_topic(const Tables *t, rmq_text name) noexcept nogil      # NULL: not known
cdef SubscriptionRow *tables_subscription(const Tables *t, rmq_text group, rmq_text topic) noexcept nogil
cdef uint32_t text_hash(rmq_text t, uint32_t before) noexcept nogil
