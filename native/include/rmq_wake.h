/* Sleeping and waking without Python: futex events, a small mutex, and the put lock.
 *
 * rmq_event: one word that counts wake-ups, one that counts sleepers. A waiter takes a ticket, checks its condition,
 * and sleeps only if no wake-up came since the ticket; a waker makes no system call when nobody sleeps.
 * All waits are bounded by a monotonic timeout; EINTR and early wake-ups are ordinary: callers loop over their condition. */
#ifndef RMQ_WAKE_H
#define RMQ_WAKE_H
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "rmq_atomic.h"

typedef struct rmq_event {
    int sequence;
    int sleepers;
} rmq_event;

static inline void rmq_futex_wait(int *word, int expected, int64_t timeout_ns) {
    struct timespec t = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, timeout_ns < 0 ? NULL : &t, NULL, 0);
}
static inline void rmq_futex_wake(int *word, int count) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static inline int rmq_event_ticket(rmq_event *e) { return rmq_load32(&e->sequence); }
/* Sleeps until rmq_event_wake was called after the ticket, or timeout_ns (negative: for ever) passed. */
static inline void rmq_event_wait(rmq_event *e, int ticket, int64_t timeout_ns) {
    rmq_add32(&e->sleepers, 1);
    rmq_fence();
    if (rmq_load32(&e->sequence) == ticket) rmq_futex_wait(&e->sequence, ticket, timeout_ns);
    rmq_add32(&e->sleepers, -1);
}
static inline void rmq_event_wake(rmq_event *e) {
    rmq_add32(&e->sequence, 1);
    rmq_fence();
    if (rmq_load32(&e->sleepers) > 0) rmq_futex_wake(&e->sequence, INT_MAX);
}
/* A mutex for short critical sections of background work (0 free, 1 held, 2 held and somebody sleeps). */
typedef struct rmq_mutex {
    int state;
} rmq_mutex;

static inline int rmq_mutex_try(rmq_mutex *m) { return rmq_cas32(&m->state, 0, 1); }
static inline void rmq_mutex_lock(rmq_mutex *m) {
    if (rmq_mutex_try(m)) return;
    while (rmq_swap32(&m->state, 2) != 0) rmq_futex_wait(&m->state, 2, -1);
}
static inline void rmq_mutex_unlock(rmq_mutex *m) {
    if (rmq_swap32(&m->state, 0) == 2) rmq_futex_wake(&m->state, 1);
}

/* The put lock. `spins` is how often it looks before it sleeps: few times with put_lock=mutex, many with put_lock=spin
 * (RocketMQ: PutMessageReentrantLock, PutMessageSpinLock). A caller that holds the GIL tries only, and waits without it. */
typedef struct rmq_put_lock {
    rmq_mutex mutex;
    int spins;
} rmq_put_lock;

static inline int rmq_put_lock_try(rmq_put_lock *l) { return rmq_mutex_try(&l->mutex); }
static inline void rmq_put_lock_acquire(rmq_put_lock *l) {
    for (int i = 0; i < l->spins; i++) {
        if (__atomic_load_n(&l->mutex.state, __ATOMIC_RELAXED) == 0 && rmq_mutex_try(&l->mutex)) return;
        rmq_pause();
    }
    rmq_mutex_lock(&l->mutex);
}
static inline void rmq_put_lock_release(rmq_put_lock *l) { rmq_mutex_unlock(&l->mutex); }

/* A native thread without Python state: every signal blocked but SIGBUS, whose handler (rmq_guard.h) the kernel passes over
 * where it is blocked: the process would die all the same. Named for top and gdb. Returns 0 or -errno. */
static inline int rmq_thread_start(pthread_t *t, void *(*body)(void *), void *arg, const char *name) {
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = pthread_create(t, NULL, body, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) pthread_setname_np(*t, name);
    return -rc;
}
static inline int rmq_thread_join(pthread_t *t) { return -pthread_join(*t, NULL); }
#endif
