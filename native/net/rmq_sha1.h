/* SHA-1 (FIPS 180-4) and HMAC-SHA1 (RFC 2104), by which RocketMQ's clients sign requests. Pure functions; any thread.
 *
 * SHA-1 is broken where an enemy chooses both of two texts. HMAC does not depend on that, and the protocol has no other. */
#ifndef RMQ_SHA1_H
#define RMQ_SHA1_H
#include <stddef.h>
#include <stdint.h>

enum { RMQ_SHA1_SIZE = 20, RMQ_SHA1_BLOCK = 64, RMQ_SHA1_BASE64 = 28 };

typedef struct rmq_sha1 {
    uint32_t state[5];
    int fast;                   /* the processor's own instructions */
    uint64_t size;              /* bytes so far */
    unsigned char block[RMQ_SHA1_BLOCK];
} rmq_sha1;

/* Whether this processor has instructions for SHA-1. Asks the processor, which under a hypervisor takes microseconds. */
int rmq_sha1_fast(void);
void rmq_sha1_begin(rmq_sha1 *s, int fast);
void rmq_sha1_add(rmq_sha1 *s, const void *data, size_t n);
void rmq_sha1_end(rmq_sha1 *s, unsigned char out[RMQ_SHA1_SIZE]);

/* A secret, as the states behind its two padded blocks. */
typedef struct rmq_hmac_key {
    uint32_t inner[5], outer[5];
    int fast;
} rmq_hmac_key;
void rmq_hmac_key_make(rmq_hmac_key *key, const void *secret, size_t n, int fast);
void rmq_hmac_begin(rmq_sha1 *s, const rmq_hmac_key *key);     /* then rmq_sha1_add */
void rmq_hmac_end(rmq_sha1 *s, const rmq_hmac_key *key, unsigned char out[RMQ_SHA1_SIZE]);

/* The digest in Base64, not terminated. */
void rmq_sha1_base64(const unsigned char digest[RMQ_SHA1_SIZE], char out[RMQ_SHA1_BASE64]);
/* Whether n bytes are equal, in a time that does not depend on where they differ. */
int rmq_bytes_same(const void *a, const void *b, size_t n);
#endif
