"""What a read-only store is given that follows another process's writing: the thread (dispatch/_follow.pyx), and what that
thread does not look at, which following.py has looked at once a second."""
import os

from libc.stdint cimport int32_t, int64_t

from rmq_store.access.waiting._wait cimport StoreWait
from rmq_store.base.io._sync cimport EEXIST, EINVAL, ENOENT, rmq_load32
from rmq_store.log.dispatch._dispatch cimport dispatcher_stop
from rmq_store.log.dispatch._follow cimport (follower_begins, follower_let_go_ahead, follower_look, follower_meets,
                                             follower_new, follower_start)
from rmq_store.queues.consumequeue._queue cimport queues_follow
from rmq_store.queues.index._index cimport index_add_file, index_drop_before, index_file_count, index_file_name, index_let_go

from rmq_store.base.io.wants import no_thread


cdef class StoreFollow(StoreWait):
    """The following half of reading."""

    cdef int _checked(self, int rc) except -1:
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), self.path)
        return 0

    def _follow(self, int64_t settled):
        """Starts the thread, after a look of its own: what has an entry by now is readable at once. settled: all records before
        that log offset had their entries when the ends of the queues were read. Raises OSError."""
        cdef int rc
        self.follower = follower_new(self.dispatcher, settled)
        if self.follower == NULL:
            raise MemoryError("follower")
        follower_let_go_ahead(self.follower)
        queues_follow(self.queues)
        self._look_on()
        self.started = True
        rc = follower_start(self.follower)
        if rc < 0:
            raise no_thread(-rc, "follow", self.path)

    def _look_on(self):
        """Where this store follows another process: what has an entry by now is readable when this returns. Raises OSError."""
        cdef int rc
        if self.follower == NULL:
            return
        self.calls += 1
        with nogil:
            rc = follower_look(self.follower, True)
            while rc > 0:
                rc = follower_look(self.follower, False)
        self.calls -= 1
        self._checked(rc)

    def _follow_files(self, int64_t begins, index_names):
        """What the thread does not look at: the log begins at `begins` now, and there are index files of these names,
        ascending. Raises OSError, the first one, when all is done: also what the thread has met."""
        cdef int64_t i, name
        cdef int rc = 0, begun = 0
        known = set(index_names)
        self._enter()
        self.calls += 1         # from here on no Python code: a close() inside of it would wait for this call
        with nogil:
            if begins >= 0:
                begun = follower_begins(self.follower, begins)
            if begins > 0 and self.index != NULL and rc >= 0:
                rc = index_drop_before(self.index, begins)
        if self.index != NULL and rc >= 0:
            for i in range(index_file_count(self.index) - 1, -1, -1):       # deleted by a recovery, which makes others
                if index_file_name(self.index, i) not in known:
                    rc = index_let_go(self.index, i)
        for value in index_names:
            name = value
            if self.index != NULL and rc >= 0:
                with nogil:
                    rc = index_add_file(self.index, name)
                if rc == -EEXIST or rc == -EINVAL or rc == -ENOENT:     # known, not whole yet, or gone again
                    rc = 0
        if rc >= 0:
            rc = -rmq_load32(&self.follower.error)
        self.calls -= 1
        self._checked(begun if begun < 0 else rc)

    def _records_unseen(self):
        """Whether records were deleted that the thread has not walked over: then _follow_queues is due."""
        self._enter()
        return self.follower.cleaned > 0

    def _follow_queues(self, queues):
        """What has a directory after records were deleted unseen: (topic: bytes, queue id, whether of batches) each. Raises
        OSError. Only the thread that calls _follow_files."""
        cdef const char *topic
        cdef int32_t size, queue_id
        cdef bint inner
        cdef int rc
        for name, queue_id, inner in queues:
            topic, size = name, len(name)
            self._enter()
            self.calls += 1
            with nogil:
                rc = follower_meets(self.follower, topic, size, queue_id, inner)
            self.calls -= 1
            self._checked(rc)
        self._enter()
        self.follower.cleaned = 0

    def _stop_following(self):
        if self.follower != NULL:
            with nogil:
                dispatcher_stop(self.dispatcher)
        self.started = False
