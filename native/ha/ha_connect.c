/* A slave's connection, and the look-up of its master's name. Contract in rmq_ha_socket.h. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "rmq_epoll.h"
#include "rmq_ha_socket.h"

int rmq_ha_wake_new(void) {
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return fd < 0 ? -errno : fd;
}
void rmq_ha_wake_signal(int wake) { rmq_eventfd_signal(wake); }
void rmq_ha_close(int fd) {
    if (fd >= 0) close(fd);
}

int rmq_ha_poll(int fd, short events, int wake, int64_t timeout_ms) {
    struct pollfd p[2] = {{.fd = wake, .events = POLLIN}, {.fd = fd, .events = events}};
    int n = poll(p, fd < 0 ? 1 : 2, timeout_ms > 1000000 ? 1000000 : timeout_ms < 0 ? 0 : (int)timeout_ms);
    if (n < 0 && errno != EINTR) return -errno;
    if (n > 0 && p[0].revents) return -ECANCELED;
    return n > 0 ? 0 : -ETIMEDOUT;
}
int rmq_ha_pause(int wake, int64_t timeout_ms) { return rmq_ha_poll(-1, 0, wake, timeout_ms); }

/* ---- names */

struct rmq_ha_lookup {
    rmq_mutex lock;             /* of `ended` and `left`: whoever is second frees it */
    int ended, left;
    int ready;                  /* eventfd */
    int rc;
    struct addrinfo *found;
    char host[RMQ_HA_HOST], port[RMQ_HA_PORT];
};

static int unknown(int rc) { return rc == EAI_SYSTEM ? -errno : -EHOSTUNREACH; }

static void lookup_free(rmq_ha_lookup *l) {
    if (l->found) freeaddrinfo(l->found);
    rmq_ha_close(l->ready);
    free(l);
}

static void *look_up(void *arg) {
    rmq_ha_lookup *l = arg;
    struct addrinfo wanted = {.ai_socktype = SOCK_STREAM};
    int rc = getaddrinfo(l->host, l->port, &wanted, &l->found);
    l->rc = rc ? unknown(rc) : 0;
    rmq_mutex_lock(&l->lock);
    int left = l->left;
    l->ended = 1;
    if (!left) rmq_eventfd_signal(l->ready);
    rmq_mutex_unlock(&l->lock);
    if (left) lookup_free(l);
    return NULL;
}

static int lookup_begin(rmq_ha_peer *p, const char *host, const char *port) {
    rmq_ha_lookup *l = calloc(1, sizeof *l);
    pthread_t thread;
    if (l == NULL) return -ENOMEM;
    strncpy(l->host, host, RMQ_HA_HOST - 1);
    strncpy(l->port, port, RMQ_HA_PORT - 1);
    int rc = l->ready = rmq_ha_wake_new();
    if (rc >= 0) rc = rmq_thread_start(&thread, look_up, l, "rmq-ha-name");
    if (rc < 0) {
        lookup_free(l);
        return rc;
    }
    pthread_detach(thread);
    p->lookup = l;
    return 0;
}

void rmq_ha_leave(rmq_ha_peer *p) {
    rmq_ha_lookup *l = p->lookup;
    if (l == NULL) return;
    p->lookup = NULL;
    rmq_mutex_lock(&l->lock);
    int ended = l->ended;
    l->left = 1;
    rmq_mutex_unlock(&l->lock);
    if (ended) lookup_free(l);
}

/* One that did not end in time is waited for by the next call. */
static int addresses(rmq_ha_peer *p, const char *host, const char *port, int wake, int64_t timeout_ms,
                     struct addrinfo **found) {
    struct addrinfo number = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    if (p->lookup == NULL) {
        if (getaddrinfo(host, port, &number, found) == 0) return 0;
        int rc = lookup_begin(p, host, port);
        if (rc < 0) return rc;
    }
    int rc = rmq_ha_poll(p->lookup->ready, POLLIN, wake, timeout_ms);
    if (rc < 0) return rc;
    rmq_mutex_lock(&p->lookup->lock);
    rc = p->lookup->rc;
    *found = p->lookup->found;
    p->lookup->found = NULL;
    rmq_mutex_unlock(&p->lookup->lock);
    rmq_ha_leave(p);
    return rc;
}

/* ---- the connection */

void rmq_ha_shut(rmq_ha_peer *p) {
    rmq_mutex_lock(&p->fork_lock);
    rmq_ha_close(p->fd);
    p->fd = -1;
    rmq_mutex_unlock(&p->fork_lock);
}

typedef struct ends {
    struct sockaddr_storage here, there;
} ends;

/* An IPv4 address that is written as one of IPv6 becomes what it is. */
static void unmap(struct sockaddr_storage *a) {
    const struct sockaddr_in6 *six = (const void *)a;
    if (a->ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) return;
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = six->sin6_port};
    memcpy(&four.sin_addr, &six->sin6_addr.s6_addr[12], 4);
    memset(a, 0, sizeof *a);
    memcpy(a, &four, sizeof four);
}

static int ends_of(int fd, ends *e) {
    socklen_t here = sizeof e->here, there = sizeof e->there;
    *e = (ends){0};
    if (getsockname(fd, (void *)&e->here, &here) < 0 || getpeername(fd, (void *)&e->there, &there) < 0) return 0;
    unmap(&e->here);
    unmap(&e->there);
    return e->here.ss_family == e->there.ss_family;
}

static int port_of(const struct sockaddr_storage *a) {
    return ntohs(a->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)a)->sin6_port
                                          : ((const struct sockaddr_in *)a)->sin_port);
}

static int same_address(const struct sockaddr *one, const struct sockaddr_storage *other) {
    const struct sockaddr_in6 *a = (const void *)one, *b = (const void *)other;
    if (one == NULL || one->sa_family != other->ss_family) return 0;
    if (one->sa_family == AF_INET) {
        return ((const struct sockaddr_in *)(const void *)one)->sin_addr.s_addr
               == ((const struct sockaddr_in *)(const void *)other)->sin_addr.s_addr;
    }
    return one->sa_family == AF_INET6 && IN6_ARE_ADDR_EQUAL(&a->sin6_addr, &b->sin6_addr)
           && a->sin6_scope_id == b->sin6_scope_id;      /* of a link: 0 elsewhere */
}

/* Not by a bind, which ip_nonlocal_bind allows for any address. */
static int is_of_this_machine(rmq_ha_peer *p, const struct sockaddr_storage *a) {
    struct ifaddrs *all = NULL;
    int found = 0;
    rmq_mutex_lock(&p->fork_lock);      /* it has a socket meanwhile */
    int rc = getifaddrs(&all);
    rmq_mutex_unlock(&p->fork_lock);
    if (rc < 0) return 0;               /* no memory, or forbidden: what the connection tells has to do */
    for (const struct ifaddrs *i = all; i != NULL && !found; i = i->ifa_next) found = same_address(i->ifa_addr, a);
    freeifaddrs(all);
    return found;
}

/* Whoever connects to an address of its own machine has the same one, but for those of the loopback, such as 127.0.1.1, and for
 * the second address of a network, which is reached from the first. */
static int is_here(const ends *e) {
    const struct sockaddr_in *four = (const void *)&e->there, *own = (const void *)&e->here;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)&e->there)->sin6_addr;
    if (e->there.ss_family == AF_INET6) {
        return IN6_IS_ADDR_LOOPBACK(six) || IN6_ARE_ADDR_EQUAL(six, &((const struct sockaddr_in6 *)&e->here)->sin6_addr);
    }
    return ntohl(four->sin_addr.s_addr) >> 24 == 127 || four->sin_addr.s_addr == own->sin_addr.s_addr;
}

/* Where nobody listens, and the port is one that the kernel gives to those who connect, it may lead a socket to itself. */
static int is_itself(int fd) {
    ends e;
    return ends_of(fd, &e) && port_of(&e.here) == port_of(&e.there) && is_here(&e);
}

static int try_one(rmq_ha_peer *p, const struct addrinfo *a, int wake, int64_t timeout_ms) {
    int on = 1, error = 0;
    socklen_t size = sizeof error;
    rmq_mutex_lock(&p->fork_lock);
    p->fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    int rc = p->fd < 0 ? -errno : 0;
    rmq_mutex_unlock(&p->fork_lock);
    if (rc < 0) return rc;
    rc = connect(p->fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : -errno;
    if (rc == -EINPROGRESS) {
        rc = rmq_ha_poll(p->fd, POLLOUT, wake, timeout_ms);
        if (rc == 0 && getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0) rc = -error;
    }
    if (rc == 0 && is_itself(p->fd)) {
        struct linger at_once = {.l_onoff = 1};     /* else the port stays taken for a minute, and its master fails */
        setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        rc = -ECONNREFUSED;
    }
    if (rc < 0) {
        rmq_ha_shut(p);
    } else {
        setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    return rc;
}

int rmq_ha_connect(rmq_ha_peer *p, const char *host, const char *port, int wake, int64_t timeout_ms) {
    struct addrinfo *found = NULL;
    int rc = addresses(p, host, port, wake, timeout_ms, &found);
    if (rc < 0) return rc;
    rc = -EHOSTUNREACH;
    for (struct addrinfo *a = found; a != NULL && rc < 0 && rc != -ECANCELED; a = a->ai_next) {
        rc = try_one(p, a, wake, timeout_ms);
    }
    freeaddrinfo(found);
    return rc;
}

int rmq_ha_leads_to(rmq_ha_peer *p, const char *ip, int port) {
    char text[INET6_ADDRSTRLEN] = "";
    ends e;
    if (!ends_of(p->fd, &e) || port_of(&e.there) != port) return 0;
    int six = e.there.ss_family == AF_INET6;
    const struct sockaddr_in6 *at6 = (const void *)&e.there;
    const struct sockaddr_in *at4 = (const void *)&e.there;
    inet_ntop(e.there.ss_family, six ? (const void *)&at6->sin6_addr : &at4->sin_addr, text, sizeof text);
    /* A listener has one family here. */
    if (strcmp(ip, six ? "::" : "0.0.0.0") == 0) return is_here(&e) || is_of_this_machine(p, &e.there);
    return strcmp(text, ip) == 0;
}

int64_t rmq_ha_receive(int fd, void *to, size_t n, int wake, int64_t timeout_ms) {
    for (;;) {
        ssize_t got = recv(fd, to, n, MSG_DONTWAIT);
        if (got >= 0) return got;
        if (errno != EAGAIN && errno != EINTR) return -errno;
        int rc = rmq_ha_poll(fd, POLLIN, wake, timeout_ms);
        if (rc < 0) return rc;
    }
}

int rmq_ha_more(int fd) {
    char one;
    return recv(fd, &one, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || (errno != EAGAIN && errno != EINTR);
}

int rmq_ha_send(int fd, const void *at, size_t n) {
    ssize_t sent = send(fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent == (ssize_t)n ? 0 : sent < 0 ? -errno : -EPIPE;
}
