/* From a send to the answer of a pull that was held for it: two connections of one thread, one message at a time.
 *
 *     net_held HOST PORT TOPIC ROUNDS PAUSE_US BODY_BYTES
 *
 * The pull is under way for PAUSE_US before the send, so that the broker holds it. Prints one line of JSON: rounds, bad
 * answers, and in µs the percentiles from before the send until the pull's answer is read, and until the send's is. */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "net_peer.h"

enum { FRAME_MAX = 1 << 20 };
static unsigned char in[FRAME_MAX], out[FRAME_MAX];
static int body_size, opaque;
static const char *topic;

/* A frame whose header begins as `header` says, up to the end of extFields. */
static void ask(int fd, int code, const char *ext, int body) {
    char *at = (char *)out + 8;
    int n = sprintf(at, "{\"code\":%d,\"extFields\":{%s},\"flag\":0,\"language\":\"JAVA\",\"opaque\":%d,"
                    "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}", code, ext, ++opaque);
    memset(at + n, 'x', (size_t)body);
    uint32_t total = htonl((uint32_t)(4 + n + body)), mark = htonl((uint32_t)n);
    memcpy(out, &total, 4);
    memcpy(out + 4, &mark, 4);
    if (send(fd, out, (size_t)(8 + n + body), MSG_NOSIGNAL) != 8 + n + body) die("send");
}

static void exactly(int fd, unsigned char *to, size_t n) {
    for (size_t come = 0; come < n;) {
        ssize_t more = recv(fd, to + come, n - come, 0);
        if (more <= 0) die("recv");
        come += (size_t)more;
    }
}

/* The number behind `name` in the header of the next frame; *code: the answer's. */
static long answer(int fd, const char *name, long *code) {
    uint32_t total, mark;
    exactly(fd, in, 8);
    memcpy(&total, in, 4);
    memcpy(&mark, in + 4, 4);
    size_t size = ntohl(total) - 4, header = ntohl(mark) & 0xFFFFFF;
    if (size >= FRAME_MAX) die("a frame too large");
    exactly(fd, in, size);
    in[header] = 0;
    const char *found = strstr((char *)in, "\"code\":");
    *code = found ? atol(found + 7) : -1;
    found = strstr((char *)in, name);
    return found ? atol(found + strlen(name)) : -1;
}

static void ask_send(int fd) {
    static char ext[512];
    snprintf(ext, sizeof ext, "\"a\":\"load\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"1\",\"e\":\"0\",\"f\":\"0\",\"h\":\"0\","
             "\"g\":\"1700000000000\",\"i\":\"WAIT\\u0001true\",\"j\":\"0\",\"k\":\"false\",\"m\":\"false\"", topic);
    ask(fd, 310, ext, body_size);
}

static void ask_pull(int fd, long offset) {
    static char ext[512];
    snprintf(ext, sizeof ext, "\"consumerGroup\":\"load\",\"topic\":\"%s\",\"queueId\":\"0\",\"queueOffset\":\"%ld\","
             "\"maxMsgNums\":\"32\",\"sysFlag\":\"6\",\"commitOffset\":\"0\",\"suspendTimeoutMillis\":\"15000\","
             "\"subVersion\":\"0\",\"subscription\":\"*\",\"expressionType\":\"TAG\"", topic, offset);
    ask(fd, 11, ext, 0);
}

static double percentile(int64_t *times, int n, double share) {
    qsort(times, (size_t)n, sizeof *times, ascending);
    return (double)times[(int)(share * (n - 1))] / 1e3;
}

int main(int argc, char **argv) {
    if (argc != 7) return fprintf(stderr, "see the head of net_held.c\n"), 2;
    topic = argv[3];
    int rounds = atoi(argv[4]), bad = 0, sender = connected(argv[1], argv[2]), puller = connected(argv[1], argv[2]);
    struct timespec pause = {0, atol(argv[5]) * 1000};
    body_size = atoi(argv[6]);
    int64_t *held = calloc((size_t)rounds, sizeof *held), *sent = calloc((size_t)rounds, sizeof *sent);
    long code, next = -1;
    for (int i = 0; i < 100 && next < 0; i++) {     /* a real broker may have to make the topic first */
        ask_send(sender);
        next = answer(sender, "\"queueOffset\":\"", &code);
        if (code != 0) next = -1, usleep(100000);
    }
    do {        /* until it is in its queue: a pull behind the end of an empty queue is no pull that is held */
        usleep(1000);
        ask_pull(puller, next);
    } while (answer(puller, "\"nextBeginOffset\":\"", &code) != next + 1 || code != 0);
    for (int i = 0; i < rounds; i++) {
        next++;
        ask_pull(puller, next);
        nanosleep(&pause, NULL);
        int64_t begun = now_ns();
        ask_send(sender);
        bad += answer(puller, "\"nextBeginOffset\":\"", &code) != next + 1 || code != 0;
        held[i] = now_ns() - begun;
        bad += answer(sender, "\"queueOffset\":\"", &code) != next || code != 0;
        sent[i] = now_ns() - begun;
    }
    printf("{\"rounds\":%d,\"bad\":%d,\"held_p50_us\":%.1f,\"held_p99_us\":%.1f,\"sent_p50_us\":%.1f,\"sent_p99_us\":%.1f}\n",
           rounds, bad, percentile(held, rounds, 0.5), percentile(held, rounds, 0.99), percentile(sent, rounds, 0.5),
           percentile(sent, rounds, 0.99));
    return 0;
}
