# The bounded cache of descriptors all queues of a store share: a file is opened when it is needed and stays open while there is
# room; at most `capacity` descriptors are open at any moment, whatever the number of queues. Any thread.
from libc.stdint cimport int64_t

from rmq_store.base.io._io cimport rmq_io
from rmq_store.base.io._sync cimport rmq_event, rmq_mutex
from rmq_store.queues.consumequeue._spares cimport FILES_PATH_SIZE, Spares

cdef struct UnitFiles:
    Spares *spares                  # where the next file may lie ready; NULL: it is made when it is needed
    char *dir                       # <base>/<topic>/<queue id>; owned
    int base_size                   # length of <base>
    int topic_size                  # length of <base>/<topic>
    bint legal                      # the topic may become a directory
    int64_t file_size
    int64_t first                   # byte offset of the first file (atomic)
    int64_t end                     # byte offset behind the last file; equal to first: no file (atomic)
    int64_t written                 # byte offset behind the last byte written to a file (atomic)
    int64_t synced                  # atomic: everything below is on the device; the sync thread's
    unsigned char *buffer           # follows `written`; NULL: none lent
    int used
    int new_dirs                    # NewDirs (atomic)

cdef struct Descriptor:
    UnitFiles *files
    int64_t start
    int fd
    int refs
    int next                        # in its bucket or in the list of free slots, -1: last
    int newer                       # neighbours among the unused open ones
    int older
    bint known                      # look-ups find it; else it is closed when its last user is done

cdef struct FileCache:
    const rmq_io *io
    char *new_path                  # where a file is made before it is renamed into its place
    bint readonly
    bint following                  # another process writes: what is not there may come back (_follow.pxd)
    bint base_made                  # by this process: its name may not be on the device. The dispatcher's
    int sync_failed                 # atomic: a sync failed, with this errno; not for want of a descriptor
    int base_due                    # NewDirs of the directory of all queues; the sync thread's
    int ext_due                     # the same of ConsumeQueueExt
    rmq_mutex lock                  # guards everything below
    rmq_event freed
    int waiters
    Descriptor *slots
    int *buckets
    int capacity
    int mask
    int free
    int newest
    int oldest
    int open_count
    int64_t forgotten               # counts files_drop_*: a descriptor opened meanwhile may be of a deleted file
    # Following: where a queue's files begin is said by readers and by the follower's thread. Taken before `lock`.
    rmq_mutex begins_lock


cdef FileCache *file_cache_new(const rmq_io *io, const char *tmp_dir, int capacity, bint readonly) noexcept nogil
cdef void file_cache_free(FileCache *c) noexcept nogil


# The slot of an open descriptor of the file that begins at `start`, or -errno. A thread never holds two: all may be in use,
# then it waits for one that is released.
cdef int descriptor_acquire(FileCache *c, UnitFiles *f, int64_t start) noexcept nogil
cdef void descriptor_release(FileCache *c, int i) noexcept nogil
# A slot for a file about to be made; settled with its descriptor, or with a negative number if there is none.
cdef int descriptor_reserve(FileCache *c) noexcept nogil
cdef void descriptor_settle(FileCache *c, int i, UnitFiles *f, int64_t start, int fd) noexcept nogil
cdef void descriptor_forget(FileCache *c, UnitFiles *f, int64_t start) noexcept nogil  # the file was deleted
cdef void descriptor_close(FileCache *c, UnitFiles *f, int64_t start) noexcept nogil   # nobody uses it, or is about to
# The path of the file that begins at `start`: FILES_PATH_SIZE bytes at `out`. -ENAMETOOLONG.
cdef int files_path(const UnitFiles *f, int64_t start, char *out) noexcept nogil
