/* Frames of RocketMQ remoting: where one ends, what its header says, and answers (RocketMQ: RemotingCommand).
 *
 * Pure functions on bytes of a peer that may be an enemy: every length is compared with the bytes that are there before it is
 * used, nothing is allocated, nothing is read behind the end. Texts point into the frame, or into the scratch of rmq_frame. */
#ifndef RMQ_FRAME_H
#define RMQ_FRAME_H
#include <stddef.h>
#include <stdint.h>

enum {
    RMQ_FRAME_MAX = 1 << 24,    /* bytes of a frame with its length field */
    RMQ_HEADER_MAX = 1 << 18,   /* bytes of a header: 32,767 of properties, each of which may be an escape of 6 */
    RMQ_EXT_MAX = 128,          /* entries of ext */
    RMQ_JSON = 0,
    RMQ_BINARY = 1,
    RMQ_RESPONSE = 1,           /* bits of flag */
    RMQ_ONEWAY = 2,
};

/* Bytes, not terminated; `at` NULL: absent. */
typedef struct rmq_text {
    const char *at;
    int32_t size;
} rmq_text;

typedef struct rmq_field {
    rmq_text name, value;
} rmq_field;

typedef struct rmq_frame {
    const unsigned char *start, *body;
    int32_t size, body_size;
    int32_t serialize, code, flag, opaque, version;
    int32_t fields;
    rmq_field field[RMQ_EXT_MAX];       /* of one name the last counts */
    int32_t used;                       /* of scratch: texts whose escapes are resolved */
    char scratch[RMQ_HEADER_MAX];
} rmq_frame;

/* The size of the frame that begins with these `n` bytes; 0: not known yet; -1: no frame begins so. */
int32_t rmq_frame_size(const unsigned char *at, size_t n);
/* Decodes a whole frame of `size` bytes, for which rmq_frame_size answered `size`. 0; -1: its header is none. */
int rmq_frame_decode(const unsigned char *at, int32_t size, rmq_frame *f);
/* An integer in decimal, all of the text. 0; -1: it is none or does not fit. */
int rmq_text_integer(rmq_text t, int64_t *out);
static inline int rmq_text_is(rmq_text t, const char *name, size_t size) {
    return t.at != NULL && (size_t)t.size == size && __builtin_memcmp(t.at, name, size) == 0;
}

/* The header of a send: 310 and 320 (one letter a field), 10 (long names). */
typedef struct rmq_send {
    rmq_text group, topic, default_topic, properties;
    int64_t born_timestamp;
    int32_t default_queues, queue_id, sys_flag, flag, reconsume_times;
    int batch;
} rmq_send;
/* 0; -1: a required field is missing, or a number is none. */
int rmq_send_decode(const rmq_frame *f, rmq_send *out);

/* The header of a pull: 11 and 361. */
typedef struct rmq_pull {
    rmq_text group, topic, subscription, expression_type;
    int64_t offset, commit_offset, suspend_ms, sub_version;
    int32_t queue_id, count_max, bytes_max, sys_flag;   /* bytes_max: -1 where the peer gives none */
} rmq_pull;
int rmq_pull_decode(const rmq_frame *f, rmq_pull *out);

/* The header of a question for a group's offset in a queue, 14, and of a commit of one, 15. */
typedef struct rmq_offset {
    rmq_text group, topic;
    int64_t offset;             /* -1: none */
    int32_t queue_id;
} rmq_offset;
int rmq_offset_decode(const rmq_frame *f, rmq_offset *out);

/* ---- answers. The caller gives room of RMQ_ANSWER_ROOM bytes, and of twice the texts' sizes. */
enum { RMQ_ANSWER_ROOM = 512 };
typedef struct rmq_answer {
    unsigned char *start, *at, *ext;    /* ext: where the binary form's count of bytes stands */
    int32_t serialize;
    int fields;
} rmq_answer;
/* An answer: begin, then fields, then end, which returns its size with the length field; a body of body_size bytes follows. */
void rmq_answer_begin(rmq_answer *a, unsigned char *at, int32_t serialize, int32_t code, int32_t opaque, int32_t version,
                      const char *remark);
void rmq_answer_text(rmq_answer *a, const char *name, const char *value, int32_t size);    /* ASCII without quotes */
void rmq_answer_integer(rmq_answer *a, const char *name, int64_t value);
int32_t rmq_answer_end(rmq_answer *a, int32_t body_size);
#endif
