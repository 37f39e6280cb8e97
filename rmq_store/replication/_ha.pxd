# The master's HA thread and the notes of both sides (native/ha/rmq_ha.h) as Cython sees them; the contracts are there.
from libc.stdint cimport int32_t, int64_t


cdef extern from "rmq_ha.h" nogil:
    enum: RMQ_HA_SLAVES, RMQ_HA_ADDRESS
    enum: RMQ_HA_FOLLOWS, RMQ_HA_LOST, RMQ_HA_PARTED, RMQ_HA_SHORT, RMQ_HA_WRONG, RMQ_HA_NO_RECORD, RMQ_HA_ROTTEN, RMQ_HA_FAILED
    enum: RMQ_HA_SELF, RMQ_HA_FILE_END
    ctypedef struct rmq_ha:
        pass
    ctypedef struct rmq_ha_log:
        void *ctx
        int64_t (*end)(void *ctx) noexcept nogil
        int64_t (*begin)(void *ctx) noexcept nogil
        int64_t (*last_file)(void *ctx) noexcept nogil
        const unsigned char *(*hold)(void *ctx, int64_t offset, int64_t *n, void **held) noexcept nogil
        void (*release)(void *ctx, void *held) noexcept nogil
        void (*acked)(void *ctx) noexcept nogil
    ctypedef struct rmq_ha_limits:
        int64_t heartbeat_ns, silence_ns, frame_bytes, behind_bytes, rate
    ctypedef struct rmq_ha_note:
        int32_t what, error
        int64_t a, b
        char *peer
    ctypedef struct rmq_ha_notes:
        pass
    void rmq_ha_say(rmq_ha_notes *n, int what, int error, int64_t a, int64_t b, const char *peer)
    int rmq_ha_heard(rmq_ha_notes *n, rmq_ha_note *out)
    ctypedef struct rmq_ha_replica:
        char *peer
        int64_t acked, lag_bytes, lag_ms, sent_bytes, connected_ms
    int rmq_ha_new(const rmq_ha_log *log, const rmq_ha_limits *limits, int listener, rmq_ha **out)
    int rmq_ha_start(rmq_ha *ha)
    void rmq_ha_stop(rmq_ha *ha)
    void rmq_ha_free(rmq_ha *ha)
    void rmq_ha_fork_lock(rmq_ha *ha)
    void rmq_ha_fork_unlock(rmq_ha *ha)
    void rmq_ha_child(rmq_ha *ha)
    void rmq_ha_wake(rmq_ha *ha)
    void rmq_ha_push(rmq_ha *ha, int waits)
    int rmq_ha_replicas(rmq_ha *ha, rmq_ha_replica *out, int most)
    rmq_ha_notes *rmq_ha_notes_of(rmq_ha *ha)
    int64_t rmq_ha_acked(const rmq_ha *ha, int acks)
    int rmq_ha_in_sync(rmq_ha *ha, int64_t end)
    bint rmq_ha_usable(rmq_ha *ha, int64_t end)
    int rmq_ha_wait(rmq_ha *ha, int64_t end, int acks, int64_t timeout_ns)
    int64_t rmq_ha_sent(const rmq_ha *ha)
