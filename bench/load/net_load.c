/* A load generator for a broker's front: many connections, each with a window of requests under way, in one thread and with
 * little work of its own, so that what it measures is the server.
 *
 *     net_load HOST PORT send|pull|other CONNECTIONS WINDOW SECONDS BODY_BYTES TOPIC QUEUES [BATCH [ACCESS_KEY SECRET_KEY]]
 *
 * With a key each request is signed, as RocketMQ's AclClientRPCHook does.
 * Prints one line of JSON: requests, bad answers, seconds, good answers a second, the round trip's percentiles and the
 * processor time of this program for each request, in microseconds. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../../native/net/sha1.c"
#include "net_peer.h"

enum { WINDOW_MAX = 4096, READ_SIZE = 1 << 20, BUCKETS = 1 << 20, HEADER_MAX = 1024 };
static const int64_t FIRST_NS = 10000000000; /* so long a run waits for its first good answer */

typedef struct connection {
    int fd, queue;
    unsigned char *out;             /* frames to be sent, [from, size) */
    size_t from, size, room;
    unsigned char *in;
    size_t come;
    size_t skip;                    /* bytes of an answer's body that are still to come */
    int64_t next_offset;            /* of a pull: those that are under way ask for one batch behind the other */
    int64_t asked[WINDOW_MAX];      /* by opaque, as the next */
    int64_t sent_at[WINDOW_MAX];
    uint32_t opaque;
    int under_way, writing;
} connection;

static const char *kind, *topic, *access_key;
static rmq_hmac_key secret_key;
static char *body;
static int body_size, queues, window, batch = 32;
static int64_t requests, bad, messages, received, histogram[BUCKETS];

/* The fields of a signature behind those of the header. `values`: of the other fields, in the order of their names. */
static int sign(char *to, const char *values, size_t n, const char *data, size_t size) {
    unsigned char digest[RMQ_SHA1_SIZE];
    char text[RMQ_SHA1_BASE64];
    rmq_sha1 s;
    rmq_hmac_begin(&s, &secret_key);
    rmq_sha1_add(&s, access_key, strlen(access_key));
    rmq_sha1_add(&s, values, n);
    rmq_sha1_add(&s, data, size);
    rmq_hmac_end(&s, &secret_key, digest);
    rmq_sha1_base64(digest, text);
    return sprintf(to, ",\"AccessKey\":\"%s\",\"Signature\":\"%.*s\"", access_key, RMQ_SHA1_BASE64, text);
}

static int sign_send(const connection *c, char *to) {
    char values[512];
    int n = sprintf(values, "load%sTBW1024%d017000000000000UNIQ_KEY\0017F00000100002A9F0000000000%06x\002WAIT\001true\002"
                    "TAGS\001TagA0falsefalse", topic, c->queue, c->opaque & 0xFFFFFF);
    return sign(to, values, (size_t)n, body, (size_t)body_size);
}

static int sign_pull(const connection *c, char *to) {
    char values[512];
    int n = sprintf(values, "0loadTAG%d%d%ld0*150004%s", batch, c->queue, (long)c->next_offset, topic);
    return sign(to, values, (size_t)n, NULL, 0);
}

static size_t frame(connection *c, unsigned char *to) {
    char *header = (char *)to + 8;
    int n;
    static const char end[] = "},\"flag\":0,\"language\":\"JAVA\",\"opaque\":%u,\"serializeTypeCurrentRPC\":\"JSON\","
                              "\"version\":409}";
    if (strcmp(kind, "send") == 0)
        n = sprintf(header,
                    "{\"code\":310,\"extFields\":{\"a\":\"load\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"%d\",\"e\":\"%d\","
                    "\"f\":\"0\",\"g\":\"1700000000000\",\"h\":\"0\",\"i\":\"UNIQ_KEY\\u00017F00000100002A9F0000000000%06x"
                    "\\u0002WAIT\\u0001true\\u0002TAGS\\u0001TagA\",\"j\":\"0\",\"k\":\"false\",\"m\":\"false\"",
                    topic, queues, c->queue, c->opaque & 0xFFFFFF);
    else if (strcmp(kind, "pull") == 0)
        n = sprintf(header,
                    "{\"code\":11,\"extFields\":{\"consumerGroup\":\"load\",\"topic\":\"%s\",\"queueId\":\"%d\","
                    "\"queueOffset\":\"%ld\",\"maxMsgNums\":\"%d\",\"sysFlag\":\"4\",\"commitOffset\":\"0\","
                    "\"suspendTimeoutMillis\":\"15000\",\"subVersion\":\"0\",\"subscription\":\"*\",\"expressionType\":\"TAG\"",
                    topic, c->queue, (long)c->next_offset, batch);
    else
        n = sprintf(header, "{\"code\":105,\"extFields\":{\"topic\":\"%s\"", topic);
    if (access_key) n += strcmp(kind, "send") == 0 ? sign_send(c, header + n) : sign_pull(c, header + n);
    n += sprintf(header + n, end, c->opaque);
    int size = strcmp(kind, "send") == 0 ? body_size : 0;
    memcpy(header + n, body, (size_t)size);
    uint32_t total = htonl((uint32_t)(4 + n + size)), mark = htonl((uint32_t)n);
    memcpy(to, &total, 4);
    memcpy(to + 4, &mark, 4);
    return (size_t)(8 + n + size);
}

static void flush_out(connection *c, int epoll) {
    while (c->from < c->size) {
        ssize_t n = send(c->fd, c->out + c->from, c->size - c->from, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0) die("send");
        c->from += (size_t)n;
    }
    int writing = c->from < c->size;
    if (!writing) c->from = c->size = 0;
    if (writing != c->writing) {
        struct epoll_event e = {.events = EPOLLIN | (writing ? EPOLLOUT : 0), .data.ptr = c};
        epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &e);
        c->writing = writing;
    }
}

static void fill(connection *c, int epoll) {
    int64_t now = now_ns();
    while (c->under_way < window && c->size + (size_t)body_size + 2048 < c->room) {
        c->opaque++;
        c->sent_at[c->opaque % WINDOW_MAX] = now;
        c->asked[c->opaque % WINDOW_MAX] = c->next_offset;
        c->size += frame(c, c->out + c->size);
        c->next_offset += batch;
        c->under_way++;
        if (strcmp(kind, "send") == 0) c->queue = (c->queue + 1) % queues;
    }
    flush_out(c, epoll);
}

static void answered(connection *c, const unsigned char *at, size_t size) {
    uint32_t mark;
    memcpy(&mark, at + 4, 4);
    size_t header = ntohl(mark) & 0xFFFFFF;
    const char *text = (const char *)at + 8;
    int64_t code = number_behind(text, header, "\"code\":"), opaque = number_behind(text, header, "\"opaque\":");
    int64_t us = (now_ns() - c->sent_at[(uint32_t)opaque % WINDOW_MAX]) / 1000;
    histogram[us < BUCKETS ? us : BUCKETS - 1]++;
    requests++;
    bad += code != 0;
    c->under_way--;
    if (strcmp(kind, "pull") == 0) {
        int64_t next = number_behind(text, header, "\"nextBeginOffset\":\"");
        received += (int64_t)(size - 8 - header);
        if (code == 0) messages += next - c->asked[(uint32_t)opaque % WINDOW_MAX];
        else c->next_offset = 0;
    }
}

static void readable(connection *c) {
    for (;;) {
        ssize_t n = recv(c->fd, c->in + c->come, READ_SIZE - c->come, 0);
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) die("recv");
        c->come += (size_t)n;
        size_t done = 0;
        while (c->come - done >= 8) {
            uint32_t total;
            memcpy(&total, c->in + done, 4);
            size_t size = 4 + (size_t)ntohl(total);
            if (c->come - done < size) break;
            answered(c, c->in + done, size);
            done += size;
        }
        memmove(c->in, c->in + done, c->come - done);
        c->come -= done;
    }
}

/* Of a pull the header alone is looked at. The kernel throws the messages away: the client must not be the limit. */
static void readable_pull(connection *c) {
    for (;;) {
        ssize_t n = c->skip ? recv(c->fd, NULL, c->skip, MSG_TRUNC) : recv(c->fd, c->in + c->come, HEADER_MAX - c->come, 0);
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) die("recv");
        if (c->skip) {
            c->skip -= (size_t)n;
            continue;
        }
        c->come += (size_t)n;
        size_t done = 0;
        while (c->come - done >= 8) {
            uint32_t total, mark;
            memcpy(&total, c->in + done, 4);
            memcpy(&mark, c->in + done + 4, 4);
            size_t size = 4 + (size_t)ntohl(total), head = 8 + (ntohl(mark) & 0xFFFFFF), there = c->come - done;
            if (head > HEADER_MAX) die("a header of an answer is too long");
            if (there < head) break;
            answered(c, c->in + done, size);
            c->skip = there < size ? size - there : 0;
            done += there < size ? there : size;
        }
        memmove(c->in, c->in + done, c->come - done);
        c->come -= done;
    }
}

static double percentile(double share) {
    int64_t left = (int64_t)(share * (double)requests);
    for (int i = 0; i < BUCKETS; i++)
        if ((left -= histogram[i]) <= 0) return i;
    return BUCKETS;
}

int main(int argc, char **argv) {
    if (argc < 10) return fprintf(stderr, "see the head of net_load.c\n"), 2;
    kind = argv[3];
    int count = atoi(argv[4]);
    window = atoi(argv[5]);
    double seconds = atof(argv[6]);
    body_size = atoi(argv[7]);
    topic = argv[8];
    queues = atoi(argv[9]);
    if (argc > 10) batch = atoi(argv[10]);
    if (argc > 12) {
        access_key = argv[11];
        rmq_hmac_key_make(&secret_key, argv[12], strlen(argv[12]), rmq_sha1_fast());
    }
    body = malloc((size_t)body_size + 1);
    memset(body, 'x', (size_t)body_size);
    int epoll = epoll_create1(0);
    connection *all = calloc((size_t)count, sizeof *all);
    for (int i = 0; i < count; i++) {
        connection *c = &all[i];
        c->fd = connected(argv[1], argv[2]);
        c->queue = i % queues;
        c->room = (size_t)(window + 1) * ((size_t)body_size + 2048);
        c->out = malloc(c->room);
        c->in = malloc(READ_SIZE);
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e);
        if (fcntl(c->fd, F_SETFL, O_NONBLOCK) < 0) die("fcntl");
        fill(c, epoll);
    }
    int64_t begun = now_ns(), end = begun + (int64_t)(seconds * 1e9);
    struct epoll_event events[64];
    int pulls = strcmp(kind, "pull") == 0;
    /* A short run on a busy machine may end before the first answer: it lasts until that. */
    while (now_ns() < end || (requests == bad && now_ns() < end + FIRST_NS)) {
        int n = epoll_wait(epoll, events, 64, 100);
        for (int i = 0; i < n; i++) {
            connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLIN) pulls ? readable_pull(c) : readable(c);
            fill(c, epoll);
        }
    }
    double took = (double)(now_ns() - begun) / 1e9;
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu_us = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6
                    + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    printf("{\"requests\":%ld,\"bad\":%ld,\"messages\":%ld,\"bytes\":%ld,\"seconds\":%.3f,\"per_s\":%.0f,"
           "\"p50_us\":%.0f,\"p99_us\":%.0f,\"p999_us\":%.0f,\"generator_cpu_us\":%.2f}\n",
           (long)requests, (long)bad, (long)messages, (long)received, took, (double)(requests - bad) / took, percentile(0.5),
           percentile(0.99), percentile(0.999), cpu_us / (double)(requests > 0 ? requests : 1));
    return 0;
}
