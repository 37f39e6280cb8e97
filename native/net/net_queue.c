/* Between the network thread and others: frames that it passes on, and bytes that they send. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/socket.h>
#include "net.h"

static rmq_item *item_new(rmq_connection *c, int kind, const void *data, size_t n) {
    rmq_item *item = malloc(sizeof *item + n);
    if (item == NULL) return NULL;
    int64_t came = c->stalled_since ? c->stalled_since : c->net->now;
    *item = (rmq_item){.connection = c->id, .came_ns = came, .kind = kind, .size = (int32_t)n,
                       .data = (unsigned char *)(item + 1)};
    if (n) memcpy(item->data, data, n);
    return item;
}

/* A large frame that is alone in its buffer takes the buffer with it: to copy 16 MiB takes this thread 5 ms, in which no
 * connection is served. */
static rmq_item *item_of_frame(rmq_connection *c, const unsigned char *frame, int32_t size) {
    int large = size > READ_SIZE && frame == c->in && (size_t)size == c->in_size && c->in_room <= 2 * c->in_size;
    rmq_item *item = item_new(c, RMQ_FRAME, frame, large ? 0 : (size_t)size);
    if (item == NULL || !large) return item;
    item->size = size;
    item->data = item->large = c->in;
    c->in = NULL;
    c->in_size = c->in_room = 0;
    return item;
}

void rmq_item_free(rmq_item *item) {
    free(item->large);
    free(item);
}

/* ---- lanes; passed_lock is held */

static void lane_waits(rmq_net *net, rmq_lane *lane) {
    if (lane->busy || lane->waits || lane->first == NULL) return;
    lane->waits = 1;
    lane->next = NULL;
    *net->turns_last = lane;
    net->turns_last = &lane->next;
}

static void append(rmq_net *net, rmq_lane *lane, rmq_item *item) {
    item->lane = lane;
    item->next = NULL;
    if (lane->first == NULL) lane->last = &lane->first;
    *lane->last = item;
    lane->last = &item->next;
    lane->count++;
    lane->bytes += item->size;
    rmq_add(&lane->unserved, 1);
    net->passed_count++;
    net->passed_bytes += item->size;
    lane_waits(net, lane);
}

static rmq_item *lane_take(rmq_net *net, rmq_lane *lane) {
    rmq_item *item = lane->first;
    lane->first = item->next;
    lane->count--;
    lane->bytes -= item->size;
    net->passed_count--;
    net->passed_bytes -= item->size;
    return item;
}

static void turn_leave(rmq_net *net, rmq_lane *lane) {
    rmq_lane **at = &net->turns_first;
    while (*at != lane) at = &(*at)->next;
    *at = lane->next;
    if (lane->next == NULL) net->turns_last = at;
    lane->waits = 0;
}

/* Takes out what its connection asked for itself. Returns whether nobody has heard of the connection yet. */
static int lane_drop(rmq_net *net, rmq_lane *lane) {
    rmq_item *kept = NULL, **end = &kept;
    int64_t opened = 0, changes = 0;
    while (lane->first) {
        rmq_item *item = lane_take(net, lane);
        rmq_add(&lane->unserved, -1);
        if (item->kind == RMQ_FRAME && !item->stays) {
            rmq_item_free(item);
            continue;
        }
        opened += item->kind == RMQ_OPENED;
        changes += item->kind == RMQ_FRAME;
        *end = item;
        end = &item->next;
    }
    *end = NULL;
    int unknown = opened && !changes;
    while (kept) {
        rmq_item *next = kept->next;
        if (unknown) rmq_item_free(kept);
        else append(net, lane, kept);
        kept = next;
    }
    if (lane->first == NULL && lane->waits) turn_leave(net, lane);
    return unknown;
}

/* ---- what is passed on */

static rmq_opened facts(const rmq_connection *c) {
    rmq_opened said = {.peer = c->peer, .local = c->local, .listener = c->listener};
    socklen_t size = sizeof said.local;
    if (!c->adopted) getsockname(c->fd, &said.local.any, &size);
    return said;
}

/* The first frame of a connection has its OPENED before it; its lane and its CLOSED are made then: they cannot fail later. */
static rmq_item *opened(rmq_connection *c) {
    rmq_opened said = facts(c);
    rmq_item *first = item_new(c, RMQ_OPENED, &said, sizeof said);
    c->farewell = item_new(c, RMQ_CLOSED, NULL, 0);
    c->lane = calloc(1, sizeof *c->lane);
    if (first && c->farewell && c->lane) return first;
    free(first);
    queue_farewell(c);
    return NULL;
}

/* Small requests do not wait for large ones, which take long: they have as much room more. Medium ones have some. */
enum { SMALL = 1 << 16, MEDIUM = 1 << 20 };

/* This thread alone adds: what was free stays free. */
static int full(rmq_net *net, const rmq_lane *lane, int32_t size) {
    int64_t most = net->limits.passed_bytes;
    most += size <= SMALL ? most : size <= MEDIUM ? most / 8 : 0;
    rmq_mutex_lock(&net->passed_lock);
    int64_t held = net->passed_bytes + net->taken_bytes;
    int no_room = net->passed_count >= net->limits.passed || (held > 0 && held + size > most);
    if (lane && !no_room)
        no_room = rmq_load(&lane->unserved) >= net->limits.passed_of_one
                  || (lane->count > 0 && lane->bytes + size > net->limits.passed_bytes / 8);
    rmq_mutex_unlock(&net->passed_lock);
    return no_room;
}

int queue_give(rmq_connection *c, int fd) {
    rmq_given given = {.from = facts(c), .fd = fd};
    rmq_item *item = full(c->net, NULL, (int32_t)sizeof given) ? NULL : item_new(c, RMQ_TLS, &given, sizeof given);
    if (item == NULL) return -1;
    rmq_mutex_lock(&c->net->passed_lock);
    append(c->net, &c->net->own, item);
    rmq_mutex_unlock(&c->net->passed_lock);
    rmq_event_wake(&c->net->passed);
    return 0;
}

rmq_done queue_pass(rmq_connection *c, const void *frame, int32_t size, int stays) {
    rmq_net *net = c->net;
    rmq_item *first = NULL;
    if (full(net, c->lane, size)) return RMQ_LATER;
    if (c->lane == NULL && (first = opened(c)) == NULL) return RMQ_BAD;
    rmq_item *item = item_of_frame(c, frame, size);
    if (item == NULL) {
        free(first);
        if (first) queue_farewell(c);
        return RMQ_BAD;
    }
    item->stays = stays;
    rmq_count(&net->counts.passed, 1);      /* before: who takes the frame sees it counted */
    rmq_mutex_lock(&net->passed_lock);
    if (first) append(net, c->lane, first);
    append(net, c->lane, item);
    rmq_mutex_unlock(&net->passed_lock);
    rmq_event_wake(&net->passed);
    return RMQ_DONE;
}

int rmq_connection_pass(rmq_connection *c, const void *frame, int32_t size) {
    return queue_pass(c, frame, size, 1) == RMQ_DONE ? 0 : -1;
}

int queue_say(rmq_net *net, int kind) {
    rmq_item *item = full(net, NULL, 0) ? NULL : malloc(sizeof *item);
    if (item == NULL) return -1;
    *item = (rmq_item){.came_ns = net->now, .kind = kind};
    rmq_mutex_lock(&net->passed_lock);
    append(net, &net->own, item);
    rmq_mutex_unlock(&net->passed_lock);
    rmq_event_wake(&net->passed);
    return 0;
}

int rmq_net_ask(rmq_net *net) { return queue_say(net, RMQ_ASKED); }

void queue_farewell(rmq_connection *c) {
    rmq_net *net = c->net;
    rmq_lane *lane = c->lane;
    rmq_item *farewell = c->farewell;
    c->lane = NULL;
    c->farewell = NULL;
    if (lane == NULL || farewell == NULL || (rmq_load(&lane->unserved) == 0 && !lane->known)) {
        free(farewell);
        free(lane);
        return;
    }
    rmq_mutex_lock(&net->passed_lock);
    int unknown = lane_drop(net, lane);
    rmq_publish32(&lane->gone, 1);
    if (!unknown) append(net, lane, farewell);
    rmq_mutex_unlock(&net->passed_lock);
    if (unknown) {
        free(farewell);
        free(lane);
    } else {
        rmq_event_wake(&net->passed);
    }
}

rmq_item *rmq_net_take(rmq_net *net, int64_t timeout_ns) {
    for (int slept = 0;; slept = 1) {
        int ticket = rmq_event_ticket(&net->passed);
        rmq_item *item = NULL;
        rmq_mutex_lock(&net->passed_lock);
        rmq_lane *lane = net->turns_first;
        if (lane) {
            turn_leave(net, lane);
            lane->busy = lane->known = 1;
            item = lane_take(net, lane);
            lane->taken = item->size;
            net->taken_bytes += item->size;
        }
        rmq_mutex_unlock(&net->passed_lock);
        if (item || slept || timeout_ns == 0 || rmq_net_stopped(net)) return item;
        rmq_event_wait(&net->passed, ticket, timeout_ns);
    }
}

void rmq_net_served(rmq_net *net, rmq_lane *lane) {
    rmq_mutex_lock(&net->passed_lock);
    lane->busy = 0;
    net->taken_bytes -= lane->taken;
    lane->taken = 0;
    rmq_add(&lane->unserved, -1);
    lane_waits(net, lane);
    int waits = lane->waits, over = lane->first == NULL && lane->gone;
    rmq_mutex_unlock(&net->passed_lock);
    if (waits) rmq_event_wake(&net->passed);        /* another taker may have found no lane */
    if (over) free(lane);
}

int rmq_lane_gone(const rmq_lane *lane) { return rmq_load32(&lane->gone); }
int rmq_connection_settled(const rmq_connection *c) { return c->lane == NULL || rmq_load(&c->lane->unserved) == 0; }

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

static void lane_free(rmq_lane *lane) {
    for (rmq_item *item = lane->first, *next; item; item = next) {
        next = item->next;
        if (item->kind == RMQ_TLS) {
            rmq_given given;
            memcpy(&given, item->data, sizeof given);
            close(given.fd);
        }
        rmq_item_free(item);
    }
    lane->first = NULL;
}

void queue_free(rmq_net *net) {
    for (rmq_lane *lane = net->turns_first, *next; lane; lane = next) {
        next = lane->next;
        lane_free(lane);
        if (lane != &net->own) free(lane);
    }
    lane_free(&net->own);
    for (outside *o = net->outside_first, *next; o; o = next) {
        next = o->next;
        if (o->fd >= 0) close(o->fd);
        free(o);
    }
}
