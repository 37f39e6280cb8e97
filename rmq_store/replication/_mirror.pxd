# Applying what a master sends: bytes of its log become whole records at the end of this one. Owner: the slave's thread.
from libc.stdint cimport int32_t, int64_t

from rmq_store.base.io._sync cimport pthread_t, rmq_mutex
from rmq_store.log.commitlog._log cimport Log
from rmq_store.log.dispatch._dispatch cimport Dispatcher
from rmq_store.replication._ha cimport RMQ_HA_ADDRESS, rmq_ha_notes


cdef extern from "rmq_ha_socket.h" nogil:
    ctypedef struct rmq_ha_peer:
        int fd
        rmq_mutex fork_lock
    int rmq_ha_connect(rmq_ha_peer *p, const char *host, const char *port, int wake, int64_t timeout_ms)
    int rmq_ha_leads_to(rmq_ha_peer *p, const char *ip, int port)
    void rmq_ha_shut(rmq_ha_peer *p)
    void rmq_ha_leave(rmq_ha_peer *p)
    int64_t rmq_ha_receive(int fd, void *to, size_t n, int wake, int64_t timeout_ms)
    int rmq_ha_more(int fd)
    int rmq_ha_send(int fd, const void *at, size_t n)
    int rmq_ha_pause(int wake, int64_t timeout_ms)
    int rmq_ha_wake_new()
    void rmq_ha_wake_signal(int wake)
    void rmq_ha_close(int fd)


cdef enum State:
    STATE_WAITS = 0             # for a connection
    STATE_COMPARES = 1
    STATE_FOLLOWS = 2
    STATE_REFUSED = 3           # the logs differ
    STATE_STALLED = 4           # what comes cannot be stored now, and is tried again
    STATE_FAILED = 5            # the store has failed: nothing more is stored


cdef struct Mirror:
    Log *log
    Dispatcher *dispatcher
    char[256] host
    char[8] port
    char[RMQ_HA_ADDRESS] peer
    char[RMQ_HA_ADDRESS] own_ip     # where this store listens for slaves itself
    int own_port                    # 0: nowhere
    int64_t heartbeat_ms, silence_ms, record_max
    bint sync_mode
    bint check_crc, crc_required        # as recovery: recover_check_crc, record_crc_required
    # Before something that may take long: reports what is not acknowledged yet. 0; -1: the connection ends.
    int (*acknowledge)(Mirror *m) noexcept nogil
    # Meanwhile: pauses, and reports if that is due. 0; -1: the connection ends.
    int (*beat)(Mirror *m, int64_t pause_ms) noexcept nogil
    rmq_ha_peer peer_socket
    int wake, stop
    int compared                # atomic: the logs agree, as far as both go, in this connection
    # Atomic. While told is less than asked, nothing is added to the log: service.py has something to do first. asked: 1 is the
    # mark of the directory, and the master's topics; each further one the entry of `topic` in config/topics.json.
    int64_t asked, told
    int64_t undone              # atomic: what was asked, and could not be done when it was tried last; the slave is stalled
    char[256] topic             # NUL-terminated; still while told is less than asked
    pthread_t thread
    bint running
    int64_t overlap             # bytes of the own log that the next connection begins with
    # ---- one connection
    int64_t frame_at, frame_left    # log offset of the next byte of the frame, and how many are still to come
    int64_t received            # log offset of the next byte to come
    int64_t reported_ns, reported_at
    int64_t owed                # bytes that came since
    int64_t heard_ns
    # What came: [from_, to) are bytes of the log that are not in the file yet, from its end on, or in a filler from its next
    # byte on; [raw, end) are frames behind them. One write takes many frames: a write of 4 KiB costs much of one of 256 KiB.
    unsigned char *input
    int64_t room
    int64_t from_, to, raw, end
    unsigned char[8] blank      # an end-of-file record, until the bytes behind it are there
    int64_t filler_from         # log offset from which on the own log has filler, which is not compared; -1: nowhere
    int64_t filler_left         # bytes behind an end-of-file record that are still to come
    bint appended               # records that readers and the dispatcher are not told of yet
    # ---- told
    int state                   # atomic, a State
    int64_t master_end          # atomic: as far as the master is known to have its log; -1: not known
    int64_t received_bytes      # rmq_count
    int last_what               # of the last refusal, so that it is said once
    int64_t last_a, last_b
    rmq_ha_notes notes

# Where a connection begins to compare: at most `bytes` of records before the end, within one file, and in *filler_from where
# the own log has filler behind them; 0: the log has nothing. -errno.
cdef int64_t mirror_begin(Mirror *m, int64_t bytes, int64_t *filler_from) noexcept nogil
# Notes why this connection ends, once for each place. Returns -1.
cdef int mirror_refuse(Mirror *m, int what, int error, int64_t a, int64_t b) noexcept nogil
# The next n bytes of [raw, end) are of the log, from m.received on: compared where they are here already, else kept. 0; -1:
# noted.
cdef int mirror_take(Mirror *m, int64_t n) noexcept nogil
# Of what is kept, appends the whole records, and the end of a file. 0; -1: noted, and what was good before it is appended.
cdef int mirror_append(Mirror *m) noexcept nogil
# Waits until service.py has done what it was asked to. 0; -1: the connection ends.
cdef int mirror_wait(Mirror *m) noexcept nogil
# Makes room for what is to come. 0; -1: noted.
cdef int mirror_room(Mirror *m) noexcept nogil
# Tells who reads and who dispatches of what was appended. Behind the report: a queue file may take long, and nobody who waits
# for this slave waits for its queues.
cdef void mirror_tell(Mirror *m) noexcept nogil
# The positions of the log, under the put lock; timestamp 0: no record came.
cdef void mirror_publish(Log *log, int64_t end, int64_t timestamp) noexcept nogil
