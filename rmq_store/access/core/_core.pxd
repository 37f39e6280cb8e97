# What a store is made of, below its methods: the native state, its life, and the checks every call begins with. Put methods are
# added by writer/, reading by reader/_get.pyx, the public face by store.py; each extends the class before it.
from libc.stdint cimport int64_t

from rmq_store.base.io._io cimport IoTable, rmq_io
from rmq_store.base.segment._allocator cimport Allocator
from rmq_store.base.segment._file cimport FileRow
from rmq_store.log.commitlog._log cimport Log
from rmq_store.log.dispatch._dispatch cimport Dispatcher
from rmq_store.log.dispatch._follow cimport Follower
from rmq_store.log.flush._flush cimport Flusher
from rmq_store.log.pool._pool cimport Pool
from rmq_store.log.recovery._checkpoint cimport Checkpointer
from rmq_store.queues.consumequeue._queue cimport QueueTable
from rmq_store.queues.index._index cimport Index

cdef enum StoreState:
    STATE_OPENING = 0
    STATE_OPEN = 1
    STATE_CLOSED = 2


cdef class StoreCore:
    cdef readonly object path           # str: the root directory
    cdef readonly object options        # config.load.Options
    cdef readonly bint readonly
    cdef bint refuses_puts              # readonly, or one of the running flags forbids puts
    cdef int put_checks                 # refuses_puts, or there are hooks or keyed topics: what a put looks at
    cdef tuple hooks                    # (name, put hook), in the order of their calls
    cdef object keyed                   # frozenset of topics whose messages need KEYS; None: no topic
    cdef readonly bint disk_full        # the cleaner's word: the disk is fuller than disk_full_pct
    cdef int flags                      # RunningFlags that set_readable and its like have set
    cdef IoTable io_owner
    cdef const rmq_io *io
    cdef FileRow *row
    cdef set withdrawn                  # log offsets of files that the row has given up and the disk may still have; None: none
    cdef Pool *pool
    cdef Allocator *alloc
    cdef Log *log
    cdef QueueTable *queues
    cdef Index *index
    cdef Dispatcher *dispatcher
    cdef Follower *follower             # NULL: this process writes, or shows what was there
    cdef Flusher *flusher
    cdef Checkpointer *checkpointer
    cdef object queues_owner            # keep the table and the index alive
    cdef object index_owner
    cdef object filter_table            # FilterTable of the dispatcher; None: none
    cdef object backend_owner           # the capsule of another package's back end
    cdef int *alive                     # 0 in a child of fork
    cdef int state
    cdef bint started
    cdef bint sync_mode
    cdef bint compat5
    cdef int64_t flush_deadline_ns
    cdef int64_t released_maps          # files of the log whose memory was given back
    cdef int64_t queues_removed         # since the store was opened
    cdef int64_t calls                  # calls that run without the GIL; close waits for them
    cdef int64_t last_flushed           # what a call that close() overtook still asks for
    cdef int64_t last_shown
    cdef int last_fence
    cdef int last_fence_step
    cdef tuple unwritten                # of unwritten_told, as last counted

    cdef int _refuse(self) except -1
    cdef inline int _enter(self) except -1:
        # Every public call: the store is open, and this is the process that opened it. Asked again behind whatever may run
        # Python code or give the GIL away, before the native parts are touched: close() in another thread frees them.
        if self.state == STATE_OPEN and self.alive[0] == 1:
            return 0
        return self._refuse()
    cdef int _refuse_put(self) except -1
    cdef void _check_puts(self) noexcept
    cdef object _fence_error(self)
    cdef object _failed_with(self, int rc, str what)
    cdef int _push(self, int64_t end, int64_t timeout_ns) noexcept nogil
    cdef void _free(self)
