"""Consume-queue and index files as columns, and single fields of records. Files are read by pread: somebody may cut them."""
import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t

from rmq_store.codec._layout cimport (ENTRY_AT_TIME_DIFF, INDEX_AT_COUNT, INDEX_ENTRY_SIZE, INDEX_HEADER_SIZE, MAGIC_V1,
                                      MAGIC_V2, RECORD_TIMED_SIZE, UNIT_FILLER, UNIT_SIZE)
from rmq_store.codec._record cimport head_magic, head_store_timestamp, rmq_get32
from rmq_store.codec._unit cimport unit_bytes, unit_code, unit_physical
from rmq_store.queues.index._file cimport entry_hash, entry_physical, entry_previous

from rmq_store.base.io.files import open_regular

cdef int64_t PLACE_MAX = 1 << 58        # so that places in bytes stay numbers
cdef int64_t ENTRIES_MAX = (1 << 31) // UNIT_SIZE


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
    cdef bytes data = _piece(path, begin * UNIT_SIZE, min(count, ENTRIES_MAX) * UNIT_SIZE)
    cdef const unsigned char *p = <const unsigned char *> PyBytes_AS_STRING(data)
    cdef int64_t n = PyBytes_GET_SIZE(data) // UNIT_SIZE
    cdef int64_t i = 0, used = 0, skipped = 0
    with nogil:
        while used < n and unit_bytes(p + used * UNIT_SIZE) > 0 and unit_physical(p + used * UNIT_SIZE) >= 0:
            used += 1
        while skipped < used and unit_bytes(p + skipped * UNIT_SIZE) == UNIT_FILLER:
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
        p += skipped * UNIT_SIZE
        for i in range(n):
            to_physical[i] = unit_physical(p + i * UNIT_SIZE)
            to_size[i] = unit_bytes(p + i * UNIT_SIZE)
            to_code[i] = unit_code(p + i * UNIT_SIZE)
    return begin + skipped, n, physical, sizes, codes


def index_columns(path, int64_t base, int64_t begin, int64_t count):
    """Entries [begin, begin + count) of an index file whose entry 0 lies at `base`: (n, keyHash, phyOffset, timeDiff, prev).

    No further than the header's count of entries; None where nothing is left.
    """
    cdef bytes head = _piece(path, 0, INDEX_HEADER_SIZE)
    cdef int64_t n, i
    if PyBytes_GET_SIZE(head) < INDEX_HEADER_SIZE:
        return None
    n = rmq_get32(<const unsigned char *> PyBytes_AS_STRING(head) + INDEX_AT_COUNT) - begin
    if n > count:
        n = count
    if n <= 0:
        return None
    if not (0 <= begin <= PLACE_MAX and 0 <= base <= PLACE_MAX):
        return None
    cdef bytes data = _piece(path, base + begin * INDEX_ENTRY_SIZE, n * INDEX_ENTRY_SIZE)
    cdef const unsigned char *p = <const unsigned char *> PyBytes_AS_STRING(data)
    n = PyBytes_GET_SIZE(data) // INDEX_ENTRY_SIZE
    cdef bytes hashes = PyBytes_FromStringAndSize(NULL, n * 4)
    cdef bytes physical = PyBytes_FromStringAndSize(NULL, n * 8)
    cdef bytes diffs = PyBytes_FromStringAndSize(NULL, n * 4)
    cdef bytes previous = PyBytes_FromStringAndSize(NULL, n * 4)
    for i in range(n):
        (<int32_t *> PyBytes_AS_STRING(hashes))[i] = entry_hash(p + i * INDEX_ENTRY_SIZE)
        (<int64_t *> PyBytes_AS_STRING(physical))[i] = entry_physical(p + i * INDEX_ENTRY_SIZE)
        (<int32_t *> PyBytes_AS_STRING(diffs))[i] = rmq_get32(p + i * INDEX_ENTRY_SIZE + ENTRY_AT_TIME_DIFF)
        (<int32_t *> PyBytes_AS_STRING(previous))[i] = entry_previous(p + i * INDEX_ENTRY_SIZE)
    return n, hashes, physical, diffs, previous


def record_time(path, int64_t at):
    """storeTimestamp in ms of the record at position `at` of a CommitLog file; None where no record's head lies there."""
    if at < 0:
        return None
    cdef bytes data = _piece(path, at, RECORD_TIMED_SIZE)
    cdef const unsigned char *p = <const unsigned char *> PyBytes_AS_STRING(data)
    cdef int32_t magic
    if PyBytes_GET_SIZE(data) < RECORD_TIMED_SIZE:
        return None
    magic = head_magic(p)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return None
    return head_store_timestamp(p)
