# The network thread and its frames (native/net/rmq_net.h, rmq_frame.h) as Cython sees them; the contracts are there.
from libc.stdint cimport int32_t, int64_t, uint64_t


cdef extern from "rmq_frame.h" nogil:
    enum: RMQ_FRAME_MAX, RMQ_JSON, RMQ_BINARY, RMQ_RESPONSE, RMQ_ONEWAY, RMQ_ANSWER_ROOM
    ctypedef struct rmq_text:
        const char *at
        int32_t size
    ctypedef struct rmq_field:
        rmq_text name, value
    ctypedef struct rmq_frame:
        const unsigned char *start
        const unsigned char *body
        int32_t size, body_size, serialize, code, flag, opaque, version, fields
        rmq_field *field
    bint rmq_text_is(rmq_text t, const char *name, size_t size)

    ctypedef struct rmq_send:
        rmq_text group, topic, default_topic, properties
        int64_t born_timestamp
        int32_t default_queues, queue_id, sys_flag, flag, reconsume_times
        int batch
    int rmq_send_decode(const rmq_frame *f, rmq_send *out)

    ctypedef struct rmq_pull:
        rmq_text group, topic, subscription, expression_type
        int64_t offset, commit_offset, suspend_ms, sub_version
        int32_t queue_id, count_max, bytes_max, sys_flag
    int rmq_pull_decode(const rmq_frame *f, rmq_pull *out)

    ctypedef struct rmq_offset:
        rmq_text group, topic
        int64_t offset
        int32_t queue_id
    int rmq_offset_decode(const rmq_frame *f, rmq_offset *out)

    ctypedef struct rmq_answer:
        unsigned char *at
    void rmq_answer_begin(rmq_answer *a, unsigned char *at, int32_t serialize, int32_t code, int32_t opaque, int32_t version,
                          const char *remark)
    void rmq_answer_text(rmq_answer *a, const char *name, const char *value, int32_t size)
    void rmq_answer_integer(rmq_answer *a, const char *name, int64_t value)
    int32_t rmq_answer_end(rmq_answer *a, int32_t body_size)


cdef extern from "rmq_sha1.h" nogil:
    enum: RMQ_SHA1_SIZE, RMQ_SHA1_BASE64
    ctypedef struct rmq_sha1:
        pass
    ctypedef struct rmq_hmac_key:
        pass
    bint rmq_sha1_fast()
    void rmq_sha1_add(rmq_sha1 *s, const void *data, size_t n)
    void rmq_hmac_key_make(rmq_hmac_key *key, const void *secret, size_t n, int fast)
    void rmq_hmac_begin(rmq_sha1 *s, const rmq_hmac_key *key)
    void rmq_hmac_end(rmq_sha1 *s, const rmq_hmac_key *key, unsigned char *out)
    void rmq_sha1_base64(const unsigned char *digest, char *out)
    bint rmq_bytes_same(const void *a, const void *b, size_t n)


cdef extern from "rmq_net.h" nogil:
    enum: RMQ_NET_FDS, RMQ_NET_LISTENERS, RMQ_NET_PARTS
    struct iovec:
        void *iov_base
        size_t iov_len
    ctypedef struct in_addr:
        pass
    ctypedef struct sockaddr_in:
        unsigned short sin_port
        in_addr sin_addr
    ctypedef struct sockaddr_in6:
        unsigned short sin6_port
        in_addr sin6_addr
    ctypedef struct sockaddr:
        unsigned short sa_family
    ctypedef union rmq_address:
        sockaddr any
        sockaddr_in v4
        sockaddr_in6 v6
    ctypedef struct rmq_net:
        pass
    ctypedef struct rmq_connection:
        pass
    ctypedef enum rmq_done:
        RMQ_DONE, RMQ_PASS, RMQ_LATER, RMQ_BAD
    ctypedef struct rmq_service:
        void *ctx
        rmq_done (*request)(void *ctx, rmq_connection *c, const rmq_frame *f) noexcept nogil
        void (*begin)(void *ctx) noexcept nogil
        void (*turn)(void *ctx) noexcept nogil
        void (*woken)(void *ctx, int which) noexcept nogil
        void (*tick)(void *ctx) noexcept nogil
        void (*closed)(void *ctx, rmq_connection *c) noexcept nogil
        int (*more)(void *ctx) noexcept nogil
        void (*taken)(void *ctx, rmq_connection *c) noexcept nogil
        void (*ending)(void *ctx) noexcept nogil
        int fds[2]
        const int64_t *message_most
    ctypedef struct rmq_net_limits:
        int64_t connections, buffered, waiting, unread, unread_most, unread_all, passed, passed_bytes, passed_of_one, idle_ns
    ctypedef struct rmq_net_counts:
        int64_t accepted, refused, requests, passed, bad, bytes_in, bytes_out, connections, stalls
    int rmq_net_new(const rmq_net_limits *limits, rmq_net **out)
    int rmq_net_use(rmq_net *net, const rmq_service *service)
    int rmq_net_listen(rmq_net *net, int listener)
    enum: RMQ_TLS_OFF, RMQ_TLS_TOO, RMQ_TLS_ONLY
    void rmq_net_tls(rmq_net *net, int mode)
    int rmq_net_start(rmq_net *net)
    void rmq_net_stop(rmq_net *net)
    void rmq_net_free(rmq_net *net)
    void rmq_net_child(rmq_net *net)
    const rmq_net_counts *rmq_net_counts_of(const rmq_net *net)

    enum: RMQ_OPENED, RMQ_FRAME, RMQ_CLOSED, RMQ_TLS, RMQ_ASKED, RMQ_REFUSED, RMQ_HTTP2, RMQ_TLS_UNASKED
    ctypedef struct rmq_lane:
        pass
    ctypedef struct rmq_item:
        rmq_lane *lane
        uint64_t connection
        int64_t came_ns
        int32_t kind, size
        unsigned char *data
    ctypedef struct rmq_opened:
        rmq_address peer, local
        int listener
    ctypedef struct rmq_given:
        rmq_opened from_ "from"
        int fd
    int rmq_net_adopt(rmq_net *net, int fd, const rmq_opened *from_)
    void rmq_item_free(rmq_item *item)
    rmq_item *rmq_net_take(rmq_net *net, int64_t timeout_ns)
    void rmq_net_served(rmq_net *net, rmq_lane *lane)
    int rmq_lane_gone(const rmq_lane *lane)
    bint rmq_net_stopped(const rmq_net *net)
    int rmq_net_send(rmq_net *net, uint64_t connection, const void *data, size_t n)
    int rmq_net_drop(rmq_net *net, uint64_t connection)
    void rmq_net_wake(rmq_net *net)

    rmq_connection *rmq_net_find(rmq_net *net, uint64_t connection)
    int64_t rmq_net_now(const rmq_net *net)
    uint64_t rmq_connection_id(const rmq_connection *c)
    const rmq_address *rmq_connection_peer(const rmq_connection *c)
    void **rmq_connection_own(rmq_connection *c)
    int rmq_connection_pass(rmq_connection *c, const void *frame, int32_t size)
    int rmq_net_ask(rmq_net *net)
    bint rmq_connection_settled(const rmq_connection *c)
    int rmq_connection_listener(const rmq_connection *c)
    int64_t rmq_connection_waited(const rmq_connection *c)
    bint rmq_connection_asked(const rmq_connection *c)
    bint rmq_connection_slow(const rmq_connection *c)
    unsigned char *rmq_connection_room(rmq_connection *c, size_t n)
    void rmq_connection_filled(rmq_connection *c, size_t n)
    void rmq_connection_parts(rmq_connection *c, iovec *parts, int count)
