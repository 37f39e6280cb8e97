/* A slave's socket, and an eventfd that ends each of its waits. 0 or more, or -errno. */
#ifndef RMQ_HA_SOCKET_H
#define RMQ_HA_SOCKET_H
#include "rmq_wake.h"

enum { RMQ_HA_HOST = 256, RMQ_HA_PORT = 8 };

typedef struct rmq_ha_lookup rmq_ha_lookup;

/* Zeroed, and fd -1, before its first use. Owner: the slave's thread. */
typedef struct rmq_ha_peer {
    int fd;                     /* -1: no connection */
    rmq_mutex fork_lock;        /* held while a socket exists that `fd` does not name */
    rmq_ha_lookup *lookup;      /* a look-up that has not ended */
} rmq_ha_peer;

int rmq_ha_wake_new(void);
void rmq_ha_wake_signal(int wake);      /* for good: nobody reads it */
void rmq_ha_close(int fd);
/* Until fd (-1: none) has one of `events`: 0; -ETIMEDOUT; -ECANCELED: the eventfd was signalled. */
int rmq_ha_poll(int fd, short events, int wake, int64_t timeout_ms);
int rmq_ha_pause(int wake, int64_t timeout_ms);

/* Connects p->fd. The name is looked up each time, as a master may have moved. getaddrinfo cannot be interrupted: a name that
 * is no number is looked up by a thread that outlives this call, and, after rmq_ha_leave, its owner. */
int rmq_ha_connect(rmq_ha_peer *p, const char *host, const char *port, int wake, int64_t timeout_ms);
/* Whether p->fd leads to a listener of this machine at that numeric address. */
int rmq_ha_leads_to(rmq_ha_peer *p, const char *ip, int port);
void rmq_ha_shut(rmq_ha_peer *p);       /* closes p->fd */
void rmq_ha_leave(rmq_ha_peer *p);      /* a look-up that has not ended frees itself */
/* What has come, at most n bytes; 0: the peer has closed. */
int64_t rmq_ha_receive(int fd, void *to, size_t n, int wake, int64_t timeout_ms);
int rmq_ha_more(int fd);                /* true where rmq_ha_receive would not wait */
/* A few bytes, which a socket has room for unless its peer reads nothing at all. */
int rmq_ha_send(int fd, const void *at, size_t n);
#endif
