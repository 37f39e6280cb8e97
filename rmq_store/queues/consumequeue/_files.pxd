# The files of one queue, written by pwrite and read by pread.
#
# Entries and ext units are both kept in a `UnitFiles` (_descriptors.pxd): a row of sparse files of one size without gaps,
# named by the byte offset of their first byte, and a buffer of bytes not yet written.
#
# Threads: files_read from any; files_sync and files_sync_dirs from the one that syncs; everything else from the dispatcher's
# (or recovery's, before it starts). All functions return 0 (or a count) or -errno.
from libc.stdint cimport int64_t

from rmq_store.queues.consumequeue._descriptors cimport FileCache, UnitFiles

cdef enum:
    BUFFER_SIZE = 4080              # 204 entries

cdef enum NewDirs:
    # Directories with an entry that is not known to be on the device.
    NEW_IN_QUEUE = 1
    NEW_IN_TOPIC = 2
    NEW_IN_BASE = 4
    NEW_IN_PARENT = 8               # of the base

# `f` is zeroed memory. base: the directory of all queues.
cdef int files_init(UnitFiles *f, const char *base, const char *topic, int topic_size, int queue_id,
                    int64_t file_size) noexcept nogil
# The same, its directory's name at `dir`: n + topic_size + 14 bytes, n: the length of base. Without files_done.
cdef void files_init_at(UnitFiles *f, char *dir, const char *base, const char *topic, int topic_size, int queue_id,
                        int64_t file_size) noexcept nogil
cdef void files_done(UnitFiles *f) noexcept nogil
cdef int files_add(UnitFiles *f, int64_t start) noexcept nogil          # an existing file; -EINVAL: leaves a gap

# Up to n bytes at `offset`, never across the end of a file.
cdef int64_t files_read(FileCache *c, UnitFiles *f, void *to, int64_t n, int64_t offset) noexcept nogil
# Following: files that the writer has deleted, oldest first, are passed over, unless all are gone. removed: what the queue's
# `removed_below` was before the look that missed a file. It is another now: the queue has begun anew, and nothing is passed.
cdef void files_pass_gone(FileCache *c, UnitFiles *f, const int64_t *removed_below, int64_t removed) noexcept nogil
# Whether the file that begins there is there, by its name: an open descriptor may be of a deleted one. 1, 0 or -errno.
cdef int files_there(FileCache *c, UnitFiles *f, int64_t start) noexcept nogil
# Where the first file begins that is there from `begin` on, by the names in its directory. -ENOENT: none; -errno.
cdef int64_t files_lowest(FileCache *c, const UnitFiles *f, int64_t begin) noexcept nogil
# The writer, another process, has deleted the files that begin before `to`: the queue begins there.
cdef void files_passed(FileCache *c, UnitFiles *f, int64_t to) noexcept nogil
# Where the file that holds `offset` may have data, at or beyond it; the file's end where only a hole follows.
cdef int64_t files_next_data(FileCache *c, UnitFiles *f, int64_t offset) noexcept nogil
cdef int files_flush(FileCache *c, UnitFiles *f) noexcept nogil         # writes the buffer; on failure it is kept
cdef int files_grow(FileCache *c, UnitFiles *f) noexcept nogil          # makes the next file, at f.end
cdef int files_sync(FileCache *c, UnitFiles *f, int64_t to) noexcept nogil      # every file with bytes in [synced, to)
cdef int files_sync_dirs(FileCache *c, UnitFiles *f, int dirs) noexcept nogil   # NewDirs
# Notes what the sync of a directory said, and returns it: unless it did not come to the sync, a failure is final for the table.
cdef int files_dir_synced(FileCache *c, int rc) noexcept nogil
cdef int files_sync_base(FileCache *c, const char *base, int dirs) noexcept nogil   # those of them that many queues share
cdef int64_t files_modified_ms(FileCache *c, UnitFiles *f, int64_t start) noexcept nogil

# Makes `end` the end of the data: deletes later files, newest first, syncs, then zeroes what lies behind it in its file, whole
# units, from the end on (unit_size 0: it is left). Where end == first the first file is kept, empty, or with keep_first False
# deleted too. Crash-safe, and safe for who reads in another process: the data only gets shorter.
cdef int files_cut(FileCache *c, UnitFiles *f, int64_t end, int64_t unit_size, bint keep_first) noexcept nogil
cdef int files_drop_first(FileCache *c, UnitFiles *f) noexcept nogil    # deletes the first file; not the last one
cdef int files_remove_dirs(FileCache *c, UnitFiles *f) noexcept nogil   # the queue's directory, if it is empty
