/* rmq_sha1.h: the examples of FIPS 180 and RFC 2202, with the processor's instructions and without; and texts in pieces. */
#include <string.h>
#include "check.h"
#include "rmq_sha1.h"

static int fast;

static void is_hex(const unsigned char digest[RMQ_SHA1_SIZE], const char *wanted) {
    char found[2 * RMQ_SHA1_SIZE + 1];
    for (int i = 0; i < RMQ_SHA1_SIZE; i++) snprintf(found + 2 * i, 3, "%02x", digest[i]);
    CHECK(strcmp(found, wanted) == 0);
}

static void sha1_is(const char *text, size_t times, const char *wanted) {
    unsigned char digest[RMQ_SHA1_SIZE];
    rmq_sha1 s;
    rmq_sha1_begin(&s, fast);
    for (size_t i = 0; i < times; i++) rmq_sha1_add(&s, text, strlen(text));
    rmq_sha1_end(&s, digest);
    is_hex(digest, wanted);
}

static void hmac_is(const void *secret, size_t secret_size, const void *text, size_t size, const char *wanted) {
    unsigned char digest[RMQ_SHA1_SIZE];
    rmq_hmac_key key;
    rmq_sha1 s;
    rmq_hmac_key_make(&key, secret, secret_size, fast);
    rmq_hmac_begin(&s, &key);
    rmq_sha1_add(&s, text, size);
    rmq_hmac_end(&s, &key, digest);
    is_hex(digest, wanted);
}

static void examples(void) {
    unsigned char secret[80], text[50];
    sha1_is("abc", 1, "a9993e364706816aba3e25717850c26c9cd0d89d");
    sha1_is("", 1, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    sha1_is("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1, "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    sha1_is("a", 1000000, "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    sha1_is("0123456701234567012345670123456701234567012345670123456701234567", 10,
            "dea356a2cddd90c7a7ecedc5ebb563934f460452");
    memset(secret, 0x0B, sizeof secret);
    hmac_is(secret, 20, "Hi There", 8, "b617318655057264e28bc0b6fb378c8ef146be00");
    hmac_is("Jefe", 4, "what do ya want for nothing?", 28, "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
    memset(secret, 0xAA, sizeof secret);
    memset(text, 0xDD, sizeof text);
    hmac_is(secret, 20, text, 50, "125d7342b9ac11cd91a39af48aa17b4f63f175d3");
    hmac_is(secret, 80, "Test Using Larger Than Block-Size Key - Hash Key First", 54,
            "aa4ae5e15272d00e95705637ce8a3b55ed402112");
    hmac_is(secret, 80, "Test Using Larger Than Block-Size Key and Larger Than One Block-Size Data", 73,
            "e8e99d0f45237d786d6bbaa7965c7808bbff1a91");
    for (int i = 0; i < 25; i++) secret[i] = (unsigned char)(i + 1);
    memset(text, 0xCD, sizeof text);
    hmac_is(secret, 25, text, 50, "4c9007f4026250c6bc8414f9bf50c86c2d7235da");
    memset(secret, 0x0C, sizeof secret);
    hmac_is(secret, 20, "Test With Truncation", 20, "4c1a03424b55e07fe7f27be1d58bb9324a9a5a04");
}

/* However a text is cut, the digest is the same; at every size around the ends of blocks. */
static void pieces(void) {
    static unsigned char text[300];
    unsigned char whole[RMQ_SHA1_SIZE], cut[RMQ_SHA1_SIZE], other[RMQ_SHA1_SIZE];
    rmq_sha1 s;
    for (size_t i = 0; i < sizeof text; i++) text[i] = (unsigned char)(i * 131 + 7);
    for (size_t n = 0; n <= sizeof text; n++) {
        rmq_sha1_begin(&s, fast);
        rmq_sha1_add(&s, text, n);
        rmq_sha1_end(&s, whole);
        rmq_sha1_begin(&s, 0);
        rmq_sha1_add(&s, text, n);
        rmq_sha1_end(&s, other);
        CHECK(rmq_bytes_same(whole, other, sizeof whole));
        for (size_t at = 0; at <= n; at += 13) {
            rmq_sha1_begin(&s, fast);
            rmq_sha1_add(&s, text, at);
            rmq_sha1_add(&s, text + at, (n - at) / 2);
            rmq_sha1_add(&s, text + at + (n - at) / 2, n - at - (n - at) / 2);
            rmq_sha1_end(&s, cut);
            CHECK(rmq_bytes_same(whole, cut, sizeof whole));
        }
        cut[n % RMQ_SHA1_SIZE] ^= 1;
        CHECK(!rmq_bytes_same(whole, cut, sizeof whole));
    }
}

static void base64(void) {
    unsigned char digest[RMQ_SHA1_SIZE];
    char text[RMQ_SHA1_BASE64];
    memset(digest, 0xFF, sizeof digest);
    rmq_sha1_base64(digest, text);
    CHECK(memcmp(text, "//////////////////////////8=", sizeof text) == 0);
    memcpy(digest, "Hello, Base64 world!", sizeof digest);
    rmq_sha1_base64(digest, text);
    CHECK(memcmp(text, "SGVsbG8sIEJhc2U2NCB3b3JsZCE=", sizeof text) == 0);
}

int main(void) {
    limit_seconds(60);
    for (fast = 0; fast <= rmq_sha1_fast(); fast++) {
        examples();
        pieces();
    }
    base64();
    return 0;
}
