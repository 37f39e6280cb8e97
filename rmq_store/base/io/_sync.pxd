# Atomics, futex events, mutexes, native threads and their processors (rmq_atomic.h, rmq_wake.h, rmq_cpu.h) as Cython sees them.
from libc.stdint cimport int64_t


cdef extern from "rmq_atomic.h" nogil:
    int64_t rmq_load(const int64_t *p)
    int64_t rmq_load_relaxed(const int64_t *p)
    void rmq_publish(int64_t *p, int64_t v)
    int64_t rmq_add(int64_t *p, int64_t v)
    void rmq_count(int64_t *p, int64_t v)
    int rmq_load32(const int *p)
    void rmq_publish32(int *p, int v)
    int rmq_add32(int *p, int v)
    int rmq_swap32(int *p, int v)
    int rmq_cas32(int *p, int expected, int v)
    void rmq_fence()
    void rmq_pause()
    void *rmq_new_lines(size_t n)
    void rmq_prefetch(const void *p)
    void rmq_prefetch_to_write(const void *p, size_t n)


cdef extern from "rmq_wake.h" nogil:
    ctypedef struct rmq_event:
        int sequence
        int sleepers
    int rmq_event_ticket(rmq_event *e)
    void rmq_event_wait(rmq_event *e, int ticket, int64_t timeout_ns)
    void rmq_event_wake(rmq_event *e)

    ctypedef struct rmq_mutex:
        int state
    bint rmq_mutex_try(rmq_mutex *m)
    void rmq_mutex_lock(rmq_mutex *m)
    void rmq_mutex_unlock(rmq_mutex *m)

    ctypedef struct rmq_put_lock:
        rmq_mutex mutex
        int spins
    bint rmq_put_lock_try(rmq_put_lock *l)
    void rmq_put_lock_acquire(rmq_put_lock *l)
    void rmq_put_lock_release(rmq_put_lock *l)

    ctypedef struct pthread_t:
        pass
    int rmq_thread_start(pthread_t *t, void *(*body)(void *) noexcept nogil, void *arg, const char *name)
    int rmq_thread_join(pthread_t *t)


cdef extern from "rmq_sweep.h" nogil:
    enum: RMQ_SWEEP_ALONE, RMQ_SWEEP_THREADS
    int rmq_sweep_all(int64_t count, int (*step)(void *, int64_t) noexcept nogil, void *ctx, int threads, int64_t *failed)


cdef extern from "rmq_cpu.h" nogil:
    int rmq_cpu()
    void rmq_cpu_leave(int cpu)


cdef extern from "rmq_waiters.h" nogil:
    ctypedef struct rmq_waiter:
        pass
    ctypedef struct rmq_waiters:
        pass
    void rmq_waiter_enter(rmq_waiters *l, rmq_waiter *w, int64_t end)
    void rmq_waiter_leave(rmq_waiters *l, rmq_waiter *w)
    void rmq_waiter_sleep(rmq_waiters *l, rmq_waiter *w, int64_t timeout_ns)
    void rmq_waiters_pass(rmq_waiters *l, int64_t to)


cdef extern from *:
    """
    #include <errno.h>
    """
    enum: EAGAIN, EBADF, EDQUOT, EEXIST, EINVAL, EIO, EMFILE, ENFILE, ENOENT, ENOMEM, ENOSPC, ETIMEDOUT, EROFS, ECANCELED
