"""Rows of queue files (RocketMQ: MappedFileQueue, without maps). Contract in _files.pxd."""
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, strlen

from rmq_store.base.io._io cimport rmq_io, rmq_pread_all, rmq_pwrite_all
from rmq_store.base.io._sync cimport (EEXIST, EINVAL, EIO, ENOENT, ENOMEM, EROFS, rmq_load, rmq_load32, rmq_mutex_lock,
                                      rmq_mutex_unlock, rmq_publish, rmq_publish32, rmq_swap32)
from rmq_store.base.io._want cimport rmq_is_want_of_open
from rmq_store.codec._record cimport topic_fits
from rmq_store.queues.consumequeue._descriptors cimport (FILES_PATH_SIZE, FileCache, UnitFiles, descriptor_acquire,
                                                         descriptor_forget, descriptor_release, descriptor_reserve,
                                                         descriptor_settle, files_path)
from rmq_store.queues.consumequeue._spares cimport spares_take, spares_wish, spares_wish_first


cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    """
    enum: O_RDONLY, O_RDWR, O_CREAT, O_TRUNC, O_NOFOLLOW, O_DIRECTORY, ENAMETOOLONG, ENOTEMPTY

cdef extern from "rmq_queue_dirs.h" nogil:
    int64_t rmq_queue_dir_lowest(int fd, int64_t begin, int64_t file_size)

cdef enum:
    SCAN_SIZE = 65536
    PAGE_SIZE = 4096
    UNIT_DECIDES = 12               # behind the size of an entry's record


cdef int files_init(UnitFiles *f, const char *base, const char *topic, int topic_size, int queue_id,
                    int64_t file_size) noexcept nogil:
    cdef char *dir = <char *> malloc(strlen(base) + topic_size + 14)
    if dir == NULL:
        return -ENOMEM
    files_init_at(f, dir, base, topic, topic_size, queue_id, file_size)
    return 0


cdef void files_init_at(UnitFiles *f, char *dir, const char *base, const char *topic, int topic_size, int queue_id,
                        int64_t file_size) noexcept nogil:
    cdef int n = <int> strlen(base)
    f.file_size = file_size
    f.base_size = n
    f.topic_size = n + 1 + topic_size
    f.legal = topic_fits(topic, topic_size) and queue_id >= 0
    f.dir = dir
    memcpy(f.dir, base, n)
    f.dir[n] = c"/"
    memcpy(f.dir + n + 1, topic, topic_size)
    snprintf(f.dir + f.topic_size, 13, b"/%d", queue_id)


cdef void files_done(UnitFiles *f) noexcept nogil:
    free(f.dir)
    f.dir = NULL


cdef int files_add(UnitFiles *f, int64_t start) noexcept nogil:
    if start < 0 or start % f.file_size != 0 or (f.end != f.first and start != f.end):
        return -EINVAL
    if f.end == f.first:
        rmq_publish(&f.first, start)
    rmq_publish(&f.end, start + f.file_size)
    return 0


cdef int64_t files_read(FileCache *c, UnitFiles *f, void *to, int64_t n, int64_t offset) noexcept nogil:
    cdef int64_t position = offset % f.file_size
    cdef int64_t got
    cdef int i
    if offset < rmq_load(&f.first) or offset >= rmq_load(&f.end):
        return 0
    if n > f.file_size - position:
        n = f.file_size - position
    i = descriptor_acquire(c, f, offset - position)
    if i == -ENOENT and c.readonly and not c.following:     # the writer has deleted it, and so all before it
        files_passed(c, f, offset - position + f.file_size)
        return 0
    if i < 0:
        return i
    got = rmq_pread_all(c.io, c.slots[i].fd, to, n, position)
    descriptor_release(c, i)
    return got


cdef void files_pass_gone(FileCache *c, UnitFiles *f, const int64_t *removed_below, int64_t removed) noexcept nogil:
    cdef int64_t first = rmq_load(&f.first), start = first
    while start < rmq_load(&f.end) and files_there(c, f, start) == 0:
        start += f.file_size
    if start >= rmq_load(&f.end) or start == first:
        return
    rmq_mutex_lock(&c.begins_lock)
    if rmq_load(removed_below) == removed and rmq_load(&f.first) == first:
        rmq_publish(&f.first, start)
    rmq_mutex_unlock(&c.begins_lock)
    _forget(c, f, first, start)


cdef int files_there(FileCache *c, UnitFiles *f, int64_t start) noexcept nogil:
    # By its name: an open descriptor may be of a deleted file.
    cdef int i
    descriptor_forget(c, f, start)
    i = descriptor_acquire(c, f, start)
    if i < 0:
        return 0 if i == -ENOENT else i
    descriptor_release(c, i)
    return 1


cdef int64_t files_lowest(FileCache *c, const UnitFiles *f, int64_t begin) noexcept nogil:
    cdef int64_t found
    cdef int fd = c.io.open(c.io.ctx, f.dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0) if f.legal else -ENOENT
    if fd < 0:
        return fd
    found = rmq_queue_dir_lowest(fd, begin, f.file_size)
    c.io.close(c.io.ctx, fd)
    return found


cdef void files_passed(FileCache *c, UnitFiles *f, int64_t to) noexcept nogil:
    # An open descriptor would keep the deleted file on the disk, and be found by whoever has the memory of `f` next.
    cdef int64_t first
    rmq_mutex_lock(&c.begins_lock)
    first = rmq_load(&f.first)
    if to > first:
        rmq_publish(&f.first, to)
    rmq_mutex_unlock(&c.begins_lock)
    _forget(c, f, first, to)


cdef void _forget(FileCache *c, const UnitFiles *f, int64_t start, int64_t to) noexcept nogil:
    to = min(to, rmq_load(&f.end))          # a name may say any number
    while start < to:
        descriptor_forget(c, f, start)
        start += f.file_size


cdef int64_t files_next_data(FileCache *c, UnitFiles *f, int64_t offset) noexcept nogil:
    cdef int64_t position = offset % f.file_size
    cdef int64_t found
    cdef int i = descriptor_acquire(c, f, offset - position)
    if i < 0:
        return i
    found = c.io.next_data(c.io.ctx, c.slots[i].fd, position)
    descriptor_release(c, i)
    return found if found < 0 else offset - position + (found if found < f.file_size else f.file_size)


cdef int files_flush(FileCache *c, UnitFiles *f) noexcept nogil:
    cdef int64_t position
    cdef int i, rc
    if f.used == 0:
        return 0
    position = f.written % f.file_size
    i = descriptor_acquire(c, f, f.written - position)
    if i < 0:
        return i
    rc = rmq_pwrite_all(c.io, c.slots[i].fd, f.buffer, f.used, position)
    descriptor_release(c, i)
    if rc >= 0:
        if f.spares != NULL and position < f.file_size // 4 <= position + f.used:
            spares_wish(f.spares)       # its next file
        rmq_publish(&f.written, f.written + f.used)
        f.used = 0
    return rc


cdef int _make_dirs(FileCache *c, UnitFiles *f) noexcept nogil:
    # The queue's directory and what is missing above it. One that is there already is fine, at every level.
    cdef char[FILES_PATH_SIZE] path
    cdef int rc
    cdef size_t n = strlen(f.dir)
    if n >= FILES_PATH_SIZE:
        return -ENAMETOOLONG
    memcpy(path, f.dir, n + 1)
    path[f.topic_size] = 0
    rc = c.io.mkdir(c.io.ctx, path, 0o755)
    if rc == -ENOENT:
        path[f.base_size] = 0
        rc = c.io.mkdir(c.io.ctx, path, 0o755)
        if rc >= 0:
            c.base_made = True
        elif rc != -EEXIST:
            return rc
        path[f.base_size] = c"/"
        rc = c.io.mkdir(c.io.ctx, path, 0o755)
    if rc < 0 and rc != -EEXIST:
        return rc
    path[f.topic_size] = c"/"
    rc = c.io.mkdir(c.io.ctx, path, 0o755)
    return rc if rc < 0 and rc != -EEXIST else 0


cdef int _make_file(FileCache *c, UnitFiles *f, int64_t start) noexcept nogil:
    # A file of its full length, on the device before it has its name. Returns its descriptor.
    cdef const rmq_io *io = c.io
    cdef char[FILES_PATH_SIZE] path
    cdef int fd, rc
    rc = files_path(f, start, path)
    if rc < 0:
        return rc
    if f.spares != NULL:
        if f.end == f.first:
            rc = _make_dirs(c, f)
            if rc < 0:
                return rc
            spares_wish_first(f.spares)
        fd = spares_take(f.spares, path)
        if fd >= 0:
            return fd
    fd = io.open(io.ctx, c.new_path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, 0o644)
    if fd < 0:
        return fd
    rc = io.ftruncate(io.ctx, fd, f.file_size)
    if rc >= 0:
        rc = io.fdatasync(io.ctx, fd)
    if rc >= 0:
        rc = io.rename(io.ctx, c.new_path, path)
        if rc == -ENOENT:
            rc = _make_dirs(c, f)
            if rc >= 0:
                rc = io.rename(io.ctx, c.new_path, path)
    if rc < 0:
        io.close(io.ctx, fd)
        io.unlink(io.ctx, c.new_path)
        return rc
    return fd


cdef int files_grow(FileCache *c, UnitFiles *f) noexcept nogil:
    cdef int i, fd
    # The directories of a queue without files may be left over from a crash, and not on the device.
    cdef int made = NEW_IN_QUEUE if f.end != f.first else NEW_IN_QUEUE | NEW_IN_TOPIC | NEW_IN_BASE
    if c.readonly:
        return -EROFS
    if not f.legal:
        return -EINVAL
    i = descriptor_reserve(c)
    fd = _make_file(c, f, f.end)
    if c.base_made and made & NEW_IN_BASE:
        made |= NEW_IN_PARENT       # whichever queue it was made for, and whatever became of that
    descriptor_settle(c, i, f, f.end, fd)
    if fd < 0:
        return fd
    rmq_swap32(&f.new_dirs, rmq_load32(&f.new_dirs) | made)
    rmq_publish(&f.end, f.end + f.file_size)
    return 0


cdef int files_sync(FileCache *c, UnitFiles *f, int64_t to) noexcept nogil:
    cdef int64_t start = f.synced - f.synced % f.file_size
    cdef int i, rc
    if start < rmq_load(&f.first):
        start = rmq_load(&f.first)
    while start < to:
        i = descriptor_acquire(c, f, start)
        if i < 0:
            return i
        rc = c.io.fdatasync(c.io.ctx, c.slots[i].fd)
        descriptor_release(c, i)
        if rc < 0:
            rmq_publish32(&c.sync_failed, -rc)
            return rc
        start += f.file_size
    if to > f.synced:
        rmq_publish(&f.synced, to)
    return 0


cdef int files_dir_synced(FileCache *c, int rc) noexcept nogil:
    if rc < 0 and not rmq_is_want_of_open(rc):
        rmq_publish32(&c.sync_failed, -rc)
    return rc


cdef int files_sync_dirs(FileCache *c, UnitFiles *f, int dirs) noexcept nogil:
    # Inner ones first: an entry leads nowhere before what it leads to is there.
    cdef char[FILES_PATH_SIZE] path
    cdef int rc = 0
    cdef size_t n = strlen(f.dir)
    if n + 4 > FILES_PATH_SIZE:
        return -ENAMETOOLONG
    memcpy(path, f.dir, n + 1)
    if dirs & NEW_IN_QUEUE:
        rc = c.io.sync_dir(c.io.ctx, path)
    path[f.topic_size] = 0
    if rc >= 0 and dirs & NEW_IN_TOPIC:
        rc = c.io.sync_dir(c.io.ctx, path)
    path[f.base_size] = 0
    return rc if rc < 0 else files_sync_base(c, path, dirs)


cdef int files_sync_base(FileCache *c, const char *base, int dirs) noexcept nogil:
    cdef char[FILES_PATH_SIZE] path
    cdef int rc = 0
    cdef size_t n = strlen(base)
    if n + 4 > FILES_PATH_SIZE:
        return -ENAMETOOLONG
    if dirs & NEW_IN_BASE:
        rc = c.io.sync_dir(c.io.ctx, base)
    if rc >= 0 and dirs & NEW_IN_PARENT:
        memcpy(path, base, n)
        memcpy(path + n, b"/..", 4)
        rc = c.io.sync_dir(c.io.ctx, path)
    return rc


cdef int64_t files_modified_ms(FileCache *c, UnitFiles *f, int64_t start) noexcept nogil:
    cdef int i = descriptor_acquire(c, f, start)
    cdef int64_t when
    if i < 0:
        return i
    when = c.io.modified_ms(c.io.ctx, c.slots[i].fd)
    descriptor_release(c, i)
    return when


# ---- shortening

cdef unsigned char[PAGE_SIZE] _zeros


cdef int64_t _data_end(FileCache *c, int fd, int64_t position, int64_t size, unsigned char *buffer) noexcept nogil:
    # Behind the furthest byte at or beyond `position` that is not zero; holes are skipped, not read. 0: there is none.
    cdef int64_t found = 0, n, k
    position = c.io.next_data(c.io.ctx, fd, position)
    while 0 <= position < size:
        n = size - position if size - position < SCAN_SIZE else SCAN_SIZE
        n = rmq_pread_all(c.io, fd, buffer, n, position)
        if n <= 0:
            return n if n < 0 else -EIO
        k = n
        while k > 0 and buffer[k - 1] == 0:
            k -= 1
        if k > 0:
            found = position + k
        position = c.io.next_data(c.io.ctx, fd, position + n) if position + n < size else size
    return position if position < 0 else found


cdef int _zero(FileCache *c, int fd, int64_t position, int64_t to) noexcept nogil:
    # Within one page: not even a kill leaves half of it.
    return rmq_pwrite_all(c.io, fd, _zeros, to - position, position) if position < to else 0


cdef int _zero_page(FileCache *c, int fd, int64_t page, int64_t position, int64_t to, int64_t unit_size) noexcept nogil:
    # Zeroes what lies in that page before `to`, and the unit that begins in the page before. Its first half says whether an
    # entry is one, its second one whether a batch is: nobody sees half of it, and takes it for one.
    cdef int64_t first = (page + unit_size - 1) // unit_size * unit_size, begin = first - unit_size
    cdef int rc = _zero(c, fd, max(first, position), to)
    if rc < 0 or first == page or begin < position:
        return rc
    if page - begin >= UNIT_DECIDES:
        rc = _zero(c, fd, begin, page)
        return rc if rc < 0 else _zero(c, fd, page, min(first, to))
    rc = _zero(c, fd, page, min(first, to))
    return rc if rc < 0 else _zero(c, fd, begin, page)


cdef int _zero_tail(FileCache *c, int fd, int64_t position, int64_t size, int64_t unit_size) noexcept nogil:
    # Zeroes [position, size) as far as anything but zeros is there: a clean file is not touched, nor is its modification time.
    # From the end on, page by page: a reader elsewhere takes zeros for damage while the last unit is there.
    cdef unsigned char *buffer = <unsigned char *> malloc(SCAN_SIZE)
    cdef int64_t to, page
    cdef int rc = 0
    if buffer == NULL:
        return -ENOMEM
    to = _data_end(c, fd, position, size, buffer)
    free(buffer)
    if to <= position:
        return <int> min(to, 0)
    while to > position and rc >= 0:
        page = (to - 1) // PAGE_SIZE * PAGE_SIZE
        rc = _zero_page(c, fd, page, position, to, unit_size)
        to = page
    return rc if rc < 0 else c.io.fdatasync(c.io.ctx, fd)


cdef int _unlink(FileCache *c, UnitFiles *f, int64_t start) noexcept nogil:
    cdef char[FILES_PATH_SIZE] path
    cdef int rc = files_path(f, start, path)
    if rc >= 0:
        rc = c.io.unlink(c.io.ctx, path)
    if rc == -ENOENT:
        rc = 0                  # somebody has removed it by hand
    if rc >= 0:
        descriptor_forget(c, f, start)
    return rc


cdef int files_cut(FileCache *c, UnitFiles *f, int64_t end, int64_t unit_size, bint keep_first) noexcept nogil:
    cdef int64_t keep = (end + f.file_size - 1) // f.file_size * f.file_size    # end of the last file that stays
    cdef int i, rc = 0
    cdef bint dropped = False
    if f.first == f.end:
        return 0
    if c.readonly:
        return -EROFS
    if end == f.first and keep_first:
        keep = f.first + f.file_size
    # The last file first, and all files before the zeros: a reader elsewhere asks whether the last unit is there.
    while rc >= 0 and f.end > keep and f.end > f.first:
        rc = _unlink(c, f, f.end - f.file_size)
        if rc >= 0:
            rmq_publish(&f.end, f.end - f.file_size)
            dropped = True
    if rc >= 0 and dropped:
        rc = files_dir_synced(c, c.io.sync_dir(c.io.ctx, f.dir))
    if rc >= 0 and unit_size > 0 and keep > f.first and end < keep:
        i = descriptor_acquire(c, f, keep - f.file_size)
        if i < 0:
            return i
        rc = _zero_tail(c, c.slots[i].fd, end - (keep - f.file_size), f.file_size, unit_size)
        descriptor_release(c, i)
    if rc >= 0:
        f.used = 0
        rmq_publish(&f.written, end)
        if f.synced > end:
            rmq_publish(&f.synced, end)
    return rc


cdef int files_drop_first(FileCache *c, UnitFiles *f) noexcept nogil:
    cdef int64_t start = f.first
    cdef int rc
    if c.readonly:
        return -EROFS
    if f.end - start <= f.file_size:
        return -EINVAL
    rmq_publish(&f.first, start + f.file_size)
    rc = _unlink(c, f, start)
    if rc < 0:
        rmq_publish(&f.first, start)
    return rc


cdef int files_remove_dirs(FileCache *c, UnitFiles *f) noexcept nogil:
    cdef int rc = c.io.rmdir(c.io.ctx, f.dir)
    cdef int synced
    # What a try before has removed is synced, too: its own sync may have failed for want of a descriptor.
    if rc == -ENOTEMPTY or rc == -EEXIST:
        return files_dir_synced(c, c.io.sync_dir(c.io.ctx, f.dir))
    if rc < 0 and rc != -ENOENT:
        return rc
    synced = files_sync_dirs(c, f, NEW_IN_TOPIC)
    return 0 if rc == -ENOENT and synced == -ENOENT else files_dir_synced(c, synced)
