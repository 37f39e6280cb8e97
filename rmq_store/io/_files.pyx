"""The I/O table for the control plane: small files, directories, the lock. Errors are OSError with the path.

For the opening and closing thread; data goes through the table's C functions instead.
"""
import os

from libc.stdint cimport int64_t

from rmq_store.io._io cimport IoTable, rmq_pread_all, rmq_pwrite_all


cdef int _check(int64_t rc, object path) except -1:
    if rc < 0:
        raise OSError(-rc, os.strerror(-rc), path)
    return 0


cdef class ControlFiles:
    """Calls of one I/O table, as Python methods. Thread-safety: any thread."""

    cdef IoTable _owner

    def __init__(self, IoTable table not None):
        self._owner = table

    def open(self, str path, int flags, int mode=0o644):
        """Descriptor: int. O_CLOEXEC and O_NOFOLLOW are added."""
        cdef bytes name = os.fsencode(path)
        cdef const char *text = name
        cdef int fd
        flags |= os.O_NOFOLLOW
        with nogil:
            fd = self._owner.table.open(self._owner.table.ctx, text, flags, mode)
        _check(fd, path)
        return fd

    def close(self, int fd):
        """Closes a descriptor."""
        cdef int rc = self._owner.table.close(self._owner.table.ctx, fd)
        _check(rc, None)

    def read(self, int fd, int64_t offset, int64_t size):
        """Up to `size` bytes from `offset`: bytes, fewer only at the end of the file."""
        cdef int64_t n
        data = bytearray(size)
        cdef char *to = data
        with nogil:
            n = rmq_pread_all(self._owner.table, fd, to, size, offset)
        _check(n, None)
        return bytes(data[:n])

    def write(self, int fd, int64_t offset, const unsigned char[::1] data):
        """Writes all of it."""
        cdef int rc
        cdef size_t n = data.shape[0]
        if n == 0:
            return
        with nogil:
            rc = rmq_pwrite_all(self._owner.table, fd, &data[0], n, offset)
        _check(rc, None)

    def sync(self, int fd):
        """fsync: data and length are on the device after it. Never call it again after it failed."""
        cdef int rc
        with nogil:
            rc = self._owner.table.fsync(self._owner.table.ctx, fd)
        _check(rc, None)

    def truncate(self, int fd, int64_t size):
        """ftruncate."""
        _check(self._owner.table.ftruncate(self._owner.table.ctx, fd, size), None)

    def lock(self, int fd):
        """An open-file-description write lock on byte 0; False if somebody else holds it."""
        cdef int rc = self._owner.table.lock(self._owner.table.ctx, fd)
        if rc == -11:       # EAGAIN
            return False
        _check(rc, None)
        return True

    def rename(self, str source, str target):
        cdef bytes a = os.fsencode(source)
        cdef bytes b = os.fsencode(target)
        _check(self._owner.table.rename(self._owner.table.ctx, a, b), source)

    def unlink(self, str path):
        cdef bytes name = os.fsencode(path)
        _check(self._owner.table.unlink(self._owner.table.ctx, name), path)

    def mkdir(self, str path):
        """Makes one directory; no error where it exists."""
        cdef bytes name = os.fsencode(path)
        cdef int rc = self._owner.table.mkdir(self._owner.table.ctx, name, 0o755)
        if rc != -17:       # EEXIST
            _check(rc, path)
            return True
        return False

    def sync_dir(self, str path):
        """Makes names in a directory durable."""
        cdef bytes name = os.fsencode(path)
        cdef const char *text = name
        cdef int rc
        with nogil:
            rc = self._owner.table.sync_dir(self._owner.table.ctx, text)
        _check(rc, path)

    def wall_ms(self):
        """The table's clock: ms since 1970."""
        return self._owner.table.wall_ms(self._owner.table.ctx)

    def write_new(self, str directory, str name, const unsigned char[::1] data):
        """A small file, whole or not at all: written beside its name, synced, renamed into place, directory synced."""
        path = os.path.join(directory, name)
        tmp = path + ".tmp"
        fd = self.open(tmp, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            self.write(fd, 0, data)
            self.sync(fd)
        finally:
            self.close(fd)
        self.rename(tmp, path)
        self.sync_dir(directory)
