/* Frames with a body that is larger than its request may have: refused before they are read. */
#define _GNU_SOURCE
#include <stdio.h>
#include "net.h"
#include "rmq_bytes.h"

static int sends(int32_t code) {
    return code == 10 || code == 310 || code == 320 || code == 324 || code == 325;
}

/* Bytes that the body of a request may have. Only a broker's first listener is no name server's. */
static int64_t body_most(const rmq_connection *c, int32_t code) {
    const int64_t *message = c->listener == 0 ? c->net->service.message_most : NULL;
    if (message == NULL) return code == REGISTER_BROKER ? RMQ_FRAME_MAX : RMQ_BODY_MOST;
    return sends(code) && rmq_load(message) > RMQ_BODY_MOST ? rmq_load(message) : RMQ_BODY_MOST;
}

static void answer_large(rmq_connection *c, const rmq_frame *f, int32_t size, int64_t most) {
    char why[128];
    snprintf(why, sizeof why, "the body of request %d has %d bytes, the limit is %lld: send less in one request", f->code, size,
             (long long)most);
    unsigned char *to = rmq_connection_room(c, RMQ_ANSWER_ROOM + 2 * sizeof why);
    if (to == NULL) return;
    rmq_answer a;
    rmq_answer_begin(&a, to, f->serialize, sends(f->code) ? MESSAGE_ILLEGAL : SYSTEM_ERROR, f->opaque, f->version, why);
    rmq_connection_filled(c, (size_t)rmq_answer_end(&a, 0));
}

/* A frame of `size` bytes, of which `n` are here. One whose body is larger than it may be is answered as soon as its header is
 * here, and never kept: RMQ_DONE. RMQ_PASS: the rest is to be read. */
rmq_done large_begins(rmq_connection *c, const unsigned char *at, size_t n, int32_t size) {
    rmq_frame *f = &c->net->frame;
    if (c->may_be_large || size <= RMQ_BODY_MOST) return RMQ_PASS;
    int32_t head = 8 + (int32_t)((uint32_t)rmq_get32(at + 4) & 0xFFFFFF);
    if (n < (size_t)head) return RMQ_PASS;
    if (rmq_frame_decode(at, head, f) < 0) return RMQ_BAD;
    int64_t most = f->flag & RMQ_RESPONSE ? RMQ_BODY_MOST : body_most(c, f->code);
    c->may_be_large = size - head <= most;
    if (c->may_be_large) return RMQ_PASS;
    c->refused = (size_t)size - n;
    rmq_count(&c->net->counts.requests, 1);
    if (!(f->flag & (RMQ_ONEWAY | RMQ_RESPONSE))) answer_large(c, f, size - head, most);
    return RMQ_DONE;
}
