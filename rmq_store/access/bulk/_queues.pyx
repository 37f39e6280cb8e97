"""Consume-queue and index files as columns, and single fields of records. Files are read by pread: somebody may cut them."""
import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t

from rmq_store.codec._record cimport FLAG_BORN_V6, MAGIC_V1, MAGIC_V2, rmq_get32, rmq_get64
from rmq_store.base.io.files import open_regular

cdef enum:
    UNIT = 20
    FILLER = 0x7FFFFFFF

cdef int64_t PLACE_MAX = 1 << 58        # so that places in bytes stay numbers
cdef int64_t ENTRIES_MAX = (1 << 31) // UNIT


def _piece(path, int64_t at, int64_t size):
    """Up to `size` bytes of a file at `at`; none of one that was deleted meanwhile. Raises OSError, also where nothing of its
    store is there."""
    try:
        fd = open_regular(path)
    except FileNotFoundError:
        directory = os.path.dirname(path)       # of a queue that was removed two more above it are gone
        if not os.path.isdir(directory) and not os.path.isdir(os.path.dirname(os.path.dirname(directory))):
            raise
        return b""
    try:
        return os.pread(fd, size, at)
    except OSError as error:
        raise OSError(error.errno, f"reading {size} bytes at {at}: {os.strerror(error.errno)}", path) from error
    finally:
        os.close(fd)


def queue_columns(path, int64_t begin, int64_t count):
    """Entries [begin, begin + count) of one consume-queue file: (first, n, physical, size, tagsCode), native integers as bytes.

    first: number in the file of the first entry returned: fillers before a queue's first message are left out. Ends at the
    first unwritten entry; None where nothing but unwritten space lies at `begin`.
    """
    if not 0 <= begin <= PLACE_MAX or count < 0:
        return None                 # no file is so long
    cdef bytes data = _piece(path, begin * UNIT, min(count, ENTRIES_MAX) * UNIT)
    cdef const unsigned char *p = <const unsigned char *> PyBytes_AS_STRING(data)
    cdef int64_t n = PyBytes_GET_SIZE(data) // UNIT
    cdef int64_t i = 0, used = 0, skipped = 0
    with nogil:
        while used < n and rmq_get32(p + used * UNIT + 8) > 0 and rmq_get64(p + used * UNIT) >= 0:
            used += 1
        while skipped < used and rmq_get32(p + skipped * UNIT + 8) == FILLER:
            skipped += 1
    if used == 0:
        return None
    n = used - skipped
    cdef bytes physical = PyBytes_FromStringAndSize(NULL, n * 8)
    cdef bytes sizes = PyBytes_FromStringAndSize(NULL, n * 4)
    cdef bytes codes = PyBytes_FromStringAndSize(NULL, n * 8)
    cdef int64_t *to_physical = <int64_t *> PyBytes_AS_STRING(physical)
    cdef int32_t *to_size = <int32_t *> PyBytes_AS_STRING(sizes)
    cdef int64_t *to_code = <int64_t *> PyBytes_AS_STRING(codes)
    with nogil:
        p += skipped * UNIT
        for i in range(n):
            to_physical[i] = rmq_get64(p + i * UNIT)
            to_size[i] = rmq_get32(p + i * UNIT + 8)
            to_code[i] = rmq_get64(p + i * UNIT + 12)
    return begin + skipped, n, physical, sizes, codes


def index_columns(path, int64_t base, int64_t begin, int64_t count):
    """Entries [begin, begin + count) of an index file whose entry 0 lies at `base`: (n, keyHash, phyOffset, timeDiff, prev).

    No further than the header's count of entries; None where nothing is left.
    """
    cdef bytes head = _piece(path, 0, 40)
    cdef int64_t n, i
    if PyBytes_GET_SIZE(head) < 40:
        return None
    n = rmq_get32(<const unsigned char *> PyBytes_AS_STRING(head) + 36) - begin
    if n > count:
        n = count
    if n <= 0:
        return None
    if not (0 <= begin <= PLACE_MAX and 0 <= base <= PLACE_MAX):
        return None
    cdef bytes data = _piece(path, base + begin * UNIT, n * UNIT)
    cdef const unsigned char *p = <const unsigned char *> PyBytes_AS_STRING(data)
    n = PyBytes_GET_SIZE(data) // UNIT
    cdef bytes hashes = PyBytes_FromStringAndSize(NULL, n * 4)
    cdef bytes physical = PyBytes_FromStringAndSize(NULL, n * 8)
    cdef bytes diffs = PyBytes_FromStringAndSize(NULL, n * 4)
    cdef bytes previous = PyBytes_FromStringAndSize(NULL, n * 4)
    for i in range(n):
        (<int32_t *> PyBytes_AS_STRING(hashes))[i] = rmq_get32(p + i * UNIT)
        (<int64_t *> PyBytes_AS_STRING(physical))[i] = rmq_get64(p + i * UNIT + 4)
        (<int32_t *> PyBytes_AS_STRING(diffs))[i] = rmq_get32(p + i * UNIT + 12)
        (<int32_t *> PyBytes_AS_STRING(previous))[i] = rmq_get32(p + i * UNIT + 16)
    return n, hashes, physical, diffs, previous


def record_time(path, int64_t at):
    """storeTimestamp in ms of the record at position `at` of a CommitLog file; None where no record's head lies there."""
    if at < 0:
        return None
    cdef bytes data = _piece(path, at, 80)
    cdef const unsigned char *p = <const unsigned char *> PyBytes_AS_STRING(data)
    cdef int32_t magic
    if PyBytes_GET_SIZE(data) < 80:
        return None
    magic = rmq_get32(p + 4)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return None
    return rmq_get64(p + (68 if rmq_get32(p + 36) & FLAG_BORN_V6 else 56))
