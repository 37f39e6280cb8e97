/* What the headers of sends, pulls and offsets say, and the headers of their answers. Contract in rmq_frame.h. */
#include <string.h>
#include "rmq_bytes.h"
#include "rmq_frame.h"

/* What a field becomes, and where: `at` is its offset in the struct. */
enum kind { TEXT, INT32, INT64, TRUTH };
typedef struct wanted {
    const char *name;
    uint8_t size, kind, needed;
    uint16_t at;
} wanted;

#define LONG(name, field, kind, needed) {name, sizeof(name) - 1, kind, needed, offsetof(STRUCT, field)}
#define STRUCT rmq_send
static const wanted letters[26] = {
    ['a' - 'a'] = LONG("a", group, TEXT, 1),           ['b' - 'a'] = LONG("b", topic, TEXT, 1),
    ['c' - 'a'] = LONG("c", default_topic, TEXT, 1),   ['d' - 'a'] = LONG("d", default_queues, INT32, 1),
    ['e' - 'a'] = LONG("e", queue_id, INT32, 1),       ['f' - 'a'] = LONG("f", sys_flag, INT32, 1),
    ['g' - 'a'] = LONG("g", born_timestamp, INT64, 1), ['h' - 'a'] = LONG("h", flag, INT32, 1),
    ['i' - 'a'] = LONG("i", properties, TEXT, 0),      ['j' - 'a'] = LONG("j", reconsume_times, INT32, 0),
    ['m' - 'a'] = LONG("m", batch, TRUTH, 0),
};
static const wanted names[] = {
    LONG("producerGroup", group, TEXT, 1),
    LONG("topic", topic, TEXT, 1),
    LONG("defaultTopic", default_topic, TEXT, 1),
    LONG("defaultTopicQueueNums", default_queues, INT32, 1),
    LONG("queueId", queue_id, INT32, 1),
    LONG("sysFlag", sys_flag, INT32, 1),
    LONG("bornTimestamp", born_timestamp, INT64, 1),
    LONG("flag", flag, INT32, 1),
    LONG("properties", properties, TEXT, 0),
    LONG("reconsumeTimes", reconsume_times, INT32, 0),
    LONG("batch", batch, TRUTH, 0),
};
enum { LETTERS_NEEDED = 0xFF, NAMES_NEEDED = 0xFF };
#undef STRUCT
#define STRUCT rmq_pull
static const wanted pulled[] = {
    LONG("consumerGroup", group, TEXT, 1),
    LONG("topic", topic, TEXT, 1),
    LONG("queueId", queue_id, INT32, 1),
    LONG("queueOffset", offset, INT64, 1),
    LONG("maxMsgNums", count_max, INT32, 1),
    LONG("sysFlag", sys_flag, INT32, 1),
    LONG("commitOffset", commit_offset, INT64, 1),
    LONG("suspendTimeoutMillis", suspend_ms, INT64, 1),
    LONG("subVersion", sub_version, INT64, 1),
    LONG("subscription", subscription, TEXT, 0),
    LONG("expressionType", expression_type, TEXT, 0),
    LONG("maxMsgBytes", bytes_max, INT32, 0),
};
enum { PULLED_NEEDED = 0x1FF };
#undef STRUCT
#define STRUCT rmq_offset
static const wanted committed[] = {
    LONG("consumerGroup", group, TEXT, 1),
    LONG("topic", topic, TEXT, 1),
    LONG("queueId", queue_id, INT32, 1),
    LONG("commitOffset", offset, INT64, 0),
};
enum { ASKED_NEEDED = 7, COMMITTED_NEEDED = 0xF };

static int take(const wanted *w, rmq_text value, void *out) {
    unsigned char *at = (unsigned char *)out + w->at;
    int64_t n;
    if (w->kind == TEXT) {
        memcpy(at, &value, sizeof value);
        return 0;
    }
    if (w->kind == TRUTH) {         /* the C++ client says "0" and "1" */
        int truth = rmq_text_is(value, "true", 4) || rmq_text_is(value, "1", 1);
        memcpy(at, &truth, sizeof truth);
        return 0;
    }
    if (rmq_text_integer(value, &n) < 0) return -1;
    if (w->kind == INT64) {
        memcpy(at, &n, 8);
        return 0;
    }
    int32_t small = (int32_t)n;
    if (small != n) return -1;
    memcpy(at, &small, 4);
    return 0;
}

static int take_long(const rmq_frame *f, const wanted *all, unsigned count, unsigned needed, void *out) {
    unsigned seen = 0;
    for (int32_t i = 0; i < f->fields; i++) {
        const rmq_field *field = &f->field[i];
        for (unsigned k = 0; k < count; k++) {
            if (all[k].size != field->name.size || memcmp(all[k].name, field->name.at, all[k].size) != 0) continue;
            if (take(&all[k], field->value, out) < 0) return -1;
            seen |= 1u << k;
            break;
        }
    }
    return (seen & needed) == needed ? 0 : -1;
}

int rmq_send_decode(const rmq_frame *f, rmq_send *out) {
    unsigned seen = 0;
    memset(out, 0, sizeof *out);
    if (f->code == 10) return take_long(f, names, sizeof names / sizeof *names, NAMES_NEEDED, out);
    for (int32_t i = 0; i < f->fields; i++) {
        const rmq_field *field = &f->field[i];
        unsigned letter = field->name.size == 1 ? (unsigned)(unsigned char)field->name.at[0] - 'a' : 26;
        if (letter >= 26 || letters[letter].name == NULL) continue;
        if (take(&letters[letter], field->value, out) < 0) return -1;
        seen |= 1u << letter;
    }
    return (seen & LETTERS_NEEDED) == LETTERS_NEEDED ? 0 : -1;
}

int rmq_pull_decode(const rmq_frame *f, rmq_pull *out) {
    memset(out, 0, sizeof *out);
    out->bytes_max = -1;
    return take_long(f, pulled, sizeof pulled / sizeof *pulled, PULLED_NEEDED, out);
}

int rmq_offset_decode(const rmq_frame *f, rmq_offset *out) {
    memset(out, 0, sizeof *out);
    out->offset = -1;
    return take_long(f, committed, sizeof committed / sizeof *committed, f->code == 15 ? COMMITTED_NEEDED : ASKED_NEEDED, out);
}

/* ---- answers */

static unsigned char *put(unsigned char *at, const char *text, size_t n) {
    memcpy(at, text, n);
    return at + n;
}
#define PUT(at, text) put(at, text, sizeof(text) - 1)

static int decimal(char *out, int64_t value) {
    char digits[20];
    uint64_t n = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    int count = 0, size = 0;
    do digits[count++] = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    if (value < 0) out[size++] = '-';
    while (count > 0) out[size++] = digits[--count];
    return size;
}

static unsigned char *put_decimal(unsigned char *at, int64_t value) { return at + decimal((char *)at, value); }

void rmq_answer_begin(rmq_answer *a, unsigned char *at, int32_t serialize, int32_t code, int32_t opaque, int32_t version,
                      const char *remark) {
    size_t n = remark ? strlen(remark) : 0;
    a->start = at;
    a->serialize = serialize;
    a->fields = 0;
    at += 8;
    if (serialize == RMQ_BINARY) {
        rmq_put16(at, (int16_t)code);
        at[2] = 0;      /* JAVA */
        rmq_put16(at + 3, (int16_t)version);
        rmq_put32(at + 5, opaque);
        rmq_put32(at + 9, RMQ_RESPONSE);
        rmq_put32(at + 13, (int32_t)n);
        a->ext = put(at + 17, remark ? remark : "", n);
        a->at = a->ext + 4;
        return;
    }
    at = put_decimal(PUT(at, "{\"code\":"), code);
    at = put_decimal(PUT(at, ",\"flag\":1,\"language\":\"JAVA\",\"opaque\":"), opaque);
    at = put_decimal(PUT(at, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":"), version);
    if (remark) at = PUT(put(PUT(at, ",\"remark\":\""), remark, n), "\"");
    a->at = at;
}

void rmq_answer_text(rmq_answer *a, const char *name, const char *value, int32_t size) {
    size_t n = strlen(name);
    if (a->serialize == RMQ_BINARY) {
        rmq_put16(a->at, (int16_t)n);
        unsigned char *at = put(a->at + 2, name, n);
        rmq_put32(at, size);
        a->at = put(at + 4, value, (size_t)size);
        return;
    }
    a->at = a->fields++ ? PUT(a->at, ",\"") : PUT(a->at, ",\"extFields\":{\"");
    a->at = PUT(put(a->at, name, n), "\":\"");
    a->at = PUT(put(a->at, value, (size_t)size), "\"");
}

void rmq_answer_integer(rmq_answer *a, const char *name, int64_t value) {
    char digits[24];
    rmq_answer_text(a, name, digits, decimal(digits, value));
}

int32_t rmq_answer_end(rmq_answer *a, int32_t body_size) {
    if (a->serialize == RMQ_BINARY) {
        rmq_put32(a->ext, (int32_t)(a->at - a->ext - 4));
    } else {
        a->at = a->fields ? PUT(a->at, "}}") : PUT(a->at, "}");
    }
    int32_t size = (int32_t)(a->at - a->start);
    rmq_put32(a->start, size - 4 + body_size);
    rmq_put32(a->start + 4, a->serialize << 24 | (size - 8));
    return size;
}
