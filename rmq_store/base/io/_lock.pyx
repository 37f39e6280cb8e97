"""The lock of a store's control plane, and what a signal handler may do while the thread it interrupted has one.

A handler runs between any two steps of the main thread, also where that has a lock. Were close() to run there, it would wait
for that lock, or join a thread that waits for it; were the lock re-entrant, it would find things half done. So there is one
rule: inside of a StoreLock nothing of a store is closed. `put_off` keeps the call, and it runs when the thread has let go of
the last lock it has, as if the handler had come then.

Compiled, because a handler runs between two steps of Python and never between two of these. Fork: a lock that was made before
it raises ForkedProcess in the child, where whoever had it may be gone. Thread-safety: any.
"""
import threading

cimport cython

from rmq_store import errors

cdef extern from *:
    """
    #include <pthread.h>
    static __thread int rmq_inside;     /* locks that this thread has, or waits for */
    static __thread int rmq_owes;       /* it has put something off */
    static int rmq_forks;               /* how many forks lie between the first process and this one */
    static void rmq_forked(void) { rmq_forks++; }
    static int rmq_count_forks(void) { return pthread_atfork(NULL, NULL, rmq_forked); }
    """
    int rmq_inside
    int rmq_owes
    int rmq_forks
    int rmq_count_forks()

if rmq_count_forks() != 0:
    raise MemoryError("no room for a fork handler")

cdef dict _put_off = {}     # thread -> calls


def put_off(call):
    """Inside of a lock: keeps `call` until this thread is outside of all, and returns True. Else False: it may be done now."""
    global rmq_owes
    if rmq_inside == 0:
        return False
    calls = _put_off.setdefault(threading.get_ident(), [])
    if call not in calls:
        calls.append(call)
    rmq_owes = 1
    return True


def owing():
    """True where this thread has put something off: what it does inside of a lock should come to an end."""
    return rmq_owes != 0


cdef object _leave():
    global rmq_inside, rmq_owes
    rmq_inside -= 1
    if rmq_inside == 0 and rmq_owes != 0:
        rmq_owes = 0
        _pay(_put_off.pop(threading.get_ident(), None))


cdef object _pay(list calls):
    # All of them, whatever one raises.
    if calls:
        try:
            calls.pop(0)()
        finally:
            _pay(calls)


@cython.final
cdef class StoreLock:
    """Not re-entrant. name: what is locked, for the error where a handler calls what it has interrupted."""

    cdef object lock, path
    cdef str name
    cdef object owner
    cdef int forks

    def __init__(self, path, str name):
        self.lock = threading.Lock()
        self.path = path
        self.name = name
        self.forks = rmq_forks

    cdef bint _take(self, bint wait) except -1:
        global rmq_inside
        cdef bint taken = False
        if self.forks != rmq_forks:
            raise errors.ForkedProcess(self.path)
        me = threading.get_ident()
        if self.owner == me:
            raise errors.StoreStateError(f"{self.name} of {self.path} is in use by this thread: a signal handler, or a handler "
                                         "of log records, has interrupted it and called the same again; close() alone may be")
        rmq_inside += 1
        try:
            taken = self.lock.acquire(wait)     # while it waits, handlers run
        finally:
            if not taken:
                _leave()
        if taken:
            self.owner = me
        return taken

    cdef object _give(self):
        self.owner = None
        self.lock.release()
        _leave()

    def __enter__(self):
        self._take(True)

    def __exit__(self, *exc):
        self._give()

    def attempt(self, bint wait):
        """For `with`: True where the lock was taken, which it always is with `wait`."""
        return _Attempt(self, wait)


@cython.final
cdef class _Attempt:
    cdef StoreLock lock
    cdef bint wait, taken

    def __init__(self, StoreLock lock not None, bint wait):
        self.lock = lock
        self.wait = wait

    def __enter__(self):
        self.taken = self.lock._take(self.wait)
        return self.taken

    def __exit__(self, *exc):
        if self.taken:
            self.lock._give()
