/* What the files of the network thread share. */
#ifndef NET_H
#define NET_H
#include "rmq_net.h"
#include "rmq_wake.h"

/* TURN_SIZE: of a large frame what one turn reads; BESIDE_SIZE: while others have something to be served, too */
enum {
    READ_SIZE = 1 << 16, TURN_SIZE = 1 << 18, BESIDE_SIZE = 1 << 14, EVENTS = 64, OUT_KEPT = 1 << 14, TLS_HANDSHAKE = 0x16,
    STAGE_SIZE = 1 << 18,
    SYSTEM_ERROR = 1, MESSAGE_ILLEGAL = 13,     /* RocketMQ: ResponseCode */
    REGISTER_BROKER = 103,      /* RocketMQ: RequestCode */
};
#define SECOND INT64_C(1000000000)

struct rmq_connection {
    rmq_net *net;
    uint64_t id;
    int fd, listener;
    uint32_t events;            /* what epoll watches */
    unsigned char *in;          /* bytes without a whole frame, or, stalled, whole ones */
    unsigned char *out;
    size_t in_size, in_room;
    size_t refused;             /* bytes to come of a frame that was answered already: they are read and dropped */
    size_t counted, waiting;    /* in_size, in `buffered`, or in `waiting` while whole frames wait there */
    size_t out_from, out_size, out_room;    /* [out_from, out_size) is to be sent */
    int64_t heard;
    int64_t unfinished_since;   /* when the frame began that `in` has a part of */
    int64_t stalled_since;      /* when the first of its requests found no room; 0: none waits */
    rmq_connection *next_marked, *next_dead;
    void *own[2];               /* the service's */
    rmq_lane *lane;             /* NULL: nothing was ever passed on */
    rmq_item *farewell;         /* CLOSED, kept ready: it must not fail for want of memory */
    char stalled;               /* the service had no room: it is asked again */
    char held_up;               /* too many answers are unread: whole frames wait in `in` */
    char dead, ending;          /* closed at once; closed when everything is sent */
    char marked, listed;        /* to be settled; in the list of those */
    char more, gathers;         /* the next request is here already; the kernel keeps what was sent until more comes */
    char begun;                 /* it is known whether it begins as TLS does */
    char adopted;               /* `local` is not that of the socket */
    char may_be_large;          /* the unfinished frame that `in` begins with may have so large a body */
    char asked;                 /* the service answered the next request RMQ_LATER */
    char passes, stays;         /* and RMQ_PASS, but there was no room for it; it stays if the connection ends */
    rmq_address peer, local;
};

/* What one connection passed on. It outlives the connection until its last item is served. */
struct rmq_lane {
    rmq_lane *next;             /* in the row of those that wait for their turn */
    rmq_item *first, **last;
    int64_t count, bytes;       /* of those that nobody has taken */
    int64_t taken;              /* bytes of the one that is taken and not served */
    int64_t unserved;           /* atomic: those, and the one that is taken */
    int gone;                   /* atomic */
    char busy, waits;           /* one is taken and not served; it stands in the row */
    char known;                 /* somebody has taken an item */
};

typedef struct outside {        /* from other threads */
    struct outside *next;
    uint64_t connection;
    size_t size;
    int drop;
    int fd;                     /* to adopt: then the data are an rmq_opened; -1: none */
    unsigned char data[];
} outside;

struct rmq_net {
    rmq_net_limits limits;
    rmq_service service;
    rmq_net_counts counts;
    int listeners[RMQ_NET_LISTENERS], listening, epoll, wake;
    int stop, started, stopped, tls, more;
    int busy;                               /* events of this round: with more than one, turns are short */
    int64_t now, sweep_at, accept_at;       /* accept_at: until then none is taken; 0: they are */
    int64_t refused_at;         /* when it was last said that a connection was refused; 0: never */
    int64_t stranger_at;        /* and that a peer speaks another protocol */
    int64_t retry_from;         /* the slot that has the next turn among those that wait for room */
    /* of all connections: bytes of unfinished frames, of whole ones that wait, connections whose frames wait for room, and
     * bytes of answers that sockets have not taken */
    int64_t buffered, waiting, stalled, unread;
    rmq_connection **slots;
    uint32_t *generations, *unused;         /* unused: a stack of slots */
    int *fds;                               /* of the slots; for children of fork */
    int64_t unused_count;
    rmq_connection *marked, *dead;
    pthread_t thread;
    /* ---- other threads */
    rmq_mutex outside_lock;
    outside *outside_first, **outside_last;
    int64_t outside_bytes;      /* atomic: of those that were not taken yet */
    rmq_mutex passed_lock;
    rmq_lane *turns_first, **turns_last;    /* the row of lanes that have something, in the order of their turns */
    rmq_lane own;               /* of what belongs to no connection */
    int64_t taken_bytes;        /* of requests that are taken and not served: Python works on some in steps, and keeps them */
    int64_t passed_count, passed_bytes;
    rmq_event passed;
    rmq_frame frame;
    unsigned char chunk[READ_SIZE];
    rmq_connection *staged_of;              /* NULL: nobody's */
    size_t staged;
    unsigned char stage[STAGE_SIZE];        /* answers of one connection whose pieces are short, until they are sent together */
};

/* ---- net.c */
rmq_connection *net_open(rmq_net *net, int fd, int listener, const rmq_address *peer);     /* NULL: it is closed */
/* ---- net_connection.c */
void connection_readable(rmq_connection *c);
void connection_retry(rmq_connection *c);       /* stalled: asks again */
void connection_settle(rmq_connection *c);      /* writes, watches, or buries */
void connection_mark(rmq_connection *c);        /* to be settled at the end of the round */
void connection_free(rmq_connection *c);
/* ---- net_large.c */
rmq_done large_begins(rmq_connection *c, const unsigned char *at, size_t n, int32_t size);
/* ---- net_queue.c */
rmq_done queue_pass(rmq_connection *c, const void *frame, int32_t size, int stays);
int queue_say(rmq_net *net, int kind);           /* an item without a connection: 0, or -1: there is no room */
void queue_farewell(rmq_connection *c);
int queue_give(rmq_connection *c, int fd);      /* 0, or -1: nobody takes it */
void queue_outside(rmq_net *net);
void queue_free(rmq_net *net);
#endif
