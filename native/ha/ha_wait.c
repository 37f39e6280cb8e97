/* Threads that wait for slaves. Each sends, and one of them, the leader, reads what comes, in the HA thread's place: a put that
 * waits then pays for no wake-up but the slave's and its own. The HA thread is in epoll_wait, too, for whatever they leave. Of
 * the threads there Linux wakes the one that came last, which is the leader. Where leaders follow each other, the HA thread
 * stands aside (ha.c), and is called when one leaves something. */
#define _GNU_SOURCE
#include <sys/epoll.h>
#include "ha.h"
#include "rmq_epoll.h"

enum { PUSH_BYTES = 256 << 10 };    /* more is the HA thread's: a put does not bring a slave up to date */

/* As the HA thread does it: what comes from the end of it on signals, what came before is seen by ha_until_next. `round` is
 * held. */
static void turn(rmq_ha *ha, const struct epoll_event *events, int n) {
    rmq_publish32(&ha->asleep, 0);
    ha_turn(ha, events, n);
    rmq_publish32(&ha->asleep, 1);
}

/* `round` is held: something may be due before the HA thread looks by itself. */
static void rouse(rmq_ha *ha) {
    rmq_fence();
    int64_t wait = ha_until_next(ha);
    if ((wait == 0 || (wait > 0 && ha->now + wait < ha->until)) && rmq_load32(&ha->asleep)) ha_signal(ha);
}

/* The HA thread stands aside, and slaves are about to say something that no leader will read. `round` is held. */
static void call(rmq_ha *ha) {
    if (ha_expects(ha)) rmq_event_wake(&ha->left);
}

void rmq_ha_push(rmq_ha *ha, int waits) {
    rmq_fence();
    int64_t lacks = ha->log.end(ha->log.ctx) - rmq_load(&ha->reach);
    if (lacks <= 0) return;
    if (lacks > PUSH_BYTES || !rmq_mutex_try(&ha->round)) {
        rmq_ha_wake(ha);
        return;
    }
    if (!rmq_load32(&ha->stop)) {
        turn(ha, NULL, 0);
        rouse(ha);
        if (!waits && !ha->leading && rmq_load32(&ha->aside)) call(ha);
    }
    rmq_mutex_unlock(&ha->round);
}

/* Until `acks` slaves have acknowledged `end`, the deadline, or the stop. `lead` is held. */
static void lead(rmq_ha *ha, int64_t end, int acks, int64_t deadline) {
    struct epoll_event events[EVENTS];
    rmq_mutex_lock(&ha->round);
    ha->leading = 1;
    ha->leads++;
    while (rmq_load(&ha->by[acks - 1].acked) < end && !rmq_load32(&ha->stop)) {
        rmq_fence();
        int64_t wait = ha_until_next(ha), left = deadline - rmq_clock_ns();
        if (left <= 0) break;
        rmq_mutex_unlock(&ha->round);
        int n = epoll_wait(ha->epoll, events, EVENTS, ha_wait_ms(wait < 0 || wait > left ? left : wait));
        rmq_mutex_lock(&ha->round);
        if (!rmq_load32(&ha->stop)) turn(ha, events, n);
    }
    ha->leading = 0;
    if (!rmq_load32(&ha->stop)) rouse(ha);
    if (rmq_load32(&ha->aside)) call(ha);
    rmq_mutex_unlock(&ha->round);
}

int rmq_ha_wait(rmq_ha *ha, int64_t end, int acks, int64_t timeout_ns) {
    const int64_t *acked = &ha->by[acks - 1].acked;
    rmq_waiters *waiting = &ha->by[acks - 1].waiting;
    int64_t deadline = 0;
    rmq_waiter waiter;
    int listed = 0;
    for (;;) {
        int done = rmq_load(acked) >= end, stopped = rmq_load32(&ha->stopped);
        if (done || stopped) {
            if (listed) rmq_waiter_leave(waiting, &waiter);
            return done ? 0 : -ECANCELED;
        }
        int64_t now = rmq_clock_ns();
        if (deadline == 0) deadline = now + timeout_ns;
        if (now >= deadline) {
            if (listed) rmq_waiter_leave(waiting, &waiter);
            return rmq_load(acked) >= end ? 0 : -ETIMEDOUT;
        }
        if (rmq_mutex_try(&ha->lead)) {
            if (listed) rmq_waiter_leave(waiting, &waiter);
            listed = 0;
            lead(ha, end, acks, deadline);
            rmq_mutex_unlock(&ha->lead);
        } else if (!listed) {
            rmq_waiter_enter(waiting, &waiter, end);
            listed = 1;
        } else {
            rmq_waiter_sleep(waiting, &waiter, deadline - now);
            listed = 0;
        }
    }
}
