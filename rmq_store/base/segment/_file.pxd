# One CommitLog file and the row of them. A file is mapped whole, on first use at the latest, and unmapped when its last hold
# is gone: the row holds it once, the appender, the dispatcher and every lease hold it while they look at it. Any thread. A file
# has a map or a descriptor: one that is mapped and on the device needs none (_descriptors.pxd).
from libc.stdint cimport int64_t

from rmq_store.base.io._io cimport rmq_guard_touch, rmq_identity, rmq_io, rmq_lost, rmq_lost_in
from rmq_store.base.io._sync cimport rmq_mutex


cdef struct LogFile:
    const rmq_io *io
    unsigned char *map      # NULL until log_file_map, which any reader may be the first to call
    char *path
    int64_t start           # log offset of its first byte: its name
    int64_t size
    int64_t data_end        # log offset behind its last written byte once it is closed with a blank record; -1 before
    # Who writes data beyond this position calls allocator_pass first: the allocator writes zeros from there on, or has to hear
    # that the log goes on (TOUCH_STREAM).
    int64_t zeroed_to
    rmq_identity identity   # which file that is, for who opens it by its path once more
    int fd                  # -1: none; of who writes and syncs the file, and of nobody else
    int direct_fd           # opened with O_DIRECT; -1: none. As `fd`
    int unsynced            # 1: something was written that no sync has covered yet (io_uring back end only)
    int refs
    int used                # atomic: 2: a reader has found it since the last row_release, 1: not since then, 0: released
    bint writable
    bint locked             # in memory; the allocator's thread only
    int forked              # atomic: a child of fork may have it mapped, as only this process knows
    bint copied             # no file: a record that was copied out of the pool; `map` is heap memory
    bint absent             # no file: its place in the row of a log whose directory is gone (readers alone)
    int guard               # guard_maps: the map's number in the guard's table; 0: not guarded
    rmq_lost lost           # what of a guarded map is gone


cdef struct FileRow:
    const rmq_io *io
    LogFile **files
    char *dir               # dirs[0]
    char **dirs             # every directory that has files of this log
    int dir_count
    int64_t file_size
    int64_t count
    int64_t capacity
    rmq_mutex lock
    bint writable
    bint guarded            # files that are mapped from now on are guarded


cdef char *text_copy(const char *text) noexcept nogil
cdef char *path_join(const char *dir, const char *name) noexcept nogil
cdef void offset_name(int64_t start, char *out) noexcept nogil          # 20 digits and a NUL

# Opens an existing file of the right size; of what cannot be written, for reading. NULL: *error is -errno.
cdef LogFile *log_file_open(const rmq_io *io, const char *dir, int64_t start, int64_t size, bint writable,
                            int *error) noexcept nogil
# Opens the existing file of the row's size at `start`, in whichever of its directories it lies. NULL: *error is -errno.
cdef LogFile *row_open(FileRow *row, int64_t start, int *error) noexcept nogil
# Takes over an open descriptor. NULL: out of memory, the descriptor is still the caller's.
cdef LogFile *log_file_adopt(const rmq_io *io, const char *dir, int64_t start, int64_t size, int fd,
                             bint writable) noexcept nogil
# A descriptor of the file for the caller, who closes it: by its path; -ESTALE where that is another file's by now. Any thread.
cdef int log_file_open_again(const LogFile *f, bint writable) noexcept nogil
# Opens the same file once more, for direct I/O: 0 or -errno.
cdef int log_file_open_direct(LogFile *f) noexcept nogil
# Makes what happened to its name durable: 0 or -errno.
cdef int log_file_sync_dir(const LogFile *f) noexcept nogil
# Writes zeros over a whole new file, `chunk` bytes of them at once; `fd` is open for writing. 0 or -errno.
cdef int log_file_zero(const rmq_io *io, const char *path, int fd, int64_t size, const unsigned char *zeros,
                       int64_t chunk) noexcept nogil
# Memory that looks like a file of `size` bytes at log offset `start`, for readers. NULL: out of memory.
cdef LogFile *log_file_copied(const rmq_io *io, int64_t start, int64_t size) noexcept nogil
cdef void log_file_hold(LogFile *f) noexcept nogil
cdef void log_file_release(LogFile *f) noexcept nogil
# Reserves the space of a file that is mapped. written: on any file system, as a store into a hole takes space; else only where
# a read does so too (in memory). A file that has its space costs two calls. 0 or -errno.
cdef int file_reserve(const rmq_io *io, int fd, int64_t size, bint written) noexcept nogil
cdef int log_file_map(FileRow *row, LogFile *f) noexcept nogil          # 0 or -errno
# Whether faults of its map from log offset `offset` on read ahead, or bring one page each.
cdef void log_file_faults(LogFile *f, int64_t offset, bint ahead) noexcept nogil
cdef void log_file_unguard(LogFile *f) noexcept nogil                   # before whoever unmaps it

cdef FileRow *row_new(const rmq_io *io, const char *dir, int64_t file_size, bint writable) noexcept nogil
cdef int row_add_dir(FileRow *row, const char *dir) noexcept nogil      # one more directory, before any file: 0 or -ENOMEM
cdef void row_free(FileRow *row) noexcept nogil                         # drops the row's holds
# Places without a file up to log offset `end`, for readers: what lies there is gone, and row_find finds nothing. 0 or -errno.
cdef int row_leave_out(FileRow *row, int64_t end) noexcept nogil
# True where `offset` lies in such a place.
cdef bint row_absent(FileRow *row, int64_t offset) noexcept nogil
cdef int row_push(FileRow *row, LogFile *f) noexcept nogil              # takes over one hold; -EINVAL: not contiguous
# Room for `more` files: that many row_push cannot fail for want of memory. 0 or -ENOMEM.
cdef int row_reserve(FileRow *row, int64_t more) noexcept nogil
cdef LogFile *row_pop(FileRow *row) noexcept nogil                      # hands the last file's hold over; NULL: empty
cdef LogFile *row_shift(FileRow *row) noexcept nogil                    # the same for the first file
# The mapped file that holds `offset`, held for the caller; NULL: outside the row (*error 0) or not mappable (*error -errno).
cdef LogFile *row_find(FileRow *row, int64_t offset, int *error) noexcept nogil
# Gives back the memory of files that end at or before log offset `before`, without the last `reserve` ones, and that nobody has
# found in the row since the call before. Their maps stay, and so do views of them. How many, or -errno.
cdef int64_t row_release(FileRow *row, int64_t before, int64_t reserve) noexcept nogil
cdef int row_guard(FileRow *row) noexcept nogil                         # guards every map of the row: 0 or -errno
cdef int64_t row_count(FileRow *row) noexcept nogil
cdef int64_t row_start(FileRow *row) noexcept nogil                     # -1: no file
cdef int64_t row_end(FileRow *row) noexcept nogil                       # end of the last file; 0: no file


# True if the record at log offset `offset`, of which `size` bytes are looked at next, cannot be believed: a part of it is gone.
# size 0: it could not be parsed, for which anything that is gone behind its start may be the reason.
cdef inline bint log_file_lost(LogFile *f, int64_t offset, int64_t size) noexcept nogil:
    if f.guard == 0:
        return False
    if size > 0:
        rmq_guard_touch(f.map + (offset - f.start), size)
    return rmq_lost_in(&f.lost, offset - f.start, offset - f.start + size if size > 0 else f.size)
