"""The directories of a store: synced side by side, and watched while it is open (rmq_home in native/include/rmq_io.h)."""
import os

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from rmq_store.base.io._io cimport IoTable, rmq_home, rmq_io
from rmq_store.base.io._sync cimport RMQ_SWEEP_THREADS, rmq_sweep_all

from rmq_store.errors import reason

cdef extern from "rmq_io.h" nogil:
    int rmq_home_watch(rmq_home *h, const char *path)
    void rmq_home_forget(rmq_home *h)

cdef struct Directories:
    const rmq_io *table
    const char **paths


cdef int _sync_dir(void *ctx, int64_t i) noexcept nogil:
    cdef Directories *d = <Directories *> ctx
    return d.table.sync_dir(d.table.ctx, d.paths[i])


def sync_dirs(IoTable table not None, list paths not None):
    """sync_dir of each, those of a long list side by side: what a device makes of several at a time is one. Any order. Any
    thread. Raises OSError."""
    cdef list names = [os.fsencode(path) for path in paths]
    cdef int64_t i, failed = 0, count = len(names)
    cdef Directories d
    cdef bytes name
    cdef int rc
    d.table = table.table
    d.paths = <const char **> malloc((count + 1) * sizeof(char *))
    if d.paths == NULL:
        raise MemoryError("paths")
    for i in range(count):
        name = names[i]             # the list keeps it
        d.paths[i] = PyBytes_AS_STRING(name)
    with nogil:
        rc = rmq_sweep_all(count, _sync_dir, &d, RMQ_SWEEP_THREADS, &failed)
    free(d.paths)
    if rc < 0:
        raise OSError(-rc, reason(-rc), paths[failed])


def watch(IoTable table not None, path):
    """From now on this table makes, opens for writing, renames and removes nothing by name unless `path` leads to the directory
    that it leads to now: ESTALE. By who opens the store. Raises OSError."""
    cdef bytes name = os.fsencode(path)
    cdef int rc = rmq_home_watch(table.home, name)
    if rc < 0:
        raise OSError(-rc, reason(-rc), path)


def forget(IoTable table not None):
    """The table watches nothing any more. By who opens and closes the store."""
    rmq_home_forget(table.home)
