"""One CommitLog file and the row of them (RocketMQ: MappedFile, MappedFileQueue). Contract in _file.pxd."""
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, strlen, strrchr

from rmq_store.base.io._io cimport guard_add, guard_remove, rmq_identity_at, rmq_identity_of, rmq_io, rmq_pwrite_all
from rmq_store.base.io._sync cimport (EINVAL, ENOENT, ENOMEM, EROFS, rmq_add32, rmq_load, rmq_load32, rmq_mutex_lock,
                                      rmq_mutex_unlock, rmq_publish, rmq_publish32)


cdef extern from "rmq_pages.h" nogil:
    int64_t rmq_page_size()
    int rmq_pages_ahead(void *at, size_t n, int on)

cdef extern from "rmq_reserve.h" nogil:
    int64_t rmq_holes(int fd)
    bint rmq_in_memory(int fd)

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    """
    enum: O_RDWR, O_RDONLY, O_WRONLY, O_NOFOLLOW, O_DIRECT, EBADF, ESTALE

cdef enum:
    PAGE = 4096                 # as direct writes take it


cdef char *text_copy(const char *text) noexcept nogil:
    cdef size_t n = strlen(text) + 1
    cdef char *out = <char *> malloc(n)
    if out != NULL:
        memcpy(out, text, n)
    return out


cdef char *path_join(const char *dir, const char *name) noexcept nogil:
    cdef size_t a = strlen(dir), b = strlen(name)
    cdef char *out = <char *> malloc(a + b + 2)
    if out != NULL:
        memcpy(out, dir, a)
        out[a] = c"/"
        memcpy(out + a + 1, name, b + 1)
    return out


cdef void offset_name(int64_t start, char *out) noexcept nogil:
    cdef int i
    for i in range(19, -1, -1):
        out[i] = <char> (48 + start % 10)
        start = start // 10
    out[20] = 0


cdef LogFile *log_file_adopt(const rmq_io *io, const char *dir, int64_t start, int64_t size, int fd,
                             bint writable) noexcept nogil:
    cdef char[21] name
    cdef LogFile *f = <LogFile *> calloc(1, sizeof(LogFile))
    if f == NULL:
        return NULL
    offset_name(start, name)
    f.path = path_join(dir, name)
    if f.path == NULL:
        free(f)
        return NULL
    f.identity = rmq_identity_of(f.path, fd)
    f.io = io
    f.start = start
    f.size = size
    f.data_end = -1
    f.zeroed_to = size
    f.fd = fd
    f.direct_fd = -1
    f.refs = 1
    f.writable = writable
    return f


cdef LogFile *log_file_open(const rmq_io *io, const char *dir, int64_t start, int64_t size, bint writable,
                            int *error) noexcept nogil:
    cdef char[21] name
    cdef char *path
    cdef int fd
    cdef int64_t length
    cdef LogFile *f
    offset_name(start, name)
    path = path_join(dir, name)
    error[0] = -ENOMEM
    if path == NULL:
        return NULL
    fd = io.open(io.ctx, path, (O_RDWR if writable else O_RDONLY) | O_NOFOLLOW, 0)
    if fd == -EROFS and writable:       # a directory for no new files may lie on a disk that is mounted read-only
        writable = False
        fd = io.open(io.ctx, path, O_RDONLY | O_NOFOLLOW, 0)
    free(path)
    if fd < 0:
        error[0] = fd
        return NULL
    length = io.size(io.ctx, fd)
    if length != size:
        error[0] = <int> length if length < 0 else -EINVAL
        io.close(io.ctx, fd)
        return NULL
    f = log_file_adopt(io, dir, start, size, fd, writable)
    if f == NULL:
        io.close(io.ctx, fd)
        return NULL
    error[0] = 0
    return f


cdef LogFile *row_open(FileRow *row, int64_t start, int *error) noexcept nogil:
    cdef LogFile *f = NULL
    cdef int i
    for i in range(row.dir_count):
        f = log_file_open(row.io, row.dirs[i], start, row.file_size, row.writable, error)
        if f != NULL or error[0] != -ENOENT:
            break
    return f


cdef int log_file_open_again(const LogFile *f, bint writable) noexcept nogil:
    cdef int fd
    if f.copied:
        return -EBADF
    fd = f.io.open(f.io.ctx, f.path, (O_RDWR if writable else O_RDONLY) | O_NOFOLLOW, 0)
    if fd >= 0 and not rmq_identity_at(&f.identity, fd):
        f.io.close(f.io.ctx, fd)
        fd = -ESTALE
    return fd


cdef int log_file_open_direct(LogFile *f) noexcept nogil:
    cdef int fd
    if f.direct_fd < 0:
        fd = f.io.open(f.io.ctx, f.path, O_RDWR | O_DIRECT | O_NOFOLLOW, 0)
        if fd < 0:
            return fd
        f.direct_fd = fd
    return 0


cdef int log_file_sync_dir(const LogFile *f) noexcept nogil:
    cdef char *dir = text_copy(f.path)
    cdef int rc = -ENOMEM
    if dir != NULL:
        strrchr(dir, c"/")[0] = 0
        rc = f.io.sync_dir(f.io.ctx, dir)
        free(dir)
    return rc


cdef int log_file_zero(const rmq_io *io, const char *path, int fd, int64_t size, const unsigned char *zeros,
                       int64_t chunk) noexcept nogil:
    # Direct writes leave no dirty pages; where the file system has none, buffered ones do, and a later sync. They take whole
    # pages only: the rest of a file whose size is no multiple of one goes the other way.
    cdef int64_t n, position = 0
    cdef int64_t last_page = size & ~(<int64_t> PAGE - 1)
    cdef int rc = 0
    cdef int direct = io.open(io.ctx, path, O_WRONLY | O_DIRECT | O_NOFOLLOW, 0)
    while position < size and rc >= 0:
        n = min((size if position >= last_page else last_page) - position, chunk)
        rc = rmq_pwrite_all(io, fd if direct < 0 or position >= last_page else direct, zeros, n, position)
        position += n
    if direct >= 0:
        if rc >= 0:
            rc = io.fdatasync(io.ctx, direct)
        io.close(io.ctx, direct)
    return rc


cdef LogFile *log_file_copied(const rmq_io *io, int64_t start, int64_t size) noexcept nogil:
    cdef LogFile *f = <LogFile *> calloc(1, sizeof(LogFile))
    if f == NULL:
        return NULL
    f.map = <unsigned char *> malloc(size)
    if f.map == NULL:
        free(f)
        return NULL
    f.io = io
    f.start = start
    f.size = size
    f.fd = -1
    f.direct_fd = -1
    f.refs = 1
    f.copied = True
    return f


cdef int file_reserve(const rmq_io *io, int fd, int64_t size, bint written) noexcept nogil:
    return 0 if rmq_holes(fd) == 0 or not (written or rmq_in_memory(fd)) else io.fallocate(io.ctx, fd, 0, size)


cdef void log_file_hold(LogFile *f) noexcept nogil:
    rmq_add32(&f.refs, 1)


cdef void log_file_release(LogFile *f) noexcept nogil:
    if f == NULL or rmq_add32(&f.refs, -1) > 0:
        return
    # Nothing can be done about an error of either call here, and nothing depends on them: data is made durable by sync only.
    if f.copied:
        free(f.map)
    elif f.map != NULL:
        log_file_unguard(f)
        f.io.munmap(f.io.ctx, f.map, f.size)
    if f.direct_fd >= 0:
        f.io.close(f.io.ctx, f.direct_fd)
    if f.fd >= 0:
        f.io.close(f.io.ctx, f.fd)
    free(f.path)
    free(f)


cdef void log_file_unguard(LogFile *f) noexcept nogil:
    guard_remove(&f.guard)


cdef int row_guard(FileRow *row) noexcept nogil:
    cdef LogFile *f
    cdef int64_t i
    cdef int rc = 0
    rmq_mutex_lock(&row.lock)
    row.guarded = True
    for i in range(row.count):
        f = row.files[i]
        if rc == 0 and f.map != NULL and f.guard == 0:
            rc = guard_add(f.map, f.size, &f.identity, f.writable, &f.lost, &f.guard)
    rmq_mutex_unlock(&row.lock)
    return rc


cdef int log_file_map(FileRow *row, LogFile *f) noexcept nogil:
    cdef void *at = NULL
    cdef int rc = 0
    if rmq_load(<const int64_t *> &f.map) != 0:
        return 0
    rmq_mutex_lock(&row.lock)
    if f.map == NULL:
        rc = f.io.mmap(f.io.ctx, f.fd, 0, f.size, f.writable, &at)
        if rc >= 0 and row.guarded:
            rc = guard_add(at, f.size, &f.identity, f.writable, &f.lost, &f.guard)
            if rc < 0:
                f.io.munmap(f.io.ctx, at, f.size)
        if rc >= 0:
            rmq_publish(<int64_t *> &f.map, <int64_t> at)    # last: who sees the map sees its guard
            rc = 0
    rmq_mutex_unlock(&row.lock)
    return rc


cdef void log_file_faults(LogFile *f, int64_t offset, bint ahead) noexcept nogil:
    cdef int64_t page = rmq_page_size()
    cdef int64_t at = (max(offset - f.start, 0) + page - 1) & -page
    if f.map != NULL and at < f.size:
        rmq_pages_ahead(f.map + at, f.size - at, ahead)     # where it is refused, faults are as they were


cdef FileRow *row_new(const rmq_io *io, const char *dir, int64_t file_size, bint writable) noexcept nogil:
    cdef FileRow *row = <FileRow *> calloc(1, sizeof(FileRow))
    if row == NULL:
        return NULL
    row.io = io
    row.file_size = file_size
    row.writable = writable
    if row_add_dir(row, dir) < 0:
        free(row)
        return NULL
    row.dir = row.dirs[0]
    return row


cdef int row_add_dir(FileRow *row, const char *dir) noexcept nogil:
    cdef char **dirs = <char **> realloc(row.dirs, (row.dir_count + 1) * sizeof(char *))
    if dirs == NULL:
        return -ENOMEM
    row.dirs = dirs
    dirs[row.dir_count] = text_copy(dir)
    if dirs[row.dir_count] == NULL:
        return -ENOMEM
    row.dir_count += 1
    return 0


cdef void row_free(FileRow *row) noexcept nogil:
    cdef int64_t i
    if row == NULL:
        return
    for i in range(row.count):
        log_file_release(row.files[i])
    free(row.files)
    for i in range(row.dir_count):
        free(row.dirs[i])
    free(row.dirs)
    free(row)


cdef int _grow(FileRow *row, int64_t more) noexcept nogil:
    # Under the lock: room for `more` files.
    cdef LogFile **files
    cdef int64_t capacity = row.capacity * 2 + 16
    if row.count + more <= row.capacity:
        return 0
    files = <LogFile **> realloc(row.files, capacity * sizeof(LogFile *))
    if files == NULL:
        return -ENOMEM
    row.files = files
    row.capacity = capacity
    return 0


cdef int row_reserve(FileRow *row, int64_t more) noexcept nogil:
    cdef int rc
    rmq_mutex_lock(&row.lock)
    rc = _grow(row, more)
    rmq_mutex_unlock(&row.lock)
    return rc


cdef int row_push(FileRow *row, LogFile *f) noexcept nogil:
    cdef int rc
    rmq_mutex_lock(&row.lock)
    if row.count > 0 and row.files[row.count - 1].start + row.file_size != f.start:
        rc = -EINVAL
    else:
        rc = _grow(row, 1)
    if rc == 0:
        row.files[row.count] = f
        row.count += 1
    rmq_mutex_unlock(&row.lock)
    return rc


cdef int row_leave_out(FileRow *row, int64_t end) noexcept nogil:
    cdef LogFile *f
    cdef int rc = 0
    while rc == 0 and row_end(row) < end:
        f = <LogFile *> calloc(1, sizeof(LogFile))
        if f == NULL:
            return -ENOMEM
        f.io = row.io
        f.start = row_end(row)
        f.size = row.file_size
        f.fd = -1
        f.direct_fd = -1
        f.refs = 1
        f.absent = True
        rc = row_push(row, f)
        if rc < 0:
            log_file_release(f)
    return rc


cdef bint row_absent(FileRow *row, int64_t offset) noexcept nogil:
    cdef bint absent = False
    cdef int64_t i
    rmq_mutex_lock(&row.lock)
    if row.count > 0 and offset >= row.files[0].start:
        i = (offset - row.files[0].start) // row.file_size
        absent = i < row.count and (row.files[i].absent or (row.files[i].copied and offset >= row.files[i].data_end))
    rmq_mutex_unlock(&row.lock)
    return absent


cdef LogFile *row_pop(FileRow *row) noexcept nogil:
    cdef LogFile *f = NULL
    rmq_mutex_lock(&row.lock)
    if row.count > 0:
        row.count -= 1
        f = row.files[row.count]
    rmq_mutex_unlock(&row.lock)
    return f


cdef LogFile *row_shift(FileRow *row) noexcept nogil:
    cdef LogFile *f = NULL
    cdef int64_t i
    rmq_mutex_lock(&row.lock)
    if row.count > 0:
        f = row.files[0]
        row.count -= 1
        for i in range(row.count):
            row.files[i] = row.files[i + 1]
    rmq_mutex_unlock(&row.lock)
    return f


cdef LogFile *row_find(FileRow *row, int64_t offset, int *error) noexcept nogil:
    cdef LogFile *f = NULL
    cdef int64_t i
    error[0] = 0
    rmq_mutex_lock(&row.lock)
    if row.count > 0 and offset >= row.files[0].start:
        i = (offset - row.files[0].start) // row.file_size
        if i < row.count and not row.files[i].absent:
            f = row.files[i]
            log_file_hold(f)
            if f.used != 2:
                rmq_publish32(&f.used, 2)
    rmq_mutex_unlock(&row.lock)
    if f != NULL:
        error[0] = log_file_map(row, f)
        if error[0] < 0:
            log_file_release(f)
            return NULL
    return f


cdef int64_t row_release(FileRow *row, int64_t before, int64_t reserve) noexcept nogil:
    # A reader that comes in between reads the file again; its mark may be lost, and the file then waits for its next reader.
    cdef LogFile *f
    cdef int64_t i = 0, n = 0
    cdef int rc = 0, fd
    while rc >= 0:
        f = NULL
        rmq_mutex_lock(&row.lock)
        if i < row.count - reserve and row.files[i].start + row.file_size <= before:
            f = row.files[i]
            log_file_hold(f)
        rmq_mutex_unlock(&row.lock)
        if f == NULL:
            break
        i += 1
        if rmq_load32(&f.used) == 2:
            rmq_publish32(&f.used, 1)
        elif rmq_load32(&f.used) == 1 and not (f.locked or f.copied) and rmq_load(<const int64_t *> &f.map) != 0:
            fd = rc = log_file_open_again(f, False)
            if fd >= 0:
                rmq_publish32(&f.used, 0)
                rc = f.io.release(f.io.ctx, fd, f.map, f.size)
                f.io.close(f.io.ctx, fd)
                n += 1
            elif fd == -ENOENT or fd == -ESTALE:
                rc = 0          # somebody has cleaned it
        log_file_release(f)
    return rc if rc < 0 else n


cdef int64_t row_start(FileRow *row) noexcept nogil:
    cdef int64_t start
    rmq_mutex_lock(&row.lock)
    start = row.files[0].start if row.count > 0 else -1
    rmq_mutex_unlock(&row.lock)
    return start


cdef int64_t row_end(FileRow *row) noexcept nogil:
    cdef int64_t end
    rmq_mutex_lock(&row.lock)
    end = row.files[row.count - 1].start + row.file_size if row.count > 0 else 0
    rmq_mutex_unlock(&row.lock)
    return end


cdef int64_t row_count(FileRow *row) noexcept nogil:
    cdef int64_t count
    rmq_mutex_lock(&row.lock)
    count = row.count
    rmq_mutex_unlock(&row.lock)
    return count
