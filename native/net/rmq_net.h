/* A network thread: accepts connections, reads frames of RocketMQ remoting, answers what its service answers, and passes
 * the rest on to other threads (RocketMQ: NettyRemotingServer). No Python, no GIL: a busy Python thread delays nothing here.
 *
 * Bounds of everything a peer can do are in rmq_net_limits. A connection whose answers stay unread is not read either, so
 * that a slow peer holds its own connection and nothing else. A frame that is none closes its connection, without an answer. */
#ifndef RMQ_NET_H
#define RMQ_NET_H
#include <netinet/in.h>
#include <sys/uio.h>
#include "rmq_frame.h"

enum {
    RMQ_NET_FDS = 2,
    RMQ_NET_LISTENERS = 4,
    RMQ_NET_PARTS = 1024,
    RMQ_BODY_MOST = 4 << 20,    /* bytes of a body, but of sends and registrations; more is refused before it is read */
};

typedef struct rmq_net rmq_net;
typedef struct rmq_connection rmq_connection;
typedef union rmq_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} rmq_address;

typedef enum rmq_done {
    RMQ_DONE,       /* answered, or will be */
    RMQ_PASS,       /* for another thread: rmq_net_take gives it out */
    RMQ_LATER,      /* nothing was done for want of room: ask again, and read nothing from this peer until then */
    RMQ_BAD,        /* close the connection */
} rmq_done;

/* What a network thread serves. All run in its thread; any may be NULL. */
typedef struct rmq_service {
    void *ctx;
    rmq_done (*request)(void *ctx, rmq_connection *c, const rmq_frame *f);
    void (*begin)(void *ctx);               /* before the events of a round */
    void (*turn)(void *ctx);                /* after the requests that one read brought */
    void (*woken)(void *ctx, int which);    /* fds[which], an eventfd, was signalled, and is read already */
    void (*tick)(void *ctx);                /* once a second, while there are connections */
    void (*closed)(void *ctx, rmq_connection *c);
    int (*more)(void *ctx);                 /* at the end of a round: whether the next one is to begin at once */
    /* The peer has taken answers while nothing of it was read, as too many of them were unread, or its request has been looked
     * at and waits for room: what it said behind that waits. */
    void (*taken)(void *ctx, rmq_connection *c);
    void (*ending)(void *ctx);              /* no request comes any more; what is answered now is still sent */
    int fds[RMQ_NET_FDS];                   /* the owner's; -1: none */
    const int64_t *message_most;            /* atomic: bytes of a send's body; NULL: this is a name server, not a broker */
} rmq_service;

typedef struct rmq_net_limits {
    int64_t connections;
    int64_t buffered;       /* bytes of unfinished frames, of all connections, before the one that began first is closed */
    int64_t waiting;        /* bytes of whole frames that wait for room, of all, before the one that has most is closed */
    int64_t unread;         /* bytes of answers that a peer has not taken, before it is not read any more, */
    int64_t unread_most;    /* and before its connection is closed: what other threads send it counts as well */
    int64_t unread_all;     /* of all connections, before the one that leaves most unread is closed */
    int64_t passed;         /* frames passed on that nobody has taken, */
    int64_t passed_bytes;   /* and their bytes: of one connection no more than an eighth, or one frame */
    int64_t passed_of_one;  /* frames of one connection that are passed on and not served */
    int64_t idle_ns;        /* of silence, after which a connection is closed */
} rmq_net_limits;

typedef struct rmq_net_counts {     /* rmq_count: the network thread's */
    int64_t accepted, refused, requests, passed, bad, bytes_in, bytes_out, connections, stalls;
} rmq_net_counts;

int rmq_net_new(const rmq_net_limits *limits, rmq_net **out);      /* 0 or -errno, as the others */
/* Before the start; without a service everything is passed on. */
int rmq_net_use(rmq_net *net, const rmq_service *service);
/* Before the start: the listener, a non-blocking socket, is the network's from now on. Its number, or -errno. */
int rmq_net_listen(rmq_net *net, int listener);
/* Before the start: what becomes of a connection that begins as TLS does. RMQ_TLS_OFF: it has sent a frame that is none.
 * RMQ_TLS_TOO: it is given out as RMQ_TLS, with its bytes unread. RMQ_TLS_ONLY: and others are closed. */
enum rmq_tls { RMQ_TLS_OFF, RMQ_TLS_TOO, RMQ_TLS_ONLY };
void rmq_net_tls(rmq_net *net, int mode);
int rmq_net_start(rmq_net *net);
/* Joins the thread and closes every socket; lets out those who sleep in rmq_net_take. Idempotent. */
void rmq_net_stop(rmq_net *net);
void rmq_net_free(rmq_net *net);        /* after the stop, and when nobody is in a call */
void rmq_net_child(rmq_net *net);       /* in a child of fork: closes its copies of the sockets */
const rmq_net_counts *rmq_net_counts_of(const rmq_net *net);

/* ---- any thread */
enum rmq_item_kind { RMQ_OPENED, RMQ_FRAME, RMQ_CLOSED, RMQ_TLS, RMQ_ASKED, RMQ_REFUSED, RMQ_HTTP2, RMQ_TLS_UNASKED };
/* What was passed on. Connections take turns: each has a lane, whose next item is given out when the one before is served,
 * and behind those of the others. OPENED comes before the first frame of a connection, its data are an rmq_opened; CLOSED
 * comes after the last, for each connection that was OPENED. A connection that ends takes with it what it asked and nobody
 * has taken, unless that changes something. ASKED has no connection: the service asks its owner to look at something.
 * REFUSED has none either: connections were closed at once for want of places, descriptors or memory; once a minute at most. */
typedef struct rmq_lane rmq_lane;
typedef struct rmq_opened {
    rmq_address peer, local;
    int listener;
} rmq_opened;
typedef struct rmq_given {      /* the data of RMQ_TLS */
    rmq_opened from;
    int fd;                     /* the taker's from now on */
} rmq_given;
typedef struct rmq_item {
    struct rmq_item *next;
    rmq_lane *lane;
    uint64_t connection;
    int64_t came_ns;        /* monotonic; what waited for room came when it began to wait */
    int32_t kind, size;
    int32_t stays;          /* it is served also if its connection has ended */
    unsigned char *data;    /* in the same block, or `large` */
    unsigned char *large;   /* the buffer that a large frame was read into: no copy of it is made; NULL: none */
} rmq_item;
void rmq_item_free(rmq_item *item);
/* The next item, the caller's to free; NULL: none came in time, or the network has stopped and all are taken. */
rmq_item *rmq_net_take(rmq_net *net, int64_t timeout_ns);
/* What an item of this lane asked for is done, as far as it is for the one who took it: once for each. */
void rmq_net_served(rmq_net *net, rmq_lane *lane);
int rmq_lane_gone(const rmq_lane *lane);        /* its connection has ended; only while an item of it is not served */
int rmq_net_stopped(const rmq_net *net);
/* Sends bytes, copied, to a connection, which may be gone by then. 0 or -ENOMEM; 1: unread_all bytes of
 * this kind wait already, and the connection is closed instead. */
int rmq_net_send(rmq_net *net, uint64_t connection, const void *data, size_t n);
int rmq_net_drop(rmq_net *net, uint64_t connection);    /* closes it when what was sent before has been written */
void rmq_net_wake(rmq_net *net);                        /* begins a round */
/* A connection more: frames come and go through this non-blocking socket, the network's from now on, for the peer of `from`.
 * 0 or -ENOMEM: then the socket is still the caller's. */
int rmq_net_adopt(rmq_net *net, int fd, const rmq_opened *from);

/* ---- the network thread */
rmq_connection *rmq_net_find(rmq_net *net, uint64_t connection);       /* NULL: it is gone */
int64_t rmq_net_now(const rmq_net *net);                               /* monotonic ns when the round began */
uint64_t rmq_connection_id(const rmq_connection *c);
const rmq_address *rmq_connection_peer(const rmq_connection *c);
void **rmq_connection_own(rmq_connection *c);           /* two words of the service's, NULL at first */
/* Passes on a frame of the service's making as if the peer had sent it. 0; -1: there is no room. */
int rmq_connection_pass(rmq_connection *c, const void *frame, int32_t size);
/* Passes on ASKED. 0; -1: there is no room. */
int rmq_net_ask(rmq_net *net);
/* Whether everything of this peer that was passed on is served. What depends on that must not overtake it. */
int rmq_connection_settled(const rmq_connection *c);
int rmq_connection_listener(const rmq_connection *c);
/* ns since the request at hand was answered RMQ_LATER, or one before it; 0: it was not */
int64_t rmq_connection_waited(const rmq_connection *c);
int rmq_connection_asked(const rmq_connection *c);      /* the request at hand was answered RMQ_LATER when it came */
int rmq_connection_slow(const rmq_connection *c);       /* more of its answers is unread than it may be */
/* Room for `n` bytes behind what is to be sent; NULL: no memory, and the connection is closed. */
unsigned char *rmq_connection_room(rmq_connection *c, size_t n);
void rmq_connection_filled(rmq_connection *c, size_t n);
/* Sends the parts, behind what is to be sent: long ones without a copy of what the socket takes at once, short ones as one
 * piece, together with those of the next answers if more requests are here already. parts[0] is the caller's place for what is
 * to be sent before; count: at most RMQ_NET_PARTS with it. */
void rmq_connection_parts(rmq_connection *c, struct iovec *parts, int count);
#endif
