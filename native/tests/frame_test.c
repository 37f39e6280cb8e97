/* Frames as clients send them are decoded to what they say; RMQ_FRAMES mutated ones are decoded or refused, and nothing is read
 * outside of them: each lies in memory of its own size, so that the address sanitizer sees the next byte. */
#include "frames.h"
#include "check.h"
#include "rmq_frame.h"

/* The same header in the binary form. */
static int32_t binary_frame(unsigned char *to, const rmq_frame *f) {
    unsigned char *at = to + 8;
    rmq_put16(at, (int16_t)f->code);
    at[2] = 0;
    rmq_put16(at + 3, (int16_t)f->version);
    rmq_put32(at + 5, f->opaque);
    rmq_put32(at + 9, f->flag);
    rmq_put32(at + 13, 0);
    unsigned char *map = at + 17;
    at = map + 4;
    for (int32_t i = 0; i < f->fields; i++) {
        rmq_put16(at, (int16_t)f->field[i].name.size);
        memcpy(at + 2, f->field[i].name.at, (size_t)f->field[i].name.size);
        at += 2 + f->field[i].name.size;
        rmq_put32(at, f->field[i].value.size);
        memcpy(at + 4, f->field[i].value.at, (size_t)f->field[i].value.size);
        at += 4 + f->field[i].value.size;
    }
    rmq_put32(map, (int32_t)(at - map - 4));
    rmq_put32(to, (int32_t)(at - to - 4));
    rmq_put32(to + 4, (int32_t)(1 << 24 | (at - to - 8)));
    return (int32_t)(at - to);
}

static const rmq_text *value_of(const rmq_frame *f, const char *name) {
    for (int32_t i = f->fields - 1; i >= 0; i--)
        if (rmq_text_is(f->field[i].name, name, strlen(name))) return &f->field[i].value;
    return NULL;
}

static void said(rmq_frame *f, int which) {
    rmq_send s;
    rmq_pull p;
    rmq_offset o;
    CHECK((rmq_offset_decode(f, &o) == 0) == (which == 1 || which >= 6));
    if (which >= 6) {
        CHECK(rmq_text_is(o.group, "G", 1) && rmq_text_is(o.topic, "T", 1) && o.queue_id == 2);
        CHECK(o.offset == (which == 6 ? -1 : 1764067200000) && f->code == (which == 6 ? 14 : 15));
    } else if (which == 5) {
        CHECK(rmq_send_decode(f, &s) == 0 && s.batch && s.queue_id == 3 && rmq_text_is(s.properties, "WAIT\1true", 9));
    } else if (which == 0 || which == 3) {
        CHECK(rmq_send_decode(f, &s) == 0 && rmq_text_is(s.group, "PG", 2) && rmq_text_is(s.topic, "T", 1));
        CHECK(s.born_timestamp == 1764067200000 && s.default_queues == 4 && s.queue_id == (which == 0 ? 3 : 0) && !s.batch);
        CHECK(which == 3 || rmq_text_is(s.properties, "UNIQ_KEY\1" "7F0000010\2WAIT\1true\2TAGS\1TagA", 38));
        CHECK(f->opaque == (which == 0 ? 6 : 3) && f->version == (which == 0 ? 409 : 63));
    } else if (which == 1) {
        CHECK(rmq_pull_decode(f, &p) == 0 && p.offset == 7 && p.sub_version == 1764067200000 && p.count_max == 32);
        CHECK(p.bytes_max == -1 && p.suspend_ms == 15000 && p.subscription.at == NULL && value_of(f, "ns") == NULL);
    } else if (which == 2) {
        CHECK(f->code == 34 && f->fields == 0 && rmq_send_decode(f, &s) < 0 && rmq_pull_decode(f, &p) < 0);
    } else {
        CHECK(f->code == 105 && f->opaque == -1 && value_of(f, "topic"));
        CHECK(rmq_text_is(*value_of(f, "topic"), "T\xf0\x9f\x98\x80? \xc3\xa9", 9));
    }
}

static void refused(const char *header) {
    unsigned char frame[MOST];
    static rmq_frame f;
    int32_t size = json_frame(frame, header, 0);
    CHECK(rmq_frame_size(frame, (size_t)size) == size && rmq_frame_decode(frame, size, &f) < 0);
}

static void within(const rmq_frame *f, rmq_text t) {
    const char *start = (const char *)f->start;
    if (t.at == NULL) return;
    CHECK(t.size >= 0 && ((t.at >= start && t.at + t.size <= start + f->size)
                          || (t.at >= f->scratch && t.at + t.size <= f->scratch + f->used)));
}

/* Decodes bytes that lie in memory of just their size. 1: they are a frame. */
static int judged(const unsigned char *bytes, size_t n, rmq_frame *f) {
    unsigned char *own = malloc(n ? n : 1);
    rmq_send s;
    rmq_pull p;
    rmq_offset o;
    memcpy(own, bytes, n);
    int32_t size = rmq_frame_size(own, n);
    int whole = size > 0 && (size_t)size <= n && rmq_frame_decode(own, size, f) == 0;
    CHECK(size <= RMQ_FRAME_MAX);
    if (whole) {
        CHECK(f->body >= own && f->body + f->body_size == own + size);
        CHECK(f->fields <= RMQ_EXT_MAX && f->used <= RMQ_HEADER_MAX);
        for (int32_t i = 0; i < f->fields; i++) {
            within(f, f->field[i].name);
            within(f, f->field[i].value);
        }
        if (rmq_send_decode(f, &s) == 0) within(f, s.properties);
        if (rmq_pull_decode(f, &p) == 0) within(f, p.subscription);
        if (rmq_offset_decode(f, &o) == 0) within(f, o.group);
    }
    free(own);
    return whole;
}

static void answers(void) {
    unsigned char frame[RMQ_ANSWER_ROOM];
    static rmq_frame f;
    for (int32_t kind = RMQ_JSON; kind <= RMQ_BINARY; kind++) {
        rmq_answer a;
        rmq_answer_begin(&a, frame, kind, 19, -7, 409, "PULL_NOT_FOUND");
        rmq_answer_integer(&a, "smallest", INT64_MIN);
        rmq_answer_text(&a, "text", "value", 5);
        int32_t size = rmq_answer_end(&a, 0);
        CHECK(rmq_frame_size(frame, (size_t)size) == size && rmq_frame_decode(frame, size, &f) == 0);
        CHECK(f.code == 19 && f.opaque == -7 && f.flag == RMQ_RESPONSE && f.version == 409 && f.fields == 2);
        CHECK(rmq_text_is(*value_of(&f, "smallest"), "-9223372036854775808", 20));
        CHECK(rmq_text_is(*value_of(&f, "text"), "value", 5));
        rmq_answer_begin(&a, frame, kind, 0, 1, 409, NULL);
        size = rmq_answer_end(&a, 5);
        CHECK(rmq_get32(frame) == size + 1 && rmq_frame_size(frame, 8) == size + 5);
    }
}

int main(void) {
    unsigned char frames[2 * HEADERS][MOST], work[MOST];
    int32_t sizes[2 * HEADERS];
    static rmq_frame f;
    limit_seconds(1800);
    for (int i = 0; i < HEADERS; i++) {
        sizes[2 * i] = json_frame(frames[2 * i], headers[i], 100);
        CHECK(judged(frames[2 * i], (size_t)sizes[2 * i], &f));
        CHECK(rmq_frame_decode(frames[2 * i], sizes[2 * i], &f) == 0 && f.body_size == 100);
        said(&f, i);
        sizes[2 * i + 1] = binary_frame(frames[2 * i + 1], &f);
        CHECK(rmq_frame_decode(frames[2 * i + 1], sizes[2 * i + 1], &f) == 0);
        said(&f, i);
    }
    const char *const bad[] = {
        "", "{", "[]", "{}", "{\"code\":\"1\"}", "{\"code\":1.5}", "{\"code\":99999999999}", "{\"code\":1}x",
        "{\"code\":1,}", "{\"code\":1,\"extFields\":[]}", "{\"code\":1,\"extFields\":{\"a\":{}}}",
        "{\"code\":1,\"a\":\"\xff\"}", "{\"code\":1,\"a\":\"\x01\"}", "{\"code\":1,\"a\":\"\\u12\"}", "{\"code\":1,\"a\":01}",
        "{\"code\":1,\"a\":[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) refused(bad[i]);
    answers();
    const char *asked = getenv("RMQ_FRAMES");
    long whole = 0, count = asked ? atol(asked) : 100000;
    for (long i = 0; i < count; i++) {
        uint32_t which = random32() % (2 * HEADERS);
        memcpy(work, frames[which], (size_t)sizes[which]);
        whole += judged(work, mutated(work, (size_t)sizes[which]), &f);
    }
    CHECK(whole > count / 100 && whole < count);
    return 0;
}
