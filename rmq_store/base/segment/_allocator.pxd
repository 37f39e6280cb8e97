# Pre-allocation (RocketMQ: AllocateMappedFileService): one thread keeps the next CommitLog file ready, and the one after it
# when files fill fast; it also writes zeros ahead of the writer (segment_prezero) and brings pages ahead of it into the page
# cache: under synchronous flush (a step then writes the pages it filled, not the large folio that a fault's read-ahead makes),
# mapped as well under segment_warm. Under asynchronous flush it puts pages ahead of a stream of puts, by writes of zeros: a
# fault costs a put many times what a page costs in a large write. A store at rest is not woken, a slow one gets nothing ahead.
#
# A file becomes visible under its name only when it has its full length, its space is reserved, both on the device.
# Zeros are written only at or beyond LogFile.zeroed_to, which moves under `zero_lock`; whoever writes data beyond it first
# calls allocator_pass. So zeros can never land on data, and the put path pays one comparison.
from libc.stdint cimport int64_t

from rmq_store.base.io._io cimport rmq_io
from rmq_store.base.io._sync cimport pthread_t, rmq_event, rmq_mutex
from rmq_store.base.segment._descriptors cimport Unflushed
from rmq_store.base.segment._file cimport FileRow, LogFile
from rmq_store.base.segment._places cimport MakePlaces

cdef enum:
    PREZERO_OFF = 0
    PREZERO_WINDOW = 1
    PREZERO_FULL = 2

cdef enum:
    TOUCH_OFF = 0
    TOUCH_CACHE = 1
    TOUCH_MAP = 2
    TOUCH_STREAM = 3        # writes zeros there and maps them, while the log grows fast; not together with PREZERO_WINDOW

cdef struct Allocator:
    const rmq_io *io
    FileRow *row
    MakePlaces places           # at least one before the first file
    Unflushed unflushed         # files whose descriptors the thread closes, once they are on the device
    unsigned char *zeros        # one aligned chunk
    LogFile *ready[2]           # finished files not yet taken, ascending
    LogFile *tail               # file being written, held; where zeros and touches go
    int64_t locked_from         # no file before this offset is locked; -1: none was yet; the thread's own
    const int64_t *wrote        # how far the log is written
    const int64_t *flushes      # how often it became durable
    const int *fence            # not 0: the log takes no more puts; who raises it wakes `done`
    int64_t seen_wrote          # both as last looked at, and the bytes a flush from then on; the thread's own
    int64_t seen_flushes
    int64_t flush_bytes
    int64_t want                # start of the file asked for, going back by allocator_forget alone; -1 none
    int64_t made_ns             # when the last file was taken: two within 2 s ask for a third
    int64_t touched_to          # log offset up to which pages were touched; the thread's own
    int64_t paced_wrote         # where the log was, and when, as the thread last looked how fast it grows; the thread's own
    int64_t paced_ns
    int64_t advised             # start of the file whose faults are set for a writer; -1: of none yet; the thread's own
    bint fast                   # so fast that faults which read ahead are the cheaper ones; the thread's own
    bint loose                  # zeros went ahead of the stream, and no sync of them was waited for; the thread's own
    int64_t fast_until_ns
    bint (*also)(void *of) noexcept nogil    # what else is made ahead here; True: there was something to do. NULL: nothing
    void (*also_done)(void *of) noexcept nogil      # after the thread has ended: deletes what nobody took of it
    void *also_of
    void (*sync_failed)(void *of, int error) noexcept nogil     # a sync of the file being written failed, with -errno
    void *sync_failed_of
    pthread_t thread
    rmq_event requested
    rmq_event done
    rmq_mutex lock
    rmq_mutex zero_lock
    int error                   # atomic, changed under `lock`: why the last attempt to make `want` failed (-ENOSPC ...); 0 none
    int held                    # -errno: nothing is made now, what is freed is for somebody else; 0. Atomic, of the dispatcher
    int lock_error              # atomic: -errno of the first lock that was refused; 0 none
    int zero_error              # atomic: zeroing failed and is given up for this file. A failed write makes syncs only dearer
    int prezero
    int touch
    bint lock_pages             # new files, the file being written and no longer
    bint direct                 # new files are opened for direct I/O as well
    bint running
    bint making                 # under `lock`: the thread makes a file
    int stop

cdef Allocator *allocator_new(const rmq_io *io, FileRow *row, int prezero, int touch, bint lock_pages) noexcept nogil
# sync_failed is set before.
cdef int allocator_start(Allocator *a) noexcept nogil
# Stops the thread, syncs its zeros unless the log has failed, and deletes files nobody took. 0 or the first -errno; of that
# sync it is told by sync_failed.
cdef int allocator_stop(Allocator *a) noexcept nogil
cdef void allocator_free(Allocator *a) noexcept nogil
# Makes one file now, in the caller's thread: tmp, reserve, sync, rename, sync of the directory, map. NULL: *error.
cdef LogFile *allocator_make(Allocator *a, int64_t start, int *error) noexcept nogil
cdef void allocator_request(Allocator *a, int64_t start) noexcept nogil     # no wait; an earlier failure is tried again
cdef LogFile *allocator_take(Allocator *a, int64_t start) noexcept nogil    # no wait; the caller gets the hold; NULL: not ready
# A log without a file is to begin somewhere else: nothing is wanted any more, and files that nobody took are deleted. -EAGAIN:
# one is being made, ask again; or another -errno.
cdef int allocator_forget(Allocator *a) noexcept nogil
# Waits until the file is ready, or the log has failed (0), its making failed (-errno) or the time is over (-ETIMEDOUT).
cdef int allocator_wait(Allocator *a, int64_t start, int64_t timeout_ns) noexcept nogil
cdef void allocator_follow(Allocator *a, LogFile *tail) noexcept nogil      # the log now writes this file
cdef void allocator_pass(Allocator *a, LogFile *f, int64_t position) noexcept nogil   # data will be written up to `position`
# At open, asks for the file at `start` and waits for what the first puts are to find: zeros ahead of the writer, unless no more
# are to come; with lock_pages also that file, and whether it could be locked. Bounded.
cdef void allocator_settle(Allocator *a, int64_t start, int64_t timeout_ns) noexcept nogil
