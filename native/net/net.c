/* The network thread: its rounds, its listener, its begin and its end. Contract in rmq_net.h. */
#define _GNU_SOURCE
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include "net.h"
#include "rmq_descriptors.h"
#include "rmq_epoll.h"

/* Ids of what is no connection: their slot is one that no connection has. */
enum { AT_WAKE, AT_SERVICE, AT_LISTENER = AT_SERVICE + RMQ_NET_FDS };
#define OTHER(n) (UINT64_C(0xFFFFFFFF) | (uint64_t)(n) << 32)
static const int64_t PAUSE = SECOND / 2;    /* after an accept for which there was no descriptor or memory */

int64_t rmq_net_now(const rmq_net *net) { return net->now; }
int rmq_net_stopped(const rmq_net *net) { return rmq_load32(&net->stopped); }
const rmq_net_counts *rmq_net_counts_of(const rmq_net *net) { return &net->counts; }

rmq_connection *rmq_net_find(rmq_net *net, uint64_t connection) {
    uint32_t slot = (uint32_t)connection;
    if (slot >= net->limits.connections || net->slots[slot] == NULL || net->slots[slot]->id != connection) return NULL;
    return net->slots[slot]->dead ? NULL : net->slots[slot];
}

void rmq_net_wake(rmq_net *net) { rmq_eventfd_signal(net->wake); }

static int watch(rmq_net *net, int fd, int what) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = OTHER(what)};
    return fd < 0 || epoll_ctl(net->epoll, EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST ? 0 : -errno;
}

/* ---- connections that come */

/* Said once a minute, by who takes items. */
static void say_refused(rmq_net *net) {
    rmq_count(&net->counts.refused, 1);
    if (net->refused_at && net->now - net->refused_at < 60 * SECOND) return;
    if (queue_say(net, RMQ_REFUSED) == 0) net->refused_at = net->now;
}

rmq_connection *net_open(rmq_net *net, int fd, int listener, const rmq_address *peer) {
    int on = 1;
    rmq_connection *c = net->unused_count > 0 && rmq_descriptor_spare(fd) ? calloc(1, sizeof *c) : NULL;
    if (c == NULL) {
        say_refused(net);
        close(fd);
        return NULL;
    }
    uint32_t slot = net->unused[net->unused_count - 1];
    c->net = net;
    c->fd = fd;
    c->listener = listener;
    c->id = (uint64_t)net->generations[slot] << 32 | slot;
    c->peer = *peer;
    c->heard = net->now;
    c->events = EPOLLIN;
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = c->id};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (epoll_ctl(net->epoll, EPOLL_CTL_ADD, fd, &event) < 0) {
        close(fd);
        free(c);
        return NULL;
    }
    net->unused_count--;
    net->slots[slot] = c;
    rmq_publish32(&net->fds[slot], fd);
    rmq_count(&net->counts.accepted, 1);
    rmq_count(&net->counts.connections, 1);
    return c;
}

/* Listeners stay readable while there is no descriptor or memory: this thread would spin. */
static void pause_accepting(rmq_net *net) {
    for (int i = 0; i < net->listening; i++) epoll_ctl(net->epoll, EPOLL_CTL_DEL, net->listeners[i], NULL);
    net->accept_at = net->now + PAUSE;
}

static void accept_some(rmq_net *net, int listener) {
    for (int i = 0; i < EVENTS; i++) {
        rmq_address peer = {.any = {0}};
        socklen_t size = sizeof peer;
        int fd = accept4(net->listeners[listener], &peer.any, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            net_open(net, fd, listener, &peer);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            pause_accepting(net);
            say_refused(net);
            return;
        }
        if (errno != ECONNABORTED && errno != EINTR) return;
    }
}

/* ---- rounds */

static void drain(int fd) {
    uint64_t count;
    ssize_t n = read(fd, &count, 8);
    (void)n;
}

static void serve_other(rmq_net *net, int what) {
    if (what >= AT_LISTENER) {
        if (net->accept_at == 0) accept_some(net, what - AT_LISTENER);
    } else if (what == AT_WAKE) {
        drain(net->wake);
        queue_outside(net);
    } else {
        drain(net->service.fds[what - AT_SERVICE]);
        net->service.woken(net->service.ctx, what - AT_SERVICE);
    }
}

static void serve_event(rmq_net *net, const struct epoll_event *event) {
    if ((uint32_t)event->data.u64 == UINT32_MAX) {
        serve_other(net, (int)(event->data.u64 >> 32));
        return;
    }
    rmq_connection *c = rmq_net_find(net, event->data.u64);
    if (c == NULL) return;
    if ((event->events & (EPOLLERR | EPOLLHUP)) && !(event->events & EPOLLIN)) {
        c->dead = 1;
        connection_settle(c);
        return;
    }
    if (event->events & EPOLLIN) connection_readable(c);
    connection_settle(c);
}

static void each_connection(rmq_net *net, void (*step)(rmq_net *net, rmq_connection *c)) {
    for (int64_t i = 0; i < net->limits.connections; i++)
        if (net->slots[i]) step(net, net->slots[i]);
}

/* Those that wait for room, from the one on behind whom there was none left: else the first slots would have all of it. */
static void retry_stalled(rmq_net *net) {
    int64_t n = net->limits.connections, from = net->retry_from;
    for (int64_t i = 0; i < n && net->stalled > 0; i++) {
        rmq_connection *c = net->slots[(from + i) % n];
        if (c == NULL || !c->stalled) continue;
        size_t before = c->in_size;
        connection_retry(c);
        if (c->in_size < before) net->retry_from = (from + i + 1) % n;
    }
}

static void close_idle(rmq_net *net, rmq_connection *c) {
    if (net->now - c->heard <= net->limits.idle_ns) return;
    c->dead = 1;
    connection_settle(c);
}

static void close_now(rmq_net *net, rmq_connection *c) {
    (void)net;
    c->dead = 1;
    connection_settle(c);
}

static void end_round(rmq_net *net) {
    while (net->marked) {
        rmq_connection *c = net->marked;
        net->marked = c->next_marked;
        c->listed = 0;
        if (c->marked) connection_settle(c);
    }
    while (net->dead) {
        rmq_connection *c = net->dead;
        net->dead = c->next_dead;
        connection_free(c);
    }
}

static void sweep(rmq_net *net) {
    net->sweep_at = net->now + SECOND;
    if (net->accept_at && net->now >= net->accept_at) {
        net->accept_at = 0;
        for (int i = 0; i < net->listening; i++)
            if (watch(net, net->listeners[i], AT_LISTENER + i) < 0) net->accept_at = net->now + PAUSE;
    }
    each_connection(net, close_idle);
    if (net->service.tick) net->service.tick(net->service.ctx);
}

/* Asleep for good where nobody is connected; stalled connections are asked again a thousand times a second. */
static int patience_ms(const rmq_net *net) {
    if (net->more) return 0;
    if (net->stalled > 0) return 1;
    if (net->counts.connections == 0 && net->accept_at == 0) return -1;
    return net->sweep_at > net->now ? (int)((net->sweep_at - net->now) / 1000000) + 1 : 0;
}

static void *run(void *arg) {
    rmq_net *net = arg;
    struct epoll_event events[EVENTS];
    net->now = rmq_clock_ns();
    while (!rmq_load32(&net->stop)) {
        int n = epoll_wait(net->epoll, events, EVENTS, patience_ms(net));
        net->now = rmq_clock_ns();
        if (net->service.begin) net->service.begin(net->service.ctx);
        net->busy = n;
        for (int i = 0; i < n; i++) serve_event(net, &events[i]);
        if (net->stalled > 0) retry_stalled(net);
        if (net->now >= net->sweep_at) sweep(net);
        if (net->service.more) net->more = net->service.more(net->service.ctx);
        end_round(net);
    }
    if (net->service.ending) net->service.ending(net->service.ctx);
    queue_outside(net);
    end_round(net);
    each_connection(net, close_now);
    end_round(net);
    return NULL;
}

/* ---- life */

int rmq_net_new(const rmq_net_limits *limits, rmq_net **out) {
    rmq_net *net = rmq_new_lines(sizeof *net);
    size_t n = (size_t)limits->connections;
    int rc = -ENOMEM;
    if (net == NULL) return rc;
    net->limits = *limits;
    net->epoll = net->wake = -1;
    net->outside_last = &net->outside_first;
    net->turns_last = &net->turns_first;
    net->slots = calloc(n, sizeof *net->slots);
    net->generations = calloc(n, sizeof *net->generations);
    net->unused = calloc(n, sizeof *net->unused);
    net->fds = calloc(n, sizeof *net->fds);
    if (net->slots && net->generations && net->unused && net->fds) {
        for (size_t i = 0; i < n; i++) {
            net->fds[i] = -1;
            net->unused[i] = (uint32_t)(n - 1 - i);
        }
        net->unused_count = (int64_t)n;
        net->epoll = epoll_create1(EPOLL_CLOEXEC);
        net->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        rc = net->epoll < 0 || net->wake < 0 ? -errno : 0;
    }
    if (rc == 0) rc = watch(net, net->wake, AT_WAKE);
    if (rc < 0) {
        rmq_net_free(net);
        return rc;
    }
    *out = net;
    return 0;
}

int rmq_net_use(rmq_net *net, const rmq_service *service) {
    int rc = 0;
    net->service = *service;
    for (int i = 0; i < RMQ_NET_FDS && rc == 0; i++) rc = watch(net, service->fds[i], AT_SERVICE + i);
    return rc;
}

int rmq_net_listen(rmq_net *net, int listener) {
    if (net->listening == RMQ_NET_LISTENERS) return -EMFILE;
    int rc = watch(net, listener, AT_LISTENER + net->listening);
    if (rc < 0) return rc;
    net->listeners[net->listening] = listener;
    return net->listening++;
}

void rmq_net_tls(rmq_net *net, int mode) { net->tls = mode; }

int rmq_net_start(rmq_net *net) {
    int rc = rmq_thread_start(&net->thread, run, net, "rmq-network");
    net->started = rc == 0;
    return rc;
}

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void close_listeners(rmq_net *net) {
    for (int i = 0; i < net->listening; i++) close_fd(&net->listeners[i]);
    net->listening = 0;
}

void rmq_net_stop(rmq_net *net) {
    rmq_publish32(&net->stop, 1);
    if (net->started) {
        rmq_net_wake(net);
        rmq_thread_join(&net->thread);
        net->started = 0;
    }
    close_listeners(net);
    rmq_publish32(&net->stopped, 1);        /* nothing is passed on any more */
    rmq_event_wake(&net->passed);
}

void rmq_net_child(rmq_net *net) {
    for (int64_t i = 0; i < net->limits.connections; i++) close_fd(&net->fds[i]);
    close_listeners(net);
    close_fd(&net->epoll);
    close_fd(&net->wake);
}

void rmq_net_free(rmq_net *net) {
    if (net == NULL) return;
    close_listeners(net);
    close_fd(&net->epoll);
    close_fd(&net->wake);
    queue_free(net);
    free(net->slots);
    free(net->generations);
    free(net->unused);
    free(net->fds);
    free(net);
}
