"""guard_maps: an open store's maps under the answer to SIGBUS (native/include/rmq_guard.h).

The opening thread, once the store has recovered: recovery would take the zeros in the place of a page that is gone for the
end of the log, and cut it there.
"""
import os

from rmq_store.access.core._core cimport StoreCore
from rmq_store.base.io._io cimport guard_install
from rmq_store.base.segment._file cimport row_guard
from rmq_store.queues.index._index cimport index_guard


def guard_maps(StoreCore store not None):
    """Guards the mapped files of the log and of the index, also those to come. Raises OSError."""
    cdef int rc
    with nogil:
        rc = guard_install()
        if rc >= 0:
            rc = row_guard(store.row)
        if rc >= 0 and store.index != NULL:
            rc = index_guard(store.index)
    if rc < 0:
        raise OSError(-rc, os.strerror(-rc), store.path)
