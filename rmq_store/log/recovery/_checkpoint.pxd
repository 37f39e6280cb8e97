# The checkpoint file and the thread that keeps it (RocketMQ: StoreCheckpoint, FlushConsumeQueueService).
#
# Data first, then the checkpoint: log, queues and index are on the device before a time that covers them is written. The thread
# also watches the put lock, so that the put path pays nothing for the warning about locks held too long.
from libc.stdint cimport int64_t

from rmq_store.base.io._io cimport rmq_io
from rmq_store.base.io._sync cimport pthread_t, rmq_event
from rmq_store.log.dispatch._dispatch cimport Dispatcher

cdef struct CheckpointTimes:
    int64_t physical                # newest message known flushed in the log
    int64_t logics                  # newest message whose queue entry is on the device
    int64_t index                   # end time of the newest full index file on the device
    int64_t master_flushed          # 5.x
    int64_t confirm                 # 5.x
    int64_t flushed                 # ours, in what RocketMQ leaves empty: the log is on the device up to here

cdef struct Checkpointer:
    const rmq_io *io
    Dispatcher *d
    CheckpointTimes times
    bint final                      # a sync failed; else what failed is done with the next look
    int64_t flushed_ns              # when `flushed` was written without the rest
    int fd
    int64_t interval_ns             # of syncing queues with enough dirty pages
    int64_t interval_max_ns         # of syncing everything and writing the checkpoint
    int64_t pages_min
    int error
    pthread_t thread
    rmq_event wanted
    bint running
    int stop

# Writes and syncs; *synced: it came to the sync, whose error is final. 0 or -errno.
cdef int checkpoint_write(const rmq_io *io, int fd, const CheckpointTimes *times, bint *synced) noexcept nogil
# Syncs queues and index, then writes the checkpoint. The log must be flushed by the caller where that is wanted. 0 or -errno.
cdef int checkpoint_now(Checkpointer *c) noexcept nogil
cdef Checkpointer *checkpointer_new(Dispatcher *d, int fd) noexcept nogil
cdef int checkpointer_start(Checkpointer *c) noexcept nogil
cdef int checkpointer_stop(Checkpointer *c) noexcept nogil
