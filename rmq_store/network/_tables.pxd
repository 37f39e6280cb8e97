# What the network thread knows of topics and subscriptions: a table that Python makes, and that the thread takes as a whole.
from libc.stdint cimport int32_t, int64_t, uint32_t

from rmq_store.network._net cimport rmq_text
from rmq_store.queues.consumequeue._queue cimport Queue

cdef enum:
    PERM_WRITE = 2
    PERM_READ = 4
    QUEUES_PAGE = 64

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

cdef struct Tables:
    TopicRow *topics            # open addressing; name NULL: free
    SubscriptionRow *subscriptions
    uint32_t topics_mask
    uint32_t subscriptions_mask
    int64_t generation          # no other one of the service has it
    bint knows                  # it has a topic

cdef Tables *tables_new(object topics, object subscriptions) except NULL
cdef void tables_free(Tables *t) noexcept nogil
cdef Queue **tables_queue(TopicRow *t, int32_t queue_id) noexcept nogil      # its place; NULL: no memory
cdef TopicRow *tables_topic(const Tables *t, rmq_text name) noexcept nogil      # NULL: not known
cdef SubscriptionRow *tables_subscription(const Tables *t, rmq_text group, rmq_text topic) noexcept nogil
cdef uint32_t text_hash(rmq_text t, uint32_t before) noexcept nogil
