/* Threads that wait for a position to be passed: each sleeps on a word of its own, in a list without a bound.
 *
 * The thread that passes the position takes those it covers off the list and wakes the first; each then wakes the next one.
 * Waking all of them at once would send them against one another, and then one by one through whatever they want next (a
 * Python thread: the GIL). Nobody is woken in vain, and nobody is forgotten: a waiter that comes late puts itself on the list
 * first and then looks again whether it has to sleep at all. */
#ifndef RMQ_WAITERS_H
#define RMQ_WAITERS_H
#include "rmq_wake.h"

typedef struct rmq_waiter { /* lies on the waiter's stack */
    struct rmq_waiter *next, *previous;
    int64_t end; /* what it waits for */
    int listed;  /* under the lock: still on the list, so it may leave by itself */
    int called;  /* 1: woken */
} rmq_waiter;

typedef struct rmq_waiters {
    rmq_mutex lock;
    rmq_waiter *first, *last;
} rmq_waiters;

static inline void rmq_waiters_unlink(rmq_waiters *l, rmq_waiter *w) {
    if (w->previous) w->previous->next = w->next; else l->first = w->next;
    if (w->next) w->next->previous = w->previous; else l->last = w->previous;
    w->next = w->previous = NULL;
    w->listed = 0;
}

static inline void rmq_waiter_call(rmq_waiter *w) {
    /* From the store on, the waiter's stack may be gone; a wake-up for a word that nobody sleeps on does nothing. */
    rmq_publish32(&w->called, 1);
    rmq_futex_wake(&w->called, 1);
}

/* Step 1 of waiting: from now on rmq_waiters_pass sees it. Then look whether waiting is still needed; then sleep or leave. */
static inline void rmq_waiter_enter(rmq_waiters *l, rmq_waiter *w, int64_t end) {
    w->end = end;
    w->called = 0;
    w->listed = 1;
    w->next = NULL;
    rmq_mutex_lock(&l->lock);
    w->previous = l->last;
    if (l->last) l->last->next = w; else l->first = w;
    l->last = w;
    rmq_mutex_unlock(&l->lock);
}

/* Takes it off the list. If it has been taken off already, its call is on the way: waits for that, and calls the next. */
static inline void rmq_waiter_leave(rmq_waiters *l, rmq_waiter *w) {
    if (rmq_load32(&w->called) == 0) {
        rmq_mutex_lock(&l->lock);
        int listed = w->listed;
        if (listed) rmq_waiters_unlink(l, w);
        rmq_mutex_unlock(&l->lock);
        if (listed) return;
    }
    while (rmq_load32(&w->called) == 0) rmq_futex_wait(&w->called, 0, -1);
    if (w->next) rmq_waiter_call(w->next);
}

/* Sleeps until called, or for timeout_ns at most; the waiter is off the list afterwards. */
static inline void rmq_waiter_sleep(rmq_waiters *l, rmq_waiter *w, int64_t timeout_ns) {
    if (rmq_load32(&w->called) == 0) rmq_futex_wait(&w->called, 0, timeout_ns);
    rmq_waiter_leave(l, w);
}

/* The position has passed `to`: whoever waits for no more than that continues, and one of the others as well, to see what is to
 * be done for them. That one first. */
static inline void rmq_waiters_pass(rmq_waiters *l, int64_t to) {
    rmq_waiter *head = NULL, *tail = NULL, *other = NULL;
    rmq_mutex_lock(&l->lock);
    for (rmq_waiter *w = l->first, *after; w != NULL; w = after) {
        after = w->next;
        if (w->end > to && other != NULL) continue;
        rmq_waiters_unlink(l, w);
        if (w->end > to) {
            other = w;
        } else {
            if (tail) tail->next = w; else head = w;
            tail = w;
        }
    }
    rmq_mutex_unlock(&l->lock);
    if (other) rmq_waiter_call(other);
    if (head) rmq_waiter_call(head);
}
#endif
