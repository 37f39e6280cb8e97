/* A put hook in C that another package offers: what stands here is what it fills in. See docs/hooks.md.
 *
 * The store calls it before each put, in the thread that puts, with the GIL held: it must be short, and must not sleep. */
#ifndef RMQ_PUT_HOOK_H
#define RMQ_PUT_HOOK_H

#include <stdint.h>

#define RMQ_PUT_HOOK_VERSION 1
/* Name of the PyCapsule that holds the address of an rmq_put_hook. */
#define RMQ_PUT_HOOK_CAPSULE "rmq_store.put_hook"
#define RMQ_PUT_HOOK_REASON_MAX 256

typedef struct rmq_put_message {
    const char *topic;              /* UTF-8; no text here ends with a NUL */
    const unsigned char *body;      /* of a batch: all of it, encoded */
    const char *properties;         /* as stored: name 0x01 value 0x02 name 0x01 value ... */
    int64_t body_size;
    int32_t topic_size;
    int32_t properties_size;
    int32_t queue_id;
    int32_t flag;
    int32_t sys_flag;
    int32_t batch;                  /* 1: the message is a batch of put_batch */
    /* What the hook may set. Properties to store in place of those above; the store copies them as soon as the hook returns. */
    const char *changed;            /* NULL: nothing is changed */
    int32_t changed_size;
    int32_t reserved;
    char reason[RMQ_PUT_HOOK_REASON_MAX];       /* why the message is refused, for people: UTF-8, ended by a NUL */
} rmq_put_message;

typedef struct rmq_put_hook {
    uint32_t version;       /* RMQ_PUT_HOOK_VERSION */
    uint32_t reserved;      /* 0 */
    void *state;            /* comes back in every call */
    /* 0: the message may be put. Otherwise the number of a PutStatus of a message that is not stored (4 or higher). */
    int (*before_put)(void *state, rmq_put_message *message);
} rmq_put_hook;

#endif
