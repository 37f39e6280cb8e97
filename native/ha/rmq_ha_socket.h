/* A slave's socket, and an eventfd that ends each of its waits. 0 or more, or -errno. */
#ifndef RMQ_HA_SOCKET_H
#define RMQ_HA_SOCKET_H
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "rmq_epoll.h"

static inline int rmq_ha_wake_new(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }
static inline void rmq_ha_wake_signal(int wake) { rmq_eventfd_signal(wake); }     /* for good: nobody reads it */
static inline void rmq_ha_close(int fd) {
    if (fd >= 0) close(fd);
}

/* Until fd (-1: none) has one of `events`: 0; -ETIMEDOUT; -ECANCELED: the eventfd was signalled. */
static inline int rmq_ha_poll(int fd, short events, int wake, int64_t timeout_ms) {
    struct pollfd p[2] = {{.fd = wake, .events = POLLIN}, {.fd = fd, .events = events}};
    int n = poll(p, fd < 0 ? 1 : 2, timeout_ms > 1000000 ? 1000000 : timeout_ms < 0 ? 0 : (int)timeout_ms);
    if (n < 0 && errno != EINTR) return -errno;
    if (n > 0 && p[0].revents) return -ECANCELED;
    return n > 0 ? 0 : -ETIMEDOUT;
}
static inline int rmq_ha_pause(int wake, int64_t timeout_ms) { return rmq_ha_poll(-1, 0, wake, timeout_ms); }

static inline int rmq_ha_try(const struct addrinfo *a, int wake, int64_t timeout_ms) {
    int on = 1, error = 0;
    socklen_t size = sizeof error;
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0) return -errno;
    int rc = connect(fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : -errno;
    if (rc == -EINPROGRESS) {
        rc = rmq_ha_poll(fd, POLLOUT, wake, timeout_ms);
        if (rc == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0) rc = -error;
    }
    if (rc < 0) {
        close(fd);
        return rc;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

/* The name is looked up each time: a master may have moved. */
static inline int rmq_ha_connect(const char *host, const char *port, int wake, int64_t timeout_ms) {
    struct addrinfo wanted = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int rc = getaddrinfo(host, port, &wanted, &found);
    if (rc != 0) return rc == EAI_SYSTEM ? -errno : -EHOSTUNREACH;
    rc = -EHOSTUNREACH;
    for (struct addrinfo *a = found; a != NULL && rc < 0 && rc != -ECANCELED; a = a->ai_next) {
        rc = rmq_ha_try(a, wake, timeout_ms);
    }
    freeaddrinfo(found);
    return rc;
}

/* What has come, at most n bytes; 0: the peer has closed. */
static inline int64_t rmq_ha_receive(int fd, void *to, size_t n, int wake, int64_t timeout_ms) {
    for (;;) {
        ssize_t got = recv(fd, to, n, MSG_DONTWAIT);
        if (got >= 0) return got;
        if (errno != EAGAIN && errno != EINTR) return -errno;
        int rc = rmq_ha_poll(fd, POLLIN, wake, timeout_ms);
        if (rc < 0) return rc;
    }
}

/* A few bytes, which a socket has room for unless its peer reads nothing at all. */
static inline int rmq_ha_send(int fd, const void *at, size_t n) {
    ssize_t sent = send(fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent == (ssize_t)n ? 0 : sent < 0 ? -errno : -EPIPE;
}
#endif
