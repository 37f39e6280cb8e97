/* Between the network thread and others: frames that it passes on, and bytes that they send. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/socket.h>
#include "net.h"

static rmq_item *item_new(rmq_connection *c, int kind, const void *data, size_t n) {
    rmq_item *item = malloc(sizeof *item + n);
    if (item == NULL) return NULL;
    int64_t came = c->stalled_since ? c->stalled_since : c->net->now;
    *item = (rmq_item){.connection = c->id, .came_ns = came, .kind = kind, .size = (int32_t)n};
    if (n) memcpy(item->data, data, n);
    return item;
}

static void append_of_none(rmq_net *net, rmq_item *item) {
    net->passed_all++;
    *net->passed_last = item;
    net->passed_last = &item->next;
    net->passed_count++;
    net->passed_bytes += item->size;
}

static void append(rmq_connection *c, rmq_item *item) {
    append_of_none(c->net, item);
    c->passed = c->net->passed_all;
}

static rmq_opened facts(const rmq_connection *c) {
    rmq_opened said = {.peer = c->peer, .local = c->local, .listener = c->listener};
    socklen_t size = sizeof said.local;
    if (!c->adopted) getsockname(c->fd, &said.local.any, &size);
    return said;
}

/* The first frame of a connection has its OPENED before it; its CLOSED is made then, so that it cannot fail later. */
static rmq_item *opened(rmq_connection *c) {
    rmq_opened said = facts(c);
    if ((c->farewell = item_new(c, RMQ_CLOSED, NULL, 0)) == NULL) return NULL;
    return item_new(c, RMQ_OPENED, &said, sizeof said);
}

/* This thread alone adds: what was free stays free. */
static int full(rmq_net *net, int32_t size) {
    rmq_mutex_lock(&net->passed_lock);
    int no_room = net->passed_count >= net->limits.passed
                  || (net->passed_count > 0 && net->passed_bytes + size > net->limits.passed_bytes);
    rmq_mutex_unlock(&net->passed_lock);
    return no_room;
}

int queue_give(rmq_connection *c, int fd) {
    rmq_given given = {.from = facts(c), .fd = fd};
    rmq_item *item = full(c->net, (int32_t)sizeof given) ? NULL : item_new(c, RMQ_TLS, &given, sizeof given);
    if (item == NULL) return -1;
    rmq_mutex_lock(&c->net->passed_lock);
    append(c, item);
    rmq_mutex_unlock(&c->net->passed_lock);
    rmq_event_wake(&c->net->passed);
    return 0;
}

rmq_done queue_pass(rmq_connection *c, const void *frame, int32_t size) {
    rmq_net *net = c->net;
    rmq_item *first = NULL;
    if (full(net, size)) return RMQ_LATER;
    if (c->farewell == NULL && (first = opened(c)) == NULL) return RMQ_BAD;
    rmq_item *item = item_new(c, RMQ_FRAME, frame, (size_t)size);
    if (item == NULL) {
        if (first) {
            free(first);
            free(c->farewell);
            c->farewell = NULL;
        }
        return RMQ_BAD;
    }
    rmq_count(&net->counts.passed, 1);      /* before: who takes the frame sees it counted */
    rmq_mutex_lock(&net->passed_lock);
    if (first) append(c, first);
    append(c, item);
    rmq_mutex_unlock(&net->passed_lock);
    rmq_event_wake(&net->passed);
    return RMQ_DONE;
}

int rmq_connection_pass(rmq_connection *c, const void *frame, int32_t size) {
    return queue_pass(c, frame, size) == RMQ_DONE ? 0 : -1;
}

int rmq_net_ask(rmq_net *net) {
    rmq_item *item = full(net, 0) ? NULL : malloc(sizeof *item);
    if (item == NULL) return -1;
    *item = (rmq_item){.came_ns = net->now, .kind = RMQ_ASKED};
    rmq_mutex_lock(&net->passed_lock);
    append_of_none(net, item);
    rmq_mutex_unlock(&net->passed_lock);
    rmq_event_wake(&net->passed);
    return 0;
}

void queue_farewell(rmq_connection *c) {
    if (c->farewell == NULL) return;
    rmq_mutex_lock(&c->net->passed_lock);
    append(c, c->farewell);
    rmq_mutex_unlock(&c->net->passed_lock);
    c->farewell = NULL;
    rmq_event_wake(&c->net->passed);
}

rmq_item *rmq_net_take(rmq_net *net, int64_t timeout_ns) {
    for (int slept = 0;; slept = 1) {
        int ticket = rmq_event_ticket(&net->passed);
        rmq_mutex_lock(&net->passed_lock);
        rmq_item *item = net->passed_first;
        if (item) {
            net->passed_first = item->next;
            if (item->next == NULL) net->passed_last = &net->passed_first;
            net->passed_count--;
            net->passed_bytes -= item->size;
        }
        rmq_mutex_unlock(&net->passed_lock);
        if (item || slept || timeout_ns == 0 || rmq_net_stopped(net)) return item;
        rmq_event_wait(&net->passed, ticket, timeout_ns);
    }
}

void rmq_net_served(rmq_net *net) { rmq_add(&net->served, 1); }
int rmq_connection_settled(const rmq_connection *c) { return rmq_load(&c->net->served) >= c->passed; }

enum { DROP = 1, CUT = 2 };     /* when everything is sent; at once */

static int from_outside(rmq_net *net, uint64_t connection, const void *data, size_t n, int drop, int fd) {
    outside *o = malloc(sizeof *o + n);
    if (o == NULL) return -ENOMEM;
    *o = (outside){.connection = connection, .size = n, .drop = drop, .fd = fd};
    if (n) memcpy(o->data, data, n);
    rmq_add(&net->outside_bytes, (int64_t)n);
    rmq_mutex_lock(&net->outside_lock);
    int first = net->outside_first == NULL;
    *net->outside_last = o;
    net->outside_last = &o->next;
    rmq_mutex_unlock(&net->outside_lock);
    if (first) rmq_net_wake(net);
    return 0;
}

int rmq_net_send(rmq_net *net, uint64_t connection, const void *data, size_t n) {
    if (rmq_load(&net->outside_bytes) + (int64_t)n <= net->limits.unread_all)
        return from_outside(net, connection, data, n, 0, -1);
    int rc = from_outside(net, connection, NULL, 0, CUT, -1);
    return rc < 0 ? rc : 1;
}
int rmq_net_drop(rmq_net *net, uint64_t connection) { return from_outside(net, connection, NULL, 0, DROP, -1); }
int rmq_net_adopt(rmq_net *net, int fd, const rmq_opened *from) {
    return from_outside(net, 0, from, sizeof *from, 0, fd);
}

static void adopt(rmq_net *net, const outside *o) {
    rmq_opened from;
    memcpy(&from, o->data, sizeof from);
    rmq_connection *c = net_open(net, o->fd, from.listener, &from.peer);
    if (c == NULL) return;
    c->local = from.local;
    c->adopted = c->begun = 1;
}

static void send_outside(rmq_net *net, const outside *o) {
    rmq_connection *c = rmq_net_find(net, o->connection);
    if (c == NULL || c->dead) return;
    if (o->drop) {
        if (o->drop == CUT) c->dead = 1;
        c->ending = 1;
        connection_mark(c);
        return;
    }
    unsigned char *to = c->ending || o->size == 0 ? NULL : rmq_connection_room(c, o->size);
    if (to == NULL) return;
    memcpy(to, o->data, o->size);
    rmq_connection_filled(c, o->size);
    if (c->out_size - c->out_from > (size_t)net->limits.unread_most) c->dead = 1;
    /* not at the end of the round: until then all the others would take as much again */
    if (c->dead || net->unread > net->limits.unread_all) connection_settle(c);
}

void queue_outside(rmq_net *net) {
    rmq_mutex_lock(&net->outside_lock);
    outside *o = net->outside_first;
    net->outside_first = NULL;
    net->outside_last = &net->outside_first;
    rmq_mutex_unlock(&net->outside_lock);
    while (o) {
        outside *next = o->next;
        if (o->fd >= 0) adopt(net, o);
        else send_outside(net, o);
        rmq_add(&net->outside_bytes, -(int64_t)o->size);
        free(o);
        o = next;
    }
}

void queue_free(rmq_net *net) {
    for (rmq_item *item = net->passed_first, *next; item; item = next) {
        next = item->next;
        if (item->kind == RMQ_TLS) {
            rmq_given given;
            memcpy(&given, item->data, sizeof given);
            close(given.fd);
        }
        free(item);
    }
    for (outside *o = net->outside_first, *next; o; o = next) {
        next = o->next;
        if (o->fd >= 0) close(o->fd);
        free(o);
    }
}
