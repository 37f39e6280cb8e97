/* The master's HA thread: its rounds, its listener, its begin and its end. Contract in rmq_ha.h. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include "ha.h"
#include "rmq_epoll.h"

enum { AT_LISTENER = RMQ_HA_SLAVES, AT_WAKE };
/* Edges only: a level would wake a second one of those that stand in epoll_wait for each report. */
static const uint32_t WATCHED = EPOLLIN | EPOLLRDHUP | EPOLLET;
static const int64_t PAUSE = SECOND / 2;    /* after an accept for which there was no descriptor or memory */
static const int64_t ASIDE = SECOND / 1000; /* so often the thread looks whether leaders still follow each other */
static const int64_t FIRST = 10 * SECOND;   /* for the first word: RocketMQ's 4.9 slave says it after 5 s */

int64_t rmq_ha_acked(const rmq_ha *ha, int acks) { return rmq_load(&ha->by[acks - 1].acked); }
int64_t rmq_ha_sent(const rmq_ha *ha) { return rmq_load(&ha->sent); }
rmq_ha_notes *rmq_ha_notes_of(rmq_ha *ha) { return &ha->notes; }

void ha_signal(rmq_ha *ha) {
    rmq_eventfd_signal(ha->wake);
    if (rmq_load32(&ha->aside)) rmq_event_wake(&ha->left);
}

void rmq_ha_wake(rmq_ha *ha) {
    rmq_fence();
    if (rmq_load32(&ha->asleep) && rmq_load(&ha->reach) < ha->log.end(ha->log.ctx)) ha_signal(ha);
}

/* ---- slaves that come and go */

static void spell(const struct sockaddr_storage *peer, char *out) {
    char host[INET6_ADDRSTRLEN] = "";
    if (peer->ss_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)peer;
        inet_ntop(AF_INET6, &a->sin6_addr, host, sizeof host);
        snprintf(out, RMQ_HA_ADDRESS, "[%s]:%u", host, ntohs(a->sin6_port));
    } else {
        const struct sockaddr_in *a = (const struct sockaddr_in *)peer;
        inet_ntop(AF_INET, &a->sin_addr, host, sizeof host);
        snprintf(out, RMQ_HA_ADDRESS, "%s:%u", host, ntohs(a->sin_port));
    }
}

/* fork_lock is held. */
static void bury(rmq_ha *ha, replica *r) {
    rmq_mutex_lock(&ha->lock);
    ha->all[r->slot] = NULL;
    ha->fds[r->slot] = -1;
    rmq_mutex_unlock(&ha->lock);
    close(r->fd);
    free(r);
}

/* A free place: where there is none, that of the oldest connection that has said nothing yet. RMQ_HA_SLAVES: none. */
static int place(rmq_ha *ha) {
    int slot = 0, oldest = RMQ_HA_SLAVES;
    while (slot < RMQ_HA_SLAVES && ha->all[slot] != NULL) {
        replica *r = ha->all[slot];
        if (r->next < 0 && (oldest == RMQ_HA_SLAVES || r->came_ns < ha->all[oldest]->came_ns)) oldest = slot;
        slot++;
    }
    if (slot < RMQ_HA_SLAVES || oldest == RMQ_HA_SLAVES) return slot;
    rmq_ha_say(&ha->notes, RMQ_HA_MUTE, 0, 0, 0, ha->all[oldest]->peer);
    bury(ha, ha->all[oldest]);
    return oldest;
}

static int same_host(const char *one, const char *other) {
    const char *end = strrchr(one, ':');
    return end && strncmp(one, other, (size_t)(end - one) + 1) == 0;
}

static int take(rmq_ha *ha, int fd, const struct sockaddr_storage *peer) {
    int on = 1;
    char text[RMQ_HA_ADDRESS];
    spell(peer, text);
    int slot = place(ha);
    if (slot == RMQ_HA_SLAVES) {
        rmq_ha_say(&ha->notes, RMQ_HA_FULL, 0, RMQ_HA_SLAVES, 0, text);
        return -1;
    }
    replica *r = calloc(1, sizeof *r);
    if (r == NULL) return -1;
    r->ha = ha;
    r->fd = fd;
    r->slot = slot;
    r->next = r->frame_size = r->acked = r->sure = r->mark = -1;
    r->heard = r->wrote = r->came_ns = r->fresh_ns = ha->now;
    memcpy(r->peer, text, sizeof text);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event event = {.events = WATCHED, .data.u64 = (uint64_t)slot};
    if (epoll_ctl(ha->epoll, EPOLL_CTL_ADD, fd, &event) < 0) {
        free(r);
        return -1;
    }
    rmq_mutex_lock(&ha->lock);
    for (int i = 0; i < RMQ_HA_SLAVES; i++) {
        if (ha->all[i] != NULL && same_host(text, ha->all[i]->peer)) ha->all[i]->vouched = 0;
    }
    ha->all[slot] = r;
    ha->fds[slot] = fd;
    rmq_mutex_unlock(&ha->lock);
    return 0;
}

static void watch_listener(rmq_ha *ha, int on) {
    struct epoll_event event = {.events = on ? EPOLLIN : 0, .data.u64 = AT_LISTENER};
    epoll_ctl(ha->epoll, EPOLL_CTL_MOD, ha->listener, &event);
    ha->accept_at = on ? 0 : ha->now + PAUSE;
}

static void accept_some(rmq_ha *ha) {
    for (int i = 0; i < RMQ_HA_SLAVES; i++) {
        struct sockaddr_storage peer = {0};
        socklen_t size = sizeof peer;
        rmq_mutex_lock(&ha->fork_lock);
        int fd = accept4(ha->listener, (struct sockaddr *)&peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC), error = errno;
        if (fd >= 0 && take(ha, fd, &peer) < 0) close(fd);
        rmq_mutex_unlock(&ha->fork_lock);
        if (fd < 0) {
            if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS) watch_listener(ha, 0);
            return;
        }
    }
}

static void end_of(rmq_ha *ha, replica *r) {
    rmq_mutex_lock(&ha->fork_lock);
    bury(ha, r);
    rmq_mutex_unlock(&ha->fork_lock);
}

/* After a round: writes, watches, closes. */
static void settle(rmq_ha *ha, replica *r) {
    replica_pump(r);
    replica_look(r);
    if (!r->dead && (ha->now - r->heard >= ha->limits.silence_ns || (r->next < 0 && ha->now - r->came_ns >= FIRST))) {
        replica_fail(r, RMQ_HA_SILENT, r->acked, ha->log.end(ha->log.ctx));
    }
    if (r->dead) {
        end_of(ha, r);
    } else if (r->full != r->watched) {
        struct epoll_event event = {.events = WATCHED | (r->full ? EPOLLOUT : 0U), .data.u64 = (uint64_t)r->slot};
        r->watched = r->full;
        if (epoll_ctl(ha->epoll, EPOLL_CTL_MOD, r->fd, &event) < 0) end_of(ha, r);
    }
}

/* ---- the thread */

int64_t ha_until_next(rmq_ha *ha) {
    int64_t least = ha->limits.heartbeat_ns < ha->limits.silence_ns ? ha->limits.heartbeat_ns : ha->limits.silence_ns;
    int some = 0;
    for (int i = 0; i < RMQ_HA_SLAVES; i++) {
        replica *r = ha->all[i];
        if (r == NULL) continue;
        some = 1;
        if (r->next >= 0 && !r->full && r->next < ha->log.end(ha->log.ctx)) {
            return ha->limits.rate ? SECOND / 100 : 0;      /* it has more to get than one turn gives */
        }
    }
    if (ha->accept_at) return PAUSE;
    return some ? least / 4 < SECOND / 2 ? least / 4 : SECOND / 2 : -1;
}

int ha_expects(const rmq_ha *ha) {
    for (int i = 0; i < RMQ_HA_SLAVES; i++) {
        const replica *r = ha->all[i];
        if (r != NULL && r->next >= 0 && r->acked < r->next) return 1;
    }
    return 0;
}

int ha_wait_ms(int64_t ns) { return ns < 0 ? -1 : (int)((ns + 999999) / 1000000); }

static void handle(rmq_ha *ha, const struct epoll_event *event) {
    const uint32_t ending = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
    uint64_t at = event->data.u64, count;
    if (at == AT_WAKE) {
        if (rmq_load32(&ha->stop)) return;      /* it stays readable, and everybody leaves */
        ssize_t n = read(ha->wake, &count, 8);
        (void)n;
    } else if (at == AT_LISTENER) {
        accept_some(ha);
    } else if (ha->all[at] != NULL) {
        if (event->events & EPOLLOUT) ha->all[at]->full = 0;
        if (event->events & (EPOLLIN | ending)) replica_readable(ha->all[at], (event->events & ending) != 0);
    }
}

void ha_turn(rmq_ha *ha, const struct epoll_event *events, int n) {
    int64_t reach = INT64_MAX;
    ha->now = rmq_clock_ns();
    for (int i = 0; i < n; i++) handle(ha, &events[i]);
    if (ha->accept_at && ha->now >= ha->accept_at) watch_listener(ha, 1);
    int first = ha->turn++ % RMQ_HA_SLAVES;     /* with limits.rate they share one budget: each comes first once */
    for (int i = 0; i < RMQ_HA_SLAVES; i++) {
        replica *r = ha->all[(first + i) % RMQ_HA_SLAVES];
        if (r != NULL) settle(ha, r);
    }
    for (int i = 0; i < RMQ_HA_SLAVES; i++) {
        const replica *r = ha->all[i];
        if (r != NULL && r->next >= 0 && !r->full && r->next < reach) reach = r->next;
    }
    rmq_publish(&ha->reach, reach);
}

/* There is a leader, or was one a moment ago that left nothing to expect. If it sleeps it is called: the turn of this thread
 * may have brought what it waits for. This thread then stays out of epoll_wait as long as leaders follow each other: there it
 * would take each report that comes before the next leader is there, or that comes afterwards, as the one that came last is
 * woken first. A leader that leaves nothing to do and nothing to expect does not wake it. */
static void stand_aside(rmq_ha *ha) {
    int64_t leads;
    int ticket, called;
    if (ha->leading) rmq_eventfd_signal(ha->wake);
    rmq_publish32(&ha->asleep, 1);
    rmq_publish32(&ha->aside, 1);
    do {
        leads = ha->leads;
        ticket = rmq_event_ticket(&ha->left);
        ha->until = rmq_clock_ns() + ASIDE;
        rmq_mutex_unlock(&ha->round);
        rmq_event_wait(&ha->left, ticket, ASIDE);
        rmq_mutex_lock(&ha->round);
        called = rmq_event_ticket(&ha->left) != ticket;
    } while (!rmq_load32(&ha->stop) && (ha->leading || (!called && ha->leads != leads)));
    rmq_publish32(&ha->aside, 0);
}

static void *run(void *arg) {
    rmq_ha *ha = arg;
    struct epoll_event events[EVENTS];
    rmq_mutex_lock(&ha->round);
    while (!rmq_load32(&ha->stop)) {
        rmq_publish32(&ha->asleep, 1);
        rmq_fence();            /* what comes from here on signals; what came before is seen by ha_until_next */
        int64_t wait = ha_until_next(ha), leads = ha->leads;
        ha->until = wait < 0 ? INT64_MAX : ha->now + wait;
        rmq_mutex_unlock(&ha->round);
        int n = epoll_wait(ha->epoll, events, EVENTS, ha_wait_ms(wait));
        rmq_publish32(&ha->asleep, 0);
        rmq_mutex_lock(&ha->round);
        ha_turn(ha, events, n);
        if (ha->leading || (ha->leads != leads && !ha_expects(ha))) stand_aside(ha);
    }
    rmq_publish32(&ha->asleep, 0);
    rmq_mutex_unlock(&ha->round);
    return NULL;
}

/* ---- life */

int rmq_ha_new(const rmq_ha_log *log, const rmq_ha_limits *limits, int listener, rmq_ha **out) {
    rmq_ha *ha = calloc(1, sizeof *ha);
    if (ha == NULL) return -ENOMEM;
    ha->log = *log;
    ha->limits = *limits;
    ha->listener = listener;
    ha->reach = INT64_MAX;
    for (int i = 0; i < RMQ_HA_SLAVES; i++) ha->by[i].acked = -1;
    ha->now = ha->budget_ns = rmq_clock_ns();
    for (int i = 0; i < RMQ_HA_SLAVES; i++) ha->fds[i] = -1;
    ha->epoll = epoll_create1(EPOLL_CLOEXEC);
    ha->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event listening = {.events = EPOLLIN, .data.u64 = AT_LISTENER};
    struct epoll_event wake = {.events = EPOLLIN, .data.u64 = AT_WAKE};
    int rc = 0;
    if (ha->epoll < 0 || ha->wake < 0 || epoll_ctl(ha->epoll, EPOLL_CTL_ADD, listener, &listening) < 0
        || epoll_ctl(ha->epoll, EPOLL_CTL_ADD, ha->wake, &wake) < 0) {
        rc = -errno;
    }
    if (rc < 0) {
        if (ha->epoll >= 0) close(ha->epoll);
        if (ha->wake >= 0) close(ha->wake);
        free(ha);
        return rc;
    }
    *out = ha;
    return 0;
}

int rmq_ha_start(rmq_ha *ha) {
    int rc = rmq_thread_start(&ha->thread, run, ha, "rmq-ha");
    ha->started = rc == 0;
    return rc;
}

static void close_all(rmq_ha *ha) {
    for (int i = 0; i < RMQ_HA_SLAVES; i++) {
        if (ha->fds[i] >= 0) close(ha->fds[i]);
        ha->fds[i] = -1;
    }
    if (ha->listener >= 0) close(ha->listener);
    close(ha->epoll);
    ha->listener = -1;
}

void rmq_ha_stop(rmq_ha *ha) {
    if (rmq_load32(&ha->stopped)) return;
    rmq_publish32(&ha->stop, 1);
    rmq_eventfd_signal(ha->wake);
    if (ha->started) rmq_thread_join(&ha->thread);
    rmq_publish32(&ha->stopped, 1);
    rmq_mutex_lock(&ha->lead);
    rmq_mutex_lock(&ha->round);
    for (int i = 0; i < RMQ_HA_SLAVES; i++) rmq_waiters_pass(&ha->by[i].waiting, INT64_MAX);
    if (ha->log.acked) ha->log.acked(ha->log.ctx);
    rmq_mutex_lock(&ha->fork_lock);
    rmq_mutex_lock(&ha->lock);
    close_all(ha);
    for (int i = 0; i < RMQ_HA_SLAVES; i++) {
        free(ha->all[i]);
        ha->all[i] = NULL;
    }
    rmq_mutex_unlock(&ha->lock);
    rmq_mutex_unlock(&ha->fork_lock);
    rmq_mutex_unlock(&ha->round);
    rmq_mutex_unlock(&ha->lead);
}

void rmq_ha_free(rmq_ha *ha) {
    rmq_ha_stop(ha);
    close(ha->wake);            /* not before: who wakes the thread as it ends may still write there */
    free(ha);
}

void rmq_ha_fork_lock(rmq_ha *ha) { rmq_mutex_lock(&ha->fork_lock); }
void rmq_ha_fork_unlock(rmq_ha *ha) { rmq_mutex_unlock(&ha->fork_lock); }

void rmq_ha_child(rmq_ha *ha) {
    if (!rmq_load32(&ha->stopped)) close_all(ha);
    close(ha->wake);
    ha->stopped = 1;            /* the thread and the lock are the parent's */
}

/* ---- for those who look */

int rmq_ha_replicas(rmq_ha *ha, rmq_ha_replica *out, int most) {
    int n = 0;
    int64_t now = rmq_clock_ns();
    rmq_mutex_lock(&ha->lock);
    int64_t end = rmq_load32(&ha->stopped) ? 0 : ha->log.end(ha->log.ctx);
    for (int i = 0; i < RMQ_HA_SLAVES && n < most; i++) {
        replica *r = ha->all[i];
        if (r == NULL) continue;
        rmq_ha_replica *o = &out[n++];
        memcpy(o->peer, r->peer, sizeof o->peer);
        o->acked = r->acked;
        o->lag_bytes = r->acked < 0 || end <= r->acked ? 0 : end - r->acked;
        o->lag_ms = o->lag_bytes ? (now - r->fresh_ns) / 1000000 : 0;
        o->sent_bytes = r->sent_bytes;
        o->connected_ms = (now - r->came_ns) / 1000000;
    }
    rmq_mutex_unlock(&ha->lock);
    return n;
}

int rmq_ha_usable(rmq_ha *ha, int64_t end) {
    int usable = 0;
    rmq_mutex_lock(&ha->lock);
    for (int i = 0; i < RMQ_HA_SLAVES && !usable; i++) {
        usable = ha->all[i] != NULL && ha->all[i]->acked >= 0 && end - ha->all[i]->acked < ha->limits.behind_bytes;
    }
    rmq_mutex_unlock(&ha->lock);
    return usable;
}

int rmq_ha_in_sync(rmq_ha *ha, int64_t end) {
    int count = 1;
    rmq_mutex_lock(&ha->lock);
    for (int i = 0; i < RMQ_HA_SLAVES; i++) {
        const replica *r = ha->all[i];
        count += r != NULL && r->acked >= 0 && end - r->acked < ha->limits.behind_bytes;
    }
    rmq_mutex_unlock(&ha->lock);
    return count;
}
