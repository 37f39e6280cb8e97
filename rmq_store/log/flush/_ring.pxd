# The flush back end "io_uring": commit by a ring that belongs to one thread, several writes in flight, O_DIRECT where it can.
#
# Which thread writes: the ring's thread holds Log.commit_lock from its first write until none is in flight. A caller that must
# commit (a synchronous put that leads, close, flush()) writes in its own thread if the lock is free, without a hand-over; else
# it leaves its goal and waits for the ring. `committed` moves over the contiguous complete prefix only.
# What a sync must cover: a write without RWF_DSYNC sets LogFile.unsynced when it has ended, before `committed` passes it; who
# syncs (sync_lock) takes the mark first, then syncs. So a mark stays for what was under way when the sync began. (Set when a
# write begins, it would be taken by a sync that does not cover it, and nobody would make the one that does.)
# Direct: writes are whole blocks; the block of the log's end is written from a zero-padded copy and again until it is full, and
# never twice at a time. The log's bytes stay in the pool from that block on (Log.reusable).
# Synchronous flush: the ring's thread holds Log.sync_lock as well and makes one durable step of what nobody waits for: a write
# linked to its fdatasync, or one RWF_DSYNC write.
# A write that lacks something (rmq_want.h) is no failure, unless it was to sync as well: what is in flight comes back first,
# the ring begins again at `committed`, and its thread tries again after RMQ_WANT_RETRY_NS.
from libc.stdint cimport int64_t

from rmq_store.base.io._io cimport rmq_io
from rmq_store.base.io._sync cimport pthread_t, rmq_event
from rmq_store.base.segment._file cimport LogFile
from rmq_store.log.commitlog._log cimport Log


cdef extern from "rmq_ring.h" nogil:
    enum: RMQ_RING_SQPOLL, RMQ_RING_IOPOLL, RMQ_RING_SLOTS, RMQ_RING_BLOCK
    ctypedef struct rmq_ring:
        pass
    ctypedef struct rmq_ring_facts:
        unsigned depth
        unsigned setup_flags
        unsigned features
        int buffers_error
        int files_error
        int64_t writes
        int64_t syncs
        int64_t again
        int64_t submits
    ctypedef struct rmq_flight:
        int64_t end
        void *owner
    int rmq_ring_new(const rmq_io *io, unsigned depth, unsigned wishes, unsigned entries, rmq_ring **out)
    int rmq_ring_enable(rmq_ring *r)
    void rmq_ring_pool(rmq_ring *r, void *base, size_t size, void *second, size_t second_size)
    void rmq_ring_free(rmq_ring *r)
    const rmq_ring_facts *rmq_ring_facts_of(const rmq_ring *r)
    int rmq_ring_file(rmq_ring *r, int slot, int fd)
    unsigned rmq_ring_room(const rmq_ring *r)
    unsigned rmq_ring_count(const rmq_ring *r)
    rmq_flight *rmq_ring_newest(rmq_ring *r)
    void rmq_ring_write(rmq_ring *r, int slot, int fd, const void *src, size_t n, int64_t offset, int64_t end, void *owner,
                        int durable, int link)
    void rmq_ring_sync(rmq_ring *r, int slot, int fd, int64_t end, void *owner)
    int rmq_ring_turn(rmq_ring *r, unsigned wait, int *in_sync)
    int rmq_ring_take(rmq_ring *r, rmq_flight *out)
    unsigned rmq_ring_drain(rmq_ring *r)
    int rmq_ring_abandon(rmq_ring *r, rmq_flight *out)
    int rmq_ring_again(rmq_ring *r)
    int rmq_ring_look(const rmq_io *io, unsigned wishes, void *memory, size_t size, rmq_ring_facts *out)
    int rmq_ring_try(const rmq_io *io, unsigned wishes, void *memory, size_t size, int fd, int durable, int *synced)
    int rmq_pwrite_blocks(const rmq_io *io, int fd, const void *src, size_t n, int64_t offset, size_t block, int durable)


cdef struct RingWriter:
    # ---- fixed after ring_writer_new
    Log *log
    rmq_ring *ring
    unsigned char *bounce       # copies of what is not whole blocks; under commit_lock
    int64_t block               # RMQ_RING_BLOCK direct, 1 buffered
    bint direct
    int64_t piece               # the longest write
    bint durable                # small steps are one RWF_DSYNC write instead of write and fdatasync
    bint polled                 # IORING_SETUP_IOPOLL: its ring takes no syncs
    bint sync_mode              # set when it starts
    # ---- under commit_lock
    int64_t submitted           # log position up to which writes have begun
    int64_t bounce_end          # `end` of the flight that is in the bounce buffer; -1 none
    int64_t slot_file[2]        # RMQ_RING_SLOTS: start of the file registered there; -1 none
    # ---- any thread
    int64_t goal                # somebody waits until `committed` is there
    int started                 # 1: the ring's thread runs; -errno: it could not
    int stop
    rmq_event started_event
    pthread_t thread
    bint running

# Takes memory and a ring, registers what it may; opens nothing, and makes it the log's back end. NULL: *error. The log must
# have a pool.
cdef RingWriter *ring_writer_new(Log *log, bint direct, bint durable, int64_t request, unsigned depth, unsigned wishes,
                                 int *error) noexcept nogil
cdef inline const rmq_ring_facts *ring_writer_facts(const RingWriter *w) noexcept nogil:
    return rmq_ring_facts_of(w.ring)
